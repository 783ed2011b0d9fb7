//! Rate limits against closed forms of the token bucket: with rate r, bucket B and bursts at b, a load that asks for more
//! gets B b / (b - r) operations in B / (b - r) seconds, and r per second from then on.

use iosonde_protocol::*;
use iosonde_ssd::sample::{SINGLE, crosspoint};
use iosonde_ssd::{Action, Request, Storage};

const PAGE: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

fn operations(rate: f64) -> LimitModel {
    LimitModel {
        counts: Counted::Operations,
        rate,
        burst_rate: None,
        bucket: 0.0,
        unit_bytes: None,
        merge: false,
        read_weight: 1.0,
        write_weight: 1.0,
        style: LimitStyle::Queue,
        shared_by: SharedBy::Volume,
        changes: Vec::new(),
    }
}

fn bytes(rate: f64) -> LimitModel {
    LimitModel {
        counts: Counted::Bytes,
        ..operations(rate)
    }
}

fn volume(limits: &[LimitModel]) -> Storage {
    let mut model = crosspoint();
    model.limits = limits.to_vec();
    Storage::new(&model, &SINGLE, 1).unwrap()
}

/// Every other page, so that nothing is sequential.
fn scattered(number: u64, operation: Action, bytes: u64) -> Request {
    Request {
        operation,
        offset_bytes: number * 7919 % 1024 * 2 * bytes.max(PAGE) % (200 << 20),
        bytes,
        durable: false,
    }
}

/// Keeps 16 in flight until an instant: when each was complete, and its token.
fn load_until(storage: &mut Storage, end_ns: u64, mut next: impl FnMut(u64) -> Request) -> Vec<(u64, u64)> {
    let (mut issued, mut done) = (16, Vec::new());
    (0..16).for_each(|number| storage.submit(number, &next(number)));
    while storage.now() < end_ns {
        storage.advance(end_ns);
        while let Some((token, _)) = storage.completed() {
            done.push((storage.now(), token));
            storage.submit(issued, &next(issued));
            issued += 1;
        }
    }
    done
}

fn count_until(storage: &mut Storage, seconds: u64, bytes: u64) -> f64 {
    let end_ns = storage.now() + seconds * SECOND;
    load_until(storage, end_ns, |number| scattered(number, Action::Read, bytes)).len() as f64
}

fn assert_close(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() < share, "{found} instead of {expected}");
}

#[test]
fn a_rate_is_met_exactly_at_any_size() {
    for (limit, bytes, expected) in [
        (operations(1000.0), PAGE, 1000.0),
        (bytes(8e6), PAGE, 8e6 / 4096.0),
        (bytes(8e6), 64 << 10, 8e6 / 65536.0),
        (operations(333_333.0), PAGE, 333_333.0),
    ] {
        let mut storage = volume(&[limit]);
        assert_close(count_until(&mut storage, 3, bytes), 3.0 * expected, 0.003);
    }
}

#[test]
fn a_bucket_is_spent_at_the_burst_rate_and_then_the_rate_holds() {
    let limit = LimitModel {
        burst_rate: Some(3000.0),
        bucket: 5400.0,
        ..operations(300.0)
    };
    let mut storage = volume(&[limit]);
    // 5400 / (3000 - 300) = 2 seconds.
    let done = load_until(&mut storage, 6 * SECOND, |number| scattered(number, Action::Read, PAGE));
    let until = |at_ns| done.iter().filter(|(done_ns, _)| *done_ns <= at_ns).count() as f64;
    assert_close(until(SECOND), 3000.0, 0.002);
    assert_close(until(2 * SECOND), 6000.0, 0.002);
    assert_close(until(6 * SECOND) - until(2 * SECOND), 4.0 * 300.0, 0.005);
}

#[test]
fn rest_refills_what_it_lasts_and_no_more_than_the_bucket() {
    let limit = LimitModel {
        burst_rate: Some(3000.0),
        bucket: 5400.0,
        ..operations(300.0)
    };
    for (rest_s, expected) in [(4, 4.0 * 300.0), (100, 5400.0)] {
        let mut storage = volume(std::slice::from_ref(&limit));
        count_until(&mut storage, 6, PAGE);
        drain(&mut storage);
        let begin_ns = storage.now();
        storage.advance(begin_ns + rest_s * SECOND);
        // In t seconds it does what it has saved and 300 t, once the savings are spent.
        assert_close(count_until(&mut storage, 3, PAGE), expected + 3.0 * 300.0, 0.02);
    }
}

