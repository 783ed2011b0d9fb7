//! Queries of an index of vectors: chains of reads.
//!
//! A query of a graph index (DiskANN) reads the nodes of its beam together, waits for all, and chooses the next beam by what they
//! contain. One of an index of posting lists (SPANN) has a single round. What a query computes is not part of the load.

use std::path::PathBuf;

use iosonde_harness::load::Rng;
use iosonde_harness::{LoadPlan, Place, Run, RunError, Stage, Workload, require};
use iosonde_protocol::{AiVectorWorkload, Operation, RunResult};

use crate::files::{Content, FileNeed};
use crate::world::{Extent, Load, Memory, PAGE_BYTES, World};
use crate::{check_request, measure, plan};

const WIDTH_MAX: u32 = 1024;

/// The queries of a spec.
pub struct AiVector<'a>(pub &'a AiVectorWorkload);

impl Workload for AiVector<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let AiVectorWorkload { ramp, duration_ns, .. } = *self.0;
        let stream = ("queries", self.0.concurrency);
        plan(
            &[stream],
            Some(ramp),
            Some(duration_ns),
            self.0.interval_ns,
            &self.0.cpus,
        )
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        let [least, most] = workload.read_bytes;
        check_request(least, "`read_bytes`")?;
        check_request(most, "`read_bytes`")?;
        let is_index = most <= workload.index_bytes && workload.index_bytes.is_multiple_of(PAGE_BYTES);
        require(least <= most && is_index, "`read_bytes`")?;
        require(workload.hops > 0, "`hops`")?;
        require((1..=WIDTH_MAX).contains(&workload.beam_width), "`beam_width`")?;
        require((0.0..=1.0).contains(&workload.cached_fraction), "`cached_fraction`")
    }

    placed!(|_| Vec::new());

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let queries = Queries {
            workload,
            seed: run.inputs.seed,
        };
        let backend = workload.backend.as_ref();
        measure(self, &workload.target, backend, &queries, run, |facts, reads| {
            facts.reads = Some(reads.iter().sum());
        })
    }
}

struct Queries<'w> {
    workload: &'w AiVectorWorkload,
    seed: u64,
}

impl Load for Queries<'_> {
    /// Reads in the measurement.
    type Found = u64;

    fn needs(&self) -> Vec<FileNeed> {
        vec![FileNeed {
            path: "index".into(),
            bytes: self.workload.index_bytes,
            content: Content::Generated(Vec::new()),
            is_direct: true,
        }]
    }

    fn memory(&self, _place: Place) -> Memory {
        Memory {
            slots: self.workload.beam_width,
            ..Memory::of_one(self.workload.read_bytes[1])
        }
    }

    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<u64, RunError> {
        let workload = self.workload;
        let mut rng = Rng::new(self.seed, &[0xa1_0001, u64::from(place.job)]);
        let mut beam = Vec::with_capacity(workload.beam_width as usize);
        let mut measured = 0;
        while world.continues() {
            let start_ns = world.now();
            let (mut bytes, mut reads) = (0, 0);
            for _ in 0..workload.hops {
                self.choose(&mut rng, &mut beam);
                world.read(&beam)?;
                bytes += beam.iter().map(|extent| extent.bytes).sum::<u64>();
                reads += beam.len() as u64;
            }
            world.record(Operation::Read, bytes, start_ns);
            if world.phases().stage() == Stage::Measure {
                measured += reads;
            }
        }
        Ok(measured)
    }

    fn interface(&self) -> &'static str {
        if self.workload.beam_width > 1 { "uring" } else { "sync" }
    }
}

impl Queries<'_> {
    /// The reads of a round that are not served from memory.
    fn choose(&self, rng: &mut Rng, beam: &mut Vec<Extent>) {
        let [least, most] = self.workload.read_bytes.map(|bytes| bytes / PAGE_BYTES);
        beam.clear();
        for _ in 0..self.workload.beam_width {
            if rng.unit() < self.workload.cached_fraction {
                continue;
            }
            let pages = least + rng.below(most - least + 1);
            let places = self.workload.index_bytes / PAGE_BYTES - pages + 1;
            beam.push(Extent::new(0, rng.below(places) * PAGE_BYTES, pages * PAGE_BYTES));
        }
    }
}
