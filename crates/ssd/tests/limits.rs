//! Rate limits against closed forms of the token bucket: with rate r, bucket B and bursts at b, a load that asks for more
//! gets B b / (b - r) operations in B / (b - r) seconds, and r per second from then on.

mod common;

use common::*;
use iosonde_protocol::*;
use iosonde_ssd::sample::{SINGLE, crosspoint};
use iosonde_ssd::{Action, Request, Storage};

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
    drive(&model)
}

/// Bursts at ten times the rate, for two seconds.
fn bursting() -> LimitModel {
    LimitModel {
        burst_rate: Some(3000.0),
        bucket: 5400.0,
        ..operations(300.0)
    }
}

/// Every other page, so that nothing is sequential.
fn scattered(number: u64, operation: Action, bytes: u64) -> Request {
    io(
        operation,
        number * 7919 % 1024 * 2 * bytes.max(PAGE) % (200 << 20),
        bytes,
    )
}

/// Keeps 16 in flight until an instant: when each was complete, and its number.
fn load_until(storage: &mut Storage, end_ns: u64, next: impl FnMut(u64) -> Request) -> Vec<(u64, u64)> {
    closed_loop(storage, 16, end_ns, |_| false, next)
}

fn count_until(storage: &mut Storage, seconds: u64, bytes: u64) -> f64 {
    let end_ns = storage.now() + seconds * SECOND;
    load_until(storage, end_ns, |number| scattered(number, Action::Read, bytes)).len() as f64
}

#[test]
fn a_rate_is_met_exactly_at_any_size_and_several_hold_at_once() {
    for (limit, bytes, expected) in [
        (operations(1000.0), PAGE, 1000.0),
        (bytes(8e6), PAGE, 8e6 / 4096.0),
        (bytes(8e6), 64 << 10, 8e6 / 65536.0),
        (operations(333_333.0), PAGE, 333_333.0),
    ] {
        let mut storage = volume(&[limit]);
        assert_within(count_until(&mut storage, 3, bytes), 3.0 * expected, 0.003);
    }
    let limits = [operations(2000.0), bytes(16e6)];
    // 4 KiB: 2,000 a second are 8.2 MB; 64 KiB: 16 MB are 244 a second.
    assert_within(count_until(&mut volume(&limits), 3, PAGE), 6000.0, 0.003);
    assert_within(count_until(&mut volume(&limits), 3, 64 << 10), 48e6 / 65536.0, 0.01);
}

#[test]
fn a_bucket_is_spent_at_the_burst_rate_and_refilled_by_rest() {
    let mut storage = volume(&[bursting()]);
    // 5400 / (3000 - 300) = 2 seconds.
    let done = load_until(&mut storage, 6 * SECOND, |number| scattered(number, Action::Read, PAGE));
    let until = |at_ns| done.iter().filter(|(done_ns, _)| *done_ns <= at_ns).count() as f64;
    assert_within(until(SECOND), 3000.0, 0.002);
    assert_within(until(2 * SECOND), 6000.0, 0.002);
    assert_within(until(6 * SECOND) - until(2 * SECOND), 4.0 * 300.0, 0.005);
    for (rest_s, expected) in [(4, 4.0 * 300.0), (100, 5400.0)] {
        let mut storage = volume(&[bursting()]);
        count_until(&mut storage, 6, PAGE);
        while storage.usage()[0].in_flight > 0 {
            storage.advance(u64::MAX);
            while storage.completed().is_some() {}
        }
        let begin_ns = storage.now();
        storage.advance(begin_ns + rest_s * SECOND);
        // In t seconds it does what it has saved and 300 t, once the savings are spent.
        assert_within(count_until(&mut storage, 3, PAGE), expected + 3.0 * 300.0, 0.02);
    }
}

#[test]
fn operations_are_counted_by_started_units_and_merged_in_order() {
    let mut limit = operations(1000.0);
    limit.unit_bytes = Some(16 << 10);
    for (size, units) in [(4 << 10, 1.0), (16 << 10, 1.0), (20 << 10, 2.0), (64 << 10, 4.0)] {
        let mut storage = volume(std::slice::from_ref(&limit));
        assert_within(count_until(&mut storage, 3, size), 3000.0 / units, 0.01);
    }
    let mut limit = operations(100.0);
    limit.unit_bytes = Some(256 << 10);
    limit.merge = true;
    let in_order = |number: u64| write(number * (16 << 10) % (200 << 20), 16 << 10);
    let merged = load_until(&mut volume(std::slice::from_ref(&limit)), 4 * SECOND, in_order);
    assert_within(merged.len() as f64, 16.0 * 400.0, 0.02);
    assert_within(count_until(&mut volume(&[limit]), 4, 16 << 10), 400.0, 0.01);
}

