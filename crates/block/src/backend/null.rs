//! Completes every I/O as soon as it is submitted: what remains is the harness itself.

use iosonde_harness::load::Io;
use iosonde_harness::metrics::clock::Clock;
use iosonde_protocol::BackendInEffect;

use super::nap::Nap;
use super::{Backend, Wait};

/// The backend behind `{"kind": "null"}`.
pub(crate) struct NullBackend {
    clock: Clock,
    nap: Nap,
    done: Vec<(u32, i32)>,
}

impl NullBackend {
    pub(crate) fn new(clock: Clock, queue_depth: u32, spin_ns: u64) -> NullBackend {
        NullBackend {
            clock,
            nap: Nap::new(clock, spin_ns),
            done: Vec::with_capacity(queue_depth as usize),
        }
    }
}

impl Backend for NullBackend {
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    fn push(&mut self, slot: u32, io: &Io) {
        self.done.push((slot, io.bytes as i32));
    }

    fn submit_and_wait(&mut self, wait: Wait) -> std::io::Result<()> {
        if self.done.is_empty() {
            match wait {
                Wait::Due(instant_ns) => self.nap.until_due(instant_ns),
                Wait::Idle(instant_ns) => self.nap.idle(instant_ns),
                Wait::One => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        for &(slot, result) in &self.done {
            complete(slot, result);
        }
        self.done.clear();
    }

    fn spun_ns(&self) -> u64 {
        self.nap.spun_ns()
    }

    fn in_effect(&self) -> BackendInEffect {
        BackendInEffect {
            kind: "null".into(),
            ..BackendInEffect::default()
        }
    }
}
