//! Properties of a drive other than speed: determinism, integrity of its mapping, saving and loading.

use iosonde_load::Rng;
use iosonde_protocol::*;
use iosonde_ssd::sample::{SINGLE, crosspoint, flash};
use iosonde_ssd::{Action, Request, StateError, Storage};

const PAGE: u64 = 4096;

fn request(operation: Action, page: u64, pages: u64) -> Request {
    Request {
        operation,
        offset_bytes: page * PAGE,
        bytes: pages * PAGE,
        durable: false,
    }
}

/// A mix of everything, eight in flight; when each I/O was complete.
fn mixed(storage: &mut Storage, count: u64, seed: u64) -> Vec<(u64, u64)> {
    let pages = storage.capacity_bytes() / PAGE - 64;
    let mut rng = Rng::new(seed, &[]);
    let mut next = || {
        let operation = match rng.below(20) {
            0 => Action::Trim,
            1..=8 => Action::Read,
            _ => Action::Write,
        };
        request(operation, rng.below(pages), 1 + rng.below(8) * rng.below(2))
    };
    let mut done = Vec::new();
    (0..8).for_each(|token| storage.submit(token, &next()));
    while (done.len() as u64) < count {
        storage.advance(u64::MAX);
        while let Some((token, _)) = storage.completed() {
            done.push((token, storage.now()));
            storage.submit(token + 8, &next());
        }
    }
    done
}

