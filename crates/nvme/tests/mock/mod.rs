//! A controller in memory, for tests: it follows the specification, and breaks it on request.
//!
//! It works whenever the driver polls ([`Bus::relax`]), in the driver's thread, so every run of a test is the same.
//! Addresses that it has for memory are not those of the program. An access outside mapped memory panics, and so does a
//! completion for which the driver has left no room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapRaw;

use iosonde_nvme::bus::Bus;
use iosonde_nvme::command::{COMMAND_BYTES, Command, DataPointer, admin, io as opcodes};
use iosonde_nvme::completion::{COMPLETION_BYTES, Completion, Status};
use iosonde_nvme::memory::{Memory, PAGE_BYTES, Registers};
use iosonde_nvme::pointers::pages_of;
use iosonde_nvme::registers::{
    ADMIN_COMPLETION_QUEUE, ADMIN_QUEUE_ATTRIBUTES, ADMIN_SUBMISSION_QUEUE, CAPABILITIES, CONFIGURATION, Capabilities,
    DOORBELLS, STATUS,
};

const REGISTER_BYTES: usize = 0x4000;
/// Entries of a queue, less one; ready within 127.5 s, however late a thread looks; NVM command set.
const CAPABILITIES_VALUE: u64 = 1023 | 255 << 24 | 1 << 37;
/// Largest transfer as a power of two of pages (MDTS).
const TRANSFER_EXPONENT: u8 = 5;
const FIRST_ADDRESS: u64 = 0x4000_0000;
/// Value of a doorbell register that was not written since the controller read it.
const NOT_RUNG: u32 = u32::MAX;

/// Properties of the controller.
#[derive(Debug, Clone)]
pub struct MockSettings {
    /// Bytes of a logical block and blocks of each namespace, from number 1.
    pub namespaces: Vec<(u32, u64)>,
    pub has_sgl: bool,
    /// True if Abort ends a command that it has forgotten.
    pub honours_abort: bool,
    pub queue_pairs: u16,
    /// Polls of a shadow doorbell, if there is one, without a new position before it waits for a write to the register.
    pub shadow_polls: Option<u32>,
}

impl Default for MockSettings {
    fn default() -> MockSettings {
        MockSettings {
            namespaces: vec![(512, 4096)],
            has_sgl: true,
            honours_abort: true,
            queue_pairs: 8,
            shadow_polls: None,
        }
    }
}

/// Fault injected into one I/O command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MockFault {
    /// It is carried out and never completed.
    Lose,
    Repeat,
    /// It is completed after this many other completions.
    Delay(u32),
    /// It ends with this status and is not carried out.
    Fail(Status),
    /// Its completion has an identifier that no command has.
    OtherIdentifier,
    /// Its completion has the old phase tag.
    OtherPhase,
    Fatal,
    Remove,
}

pub struct Mock {
    registers: Registers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    settings: MockSettings,
    mapped: Vec<(u64, Memory)>,
    next_address: u64,
    is_enabled: bool,
    is_dead: bool,
    queues: BTreeMap<u16, Rings>,
    completion_queues: BTreeMap<u16, (u64, u16)>,
    shadows: Option<(u64, u64)>,
    contents: Vec<Vec<u8>>,
    faults: BTreeMap<u64, MockFault>,
    io_commands: u64,
    forgotten: BTreeSet<(u16, u16)>,
    delayed: VecDeque<(u32, u16, Completion)>,
    flushes: u64,
    forced_writes: u64,
}

/// The controller's side of a queue pair.
#[derive(Debug, Clone, Copy, Default)]
struct Rings {
    submissions: u64,
    entries: u16,
    head: u16,
    /// Tail of the submission ring as far as the driver has reported it.
    end: u16,
    /// Remaining polls of the shadow doorbell.
    polls: u32,
    completions: u64,
    completion_entries: u16,
    /// Head of the completion ring as far as the driver has reported it.
    freed: u16,
    tail: u16,
    phase: bool,
}

