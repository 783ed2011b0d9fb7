//! Properties of a drive other than speed: determinism, integrity of its mapping, saving and loading.

mod common;

use common::*;
use iosonde_harness::load::Rng;
use iosonde_harness::metrics::usage;
use iosonde_protocol::*;
use iosonde_ssd::sample::{SINGLE, crosspoint, flash};
use iosonde_ssd::{Action, Request, StateError, Storage};

fn request(operation: Action, page: u64, pages: u64) -> Request {
    io(operation, page * PAGE, pages * PAGE)
}

/// A mix of everything, eight in flight; when each I/O was complete.
fn mixed(storage: &mut Storage, count: usize, seed: u64) -> Vec<(u64, u64)> {
    let pages = storage.capacity_bytes() / PAGE - 64;
    let mut rng = Rng::new(seed, &[]);
    let next = |_| {
        let operation = match rng.below(20) {
            0 => Action::Trim,
            1..=8 => Action::Read,
            _ => Action::Write,
        };
        request(operation, rng.below(pages), 1 + rng.below(8) * rng.below(2))
    };
    closed_loop(storage, 8, u64::MAX, |done| done >= count, next)
}

/// Writes pages one after the other; the time that took.
fn writes(storage: &mut Storage, pages: impl Iterator<Item = u64>) -> u64 {
    let begin_ns = storage.now();
    pages.for_each(|page| {
        carry_out(storage, &request(Action::Write, page, 1));
    });
    storage.now() - begin_ns
}

fn flash_with(change: impl FnOnce(&mut Translation)) -> DriveModel {
    let mut model = flash();
    change(&mut model.translation);
    model
}

fn saved(storage: &Storage) -> Vec<u8> {
    let mut bytes = Vec::new();
    storage.save(&mut bytes).unwrap();
    bytes
}

fn uneven() -> DriveModel {
    let mut model = flash();
    model.media.time_spread = 0.2;
    model.media.retry_fraction = 0.01;
    model.media.retry_ns = 200_000;
    model
}