fn writes(storage: &mut Storage, pages: impl Iterator<Item = u64>) {
    for page in pages {
        storage.submit(page, &request(Action::Write, page, 1));
        storage.advance(u64::MAX);
        while storage.completed().is_some() {}
    }
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
fn the_same_seed_gives_the_same_instants_and_another_seed_others() {
    let run = |seed| {
        let mut storage = Storage::new(&uneven(), &SINGLE, seed).unwrap();
        storage.fill(storage.capacity_bytes(), false);
        mixed(&mut storage, 50_000, 3)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_drive_that_was_saved_and_loaded_goes_on_as_if_nothing_had_happened() {
    for (collection, drives) in [
        (Collection::Greedy, 1),
        (Collection::LeastRecentlyWritten, 1),
        (Collection::Greedy, 3),
    ] {
        let mut model = flash();
        if let Translation::PageMapped {
            collection: of_model, ..
        } = &mut model.translation
        {
            *of_model = collection;
        }
        let array = ArrayModel { drives, ..SINGLE };
        let mut kept = Storage::new(&model, &array, 1).unwrap();
        kept.fill(kept.capacity_bytes(), false);
        mixed(&mut kept, 200_000, 3);
        kept.settle();
        let state = saved(&kept);
        let mut loaded = Storage::new(&model, &array, 1).unwrap();
        loaded.load(&mut state.as_slice()).unwrap();
        assert_eq!(saved(&loaded), state, "a state survives the way there and back");
        assert_eq!(mixed(&mut kept, 100_000, 4), mixed(&mut loaded, 100_000, 4));
    }
}

#[test]
fn a_drive_that_was_filled_in_order_takes_few_bytes() {
    let mut storage = Storage::new(&flash(), &SINGLE, 1).unwrap();
    storage.fill(storage.capacity_bytes(), false);
    assert!(saved(&storage).len() < 4000, "{} bytes", saved(&storage).len());
}

#[test]
fn a_state_of_something_else_is_refused() {
    let storage = Storage::new(&flash(), &SINGLE, 1).unwrap();
    let state = saved(&storage);
    let load = |model: &DriveModel, array: &ArrayModel, bytes: &[u8]| {
        let mut fresh = Storage::new(model, array, 1).unwrap();
        fresh.load(&mut &bytes[..]).unwrap_err()
    };
    let other_array = ArrayModel { drives: 2, ..SINGLE };
    assert!(matches!(load(&crosspoint(), &SINGLE, &state), StateError::OtherModel));
    assert!(matches!(load(&flash(), &other_array, &state), StateError::OtherModel));
    assert!(matches!(
        load(&flash(), &SINGLE, b"GIF89a, and more than that"),
        StateError::Foreign
    ));
    assert!(matches!(load(&flash(), &SINGLE, b""), StateError::Foreign));
    assert!(matches!(
        load(&flash(), &SINGLE, &state[..state.len() / 2]),
        StateError::Io(_)
    ));
    let mut newer = state.clone();
    newer[8] += 1;
    assert!(matches!(load(&flash(), &SINGLE, &newer), StateError::Version(2)));
}

#[test]
fn no_damaged_byte_goes_unnoticed_or_does_harm() {
    let mut storage = Storage::new(&flash(), &SINGLE, 1).unwrap();
    mixed(&mut storage, 30_000, 5);
    storage.settle();
    let state = saved(&storage);
    for position in (24..state.len()).step_by(state.len() / 200 + 1) {
        let mut damaged = state.clone();
        damaged[position] ^= 0x41;
        let mut fresh = Storage::new(&flash(), &SINGLE, 1).unwrap();
        assert!(fresh.load(&mut damaged.as_slice()).is_err(), "byte {position}");
    }
}

#[test]
fn trimming_lowers_amplification() {
    let amplification = |trimmed: bool| {
        let model = flash();
        let mut storage = Storage::new(&model, &SINGLE, 1).unwrap();
        storage.fill(model.capacity_bytes, false);
        let pages = model.capacity_bytes / PAGE;
        if trimmed {
            // The other half is never written again, and need not be kept.
            storage.submit(0, &request(Action::Trim, pages / 2, pages / 2));
        }
        let mut rng = Rng::new(7, &[]);
        writes(&mut storage, (0..2 * pages).map(|_| rng.below(pages / 2)));
        let usage = storage.usage()[0].clone();
        usage.media.unwrap().media_write_bytes as f64 / usage.write_bytes as f64
    };
    let (with, without) = (amplification(true), amplification(false));
    assert!(with < 0.8 * without, "{with} with trim, {without} without");
    assert!(with < 1.2, "half of the drive is spare room: {with}");
}

#[test]
fn reads_of_what_was_never_written_or_was_trimmed_touch_no_media() {
    let mut storage = Storage::new(&flash(), &SINGLE, 1).unwrap();
    let media_reads = |storage: &mut Storage| {
        let before = storage.usage()[0].media.unwrap().media_read_bytes;
        storage.submit(1, &request(Action::Read, 64, 8));
        storage.advance(u64::MAX);
        assert_eq!(storage.completed(), Some((1, 8 * PAGE)));
        storage.usage()[0].media.unwrap().media_read_bytes - before
    };
    assert_eq!(media_reads(&mut storage), 0);
    storage.fill(1 << 20, false);
    assert_eq!(media_reads(&mut storage), 8 * PAGE);
    storage.submit(2, &request(Action::Trim, 64, 8));
    storage.advance(u64::MAX);
    assert_eq!(storage.completed(), Some((2, 8 * PAGE)));
    assert_eq!(media_reads(&mut storage), 0);
}

#[test]
fn small_sequential_writes_merge_in_the_buffer_and_random_ones_complete_their_pages() {
    let mut storage = Storage::new(&flash(), &SINGLE, 1).unwrap();
    storage.fill(storage.capacity_bytes(), false);
    let sector = |number: u64| Request {
        operation: Action::Write,
        offset_bytes: number * 512,
        bytes: 512,
        durable: false,
    };
    let one_by_one = |storage: &mut Storage, sectors: &mut dyn Iterator<Item = u64>| {
        let before = storage.usage()[0].media.unwrap();
        for number in sectors {
            storage.submit(0, &sector(number));
            storage.advance(u64::MAX);
            storage.completed();
        }
        let after = storage.usage()[0].media.unwrap();
        (
            after.media_write_bytes - before.media_write_bytes,
            after.media_read_bytes - before.media_read_bytes,
        )
    };
    assert_eq!(
        one_by_one(&mut storage, &mut (0..4096)),
        (4096 * 512, 0),
        "eight sectors become one page"
    );
    let (written, read) = one_by_one(&mut storage, &mut (0..512).map(|number| 8 * number));
    assert_eq!(
        (written, read),
        (508 * PAGE, 508 * PAGE),
        "each page is read to be completed; the last four still wait for that"
    );
}

#[test]
fn what_waits_in_the_buffer_is_replaced_and_read_there() {
    let mut storage = Storage::new(&flash(), &SINGLE, 1).unwrap();
    writes(&mut storage, [5, 5, 5].into_iter());
    storage.submit(1, &request(Action::Read, 5, 1));
    storage.advance(u64::MAX);
    let media = storage.usage()[0].media.unwrap();
    assert_eq!(
        (media.buffer_write_hits, media.buffer_read_hits, media.media_write_bytes),
        (2, 1, 0)
    );
}

#[test]
fn a_flush_waits_for_the_media_unless_the_buffer_survives_a_power_cut() {
    let flush_ns = |power_loss_protection| {
        let mut model = flash();
        model.buffer.power_loss_protection = power_loss_protection;
        let mut storage = Storage::new(&model, &SINGLE, 1).unwrap();
        writes(&mut storage, 0..1);
        let before_ns = storage.now();
        storage.submit(
            9,
            &Request {
                operation: Action::Flush,
                offset_bytes: 0,
                bytes: 0,
                durable: false,
            },
        );
        storage.advance(u64::MAX);
        assert_eq!(storage.completed(), Some((9, 0)));
        let media = storage.usage()[0].media.unwrap();
        (storage.now() - before_ns, media.padded_bytes)
    };
    assert_eq!(flush_ns(true), (0, 0));
    let (waited_ns, padded_bytes) = flush_ns(false);
    assert!(waited_ns >= 400_000, "{waited_ns} ns");
    assert_eq!(padded_bytes, 3 * PAGE);
}

#[test]
fn fast_cells_take_a_burst_and_are_folded_when_idle() {
    let mut model = flash();
    if let Translation::PageMapped { idle_ns, slc, .. } = &mut model.translation {
        *idle_ns = Some(1_000_000);
        *slc = Some(SlcModel {
            bytes: 8 << 20,
            program_ns: 50_000,
        });
    }
    let mut storage = Storage::new(&model, &SINGLE, 1).unwrap();
    let burst_ns = |storage: &mut Storage, first: u64| {
        let begin_ns = storage.now();
        writes(storage, first..first + 2048);
        storage.now() - begin_ns
    };
    let fast_ns = burst_ns(&mut storage, 0);
    let slow_ns = burst_ns(&mut storage, 2048);
    assert!(
        slow_ns > 3 * fast_ns,
        "{fast_ns} ns while there is room, {slow_ns} ns after"
    );
    storage.advance(storage.now() + 2_000_000_000);
    assert!(
        burst_ns(&mut storage, 4096) < 2 * fast_ns,
        "a pause empties the fast cells"
    );
    assert_eq!(storage.usage()[0].media.unwrap().copied_bytes, 8 << 20);
}

#[test]
fn idle_time_gives_free_blocks_back() {
    let mut model = flash();
    if let Translation::PageMapped {
        idle_ns,
        idle_free_fraction,
        ..
    } = &mut model.translation
    {
        (*idle_ns, *idle_free_fraction) = (Some(1_000_000), 0.1);
    }
    let mut storage = Storage::new(&model, &SINGLE, 1).unwrap();
    storage.fill(model.capacity_bytes, false);
    let pages = model.capacity_bytes / PAGE;
    let mut rng = Rng::new(7, &[]);
    let burst_ns = |storage: &mut Storage, rng: &mut Rng, count| {
        let begin_ns = storage.now();
        writes(storage, (0..count).map(|_| rng.below(pages)));
        storage.now() - begin_ns
    };
    burst_ns(&mut storage, &mut rng, 2 * pages);
    let busy_ns = burst_ns(&mut storage, &mut rng, 2048);
    storage.advance(storage.now() + 10_000_000_000);
    let rested_ns = burst_ns(&mut storage, &mut rng, 2048);
    assert!(
        rested_ns * 3 < busy_ns * 2,
        "{busy_ns} ns, and {rested_ns} ns after a pause"
    );
}

#[test]
fn impossible_models_are_refused_with_what_would_be_right() {
    let refusal = |change: &dyn Fn(&mut DriveModel)| {
        let mut model = flash();
        change(&mut model);
        let error = Storage::new(&model, &SINGLE, 1).err().expect("it must be refused");
        assert!(!error.hint.is_empty());
        error.to_string()
    };
    let over_provisioned = |by: f64| {
        move |model: &mut DriveModel| {
            if let Translation::PageMapped { over_provisioning, .. } = &mut model.translation {
                *over_provisioning = by;
            }
        }
    };
    assert_eq!(refusal(&over_provisioned(0.0)), "an over-provisioning of 0");
    assert_eq!(refusal(&over_provisioned(-0.1)), "an over-provisioning of -0.1");
    assert_eq!(
        refusal(&|model| model.media.dies = 7),
        "7 dies cannot be spread evenly over 4 channels"
    );
    assert_eq!(
        refusal(&|model| model.media.program_bytes = 1000),
        "a program of 1000 bytes"
    );
    assert_eq!(refusal(&|model| model.media.read_ns = 0), "media that take no time");
    assert_eq!(
        refusal(&|model| model.media.time_spread = 1.0),
        "a spread of 1 or a retry fraction of 0"
    );
    assert_eq!(refusal(&|model| model.capacity_bytes = 0), "a capacity of 0 bytes");
    assert_eq!(
        refusal(&|model| model.capacity_bytes = 5000),
        "a capacity of 5000 bytes"
    );
    assert_eq!(
        refusal(&|model| model.buffer.bytes = 4096),
        "a write buffer of 4096 bytes"
    );
    assert_eq!(
        refusal(&|model| model.interface.queue_depth = 0),
        "an interface that moves nothing"
    );
    assert_eq!(
        refusal(&|model| model.interface.command_bytes = 100),
        "commands of at most 100 bytes"
    );
    assert!(refusal(&|model| model.capacity_bytes = 1 << 20).starts_with("blocks so large that there are only"));
    assert!(refusal(&|model| model.capacity_bytes = 1 << 44).starts_with("a capacity of 17592186044416 bytes"));
}

#[test]
fn impossible_arrays_are_refused_with_what_would_be_right() {
    let array = |array: ArrayModel| {
        Storage::new(&flash(), &array, 1)
            .err()
            .expect("it must be refused")
            .to_string()
    };
    assert_eq!(
        array(ArrayModel {
            level: RaidLevel::Raid5,
            drives: 2,
            ..SINGLE
        }),
        "a Raid5 of 2 drives"
    );
    assert_eq!(
        array(ArrayModel {
            level: RaidLevel::Raid10,
            drives: 5,
            ..SINGLE
        }),
        "a Raid10 of 5 drives"
    );
    assert_eq!(
        array(ArrayModel {
            chunk_bytes: 1000,
            ..SINGLE
        }),
        "a chunk of 1000 bytes"
    );
    assert_eq!(
        array(ArrayModel {
            bytes_per_second: Some(0),
            ..SINGLE
        }),
        "an array that moves nothing"
    );
}

#[test]
fn an_array_does_on_its_drives_what_its_level_asks_for() {
    let member_bytes = |level, drives, bytes: u64| {
        let array = ArrayModel {
            level,
            drives,
            ..SINGLE
        };
        let mut storage = Storage::new(&flash(), &array, 1).unwrap();
        storage.fill(storage.capacity_bytes(), false);
        storage.submit(
            1,
            &Request {
                operation: Action::Write,
                offset_bytes: 0,
                bytes,
                durable: false,
            },
        );
        storage.advance(u64::MAX);
        assert_eq!(storage.completed(), Some((1, bytes)));
        let usage = storage.usage();
        let drives = &usage[1..];
        (
            drives.iter().map(|drive| drive.read_bytes).sum::<u64>(),
            drives.iter().map(|drive| drive.write_bytes).sum::<u64>(),
        )
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
        let array = ArrayModel { drives, ..SINGLE };
        let mut storage = Storage::new(&flash(), &array, 1).unwrap();
        let half = storage.capacity_bytes() / 2;
        assert_eq!(storage.fill(half, false).written_bytes, half);
        let filled = storage.fill(2 * half, false);
        assert_eq!((filled.written_bytes, filled.kept_bytes), (half, half));
        assert_eq!(storage.fill(2 * half, true).written_bytes, 2 * half);
    }
}
