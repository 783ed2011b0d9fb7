//! A device of known performance on a virtual clock: `servers` servers with known service times behind one queue.
//!
//! It is the ground truth of the tests. In closed loop with n I/Os in flight and constant service time s, queueing
//! theory leaves no choice: min(n, k)/s I/Os per second, each taking s * max(1, n/k) (Little's law).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iosonde_harness::load::{Io, Rng};
use iosonde_protocol::{BackendInEffect, Operation, Service, Stall};

use super::VirtualDevice;

/// An I/O in service: (completion time, submission number, job, slot, result), ordered by the first two.
type InService = (u64, u64, usize, u32, i32);

/// The device, shared by all jobs of a run; they live in one thread.
pub(crate) struct SimulatedDevice {
    now_ns: u64,
    read_service_ns: u64,
    write_service_ns: u64,
    service: Service,
    stalls: Vec<Stall>,
    rng: Rng,
    /// Instants at which the servers are free again.
    servers: BinaryHeap<Reverse<u64>>,
    /// First to complete on top.
    in_service: BinaryHeap<Reverse<InService>>,
    submitted: u64,
}

impl SimulatedDevice {
    /// A device with `servers` servers that take (for a read, for anything else) this long.
    pub(crate) fn new(
        servers: u32,
        (read_ns, write_ns): (u64, u64),
        service: Service,
        stalls: &[Stall],
        seed: u64,
    ) -> SimulatedDevice {
        SimulatedDevice {
            stalls: stalls.to_vec(),
            now_ns: 0,
            read_service_ns: read_ns,
            write_service_ns: write_ns,
            service,
            rng: Rng::new(seed, &[0x5e7]),
            servers: (0..servers).map(|_| Reverse(0)).collect(),
            in_service: BinaryHeap::new(),
            submitted: 0,
        }
    }

    fn service_ns(&mut self, operation: Operation) -> u64 {
        let mean_ns = if operation == Operation::Read {
            self.read_service_ns
        } else {
            self.write_service_ns
        };
        match self.service {
            Service::Constant => mean_ns,
            Service::Exponential => (mean_ns as f64 * self.rng.exponential()).round() as u64,
        }
    }
}

impl VirtualDevice for SimulatedDevice {
    fn now(&self) -> u64 {
        self.now_ns
    }

    fn submit(&mut self, job: usize, slot: u32, io: &Io, _durable: bool) {
        let Reverse(free_ns) = self.servers.pop().expect("a device has at least one server");
        let service_ns = self.service_ns(io.operation);
        let finish_ns = finish_ns(&self.stalls, free_ns.max(self.now_ns), service_ns);
        self.servers.push(Reverse(finish_ns));
        self.in_service
            .push(Reverse((finish_ns, self.submitted, job, slot, io.bytes as i32)));
        self.submitted += 1;
    }

    fn advance(&mut self, limit_ns: u64) {
        let next_ns = self
            .in_service
            .peek()
            .map_or(limit_ns, |Reverse(first)| first.0.min(limit_ns));
        debug_assert!(next_ns >= self.now_ns, "time does not run backwards");
        self.now_ns = next_ns;
    }

    fn completed(&mut self) -> Option<(usize, u32, i32)> {
        let Reverse(first) = self.in_service.peek()?;
        if first.0 > self.now_ns {
            return None;
        }
        self.in_service
            .pop()
            .map(|Reverse((_, _, job, slot, result))| (job, slot, result))
    }

    fn in_effect(&self) -> BackendInEffect {
        BackendInEffect {
            kind: "simulated".into(),
            ..BackendInEffect::default()
        }
    }
}

/// End of service that may start at `start_ns`, if nothing is done during stalls.
fn finish_ns(stalls: &[Stall], start_ns: u64, service_ns: u64) -> u64 {
    stalls.iter().fold(start_ns + service_ns, |finish_ns, stall| {
        let end_ns = stall.at_ns + stall.duration_ns;
        if end_ns <= start_ns || stall.at_ns >= finish_ns {
            finish_ns
        } else {
            finish_ns + end_ns - stall.at_ns.max(start_ns)
        }
    })
}
