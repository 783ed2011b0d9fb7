//! Objects in the engine's own memory: operations complete when they are started.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Code, RunError};

use crate::store::{Done, Session, Store};

/// The store.
pub(crate) struct Memory {
    clock: Clock,
    objects: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Memory {
    pub(crate) fn new(clock: Clock) -> Memory {
        Memory {
            clock,
            objects: Mutex::default(),
        }
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, HashMap<u64, Vec<u8>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn client(&self) -> (String, String) {
        ("memory".into(), String::new())
    }

    fn session(&self, slots: u32, object_bytes: usize) -> Result<Box<dyn Session + '_>, RunError> {
        Ok(Box::new(MemorySession {
            store: self,
            buffers: vec![vec![0; object_bytes]; slots as usize],
            done: Vec::with_capacity(slots as usize),
        }))
    }

    fn explain(&self, result: i32) -> RunError {
        RunError::new(Code::Vanished, format!("error {result}"), "see whether it was written")
    }
}

struct MemorySession<'a> {
    store: &'a Memory,
    buffers: Vec<Vec<u8>>,
    done: Vec<Done>,
}

impl MemorySession<'_> {
    fn complete(&mut self, slot: u32, result: i32) {
        let at_ns = self.store.clock.now();
        self.done.push(Done { slot, result, at_ns });
    }
}

impl Session for MemorySession<'_> {
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.buffers[slot as usize]
    }

    fn write(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        self.store.objects().insert(object, self.buffers[slot as usize].clone());
        self.complete(slot, 0);
        Ok(())
    }

    fn read(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        let found = self.store.objects().get(&object).cloned();
        let result = found.map_or(-libc::ENOENT, |contents| {
            self.buffers[slot as usize][..contents.len()].copy_from_slice(&contents);
            contents.len() as i32
        });
        self.complete(slot, result);
        Ok(())
    }

    fn delete(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        let found = self.store.objects().remove(&object);
        self.complete(slot, if found.is_some() { 0 } else { -libc::ENOENT });
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }

    fn wait(&mut self, timeout_ns: u64) {
        if self.done.is_empty() {
            std::thread::sleep(Duration::from_nanos(timeout_ns));
        }
    }
}