impl Mock {
    /// A disabled controller whose namespaces have zeros.
    pub fn new(settings: MockSettings) -> Mock {
        let mapping = memmap2::MmapMut::map_anon(REGISTER_BYTES).expect("memory for registers");
        let registers = Registers::from_mapping(MmapRaw::from(mapping));
        registers.write64(CAPABILITIES, CAPABILITIES_VALUE);
        clear_doorbells(&registers);
        let media = |(bytes, blocks): &(u32, u64)| vec![0; (u64::from(*bytes) * blocks) as usize];
        let contents = settings.namespaces.iter().map(media).collect();
        Mock {
            registers,
            state: Mutex::new(State {
                settings,
                next_address: FIRST_ADDRESS,
                contents,
                ..State::default()
            }),
        }
    }

    /// Lets the I/O command with this number (from 0, from now on) go wrong.
    pub fn inject(&self, number: u64, fault: MockFault) {
        let mut state = self.state();
        let number = state.io_commands + number;
        state.faults.insert(number, fault);
    }

    /// Bytes of a namespace as the media has them.
    pub fn contents(&self, namespace: u32, offset: usize, bytes: usize) -> Vec<u8> {
        self.state().contents[namespace as usize - 1][offset..][..bytes].to_vec()
    }

    /// I/O commands that it took, and among them flushes and writes with force unit access.
    pub fn counts(&self) -> (u64, u64, u64) {
        let state = self.state();
        (state.io_commands, state.flushes, state.forced_writes)
    }

    /// Returns true if it is enabled and so may access memory.
    pub fn is_enabled(&self) -> bool {
        self.state().is_enabled
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        if state.is_dead {
            return;
        }
        state.follow_configuration(&self.registers);
        let numbers: Vec<u16> = state.queues.keys().copied().collect();
        for number in numbers {
            state.fetch(number, &self.registers);
        }
    }
}

impl Bus for Mock {
    fn registers(&self) -> &Registers {
        &self.registers
    }

    fn map(&self, memory: &Memory) -> io::Result<u64> {
        let mut state = self.state();
        let address = state.next_address;
        state.next_address += (memory.bytes() + PAGE_BYTES) as u64;
        state.mapped.push((address, memory.clone()));
        Ok(address)
    }

    fn relax(&self) {
        self.work();
    }
}

impl State {
    fn follow_configuration(&mut self, registers: &Registers) {
        let configuration = registers.read32(CONFIGURATION);
        let is_enabled = configuration & 1 != 0;
        if is_enabled && !self.is_enabled {
            let entries = (registers.read32(ADMIN_QUEUE_ATTRIBUTES) & 0xfff) as u16 + 1;
            let completions = registers.read64(ADMIN_COMPLETION_QUEUE);
            self.completion_queues.insert(0, (completions, entries));
            self.open(0, registers.read64(ADMIN_SUBMISSION_QUEUE), entries, 0);
            registers.write32(STATUS, 1);
        } else if !is_enabled && self.is_enabled {
            self.queues.clear();
            self.completion_queues.clear();
            self.forgotten.clear();
            self.delayed.clear();
            self.shadows = None;
            clear_doorbells(registers);
            registers.write32(STATUS, 0);
        } else if configuration >> 14 & 3 != 0 && is_enabled {
            registers.write32(STATUS, 1 | 2 << 2);
        }
        self.is_enabled = is_enabled;
    }

    fn open(&mut self, number: u16, submissions: u64, entries: u16, completion_queue: u16) -> Status {
        let Some(&(completions, completion_entries)) = self.completion_queues.get(&completion_queue) else {
            return Status::INVALID_QUEUE;
        };
        let rings = Rings {
            submissions,
            entries,
            completions,
            completion_entries,
            phase: true,
            ..Rings::default()
        };
        self.queues.insert(number, rings);
        Status::SUCCESS
    }