fn drain(storage: &mut Storage) {
    while storage.usage()[0].in_flight > 0 {
        storage.advance(u64::MAX);
        while storage.completed().is_some() {}
    }
}

#[test]
fn operations_are_counted_by_started_units() {
    let limit = LimitModel {
        unit_bytes: Some(16 << 10),
        ..operations(1000.0)
    };
    for (size, units) in [(4 << 10, 1.0), (16 << 10, 1.0), (20 << 10, 2.0), (64 << 10, 4.0)] {
        let mut storage = volume(std::slice::from_ref(&limit));
        assert_close(count_until(&mut storage, 3, size), 3000.0 / units, 0.01);
    }
}

#[test]
fn sequential_operations_are_merged_up_to_a_unit_and_scattered_ones_are_not() {
    let limit = LimitModel {
        unit_bytes: Some(256 << 10),
        merge: true,
        ..operations(100.0)
    };
    let in_order = |number: u64| Request {
        operation: Action::Write,
        offset_bytes: number * (16 << 10) % (200 << 20),
        bytes: 16 << 10,
        durable: false,
    };
    let merged = load_until(&mut volume(std::slice::from_ref(&limit)), 4 * SECOND, in_order);
    assert_close(merged.len() as f64, 16.0 * 400.0, 0.02);
    assert_close(count_until(&mut volume(&[limit]), 4, 16 << 10), 400.0, 0.01);
}

#[test]
fn several_limits_hold_at_once() {
    let limits = [operations(2000.0), bytes(16e6)];
    // 4 KiB: 2,000 a second are 8.2 MB; 64 KiB: 16 MB are 244 a second.
    assert_close(count_until(&mut volume(&limits), 3, PAGE), 6000.0, 0.003);
    assert_close(count_until(&mut volume(&limits), 3, 64 << 10), 48e6 / 65536.0, 0.01);
}

#[test]
fn weights_divide_a_shared_budget_and_0_lets_pass() {
    let alternate = |number: u64| {
        let operation = if number.is_multiple_of(2) {
            Action::Read
        } else {
            Action::Write
        };
        scattered(number, operation, PAGE)
    };
    let weighted = LimitModel {
        write_weight: 3.0,
        ..operations(4000.0)
    };
    // A read and a write cost 4 credits.
    let done = load_until(&mut volume(&[weighted]), 3 * SECOND, alternate);
    assert_close(done.len() as f64, 3.0 * 2000.0, 0.01);
    let writes_only = LimitModel {
        read_weight: 0.0,
        ..operations(100.0)
    };
    let reads = count_until(&mut volume(std::slice::from_ref(&writes_only)), 1, PAGE);
    let free = count_until(&mut volume(&[]), 1, PAGE);
    assert_close(reads, free, 1e-9);
    let writes = load_until(&mut volume(&[writes_only]), 4 * SECOND, |number| {
        scattered(number, Action::Write, PAGE)
    });
    assert_close(writes.len() as f64, 400.0, 0.01);
}

#[test]
fn a_paced_limit_completes_at_fixed_intervals_and_a_queue_does_not() {
    let intervals = |style| {
        let mut model = crosspoint();
        model.media.time_spread = 0.5;
        model.limits = vec![LimitModel {
            style,
            ..operations(10_000.0)
        }];
        let mut storage = Storage::new(&model, &SINGLE, 1).unwrap();
        let done = load_until(&mut storage, SECOND, |number| scattered(number, Action::Read, PAGE));
        assert_close(done.len() as f64, 10_000.0, 0.005);
        let later = done.iter().zip(&done[1..]).skip(100);
        later
            .map(|((before_ns, _), (after_ns, _))| after_ns - before_ns)
            .collect::<Vec<_>>()
    };
    assert!(intervals(LimitStyle::Paced).iter().all(|interval| *interval == 100_000));
    assert!(intervals(LimitStyle::Queue).iter().any(|interval| *interval != 100_000));
}

