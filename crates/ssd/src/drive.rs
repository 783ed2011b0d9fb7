//! One drive: the time that commands take, as a discrete-event model.
//!
//! A command waits for a place in the drive's queue, then for the controller. A read senses every program that it
//! touches on its die, moves the data over the channel and then over the link. A write moves over the link into the
//! buffer, which acknowledges it as soon as there is room; programs take their data over the channel and give the room
//! back when they are done. Copies and erasures are work of the dies like any other, so that collection shows itself as
//! it does on a real drive: by holding up reads, and by keeping the buffer full.
//!
//! Simplifications: copies are planned when the write that causes them is programmed, without waiting for their own
//! reads; the two ends of a transfer are held together, so a channel has no queue but time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iosonde_harness::load::Rng;
use iosonde_protocol::{DeviceUsage, DriveModel, MediaUsage, Translation};

use crate::die::{Die, NEVER, NO_PROGRAM};
use crate::geometry::Geometry;
use crate::translation::{Media, Origin, PageMap, Place, Untimed, WHOLE_PAGE};
use crate::units::Units;
use crate::{Action, PAGE_BYTES};

const SECTOR_BYTES: u64 = 512;
const NOBODY: u32 = u32::MAX;

/// One command, at most as long as the host makes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    /// Token that the drive returns on completion.
    pub token: u32,
    pub operation: Action,
    pub offset_bytes: u64,
    pub bytes: u64,
    /// A write that must survive a power cut before it is acknowledged.
    pub durable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A die has sensed data of a read.
    Sensed { command: u32, channel: u32, bytes: u32 },
    /// Data of a read is in the controller.
    Ready { command: u32, bytes: u32 },
    /// Data of a write is in the controller.
    Received { command: u32 },
    /// A program is done, unless reads held it up.
    Programmed {
        die: u32,
        work_ns: u64,
        pages: u32,
        command: u32,
    },
    /// A command is complete.
    Done { command: u32 },
    /// Nothing has happened since this many commands.
    Idle { commands: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Active {
    command: Command,
    submitted_ns: u64,
    /// Parts that it waits for.
    parts: u32,
}

/// A drive; see the module.
pub(crate) struct Drive {
    model: DriveModel,
    geometry: Geometry,
    map: Option<PageMap>,
    units: Units,
    hardware: Hardware,
    /// Commands by number, and the numbers that are free.
    commands: Vec<Active>,
    vacant: Vec<u32>,
    /// Commands beyond the queue depth.
    waiting: VecDeque<(Command, u64)>,
    /// Writes whose data has arrived and has no room in the buffer.
    unbuffered: VecDeque<u32>,
    buffered_pages: u64,
    done: Vec<u32>,
    active: u32,
    started: u64,
    busy_since_ns: u64,
}

/// Everything that takes time, and the events to come.
struct Hardware {
    now_ns: u64,
    model: DriveModel,
    geometry: Geometry,
    controller_free_ns: u64,
    link_in_free_ns: u64,
    link_out_free_ns: u64,
    channel_free_ns: Vec<u64>,
    dies: Vec<Die>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    rng: Rng,
    slc_room_bytes: u64,
    usage: DeviceUsage,
    media: MediaUsage,
    /// Command to which the programs of a write belong, where there is no buffer.
    writer: u32,
}

impl Drive {
    pub(crate) fn new(model: &DriveModel, seed: u64, number: u64) -> Drive {
        let geometry = Geometry::from_model(model);
        let map = match &model.translation {
            Translation::InPlace => None,
            Translation::PageMapped { collection, .. } => Some(PageMap::new(geometry, *collection)),
        };
        Drive {
            hardware: Hardware::new(model, geometry, Rng::new(seed, &[0x55d, number])),
            model: model.clone(),
            geometry,
            map,
            units: Units::new(
                geometry.unit_pages,
                geometry.pages,
                units_in_spare_room(model, geometry),
            ),
            commands: Vec::new(),
            vacant: Vec::new(),
            waiting: VecDeque::new(),
            unbuffered: VecDeque::new(),
            buffered_pages: 0,
            done: Vec::new(),
            active: 0,
            started: 0,
            busy_since_ns: 0,
        }
    }

    /// Instant of the next event.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<u64> {
        self.hardware.events.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Lets everything happen that is due by an instant.
    pub(crate) fn advance(&mut self, to_ns: u64) {
        while let Some(&Reverse((at_ns, _, event))) = self.hardware.events.peek() {
            if at_ns > to_ns {
                break;
            }
            self.hardware.events.pop();
            self.hardware.now_ns = at_ns;
            self.happen(event);
        }
        self.hardware.now_ns = to_ns;
    }

    /// Tokens of the commands that were completed since the last call.
    pub(crate) fn take_done(&mut self, into: &mut Vec<u32>) {
        into.append(&mut self.done);
    }

    /// Commands that it works on or that wait for it.
    pub(crate) fn pending(&self) -> usize {
        self.active as usize + self.waiting.len()
    }

    pub(crate) fn submit(&mut self, command: Command) {
        if self.active == 0 {
            self.busy_since_ns = self.hardware.now_ns;
        }
        if self.active < self.model.interface.queue_depth {
            self.start(command, self.hardware.now_ns);
        } else {
            self.waiting.push_back((command, self.hardware.now_ns));
        }
    }

    /// Writes the first pages, in no time: those that hold nothing yet, or all. Pages written.
    pub(crate) fn fill(&mut self, count: u32, again: bool) -> u32 {
        let Some(map) = &mut self.map else { return 0 };
        let (mut page, mut written) = (0, 0);
        while page < count {
            let empty = (page..count)
                .take_while(|&page| again || map.locate(page) == Place::Nowhere)
                .count() as u32;
            map.write_run(page, empty, &mut Untimed);
            written += empty;
            page += empty.max(1);
        }
        self.buffered_pages = map.gathered.len() as u64;
        written
    }

    /// Completes all work in progress and resets the clock. No idle time passes.
    pub(crate) fn settle(&mut self) {
        while let Some(Reverse((at_ns, _, event))) = self.hardware.events.pop() {
            self.hardware.now_ns = at_ns;
            if !matches!(event, Event::Idle { .. }) {
                self.happen(event);
            }
        }
        self.hardware.restart();
        let mut closed = Vec::new();
        self.units.close(&mut closed);
        if let Some(map) = &mut self.map {
            map.carry(closed.iter().flat_map(|&unit| self.units.missing(unit)), &mut Untimed);
            self.buffered_pages = map.gathered.len() as u64;
        }
    }

    /// Counters of host and media so far.
    pub(crate) fn usage(&self) -> DeviceUsage {
        let mut usage = self.hardware.usage.clone();
        usage.in_flight = self.active.into();
        if self.active > 0 {
            usage.busy_ns += self.hardware.now_ns - self.busy_since_ns;
        }
        usage.media = Some(self.hardware.media);
        usage
    }

    pub(crate) fn map(&self) -> Option<&PageMap> {
        self.map.as_ref()
    }

    pub(crate) fn slc_room_bytes(&self) -> u64 {
        self.hardware.slc_room_bytes
    }

    /// Takes over the state that a drive of the same model was left in. It begins idle.
    pub(crate) fn restore(&mut self, map: Option<PageMap>, slc_room_bytes: u64) {
        self.buffered_pages = map.as_ref().map_or(0, |map| map.gathered.len() as u64);
        self.map = map;
        self.hardware.slc_room_bytes = slc_room_bytes;
        self.await_idleness();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Sensed {
                command,
                channel,
                bytes,
            } => self.hardware.transfer(command, channel, bytes),
            Event::Ready { command, bytes } => self.send(command, bytes),
            Event::Received { command } => {
                self.unbuffered.push_back(command);
                self.admit();
            }
            Event::Programmed {
                die,
                work_ns,
                pages,
                command,
            } => self.programmed(die, work_ns, pages, command),
            Event::Done { command } => self.complete(command),
            Event::Idle { commands } => self.use_idleness(commands),
        }
    }

    fn start(&mut self, command: Command, submitted_ns: u64) {
        self.active += 1;
        self.started += 1;
        let number = self.number(Active {
            command,
            submitted_ns,
            parts: 0,
        });
        let at_ns = self.hardware.control(command.operation);
        match command.operation {
            Action::Read => self.read(number, at_ns),
            Action::Write => self.hardware.receive(number, command.bytes, at_ns),
            Action::Trim => {
                self.trim(&command);
                self.hardware.finish_write(number, at_ns);
            }
            Action::Flush => {
                let settled_ns = if self.model.buffer.power_loss_protection {
                    at_ns
                } else {
                    self.flush_buffer(at_ns)
                };
                self.hardware.finish_write(number, settled_ns);
            }
        }
    }

    fn number(&mut self, active: Active) -> u32 {
        if let Some(number) = self.vacant.pop() {
            self.commands[number as usize] = active;
            return number;
        }
        self.commands.push(active);
        self.commands.len() as u32 - 1
    }

    /// Senses every program that a read touches; what is in the buffer or nowhere goes straight to the link.
    fn read(&mut self, number: u32, at_ns: u64) {
        let Command {
            offset_bytes, bytes, ..
        } = self.commands[number as usize].command;
        let (first, last) = (offset_bytes / PAGE_BYTES, (offset_bytes + bytes - 1) / PAGE_BYTES);
        let mut at_hand_bytes = 0;
        let mut sensing: Option<(u32, u32)> = None;
        for page in first..=last {
            let part = part_bytes(page, offset_bytes, bytes);
            match (self.program_with(page as u32), sensing) {
                (None, _) => at_hand_bytes += part,
                (Some(program), Some((open, so_far))) if program == open => sensing = Some((open, so_far + part)),
                (Some(program), open) => {
                    self.sense(number, open, at_ns);
                    sensing = Some((program, part));
                }
            }
        }
        self.sense(number, sensing, at_ns);
        if at_hand_bytes > 0 {
            self.commands[number as usize].parts += 1;
            let event = Event::Ready {
                command: number,
                bytes: at_hand_bytes,
            };
            self.hardware.at(at_ns, event);
        }
    }

    /// The program that must be sensed for a page; none if it is in the buffer or nowhere.
    fn program_with(&mut self, page: u32) -> Option<u32> {
        let physical = match &self.map {
            None => page,
            Some(map) => match map.locate(page) {
                Place::Nowhere => return None,
                Place::Buffered => {
                    self.hardware.media.buffer_read_hits += 1;
                    return None;
                }
                Place::Physical(physical) => physical,
            },
        };
        let program = self.geometry.program_of(physical);
        let buffered = self.hardware.dies[self.geometry.die_of(program) as usize].holds(program);
        if buffered && self.map.is_some() {
            self.hardware.media.buffer_read_hits += 1;
            return None;
        }
        Some(program)
    }

    fn sense(&mut self, number: u32, program: Option<(u32, u32)>, at_ns: u64) {
        if let Some((program, bytes)) = program {
            self.commands[number as usize].parts += 1;
            self.hardware.sense(number, self.geometry.die_of(program), bytes, at_ns);
        }
    }

    /// Sends a part of a read to the host.
    fn send(&mut self, number: u32, bytes: u32) {
        let active = &mut self.commands[number as usize];
        active.parts -= 1;
        let is_last = active.parts == 0;
        let sent_ns = self.hardware.send(bytes, is_last);
        if is_last {
            self.hardware.at(
                sent_ns + self.model.interface.read_latency_ns,
                Event::Done { command: number },
            );
        }
    }

    /// Takes writes into the buffer, in their order, as long as there is room.
    fn admit(&mut self) {
        while let Some(&number) = self.unbuffered.front() {
            let command = self.commands[number as usize].command;
            let pages = page_count(command.offset_bytes, command.bytes);
            let capacity = self.model.buffer.bytes / PAGE_BYTES;
            // One that is larger than the buffer passes when that is empty.
            if self.map.is_some() && self.buffered_pages > 0 && self.buffered_pages + pages > capacity {
                return;
            }
            self.unbuffered.pop_front();
            self.write(number, &command, pages);
        }
    }

    fn write(&mut self, number: u32, command: &Command, pages: u64) {
        let now_ns = self.hardware.now_ns;
        let first = (command.offset_bytes / PAGE_BYTES) as u32;
        let Some(map) = &mut self.map else {
            return self.write_in_place(number, command);
        };
        let aligned = command.offset_bytes.is_multiple_of(PAGE_BYTES) && command.bytes.is_multiple_of(PAGE_BYTES);
        let mut hits = 0;
        if aligned {
            hits = map.write_run(first, pages as u32, &mut self.hardware);
        } else {
            for page in u64::from(first)..u64::from(first) + pages {
                let sectors = sectors_of(page, command.offset_bytes, command.bytes);
                hits += u32::from(map.write(page as u32, sectors, &mut self.hardware));
            }
        }
        self.hardware.media.buffer_write_hits += u64::from(hits);
        self.buffered_pages += pages - u64::from(hits);
        self.complete_units(first, pages as u32);
        let must_settle = command.durable && !self.model.buffer.power_loss_protection;
        let settled_ns = if must_settle { self.flush_buffer(now_ns) } else { now_ns };
        self.hardware.finish_write(number, settled_ns);
    }

    /// Carries along what must move with these pages, and with those of units that are kept divided no longer.
    fn complete_units(&mut self, first: u32, count: u32) {
        let mut closed = Vec::new();
        self.units.write(first, count, &mut closed);
        let Some(map) = &mut self.map else { return };
        let missing = closed.iter().flat_map(|&unit| self.units.missing(unit));
        let carried = map.carry(missing, &mut self.hardware);
        self.buffered_pages += u64::from(carried);
        self.hardware.media.copied_bytes += u64::from(carried) * PAGE_BYTES;
    }

    /// Without a map every program has its place; without a buffer a write is done when the media is.
    fn write_in_place(&mut self, number: u32, command: &Command) {
        let program_bytes = u64::from(self.model.media.program_bytes);
        let first = command.offset_bytes / program_bytes;
        let last = (command.offset_bytes + command.bytes - 1) / program_bytes;
        self.commands[number as usize].parts = (last - first + 1) as u32;
        self.hardware.writer = number;
        for program in first..=last {
            self.hardware.program(program as u32, Origin::Host { padding: 0 });
        }
        self.hardware.writer = NOBODY;
    }

    fn programmed(&mut self, die: u32, work_ns: u64, pages: u32, command: u32) {
        let real_ns = self.hardware.dies[die as usize].real_ns(work_ns);
        if real_ns > self.hardware.now_ns {
            let event = Event::Programmed {
                die,
                work_ns,
                pages,
                command,
            };
            return self.hardware.at(real_ns, event);
        }
        if command == NOBODY {
            // Pages gathered when the drive's state was saved have no program of their own to wait for.
            self.buffered_pages = self.buffered_pages.saturating_sub(u64::from(pages));
            return self.admit();
        }
        let active = &mut self.commands[command as usize];
        active.parts -= 1;
        if active.parts == 0 {
            self.hardware.finish_write(command, self.hardware.now_ns);
        }
    }

    /// Programs what has gathered; when everything that was buffered is on the media.
    fn flush_buffer(&mut self, at_ns: u64) -> u64 {
        if let Some(map) = &mut self.map {
            map.flush(&mut self.hardware);
        }
        self.hardware.dies.iter().map(Die::idle_from_ns).fold(at_ns, u64::max)
    }

    /// Only whole pages can be forgotten.
    fn trim(&mut self, command: &Command) {
        let Some(map) = &mut self.map else { return };
        let first = command.offset_bytes.div_ceil(PAGE_BYTES);
        let end = (command.offset_bytes + command.bytes) / PAGE_BYTES;
        let gathered = map.gathered.len();
        for page in first..end {
            map.trim(page as u32);
        }
        self.buffered_pages -= (gathered - map.gathered.len()) as u64;
    }

    fn complete(&mut self, number: u32) {
        let Active {
            command, submitted_ns, ..
        } = self.commands[number as usize];
        self.vacant.push(number);
        self.done.push(command.token);
        self.hardware.count(&command, submitted_ns);
        self.active -= 1;
        if let Some((next, submitted_ns)) = self.waiting.pop_front() {
            self.start(next, submitted_ns);
        } else if self.active == 0 {
            self.hardware.usage.busy_ns += self.hardware.now_ns - self.busy_since_ns;
            self.await_idleness();
        }
    }

    fn await_idleness(&mut self) {
        if let Translation::PageMapped {
            idle_ns: Some(idle_ns), ..
        } = self.model.translation
        {
            let event = Event::Idle { commands: self.started };
            self.hardware.at(self.hardware.now_ns + idle_ns, event);
        }
    }

    /// One step of background work while the host is idle: collect ahead, fold fast cells.
    fn use_idleness(&mut self, commands: u64) {
        if commands != self.started || self.active > 0 {
            return;
        }
        let Some(map) = &mut self.map else { return };
        let Translation::PageMapped { idle_free_fraction, .. } = self.model.translation else {
            return;
        };
        let free_target = (idle_free_fraction * f64::from(self.geometry.superblocks)) as usize;
        if map.collect_ahead(free_target, &mut self.hardware) | self.hardware.fold() {
            let step_ns = self.hardware.dies.iter().map(Die::idle_from_ns).min().unwrap_or(0);
            let event = Event::Idle { commands };
            self.hardware.at(step_ns.max(self.hardware.now_ns + 1), event);
        }
    }
}