    fn fetch(&mut self, number: u16, registers: &Registers) {
        if self.queues.contains_key(&number) {
            self.read_doorbells(number, registers);
        }
        while let Some(&rings) = self.queues.get(&number) {
            if rings.head == rings.end || self.is_dead {
                return;
            }
            let mut bytes = [0; COMMAND_BYTES];
            let address = rings.submissions + u64::from(rings.head) * COMMAND_BYTES as u64;
            self.load(address, &mut bytes);
            let mut dwords = [0; 16];
            for (dword, part) in dwords.iter_mut().zip(bytes.chunks_exact(4)) {
                *dword = u32::from_le_bytes(part.try_into().expect("chunks of 4 bytes"));
            }
            self.rings(number).head = (rings.head + 1) % rings.entries;
            match number {
                0 => self.admin(&Command(dwords)),
                _ => self.io(number, &Command(dwords), registers),
            }
        }
    }

    /// Reads the positions that the driver reports for a queue.
    fn read_doorbells(&mut self, number: u16, registers: &Registers) {
        let end = take_doorbell(registers, number, false);
        let freed = take_doorbell(registers, number, true);
        let polls = self.settings.shadow_polls.unwrap_or(0);
        let rings = self.rings(number);
        if let Some(end) = end {
            (rings.end, rings.polls) = (end, polls);
        }
        rings.freed = freed.unwrap_or(rings.freed);
        if rings.polls == 0 {
            return;
        }
        let end = rings.end;
        let Some(position) = self.shadow(number, false) else {
            return;
        };
        let rings = self.rings(number);
        if position != end {
            (rings.end, rings.polls) = (position, polls);
            return;
        }
        rings.polls -= 1;
        if rings.polls == 0 {
            self.store_event(number, false, end);
        }
    }

    /// Position in a shadow doorbell, if the queue has one.
    fn shadow(&self, number: u16, is_completion: bool) -> Option<u16> {
        let (doorbells, _) = self.shadows.filter(|_| number > 0)?;
        let mut word = [0; 4];
        self.load(doorbells + shadow_offset(number, is_completion), &mut word);
        Some(u32::from_le_bytes(word) as u16)
    }

    fn store_event(&self, number: u16, is_completion: bool, position: u16) {
        if let Some((_, events)) = self.shadows.filter(|_| number > 0) {
            let word = u32::from(position).to_le_bytes();
            self.store(events + shadow_offset(number, is_completion), &word);
        }
    }

    fn rings(&mut self, number: u16) -> &mut Rings {
        self.queues.get_mut(&number).expect("a queue that exists")
    }

    fn admin(&mut self, command: &Command) {
        let Command(dwords) = command;
        let (queue, entries) = (dwords[10] as u16, (dwords[10] >> 16) as u16);
        let DataPointer::Prp(address, events) = command.data() else {
            return self.end(0, command.identifier(), 0, Status::INVALID_FIELD);
        };
        let mut result = 0;
        let status = match command.opcode() {
            admin::IDENTIFY => self.identify(command, address),
            admin::SET_FEATURES => {
                let less_one = u32::from(self.settings.queue_pairs) - 1;
                result = less_one | less_one << 16;
                Status::SUCCESS
            }
            admin::DOORBELL_BUFFER_CONFIG if self.settings.shadow_polls.is_some() => {
                self.shadows = Some((address, events));
                Status::SUCCESS
            }
            admin::CREATE_COMPLETION_QUEUE => {
                self.completion_queues.insert(queue, (address, entries + 1));
                Status::SUCCESS
            }
            admin::CREATE_SUBMISSION_QUEUE => self.open(queue, address, entries + 1, (dwords[11] >> 16) as u16),
            admin::DELETE_SUBMISSION_QUEUE if self.queues.remove(&queue).is_some() => Status::SUCCESS,
            admin::DELETE_COMPLETION_QUEUE if self.completion_queues.remove(&queue).is_some() => Status::SUCCESS,
            admin::ABORT => {
                let is_held = self.settings.honours_abort && self.forgotten.remove(&(queue, entries));
                if is_held {
                    self.end(queue, entries, 0, Status::ABORT_REQUESTED);
                }
                result = u32::from(!is_held);
                Status::SUCCESS
            }
            _ => Status::INVALID_OPCODE,
        };
        self.end(0, command.identifier(), result, status);
    }