#[test]
fn a_limit_of_the_machine_is_shared_by_the_drives_of_an_array() {
    let array = ArrayModel { drives: 4, ..SINGLE };
    for (shared_by, expected) in [(SharedBy::Volume, 4000.0), (SharedBy::Machine, 1000.0)] {
        let mut model = crosspoint();
        model.limits = vec![LimitModel {
            shared_by,
            ..operations(1000.0)
        }];
        let mut storage = Storage::new(&model, &array, 1).unwrap();
        let mut random = iosonde_load::Rng::new(3, &[]);
        let mut issued = 256;
        let mut next = move || scattered(random.below(1 << 20), Action::Read, PAGE);
        (0..256).for_each(|number| storage.submit(number, &next()));
        let mut done = 0;
        while storage.now() < 2 * SECOND {
            storage.advance(2 * SECOND);
            while storage.completed().is_some() {
                done += 1;
                storage.submit(issued, &next());
                issued += 1;
            }
        }
        assert_close(f64::from(done), 2.0 * expected, 0.05);
    }
}

#[test]
fn a_change_takes_effect_at_its_time() {
    let limit = LimitModel {
        changes: vec![LimitChange {
            after_ns: 2 * SECOND,
            rate: 250.0,
        }],
        ..operations(1000.0)
    };
    let mut storage = volume(&[limit]);
    assert_close(count_until(&mut storage, 2, PAGE), 2000.0, 0.002);
    // Those that were in flight are complete in the second part.
    assert_close(count_until(&mut storage, 4, PAGE), 1000.0, 0.03);
}

#[test]
fn credits_clock_and_touched_regions_outlive_a_run_and_a_purge() {
    let limit = LimitModel {
        burst_rate: Some(3000.0),
        bucket: 5400.0,
        changes: vec![LimitChange {
            after_ns: 5 * SECOND,
            rate: 600.0,
        }],
        ..operations(300.0)
    };
    let mut storage = volume(std::slice::from_ref(&limit));
    count_until(&mut storage, 3, PAGE);
    storage.settle();
    let mut saved = Vec::new();
    storage.save_limits(&mut saved).unwrap();
    // The drive is new, its limits are not.
    let mut storage = volume(std::slice::from_ref(&limit));
    storage.load_limits(&mut saved.as_slice()).unwrap();
    assert_close(count_until(&mut storage, 1, PAGE), 300.0, 0.06);
    assert_close(count_until(&mut storage, 5, PAGE), 300.0 + 4.0 * 600.0, 0.05);
    assert!(volume(&[operations(1.0)]).load_limits(&mut saved.as_slice()).is_err());
}

#[test]
fn the_first_access_to_a_region_takes_longer() {
    let mut model = crosspoint();
    model.first_touch = Some(FirstTouchModel {
        time_ns: 5_000_000,
        region_bytes: 1 << 20,
    });
    let mut storage = Storage::new(&model, &SINGLE, 1).unwrap();
    let mut latency = |page: u64, bytes: u64| {
        let begin_ns = storage.now();
        let request = Request {
            operation: Action::Read,
            offset_bytes: page * PAGE,
            bytes,
            durable: false,
        };
        storage.submit(page, &request);
        storage.advance(u64::MAX);
        assert!(storage.completed().is_some());
        storage.now() - begin_ns
    };
    let (first, second) = (latency(0, PAGE), latency(1, PAGE));
    assert_eq!(first - second, 5_000_000);
    let (two, again) = (latency(256 * 3 - 1, 2 * PAGE), latency(256 * 3 - 1, 2 * PAGE));
    assert_eq!(two - again, 10_000_000);
    let mut saved = Vec::new();
    storage.save_limits(&mut saved).unwrap();
    let mut later = Storage::new(&model, &SINGLE, 1).unwrap();
    later.load_limits(&mut saved.as_slice()).unwrap();
    later.submit(1, &scattered(0, Action::Read, PAGE));
    later.advance(u64::MAX);
    assert!(later.completed().is_some());
    assert_eq!(later.now(), second);
}

#[test]
fn the_host_counts_what_a_limit_throttles_as_in_flight() {
    let mut storage = volume(&[operations(1000.0)]);
    count_until(&mut storage, 2, PAGE);
    let usage = storage.usage().remove(0);
    assert_eq!(usage.in_flight, 16);
    assert_close(usage.busy_ns as f64, 2e9, 0.001);
    // Little: 16 in flight at 1,000 a second wait 16 ms.
    assert_close(usage.read_wait_ns as f64 / usage.reads as f64, 16e6, 0.01);
}