impl Hardware {
    fn new(model: &DriveModel, geometry: Geometry, rng: Rng) -> Hardware {
        Hardware {
            now_ns: 0,
            geometry,
            controller_free_ns: 0,
            link_in_free_ns: 0,
            link_out_free_ns: 0,
            channel_free_ns: vec![0; model.media.channels as usize],
            dies: vec![Die::default(); model.media.dies as usize],
            events: BinaryHeap::new(),
            scheduled: 0,
            rng,
            slc_room_bytes: slc_bytes(model),
            usage: DeviceUsage::default(),
            media: MediaUsage::default(),
            writer: NOBODY,
            model: model.clone(),
        }
    }

    fn restart(&mut self) {
        (
            self.now_ns,
            self.controller_free_ns,
            self.link_in_free_ns,
            self.link_out_free_ns,
        ) = (0, 0, 0, 0);
        self.channel_free_ns.fill(0);
        self.dies.fill(Die::default());
    }

    #[inline]
    fn at(&mut self, at_ns: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at_ns, self.scheduled, event)));
    }

    /// The controller looks at a command; when it has.
    fn control(&mut self, operation: Action) -> u64 {
        let interface = &self.model.interface;
        let command_ns = match operation {
            Action::Read => interface.read_command_ns,
            Action::Write | Action::Trim => interface.write_command_ns,
            Action::Flush => 0,
        };
        self.controller_free_ns = self.controller_free_ns.max(self.now_ns) + command_ns;
        self.controller_free_ns
    }

    fn receive(&mut self, command: u32, bytes: u64, at_ns: u64) {
        let interface = &self.model.interface;
        let duration_ns = interface.transfer_ns + time_ns(bytes, interface.write_bytes_per_second);
        let received_ns = self.link_in_free_ns.max(at_ns) + duration_ns;
        self.link_in_free_ns = received_ns;
        if interface.half_duplex {
            self.link_out_free_ns = received_ns;
        }
        self.at(received_ns, Event::Received { command });
    }

    /// A part of a read goes over the link; with the last one the status goes too.
    fn send(&mut self, bytes: u32, is_last: bool) -> u64 {
        let interface = &self.model.interface;
        let besides_ns = if is_last { interface.transfer_ns } else { 0 };
        let duration_ns = besides_ns + time_ns(bytes.into(), interface.read_bytes_per_second);
        let sent_ns = self.link_out_free_ns.max(self.now_ns) + duration_ns;
        self.link_out_free_ns = sent_ns;
        if interface.half_duplex {
            self.link_in_free_ns = sent_ns;
        }
        sent_ns
    }

    fn sense(&mut self, command: u32, die: u32, bytes: u32, at_ns: u64) {
        let duration_ns = self.read_time_ns();
        let sensed_ns = self.dies[die as usize].read(at_ns, duration_ns);
        self.media.media_read_bytes += u64::from(bytes);
        let channel = die % self.model.media.channels;
        self.at(
            sensed_ns,
            Event::Sensed {
                command,
                channel,
                bytes,
            },
        );
    }

    fn transfer(&mut self, command: u32, channel: u32, bytes: u32) {
        let ready_ns = self.occupy_channel(channel, bytes.into());
        self.at(ready_ns, Event::Ready { command, bytes });
    }

    fn occupy_channel(&mut self, channel: u32, bytes: u64) -> u64 {
        let free_ns = &mut self.channel_free_ns[channel as usize];
        *free_ns = (*free_ns).max(self.now_ns) + time_ns(bytes, self.model.media.channel_bytes_per_second);
        *free_ns
    }

    fn finish_write(&mut self, command: u32, at_ns: u64) {
        let done_ns = at_ns + self.model.interface.write_latency_ns;
        self.at(done_ns, Event::Done { command });
    }

    fn read_time_ns(&mut self) -> u64 {
        self.spread(self.model.media.read_ns) + self.repetition_ns()
    }

    /// Time for another try, which few reads need.
    fn repetition_ns(&mut self) -> u64 {
        let media = &self.model.media;
        if media.retry_fraction > 0.0 && self.rng.unit() < media.retry_fraction {
            media.retry_ns
        } else {
            0
        }
    }

    fn spread(&mut self, mean_ns: u64) -> u64 {
        let spread = self.model.media.time_spread;
        if spread == 0.0 {
            return mean_ns;
        }
        (mean_ns as f64 * (1.0 + spread * (2.0 * self.rng.unit() - 1.0))) as u64
    }

    /// The time of one program: fast cells first, as long as they have room.
    fn program_time_ns(&mut self, origin: Origin) -> u64 {
        let program_bytes = u64::from(self.model.media.program_bytes);
        match (slc_of(&self.model), origin) {
            (Some(slc), Origin::Host { .. }) if self.slc_room_bytes >= program_bytes => {
                self.slc_room_bytes -= program_bytes;
                self.spread(slc.program_ns)
            }
            // Cells that are overwritten in place are verified, and written again where need be.
            _ if self.model.translation == Translation::InPlace => {
                self.spread(self.model.media.program_ns) + self.repetition_ns()
            }
            _ => self.spread(self.model.media.program_ns),
        }
    }

    /// Moves one program's worth out of the fast cells; false when they are empty.
    fn fold(&mut self) -> bool {
        let program_bytes = u64::from(self.model.media.program_bytes);
        if self.slc_room_bytes + program_bytes > slc_bytes(&self.model) {
            return false;
        }
        self.slc_room_bytes += program_bytes;
        let die = (self.slc_room_bytes / program_bytes % u64::from(self.model.media.dies)) as usize;
        let duration_ns = self.read_time_ns() + self.spread(self.model.media.program_ns);
        let suspend_ns = self.model.media.suspend_ns.unwrap_or(NEVER);
        self.dies[die].plan(self.now_ns, duration_ns, NO_PROGRAM, suspend_ns, self.now_ns);
        self.media.media_read_bytes += program_bytes;
        self.media.media_write_bytes += program_bytes;
        self.media.copied_bytes += program_bytes;
        true
    }

    fn count(&mut self, command: &Command, submitted_ns: u64) {
        let (usage, waited_ns) = (&mut self.usage, self.now_ns - submitted_ns);
        match command.operation {
            Action::Read => {
                usage.reads += 1;
                usage.read_bytes += command.bytes;
                usage.read_wait_ns += waited_ns;
            }
            Action::Write => {
                usage.writes += 1;
                usage.write_bytes += command.bytes;
                usage.write_wait_ns += waited_ns;
            }
            Action::Trim => {
                usage.discards += 1;
                usage.discard_bytes += command.bytes;
            }
            Action::Flush => usage.flushes += 1,
        }
    }
}