    fn identify(&mut self, command: &Command, address: u64) -> Status {
        let mut page = [0; PAGE_BYTES];
        let count = self.settings.namespaces.len() as u32;
        match (command.0[10], command.namespace()) {
            (0, number) if (1..=count).contains(&number) => {
                let (block_bytes, blocks) = self.settings.namespaces[number as usize - 1];
                page[..8].copy_from_slice(&blocks.to_le_bytes());
                page[128..132].copy_from_slice(&(block_bytes.trailing_zeros() << 16).to_le_bytes());
            }
            (0, number) if number <= 64 => {}
            (1, _) => {
                page[4..8].copy_from_slice(b"MOCK");
                page[77] = TRANSFER_EXPONENT;
                page[257] = u8::from(self.settings.shadow_polls.is_some());
                page[516..520].copy_from_slice(&count.to_le_bytes());
                page[520] = 1 << 2;
                page[536] = u8::from(self.settings.has_sgl);
            }
            (2, above) => {
                for (place, number) in (above + 1..=count).enumerate() {
                    page[place * 4..][..4].copy_from_slice(&number.to_le_bytes());
                }
            }
            _ => return Status::INVALID_FIELD,
        }
        self.store(address, &page);
        Status::SUCCESS
    }

    fn io(&mut self, number: u16, command: &Command, registers: &Registers) {
        let fault = self.faults.remove(&self.io_commands);
        self.io_commands += 1;
        let identifier = command.identifier();
        let status = match fault {
            Some(MockFault::Fail(status)) => status,
            _ => self.carry_out(command),
        };
        match fault {
            Some(MockFault::Lose) => {
                self.forgotten.insert((number, identifier));
            }
            Some(MockFault::Repeat) => (0..2).for_each(|_| self.end(number, identifier, 0, status)),
            Some(MockFault::Delay(others)) => {
                let entry = self.entry(number, identifier, 0, status);
                self.delayed.push_back((others, number, entry));
            }
            Some(MockFault::OtherIdentifier) => self.end(number, !identifier, 0, status),
            Some(MockFault::OtherPhase) => {
                let mut entry = self.entry(number, identifier, 0, status);
                entry.phase = !entry.phase;
                self.post(number, entry);
            }
            Some(MockFault::Fatal) => {
                registers.write32(STATUS, 0b11);
                self.queues.retain(|number, _| *number == 0);
            }
            Some(MockFault::Remove) => {
                self.is_dead = true;
                let offsets = (0..REGISTER_BYTES).step_by(4);
                offsets.for_each(|offset| registers.write32(offset, u32::MAX));
            }
            Some(MockFault::Fail(_)) | None => self.end(number, identifier, 0, status),
        }
    }

    fn carry_out(&mut self, command: &Command) -> Status {
        let Some(&(block_bytes, count)) = self.settings.namespaces.get(command.namespace() as usize - 1) else {
            return Status::INVALID_NAMESPACE;
        };
        match command.opcode() {
            opcodes::FLUSH => self.flushes += 1,
            opcodes::READ | opcodes::WRITE => {
                let (first, blocks) = command.blocks();
                if first + u64::from(blocks) > count {
                    return Status::OUT_OF_RANGE;
                }
                let bytes = blocks as usize * block_bytes as usize;
                if bytes > PAGE_BYTES << TRANSFER_EXPONENT {
                    return Status::INVALID_FIELD;
                }
                self.move_data(command, first as usize * block_bytes as usize, bytes);
            }
            opcodes::DATASET_MANAGEMENT => {
                let mut range = [0; 16];
                let DataPointer::Prp(address, _) = command.data() else {
                    return Status::INVALID_FIELD;
                };
                self.load(address, &mut range);
                let blocks = u32::from_le_bytes(range[4..8].try_into().expect("4 bytes")) as usize;
                let first = u64::from_le_bytes(range[8..].try_into().expect("8 bytes")) as usize;
                let size = block_bytes as usize;
                self.contents[command.namespace() as usize - 1][first * size..(first + blocks) * size].fill(0);
            }
            _ => return Status::INVALID_OPCODE,
        }
        Status::SUCCESS
    }