#[test]
fn weights_divide_a_shared_budget_and_0_lets_pass() {
    let alternate = |number: u64| {
        let operation = [Action::Read, Action::Write][(number % 2) as usize];
        scattered(number, operation, PAGE)
    };
    let mut weighted = operations(4000.0);
    weighted.write_weight = 3.0;
    // A read and a write cost 4 credits.
    let done = load_until(&mut volume(&[weighted]), 3 * SECOND, alternate);
    assert_within(done.len() as f64, 3.0 * 2000.0, 0.01);
    let mut writes_only = operations(100.0);
    writes_only.read_weight = 0.0;
    let reads = count_until(&mut volume(std::slice::from_ref(&writes_only)), 1, PAGE);
    let free = count_until(&mut volume(&[]), 1, PAGE);
    assert_within(reads, free, 1e-9);
    let writes = load_until(&mut volume(&[writes_only]), 4 * SECOND, |number| {
        scattered(number, Action::Write, PAGE)
    });
    assert_within(writes.len() as f64, 400.0, 0.01);
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
        let next = |number| scattered(number, Action::Read, PAGE);
        let done = load_until(&mut drive(&model), SECOND, next);
        assert_within(done.len() as f64, 10_000.0, 0.005);
        let intervals = done[100..].windows(2).map(|pair| pair[1].0 - pair[0].0);
        intervals.collect::<Vec<_>>()
    };
    assert!(intervals(LimitStyle::Paced).iter().all(|interval| *interval == 100_000));
    assert!(intervals(LimitStyle::Queue).iter().any(|interval| *interval != 100_000));
}

#[test]
fn a_limit_of_the_machine_is_shared_by_the_drives_of_an_array() {
    for (shared_by, expected) in [(SharedBy::Volume, 4000.0), (SharedBy::Machine, 1000.0)] {
        let mut model = crosspoint();
        model.limits = vec![LimitModel {
            shared_by,
            ..operations(1000.0)
        }];
        let mut storage = array(&model, SINGLE.level, 4);
        let mut random = iosonde_harness::load::Rng::new(3, &[]);
        let next = |_| scattered(random.below(1 << 20), Action::Read, PAGE);
        let done = closed_loop(&mut storage, 256, 2 * SECOND, |_| false, next);
        assert_within(done.len() as f64, 2.0 * expected, 0.05);
    }
}

#[test]
fn a_change_takes_effect_at_its_time_and_throttled_requests_are_in_flight() {
    let limit = LimitModel {
        changes: vec![LimitChange {
            after_ns: 2 * SECOND,
            rate: 250.0,
        }],
        ..operations(1000.0)
    };
    let mut storage = volume(&[limit]);
    assert_within(count_until(&mut storage, 2, PAGE), 2000.0, 0.002);
    // Those that were in flight are complete in the second part.
    assert_within(count_until(&mut storage, 4, PAGE), 1000.0, 0.03);
    let mut storage = volume(&[operations(1000.0)]);
    count_until(&mut storage, 2, PAGE);
    let usage = storage.usage().remove(0);
    assert_eq!(usage.in_flight, 16);
    assert_within(usage.busy_ns as f64, 2e9, 0.001);
    // Little: 16 in flight at 1,000 a second wait 16 ms.
    assert_within(usage.read_wait_ns as f64 / usage.reads as f64, 16e6, 0.01);
}

#[test]
fn credits_clock_and_touched_regions_outlive_a_run_and_a_purge() {
    let limit = LimitModel {
        changes: vec![LimitChange {
            after_ns: 5 * SECOND,
            rate: 600.0,
        }],
        ..bursting()
    };
    let mut storage = volume(std::slice::from_ref(&limit));
    count_until(&mut storage, 3, PAGE);
    storage.settle();
    let mut saved = Vec::new();
    storage.save_limits(&mut saved).unwrap();
    // The drive is new, its limits are not.
    let mut storage = volume(std::slice::from_ref(&limit));
    storage.load_limits(&mut saved.as_slice()).unwrap();
    assert_within(count_until(&mut storage, 1, PAGE), 300.0, 0.06);
    assert_within(count_until(&mut storage, 5, PAGE), 300.0 + 4.0 * 600.0, 0.05);
    assert!(volume(&[operations(1.0)]).load_limits(&mut saved.as_slice()).is_err());
}

#[test]
fn the_first_access_to_a_region_takes_longer() {
    let mut model = crosspoint();
    model.first_touch = Some(FirstTouchModel {
        time_ns: 5_000_000,
        region_bytes: 1 << 20,
    });
    let mut storage = drive(&model);
    let mut latency = |page: u64, pages: u64| carry_out(&mut storage, &io(Action::Read, page * PAGE, pages * PAGE));
    let (first, second) = (latency(0, 1), latency(1, 1));
    assert_eq!(first - second, 5_000_000);
    let (two, again) = (latency(256 * 3 - 1, 2), latency(256 * 3 - 1, 2));
    assert_eq!(two - again, 10_000_000);
    let mut saved = Vec::new();
    storage.save_limits(&mut saved).unwrap();
    let mut later = drive(&model);
    later.load_limits(&mut saved.as_slice()).unwrap();
    assert_eq!(carry_out(&mut later, &io(Action::Read, 0, PAGE)), second);
}