impl Media for Hardware {
    fn program(&mut self, program: u32, origin: Origin) {
        let die = self.geometry.die_of(program);
        let program_bytes = u64::from(self.model.media.program_bytes);
        let data_ns = self.occupy_channel(die % self.model.media.channels, program_bytes);
        let duration_ns = self.program_time_ns(origin);
        let suspend_ns = self.model.media.suspend_ns.unwrap_or(NEVER);
        let work_ns = self.dies[die as usize].plan(data_ns, duration_ns, program, suspend_ns, self.now_ns);
        self.media.media_write_bytes += program_bytes;
        match origin {
            Origin::Copy => self.media.copied_bytes += program_bytes,
            Origin::Host { padding } => {
                self.media.padded_bytes += u64::from(padding) * PAGE_BYTES;
                let done_ns = self.dies[die as usize].real_ns(work_ns);
                let pages = self.geometry.program_pages - padding;
                let event = Event::Programmed {
                    die,
                    work_ns,
                    pages,
                    command: self.writer,
                };
                self.at(done_ns, event);
            }
        }
    }

    fn read(&mut self, program: u32, pages: u32) {
        let die = self.geometry.die_of(program);
        let duration_ns = self.read_time_ns();
        self.dies[die as usize].plan(self.now_ns, duration_ns, NO_PROGRAM, NEVER, self.now_ns);
        self.occupy_channel(die % self.model.media.channels, u64::from(pages) * PAGE_BYTES);
        self.media.media_read_bytes += u64::from(pages) * PAGE_BYTES;
    }

