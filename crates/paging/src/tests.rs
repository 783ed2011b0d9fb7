//! Whole runs: of anonymous memory that fits, and of a file.

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Control, carry_out};
use iosonde_protocol::{Advice, Event, Observe, Operation, Outcome, PageCache, PagingStream, Pattern, Ramp};

use super::*;

const PAGES: u64 = 256;

fn workload(target: Target, accesses: u64) -> PagingWorkload {
    PagingWorkload {
        target,
        advice: Advice::Normal,
        huge_pages: false,
        compressible_fraction: 0.0,
        content_seed: 1,
        page_cache: PageCache::Drop,
        streams: vec![PagingStream {
            name: "main".into(),
            jobs: 2,
            pattern: Pattern::Uniform,
            read_fraction: 0.5,
            limit_operations: Some(accesses),
            cpus: Vec::new(),
        }],
        ramp: Ramp::default(),
        duration_ns: None,
        interval_ns: 100_000_000,
        verify_after: true,
    }
}

fn memory() -> Target {
    Target::Virtual {
        size_bytes: PAGES * rustix::param::page_size() as u64,
    }
}

fn measured(workload: &PagingWorkload) -> Result<(RunResult, Vec<Event>), RunError> {
    let inputs = RunInputs {
        seed: 5,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &Targets::default(),
    };
    let (mut control, _stopper) = Control::new();
    let mut events = Vec::new();
    let result = carry_out(&Paging(workload), inputs, &mut control, &mut |event| events.push(event))?;
    Ok((result, events))
}

fn counted(events: &[Event], operation: Operation) -> u64 {
    let streams = events.iter().flat_map(|event| match event {
        Event::Interval(interval) => &interval.streams[..],
        _ => &[],
    });
    let operations = streams.flat_map(|stream| &stream.operations);
    let found = operations.filter(|found| found.operation == operation);
    found.map(|found| found.count).sum()
}

#[test]
fn every_access_to_memory_is_counted_checked_and_verified_afterwards() {
    let (result, events) = measured(&workload(memory(), 10_000)).unwrap();
    assert_eq!(result.outcome, Outcome::Complete);
    let facts = result.paging.unwrap();
    let classes = [Operation::Hit, Operation::MinorFault, Operation::MajorFault];
    let [hits, minor, major] = classes.map(|class| counted(&events, class));
    assert_eq!(hits + minor + major, 10_000);
    assert_eq!((facts.pages, facts.verified_pages), (PAGES, PAGES));
    assert_eq!(facts.checked, 10_000);
    assert_eq!([facts.corrupted, facts.stale, facts.wrong_pages], [0, 0, 0]);
    assert_eq!(result.layout.written_bytes, PAGES * facts.page_bytes);
    assert!(hits > 9_900, "resident memory does not fault");
}

#[test]
fn a_dropped_file_is_read_by_faults_that_are_counted_apart() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("pages");
    let Target::Virtual { size_bytes } = memory() else {
        unreachable!()
    };
    let target = Target::File {
        path: path.display().to_string(),
        size_bytes,
    };
    let mut mapped = workload(target, 2_000);
    mapped.streams[0].read_fraction = 1.0;
    mapped.advice = Advice::Random;
    let (result, events) = measured(&mapped).unwrap();
    let facts = result.paging.unwrap();
    assert_eq!((facts.corrupted, facts.wrong_pages), (0, 0));
    assert_eq!(facts.verified_pages, PAGES);
    let faults = counted(&events, Operation::MinorFault) + counted(&events, Operation::MajorFault);
    assert!(faults >= PAGES / 2, "{faults} faults: {facts:?}");
    assert!(facts.minor_faults + facts.major_faults >= faults);
}

#[test]
fn writes_to_a_mapped_file_and_other_targets_are_refused() {
    let size_bytes = 1 << 20;
    let (path, directory) = ("/nowhere".into(), "/tmp".into());
    for (target, context) in [
        (Target::File { path, size_bytes }, "stream `main`"),
        (Target::FilePerJob { directory, size_bytes }, "`target`"),
    ] {
        let refused = measured(&workload(target, 10)).unwrap_err().to_failure();
        assert_eq!([&refused.code[..], &refused.context], ["invalid_spec", context]);
    }
}
