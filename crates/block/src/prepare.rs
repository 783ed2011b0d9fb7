//! From streams to jobs: who does what, in which part of the target, within which limits.

use iosonde_harness::load::{Generator, regions};
use iosonde_harness::{LoadPlan, Place, RunError, StreamPlan};
use iosonde_protocol::{BlockWorkload, Durability, Sharing, Stream, Target};

use crate::job::JobPlan;
use crate::payload::Filler;
use crate::target;

/// The load of a workload.
pub(crate) fn load_plan(workload: &BlockWorkload) -> LoadPlan<'_> {
    let streams = workload.streams.iter().map(|stream| StreamPlan {
        arrival: &stream.arrival,
        limit_bytes: stream.limit_bytes,
        limit_operations: stream.limit_operations,
        active: stream.active,
        largest_bytes: largest_bytes(stream),
        ..StreamPlan::closed(&stream.name, stream.jobs, &stream.cpus)
    });
    LoadPlan {
        ramp: workload.ramp,
        duration_ns: workload.duration_ns,
        interval_ns: workload.interval_ns,
        streams: streams.collect(),
    }
}

/// The largest block size of a stream.
pub(crate) fn largest_bytes(stream: &Stream) -> u64 {
    stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0)
}

/// Work of a thread.
///
/// A job with several lanes is divided into that many threads with one I/O in flight each, which together visit exactly
/// the job's sequence: lane `i` takes every n-th I/O from the i-th.
pub(crate) fn plan(workload: &BlockWorkload, seed: u64, place: Place) -> Result<JobPlan, RunError> {
    let (stream, number) = (&workload.streams[place.stream], place.stream as u64);
    let mut region = regions(stream, target::addressed_bytes(&workload.target))?[place.job as usize];
    region.offset_bytes -= stream.span.offset_bytes - target::offset_in_file(&workload.target, stream);
    let visit = visit(&workload.target, stream);
    let generator = Generator::new(&visit, place.job, region, seed, number);
    let thread = u64::from(place.job) * u64::from(place.lanes) + u64::from(place.lane);
    Ok(JobPlan {
        generator: generator?,
        lane: place.lane,
        lanes: place.lanes,
        queue_depth: if place.lanes > 1 { 1 } else { stream.queue_depth },
        flush_every: match stream.durability {
            Durability::Flush { every } => Some(every),
            Durability::None | Durability::Dsync => None,
        },
        filler: Filler::new(
            stream.payload,
            workload.verify.is_some(),
            seed,
            &[0xda7a, number, thread],
        ),
    })
}

/// The stream as its generators see it: jobs with files of their own share nothing, so each begins at its file's start.
fn visit(target: &Target, stream: &Stream) -> Stream {
    let mut visit = stream.clone();
    if matches!(target, Target::FilePerJob { .. }) {
        visit.span.sharing = Sharing::Split;
    }
    visit
}
