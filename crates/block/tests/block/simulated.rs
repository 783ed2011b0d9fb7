//! The driver loop against a device whose truth is known: k servers, queueing theory, virtual time.

use crate::common::*;
use iosonde_protocol::*;

const READ_NS: u64 = 100_000;
const SERVERS: u32 = 4;
const SECOND: u64 = 1_000_000_000;

fn device(servers: u32, read_service_ns: u64, service: Service) -> Backend {
    Backend::Simulated {
        servers,
        read_service_ns,
        write_service_ns: read_service_ns / 5,
        service,
        stalls: Vec::new(),
    }
}

fn ramp(duration_ns: u64) -> Ramp {
    Ramp {
        duration_ns,
        bytes: None,
        until_steady: None,
    }
}

fn simulated(service: Service) -> BlockWorkload {
    let backend = device(SERVERS, READ_NS, service);
    let mut workload = workload(Target::Virtual { size_bytes: 1 << 40 }, backend, 1 << 40);
    workload.ramp = ramp(100_000_000);
    workload.duration_ns = Some(5_000_000_000);
    workload.interval_ns = 1_000_000_000;
    workload
}

fn iops(result: &RunResult, intervals: &[Interval]) -> f64 {
    let (count, ..) = totals(intervals, Operation::Read);
    count as f64 * 1e9 / (result.end_ns - result.begin_ns) as f64
}

/// Operations of a stream in each interval.
fn counts(intervals: &[Interval], stream: usize) -> Vec<u64> {
    let operations = |interval: &Interval| interval.streams[stream].operations.iter().map(|o| o.count).sum();
    intervals.iter().map(operations).collect()
}

#[track_caller]
fn assert_within(measured: f64, expected: f64, tolerance: f64) {
    let is_within = (measured / expected - 1.0).abs() <= tolerance;
    assert!(is_within, "measured {measured}, theory says {expected}");
}