#[test]
fn the_same_seed_gives_the_same_instants_and_no_damaged_byte_goes_unnoticed() {
    let run = |seed| {
        let mut storage = Storage::new(&uneven(), &SINGLE, seed).unwrap();
        storage.fill(storage.capacity_bytes(), false);
        mixed(&mut storage, 20_000, 3)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let mut storage = drive(&flash());
    mixed(&mut storage, 30_000, 5);
    storage.settle();
    let state = saved(&storage);
    for position in (24..state.len()).step_by(state.len() / 100 + 1) {
        let mut damaged = state.clone();
        damaged[position] ^= 0x41;
        let loaded = drive(&flash()).load(&mut damaged.as_slice());
        assert!(loaded.is_err(), "byte {position}");
    }
}

#[test]
fn a_drive_that_was_saved_and_loaded_goes_on_as_if_nothing_had_happened() {
    for (of_drive, drives) in [
        (Collection::Greedy, 1),
        (Collection::LeastRecentlyWritten, 1),
        (Collection::Greedy, 3),
    ] {
        let model = flash_with(|translation| {
            if let Translation::PageMapped { collection, .. } = translation {
                *collection = of_drive;
            }
        });
        let mut kept = array(&model, SINGLE.level, drives);
        kept.fill(kept.capacity_bytes(), false);
        mixed(&mut kept, 60_000, 3);
        kept.settle();
        let state = saved(&kept);
        let mut loaded = array(&model, SINGLE.level, drives);
        loaded.load(&mut state.as_slice()).unwrap();
        assert_eq!(saved(&loaded), state, "a state survives the way there and back");
        assert_eq!(mixed(&mut kept, 30_000, 4), mixed(&mut loaded, 30_000, 4));
    }
}

#[test]
fn a_state_survives_in_few_bytes_and_one_of_something_else_is_refused() {
    let state = saved(&drive(&flash()));
    let load = |mut storage: Storage, bytes: &[u8]| storage.load(&mut &bytes[..]).unwrap_err();
    let two = array(&flash(), SINGLE.level, 2);
    assert!(matches!(load(drive(&crosspoint()), &state), StateError::OtherModel));
    assert!(matches!(load(two, &state), StateError::OtherModel));
    for foreign in [&b"GIF89a, and more than that"[..], b""] {
        assert!(matches!(load(drive(&flash()), foreign), StateError::Foreign));
    }
    let half = &state[..state.len() / 2];
    assert!(matches!(load(drive(&flash()), half), StateError::Io(_)));
    let mut newer = state.clone();
    newer[8] += 1;
    assert!(matches!(load(drive(&flash()), &newer), StateError::Version(2)));
    let storage = filled(&flash());
    assert!(saved(&storage).len() < 4000, "{} bytes", saved(&storage).len());
}

#[test]
fn saving_a_large_drive_reads_the_tables_only_where_it_was_written() {
    let mut model = flash_with(|translation| {
        if let Translation::PageMapped { block_programs, .. } = translation {
            *block_programs = 512;
        }
    });
    // The table of its physical pages, four bytes each, takes 80,000 pages of memory.
    model.capacity_bytes = 256 << 30;
    let mut storage = drive(&model);
    storage.fill(64 << 20, false);
    let before = usage::thread(0).minor_faults;
    let state = saved(&storage);
    drive(&model).load(&mut state.as_slice()).unwrap();
    let faults = usage::thread(0).minor_faults - before;
    assert!(faults < 1000, "{faults} page faults");
}

#[test]
fn trimming_lowers_amplification_and_what_is_trimmed_is_not_read() {
    let amplification = |trimmed: bool| {
        let mut storage = filled(&flash());
        let pages = flash().capacity_bytes / PAGE;
        if trimmed {
            // The other half is never written again, and need not be kept.
            storage.submit(0, &request(Action::Trim, pages / 2, pages / 2));
            storage.advance(u64::MAX);
            storage.completed();
        }
        let mut rng = Rng::new(7, &[]);
        writes(&mut storage, (0..2 * pages).map(|_| rng.below(pages / 2)));
        let usage = storage.usage()[0].clone();
        usage.media.unwrap().media_write_bytes as f64 / usage.write_bytes as f64
    };
    let (with, without) = (amplification(true), amplification(false));
    assert!(with < 0.8 * without, "{with} with trim, {without} without");
    assert!(with < 1.2, "half of the drive is spare room: {with}");
    let mut storage = drive(&flash());
    let media_reads = |storage: &mut Storage| {
        let before = storage.usage()[0].media.unwrap().media_read_bytes;
        carry_out(storage, &request(Action::Read, 64, 8));
        storage.usage()[0].media.unwrap().media_read_bytes - before
    };
    assert_eq!(media_reads(&mut storage), 0);
    storage.fill(1 << 20, false);
    assert_eq!(media_reads(&mut storage), 8 * PAGE);
    carry_out(&mut storage, &request(Action::Trim, 64, 8));
    assert_eq!(media_reads(&mut storage), 0);
}

#[test]
fn small_sequential_writes_merge_in_the_buffer_and_random_ones_complete_their_pages() {
    let mut storage = filled(&flash());
    let mut one_by_one = |sectors: &mut dyn Iterator<Item = u64>| {
        let before = storage.usage()[0].media.unwrap();
        for number in sectors {
            carry_out(&mut storage, &write(number * 512, 512));
        }
        let after = storage.usage()[0].media.unwrap();
        [
            after.media_write_bytes - before.media_write_bytes,
            after.media_read_bytes - before.media_read_bytes,
        ]
    };
    // Eight sectors become one page.
    assert_eq!(one_by_one(&mut (0..4096)), [4096 * 512, 0]);
    // Each page is read to be completed; the last four still wait for that.
    let scattered = &mut (0..512).map(|number| 8 * number);
    assert_eq!(one_by_one(scattered), [508 * PAGE, 508 * PAGE]);
}

#[test]
fn what_waits_in_the_buffer_is_replaced_read_there_and_written_by_a_flush() {
    let mut storage = drive(&flash());
    writes(&mut storage, [5, 5, 5].into_iter());
    carry_out(&mut storage, &request(Action::Read, 5, 1));
    let media = storage.usage()[0].media.unwrap();
    assert_eq!([media.buffer_write_hits, media.buffer_read_hits], [2, 1]);
    assert_eq!(media.media_write_bytes, 0);
    let flush = |power_loss_protection| {
        let mut model = flash();
        model.buffer.power_loss_protection = power_loss_protection;
        let mut storage = drive(&model);
        writes(&mut storage, 0..1);
        let waited_ns = carry_out(&mut storage, &io(Action::Flush, 0, 0));
        (waited_ns, storage.usage()[0].media.unwrap().padded_bytes)
    };
    assert_eq!(flush(true), (0, 0));
    let (waited_ns, padded_bytes) = flush(false);
    assert!(waited_ns >= 400_000, "{waited_ns} ns");
    assert_eq!(padded_bytes, 3 * PAGE);
}

#[test]
fn fast_cells_and_free_blocks_are_won_back_when_idle() {
    let model = flash_with(|translation| {
        if let Translation::PageMapped { idle_ns, slc, .. } = translation {
            *idle_ns = Some(1_000_000);
            *slc = Some(SlcModel {
                bytes: 8 << 20,
                program_ns: 50_000,
            });
        }
    });
    let mut storage = drive(&model);
    let fast_ns = writes(&mut storage, 0..2048);
    let slow_ns = writes(&mut storage, 2048..4096);
    assert!(slow_ns > 3 * fast_ns, "{fast_ns} {slow_ns}");
    storage.advance(storage.now() + 2_000_000_000);
    let rested_ns = writes(&mut storage, 4096..6144);
    assert!(rested_ns < 2 * fast_ns, "a pause empties the fast cells");
    assert_eq!(storage.usage()[0].media.unwrap().copied_bytes, 8 << 20);
    let model = flash_with(|translation| {
        if let Translation::PageMapped {
            idle_ns,
            idle_free_fraction,
            ..
        } = translation
        {
            (*idle_ns, *idle_free_fraction) = (Some(1_000_000), 0.1);
        }
    });
    let mut storage = filled(&model);
    let (pages, mut rng) = (model.capacity_bytes / PAGE, Rng::new(7, &[]));
    let mut burst_ns = |storage: &mut Storage, count| writes(storage, (0..count).map(|_| rng.below(pages)));
    burst_ns(&mut storage, 2 * pages);
    let busy_ns = burst_ns(&mut storage, 2048);
    storage.advance(storage.now() + 10_000_000_000);
    let rested_ns = burst_ns(&mut storage, 2048);
    assert!(rested_ns * 3 < busy_ns * 2, "{busy_ns} {rested_ns}");
}

#[test]
fn impossible_models_and_arrays_are_refused_with_what_would_be_right() {
    fn over_provisioned(model: &mut DriveModel, by: f64) {
        if let Translation::PageMapped { over_provisioning, .. } = &mut model.translation {
            *over_provisioning = by;
        }
    }
    type Change = fn(&mut DriveModel);
    let cases: [(Change, &str); 13] = [
        (
            |model| over_provisioned(model, 0.0),
            "`translation.over_provisioning` is out of range",
        ),
        (
            |model| over_provisioned(model, -0.1),
            "`translation.over_provisioning` is out of range",
        ),
        (|model| model.media.dies = 7, "7 dies cannot be spread evenly"),
        (|model| model.media.program_bytes = 1000, "a program of 1000 bytes"),
        (|model| model.media.read_ns = 0, "`media` is out of range"),
        (
            |model| model.media.time_spread = 1.0,
            "`media.time_spread` is out of range",
        ),
        (|model| model.capacity_bytes = 0, "`capacity_bytes` is out of range"),
        (|model| model.capacity_bytes = 5000, "`capacity_bytes` is out of range"),
        (|model| model.buffer.bytes = 4096, "a write buffer of 4096 bytes"),
        (|model| model.interface.queue_depth = 0, "`interface` is out of range"),
        (
            |model| model.interface.command_bytes = 100,
            "commands of at most 100 bytes",
        ),
        (
            |model| model.capacity_bytes = 1 << 20,
            "blocks so large that there are only",
        ),
        (
            |model| model.capacity_bytes = 1 << 44,
            "a capacity of 17592186044416 bytes",
        ),
    ];
    for (change, message) in cases {
        let mut model = flash();
        change(&mut model);
        let error = Storage::new(&model, &SINGLE, 1).err().expect("it must be refused");
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(!error.hint.is_empty());
    }
    type ArrayChange = fn(&mut ArrayModel);
    let cases: [(ArrayChange, &str); 4] = [
        (
            |array| (array.level, array.drives) = (RaidLevel::Raid5, 2),
            "a Raid5 of 2 drives",
        ),
        (
            |array| (array.level, array.drives) = (RaidLevel::Raid10, 5),
            "a Raid10 of 5 drives",
        ),
        (|array| array.chunk_bytes = 1000, "a chunk of 1000 bytes"),
        (
            |array| array.bytes_per_second = Some(0),
            "`array.bytes_per_second` is out of range",
        ),
    ];
    for (change, message) in cases {
        let mut array = SINGLE;
        change(&mut array);
        let error = Storage::new(&flash(), &array, 1).err().expect("it must be refused");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn an_array_does_on_its_drives_what_its_level_asks_for() {
    let member_bytes = |level, drives, bytes: u64| {
        let mut storage = array(&flash(), level, drives);
        storage.fill(storage.capacity_bytes(), false);
        carry_out(&mut storage, &write(0, bytes));
        let usage = storage.usage();
        let sum = |bytes: fn(&DeviceUsage) -> u64| usage[1..].iter().map(bytes).sum::<u64>();
        (sum(|drive| drive.read_bytes), sum(|drive| drive.write_bytes))
    };
    let chunk = SINGLE.chunk_bytes;
    assert_eq!(member_bytes(RaidLevel::Raid0, 4, PAGE), (0, PAGE));
    assert_eq!(member_bytes(RaidLevel::Raid1, 3, PAGE), (0, 3 * PAGE));
    assert_eq!(member_bytes(RaidLevel::Raid10, 4, PAGE), (0, 2 * PAGE));
    assert_eq!(member_bytes(RaidLevel::Raid5, 8, PAGE), (2 * PAGE, 2 * PAGE));
    assert_eq!(member_bytes(RaidLevel::Raid6, 8, PAGE), (3 * PAGE, 3 * PAGE));
    assert_eq!(member_bytes(RaidLevel::Raid5, 4, 3 * chunk), (0, 4 * chunk));
    assert_eq!(member_bytes(RaidLevel::Raid6, 4, 2 * chunk), (0, 4 * chunk));
}

#[test]
fn filling_writes_only_what_is_empty() {
    for drives in [1, 4] {
        let mut storage = array(&flash(), SINGLE.level, drives);
        let half = storage.capacity_bytes() / 2;
        assert_eq!(storage.fill(half, false).written_bytes, half);
        let filled = storage.fill(2 * half, false);
        assert_eq!((filled.written_bytes, filled.kept_bytes), (half, half));
        assert_eq!(storage.fill(2 * half, true).written_bytes, 2 * half);
    }
}