    fn move_data(&mut self, command: &Command, offset: usize, bytes: usize) {
        let parts = match command.data() {
            DataPointer::None => Vec::new(),
            DataPointer::Sgl(address, bytes) => vec![(address, bytes as usize)],
            DataPointer::Prp(first, second) => pages_of(first, second, bytes, |address| {
                let mut quad = [0; 8];
                self.load(address, &mut quad);
                u64::from_le_bytes(quad)
            }),
        };
        let namespace = command.namespace() as usize - 1;
        let is_write = command.opcode() == opcodes::WRITE;
        self.forced_writes += u64::from(is_write && command.0[12] >> 30 & 1 != 0);
        let mut contents = std::mem::take(&mut self.contents[namespace]);
        let mut position = offset;
        for (address, part) in parts {
            let data = &mut contents[position..position + part];
            if is_write {
                self.load(address, data);
            } else {
                self.store(address, data);
            }
            position += part;
        }
        self.contents[namespace] = contents;
    }

    fn entry(&mut self, number: u16, identifier: u16, result: u32, status: Status) -> Completion {
        let rings = self.rings(number);
        Completion {
            result,
            submission_head: rings.head,
            submission_queue: number,
            identifier,
            phase: rings.phase,
            status,
        }
    }

    /// Completes a command, and then what was delayed until now.
    fn end(&mut self, number: u16, identifier: u16, result: u32, status: Status) {
        let entry = self.entry(number, identifier, result, status);
        self.post(number, entry);
        if number > 0 {
            for delayed in &mut self.delayed {
                delayed.0 = delayed.0.saturating_sub(1);
            }
            while let Some(place) = self.delayed.iter().position(|(others, ..)| *others == 0) {
                let (_, number, mut entry) = self.delayed.remove(place).expect("in range");
                let rings = self.rings(number);
                (entry.phase, entry.submission_head) = (rings.phase, rings.head);
                self.post(number, entry);
            }
        }
    }

    fn post(&mut self, number: u16, entry: Completion) {
        let freed = self.rings(number).freed;
        self.store_event(number, true, freed);
        let freed = self.shadow(number, true).unwrap_or(freed);
        let rings = self.rings(number);
        rings.freed = freed;
        let next = (rings.tail + 1) % rings.completion_entries;
        assert_ne!(next, rings.freed, "the driver has left no room for a completion");
        let address = rings.completions + u64::from(rings.tail) * COMPLETION_BYTES as u64;
        rings.tail = next;
        if rings.tail == 0 {
            rings.phase = !rings.phase;
        }
        let bytes: Vec<u8> = entry.to_dwords().iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.store(address, &bytes);
    }

    fn memory(&self, address: u64, bytes: usize) -> (&Memory, usize) {
        let is_inside =
            |start: u64, memory: &Memory| address >= start && address + bytes as u64 <= start + memory.bytes() as u64;
        let found = self.mapped.iter().find(|(start, memory)| is_inside(*start, memory));
        let (start, memory) = found.unwrap_or_else(|| panic!("the device accesses {address:#x}, which is not mapped"));
        (memory, (address - start) as usize)
    }

    fn load(&self, address: u64, bytes: &mut [u8]) {
        std::sync::atomic::fence(Ordering::Acquire);
        let (memory, offset) = self.memory(address, bytes.len());
        memory.load(offset, bytes);
    }

    fn store(&self, address: u64, bytes: &[u8]) {
        let (memory, offset) = self.memory(address, bytes.len());
        memory.store(offset, bytes);
    }
}

fn shadow_offset(number: u16, is_completion: bool) -> u64 {
    (Capabilities(CAPABILITIES_VALUE).doorbell(number, is_completion) - DOORBELLS) as u64
}

/// Value that the driver has written to a doorbell since the last call.
fn take_doorbell(registers: &Registers, number: u16, is_completion: bool) -> Option<u16> {
    let offset = Capabilities(CAPABILITIES_VALUE).doorbell(number, is_completion);
    let value = registers.read32(offset);
    registers.write32(offset, NOT_RUNG);
    (value != NOT_RUNG).then_some(value as u16)
}

fn clear_doorbells(registers: &Registers) {
    for queue in 0..64 {
        take_doorbell(registers, queue, false);
        take_doorbell(registers, queue, true);
    }
}
