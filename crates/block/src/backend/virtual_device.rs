//! A device on a virtual clock, and how a job is connected to it.

use std::cell::RefCell;
use std::rc::Rc;

use iosonde_harness::load::Io;
use iosonde_protocol::{BackendInEffect, DeviceUsage};

use super::{Backend, Wait};

/// A device on virtual time, shared by all jobs of a run; they live in one thread.
pub trait VirtualDevice {
    /// Now, in nanoseconds since the run's 0.
    fn now(&self) -> u64;

    /// Takes an I/O of a job. `durable`: a write that must survive a power cut before it is acknowledged.
    fn submit(&mut self, job: usize, slot: u32, io: &Io, durable: bool);

    /// Moves time forward to the next completion, but not beyond `limit_ns`.
    fn advance(&mut self, limit_ns: u64);

    /// Takes one I/O that has completed by now: (job, slot, result).
    fn completed(&mut self) -> Option<(usize, u32, i32)>;

    /// Counters of the device and its parts so far, for devices that report more than latencies.
    fn usage(&self) -> Vec<DeviceUsage> {
        Vec::new()
    }

    /// I/O interface and features in effect.
    fn in_effect(&self) -> BackendInEffect;
}

/// One job's connection to the device. Time is advanced by the simulation, not by waiting.
pub(crate) struct VirtualPort<D> {
    device: Rc<RefCell<D>>,
    job: usize,
    durable: bool,
    done: Vec<(u32, i32)>,
}

impl<D: VirtualDevice> VirtualPort<D> {
    pub(crate) fn new(device: Rc<RefCell<D>>, job: usize, durable: bool) -> VirtualPort<D> {
        VirtualPort {
            device,
            job,
            durable,
            done: Vec::new(),
        }
    }

    /// Hands over an I/O that the device completed.
    pub(crate) fn deliver(&mut self, slot: u32, result: i32) {
        self.done.push((slot, result));
    }
}

impl<D: VirtualDevice> Backend for VirtualPort<D> {
    fn now(&self) -> u64 {
        self.device.borrow().now()
    }

    fn push(&mut self, slot: u32, io: &Io) {
        self.device.borrow_mut().submit(self.job, slot, io, self.durable);
    }

    fn submit_and_wait(&mut self, _wait: Wait) -> std::io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        for (slot, result) in self.done.drain(..) {
            complete(slot, result);
        }
    }

    fn spun_ns(&self) -> u64 {
        0
    }

    fn in_effect(&self) -> BackendInEffect {
        self.device.borrow().in_effect()
    }
}