    fn erase(&mut self, die: u32) {
        let Translation::PageMapped { erase_ns, .. } = self.model.translation else {
            return;
        };
        let suspend_ns = self.model.media.erase_suspend_ns.unwrap_or(NEVER);
        self.dies[die as usize].plan(self.now_ns, erase_ns, NO_PROGRAM, suspend_ns, self.now_ns);
        self.media.erases += 1;
    }
}

/// Units that the spare room would hold.
fn units_in_spare_room(model: &DriveModel, geometry: Geometry) -> u32 {
    let Translation::PageMapped { over_provisioning, .. } = model.translation else {
        return 0;
    };
    (over_provisioning * f64::from(geometry.pages / geometry.unit_pages)) as u32
}

fn slc_of(model: &DriveModel) -> Option<iosonde_protocol::SlcModel> {
    match model.translation {
        Translation::PageMapped { slc, .. } => slc,
        Translation::InPlace => None,
    }
}

fn slc_bytes(model: &DriveModel) -> u64 {
    slc_of(model).map_or(0, |slc| slc.bytes)
}

#[inline]
pub(crate) fn time_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    (bytes as f64 * 1e9 / bytes_per_second as f64) as u64
}

/// Pages that a range touches.
fn page_count(offset_bytes: u64, bytes: u64) -> u64 {
    (offset_bytes + bytes).div_ceil(PAGE_BYTES) - offset_bytes / PAGE_BYTES
}

/// Bytes of a range that lie in a page.
#[inline]
fn part_bytes(page: u64, offset_bytes: u64, bytes: u64) -> u32 {
    let (begin, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
    (end.min(offset_bytes + bytes) - begin.max(offset_bytes)) as u32
}

/// Bit mask of the sectors of a page that a range covers.
fn sectors_of(page: u64, offset_bytes: u64, bytes: u64) -> u8 {
    let sectors = (0..8).filter(|sector| {
        let begin = page * PAGE_BYTES + sector * SECTOR_BYTES;
        begin >= offset_bytes && begin + SECTOR_BYTES <= offset_bytes + bytes
    });
    sectors.fold(0, |mask, sector| mask | 1 << sector) & WHOLE_PAGE
}
