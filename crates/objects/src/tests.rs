//! Runs on objects in memory: which objects a load uses, what is checked, and what fails.

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Control, carry_out};
use iosonde_protocol::{Arrival, Edge, Event, Observe};

use super::*;

const HOUR_NS: u64 = 3_600_000_000_000;

/// A load of an hour, or of 100 arrivals.
fn workload(operation: ObjectOperation, arrival: Arrival) -> ObjectsWorkload {
    let is_closed = matches!(arrival, Arrival::Closed);
    ObjectsWorkload {
        store: ObjectStore::Memory,
        object_bytes: 100,
        objects: 10,
        content_seed: 1,
        streams: vec![ObjectStream {
            name: "main".into(),
            jobs: 2,
            queue_depth: 3,
            operation,
            arrival,
            cpus: vec![],
        }],
        ramp_ns: 0,
        duration_ns: if is_closed { HOUR_NS } else { 100_000_000 },
        interval_ns: 100_000_000,
        timeout_ns: 1_000_000_000,
        delete_after: true,
    }
}

/// Runs a workload for its time, on this store if one is given.
fn measured(
    workload: &ObjectsWorkload,
    store: Option<&Memory>,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, RunError> {
    measured_until(workload, store, emit, &|_| false)
}

/// The same, until its operations are enough.
fn measured_until(
    workload: &ObjectsWorkload,
    store: Option<&Memory>,
    emit: &mut dyn FnMut(Event),
    is_enough: &dyn Fn(u64) -> bool,
) -> Result<RunResult, RunError> {
    let inputs = RunInputs {
        seed: 1,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &Targets::default(),
    };
    let (mut control, remote) = Control::new();
    let mut count = 0;
    let mut emit = |event: Event| {
        if let Event::Interval(interval) = &event {
            let operations = interval.streams.iter().flat_map(|stream| &stream.operations);
            count += operations.map(|operation| operation.count).sum::<u64>();
            if is_enough(count) {
                remote.stop();
            }
        }
        emit(event);
    };
    match store {
        Some(store) => run_on(workload, store, &mut Run::new(inputs, &mut control, &mut emit)?),
        None => carry_out(&Objects(workload), inputs, &mut control, &mut emit),
    }
}

fn is_loaded(event: &Event) -> bool {
    matches!(event, Event::Phase(one) if one.phase == Phase::Layout && one.edge == Edge::End)
}

#[test]
fn reads_are_loaded_compared_and_deleted_and_an_open_loop_starts_what_is_due() {
    for operation in [ObjectOperation::RandomRead, ObjectOperation::SequentialRead] {
        let load = workload(operation, Arrival::Closed);
        let result = measured_until(&load, None, &mut |_| {}, &|count| count > 0).unwrap();
        let facts = result.objects.unwrap();
        assert_eq!((facts.loaded, facts.deleted, facts.wrong), (10, 10, 0));
        let operations: u64 = result.jobs.iter().map(|job| job.operations).sum();
        assert!(operations > 0 && facts.checked >= operations);
        assert_eq!(result.jobs.iter().map(|job| job.bytes).sum::<u64>(), 100 * operations);
    }
    let load = workload(ObjectOperation::Write, Arrival::Constant { rate: 1000.0 });
    let result = measured(&load, None, &mut |_| {}).unwrap();
    let due: u64 = result.jobs.iter().map(|job| job.schedule.unwrap().due).sum();
    assert_eq!(due, 100, "arrivals within 100 ms at 1000 per second");
}

#[test]
fn writes_go_through_the_objects_in_order_and_leave_readable_ones() {
    let mut load = workload(ObjectOperation::Write, Arrival::Closed);
    load.delete_after = false;
    let store = Memory::new(Clock::start());
    let is_enough = |_| store.objects().len() == 10;
    let result = measured_until(&load, Some(&store), &mut |_| {}, &is_enough).unwrap();
    assert_eq!(result.objects.unwrap().loaded, 0);
    let contents = Contents::new(1, 100);
    let objects = store.objects();
    assert_eq!(objects.len(), 10);
    let is_correct = |(number, object): (&u64, &Vec<u8>)| contents.is_correct(*number, object);
    assert!(objects.iter().all(is_correct));
}

#[test]
fn wrong_contents_are_counted_and_a_missing_object_fails_the_run() {
    let store = Memory::new(Clock::start());
    let mut load = workload(ObjectOperation::SequentialRead, Arrival::Closed);
    load.delete_after = false;
    load.streams[0].jobs = 1; // Every tenth read is of the same object.
    let mut warnings = Vec::new();
    // Loaded objects are corrupted as soon as they exist.
    let mut emit = |event| match event {
        event if is_loaded(&event) => store.objects().get_mut(&4).unwrap()[50] ^= 1,
        Event::Warning(warning) => warnings.push(warning),
        _ => {}
    };
    let result = measured_until(&load, Some(&store), &mut emit, &|count| count >= 10).unwrap();
    let facts = result.objects.unwrap();
    assert!(facts.wrong > 0 && facts.wrong < facts.checked);
    assert_eq!(facts.first_wrong.as_deref(), Some("iosonde-000000000004"));
    assert_eq!(warnings[0].code, "wrong_objects");
    let store = Memory::new(Clock::start());
    let load = workload(ObjectOperation::SequentialRead, Arrival::Closed);
    let mut emit = |event| {
        if is_loaded(&event) {
            store.objects().remove(&4);
        }
    };
    let failure = measured(&load, Some(&store), &mut emit).unwrap_err().to_failure();
    assert_eq!([&failure.code[..], &failure.context], ["vanished", "stream `main`"]);
    assert!(failure.message.contains("`iosonde-000000000004`"));
}

#[test]
fn wrong_specs_are_refused() {
    type Change = fn(&mut ObjectsWorkload);
    let changes: [(Change, &str); 6] = [
        (|load| load.object_bytes = 63, "`object_bytes`"),
        (|load| load.objects = 0, "`objects`"),
        (|load| load.streams.clear(), "`streams`"),
        (|load| load.streams[0].queue_depth = 0, "`streams`"),
        (|load| load.interval_ns = 1, "`interval_ns`"),
        (
            |load| load.streams[0].arrival = Arrival::Constant { rate: 0.0 },
            "`streams.arrival`",
        ),
    ];
    for (change, context) in changes {
        let mut load = workload(ObjectOperation::Write, Arrival::Closed);
        change(&mut load);
        let refused = measured(&load, None, &mut |_| {}).unwrap_err().to_failure();
        assert_eq!([&refused.code[..], &refused.context], ["invalid_spec", context]);
    }
}
