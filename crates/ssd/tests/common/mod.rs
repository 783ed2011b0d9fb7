//! Common parts of the tests: requests, a closed loop, and comparison with theory.
#![allow(dead_code, reason = "each test file uses its part")]

use iosonde_protocol::*;
use iosonde_ssd::sample::SINGLE;
use iosonde_ssd::{Action, Request, Storage};

pub const PAGE: u64 = 4096;

pub fn io(operation: Action, offset_bytes: u64, bytes: u64) -> Request {
    Request {
        operation,
        offset_bytes,
        bytes,
        durable: false,
    }
}

pub fn write(offset_bytes: u64, bytes: u64) -> Request {
    io(Action::Write, offset_bytes, bytes)
}

pub fn drive(model: &DriveModel) -> Storage {
    Storage::new(model, &SINGLE, 1).unwrap()
}

pub fn filled(model: &DriveModel) -> Storage {
    let mut storage = drive(model);
    storage.fill(storage.capacity_bytes(), false);
    storage
}

pub fn array(model: &DriveModel, level: RaidLevel, drives: u32) -> Storage {
    let mut array = SINGLE;
    array.level = level;
    array.drives = drives;
    Storage::new(model, &array, 1).unwrap()
}

/// Carries out one request; the time that it took.
pub fn carry_out(storage: &mut Storage, request: &Request) -> u64 {
    let begin_ns = storage.now();
    storage.submit(1, request);
    storage.advance(u64::MAX);
    assert_eq!(storage.completed(), Some((1, request.bytes)));
    storage.now() - begin_ns
}

/// Keeps this many requests in flight until `is_over` of the number of complete ones, and at most until `end_ns`; the
/// instant of each that is complete, and its number.
pub fn closed_loop(
    storage: &mut Storage,
    in_flight: u64,
    end_ns: u64,
    is_over: impl Fn(usize) -> bool,
    mut next: impl FnMut(u64) -> Request,
) -> Vec<(u64, u64)> {
    let (mut issued, mut done) = (in_flight, Vec::new());
    (0..in_flight).for_each(|number| storage.submit(number, &next(number)));
    while storage.now() < end_ns && !is_over(done.len()) {
        storage.advance(end_ns);
        while let Some((number, _)) = storage.completed() {
            done.push((storage.now(), number));
            storage.submit(issued, &next(issued));
            issued += 1;
        }
    }
    done
}

#[track_caller]
pub fn assert_within(found: f64, expected: f64, tolerance: f64) {
    let is_within = (found / expected - 1.0).abs() <= tolerance;
    assert!(is_within, "found {found}, theory says {expected}");
}