#[test]
fn iops_and_latency_follow_the_closed_form_below_at_and_above_the_servers() {
    for (jobs, queue_depth) in [(1, 1), (1, 3), (1, 4), (2, 2), (1, 64), (8, 16)] {
        let mut workload = simulated(Service::Constant);
        workload.streams[0].jobs = jobs;
        workload.streams[0].queue_depth = queue_depth;
        let (result, intervals) = run(&workload).unwrap();
        let (count, _, sum_ns) = totals(&intervals, Operation::Read);
        let in_flight = f64::from(jobs * queue_depth);
        let busy = in_flight.min(f64::from(SERVERS));
        assert_within(iops(&result, &intervals), busy / (READ_NS as f64 / 1e9), 0.001);
        assert_within(sum_ns as f64 / count as f64, READ_NS as f64 * in_flight / busy, 0.001);
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_the_throughput_of_a_saturated_device() {
    let workload = simulated(Service::Exponential);
    let (_, first) = run(&workload).unwrap();
    let (_, second) = run(&workload).unwrap();
    let streams = |intervals: &[Interval]| intervals.iter().map(|i| i.streams.clone()).collect::<Vec<_>>();
    assert_eq!(streams(&first), streams(&second));
    let mut workload = simulated(Service::Exponential);
    workload.streams[0].queue_depth = 64;
    workload.duration_ns = Some(15 * SECOND);
    let (result, intervals) = run(&workload).unwrap();
    let expected = f64::from(SERVERS) / (READ_NS as f64 / 1e9);
    assert_within(iops(&result, &intervals), expected, 0.01);
}

#[test]
fn open_loop_latency_counts_from_the_intended_start_and_shows_the_backlog() {
    let mut workload = simulated(Service::Constant);
    // 4 servers of 100 us take 40,000 reads a second; 50,000 are wanted, so the queue grows by 10,000 each second.
    workload.streams[0].arrival = Arrival::Constant { rate: 50_000.0 };
    workload.ramp = Ramp::default();
    let (_, intervals) = run(&workload).unwrap();
    let last = &intervals.last().unwrap().streams[0];
    assert_within(last.backlog_max as f64, 50_000.0, 0.01);
    let reads = &last.operations[0];
    let response = reads.response_latency.as_ref().unwrap();
    // The last I/O that completes at 5 s was due at 4 s: it waited 1 s.
    assert_within(response.max_ns as f64, 1e9, 0.01);
    assert!(reads.completion_latency.max_ns <= 300_000, "service itself stays short");
}

#[test]
fn limits_hold_to_the_byte_and_the_operation() {
    let mut workload = simulated(Service::Constant);
    workload.duration_ns = None;
    workload.ramp = Ramp {
        bytes: Some(1000 * 4096),
        ..ramp(SECOND)
    };
    workload.streams[0].jobs = 3;
    workload.streams[0].limit_operations = Some(10_000);
    let (result, intervals) = run(&workload).unwrap();
    let measured: u64 = result.jobs.iter().map(|job| job.operations).sum();
    // With those of the ramp.
    assert_eq!(counts(&intervals, 0).iter().sum::<u64>(), 10_999);
    assert!(measured >= 10_000);
}

/// One server and an open loop that is never short of slots.
fn one_server(service_ns: u64, arrival: Arrival, seconds: u64) -> BlockWorkload {
    let mut workload = simulated(Service::Constant);
    workload.backend = device(1, service_ns, Service::Constant);
    workload.streams[0].queue_depth = 16_384;
    workload.streams[0].arrival = arrival;
    workload.ramp = ramp(SECOND);
    workload.duration_ns = Some(seconds * 1_000_000_000);
    workload
}

fn stall(workload: &mut BlockWorkload, at_ns: u64, duration_ns: u64) {
    if let Backend::Simulated { stalls, .. } = &mut workload.backend {
        stalls.push(Stall { at_ns, duration_ns });
    }
}

/// Values of a histogram that lie in a range, by its buckets' lower bounds.
fn between(histogram: &Histogram, from_ns: u64, to_ns: u64) -> u64 {
    let in_range = |bucket: u32| (from_ns..to_ns).contains(&iosonde_harness::metrics::histogram::bucket_lower(bucket));
    let found = histogram.buckets.iter().filter(|(bucket, _)| in_range(*bucket));
    found.map(|(_, count)| count).sum()
}

#[test]
fn waiting_times_follow_the_formula_for_poisson_arrivals_at_a_constant_server() {
    // M/D/1 (Pollaczek 1930, Khinchine 1932): mean wait = utilisation * service / (2 * (1 - utilisation)).
    const SERVICE_NS: f64 = 10_000.0;
    for (utilisation, seconds) in [(0.5, 5), (0.8, 10), (0.9, 30)] {
        let arrival = Arrival::Poisson {
            rate: utilisation / SERVICE_NS * 1e9,
        };
        let (_, intervals) = run(&one_server(SERVICE_NS as u64, arrival, seconds)).unwrap();
        let measured = intervals.iter().filter(|interval| interval.phase == Phase::Measure);
        let (mut count, mut sum_ns) = (0, 0);
        for interval in measured {
            assert_eq!(interval.streams[0].backlog_max, 0, "every arrival finds a slot");
            let response = interval.streams[0].operations[0].response_latency.as_ref().unwrap();
            count += response.count;
            sum_ns += response.sum_ns;
        }
        let expected_ns = utilisation * SERVICE_NS / (2.0 * (1.0 - utilisation));
        assert_within(sum_ns as f64 / count as f64 - SERVICE_NS, expected_ns, 0.03);
    }
}

#[test]
fn a_stall_shows_in_empty_intervals_a_thousand_late_reads_in_open_loop_and_one_in_closed_loop() {
    let mut open = one_server(1_000, Arrival::Constant { rate: 1_000.0 }, 5);
    stall(&mut open, 3_000_000_000, 1_000_000_000);
    let (_, intervals) = run(&open).unwrap();
    let late = |from_ms: u64, to_ms: u64| -> u64 {
        let reads = intervals.iter().flat_map(|interval| &interval.streams[0].operations);
        let latencies = reads.map(|read| read.response_latency.as_ref().unwrap());
        latencies
            .map(|latency| between(latency, from_ms * 1_000_000, to_ms * 1_000_000))
            .sum()
    };
    // An arrival t after the stall began waits for the rest of it, and for those before it in the queue.
    assert_within(late(1, 1_100) as f64, 1_000.0, 0.01);
    for tenth in 0..10 {
        let found = late(tenth * 100, (tenth + 1) * 100).min(110);
        assert_within(found as f64, 100.0, if tenth == 0 { 0.11 } else { 0.03 });
    }

    let mut closed = one_server(10_000, Arrival::Closed, 5);
    closed.streams[0].queue_depth = 1;
    stall(&mut closed, 3_000_000_000, 1_000_000_000);
    let (_, intervals) = run(&closed).unwrap();
    let reads = intervals.iter().flat_map(|interval| &interval.streams[0].operations);
    let late = reads.map(|read| between(&read.completion_latency, 1_000_000, u64::MAX));
    let late: u64 = late.sum();
    assert_eq!(late, 1, "the closed loop asked for nothing while it waited");
    let backend = device(1, 3_500_000_000, Service::Constant);
    let mut workload = workload(Target::Virtual { size_bytes: MIB }, backend, MIB);
    workload.streams[0].queue_depth = 1;
    workload.duration_ns = Some(8_000_000_000);
    workload.interval_ns = 1_000_000_000;
    let (_, intervals) = run(&workload).unwrap();
    assert_eq!(counts(&intervals, 0), [0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn a_target_that_cannot_keep_up_shows_in_what_was_due_and_what_was_started() {
    let steps = [(50_000.0, 2 * SECOND), (200_000.0, 1)];
    let arrival = Arrival::Steps {
        steps: steps.map(|(rate, duration_ns)| RateStep { rate, duration_ns }).to_vec(),
        spacing: Spacing::Constant,
    };
    let mut workload = one_server(10_000, arrival, 3);
    workload.streams[0].queue_depth = 8;
    let (result, _) = run(&workload).unwrap();
    let schedule = result.jobs[0].schedule.unwrap();
    // 1 s of ramp and 1 s of measurement at 50,000, then 2 s at 200,000 for a server that takes 100,000.
    assert_within(schedule.due as f64, 500_000.0, 0.001);
    assert_within(schedule.started as f64, 300_000.0, 0.001);
    assert_within(schedule.start_lag_ns_max as f64, 1e9, 0.001);
}

#[test]
fn a_target_that_keeps_up_starts_everything_that_is_due_at_once() {
    for arrival in [
        Arrival::Poisson { rate: 50_000.0 },
        Arrival::Constant { rate: 50_000.0 },
    ] {
        let (result, _) = run(&one_server(10_000, arrival.clone(), 3)).unwrap();
        let schedule = result.jobs[0].schedule.unwrap();
        assert_within(schedule.due as f64, 200_000.0, 0.01);
        // An arrival at the very end of the measurement counts as due, but the load has ended by then.
        assert!(schedule.due - schedule.started <= 1, "{arrival:?}: {schedule:?}");
        assert_eq!(schedule.start_lag_ns_max, 0, "{arrival:?}");
    }
}

#[test]
fn load_and_pause_can_alternate() {
    let mut workload = simulated(Service::Constant);
    workload.ramp.duration_ns = 0;
    workload.duration_ns = Some(6 * SECOND);
    let window = Active {
        begin_ns: SECOND,
        end_ns: Some(2 * SECOND),
        every_ns: Some(2 * SECOND),
    };
    workload.streams[0].active = Some(window);
    let (_, intervals) = run(&workload).unwrap();
    let active = counts(&intervals, 0).into_iter().map(|count| count > 10);
    assert!(active.eq([false, true, false, true, false, true]));
    let (every_ns, end_ns) = (Some(SECOND / 2), None);
    for wrong in [Active { every_ns, ..window }, Active { end_ns, ..window }] {
        workload.streams[0].active = Some(wrong);
        assert_fails(run(&workload), "invalid_spec", "`main`, `active`");
    }
    workload.streams[0].active = Some(window);
    workload.streams[0].arrival = Arrival::Constant { rate: 100.0 };
    assert_fails(run(&workload), "invalid_spec", "`main`, `active`");
}

#[test]
fn a_stream_can_be_active_in_a_part_of_the_measurement_only() {
    for arrival in [Arrival::Closed, Arrival::Constant { rate: 20_000.0 }] {
        let mut workload = simulated(Service::Constant);
        let mut writer = workload.streams[0].clone();
        writer.name = "writer".into();
        writer.mix.read_fraction = 0.0;
        writer.arrival = arrival.clone();
        writer.active = Some(Active {
            begin_ns: SECOND,
            end_ns: Some(3 * SECOND),
            every_ns: None,
        });
        workload.streams.push(writer);
        let (result, intervals) = run(&workload).unwrap();
        // The ramp and five seconds.
        let active = counts(&intervals, 1).into_iter().map(|count| count > 10);
        assert!(active.eq([false, false, true, true, false, false]), "{arrival:?}");
        if let Some(schedule) = result.jobs[1].schedule {
            assert_within(schedule.due as f64, 40_000.0, 0.001);
            // The schedule begins with the window.
            assert!(schedule.start_lag_ns_max < 1_000_000, "{schedule:?}");
        }
    }
}
