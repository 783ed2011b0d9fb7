//! Verification on real files: what was damaged is found and named, and nothing else.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use iosonde_block::verify::check_target;
use iosonde_block::verify::crc::Crc32c;
use iosonde_harness::RunError;
use iosonde_harness::target::Targets;
use iosonde_protocol::*;

const BLOCK: u64 = 4096;
const SIZE: u64 = 4 * MIB;
/// Offsets in the journal's header of the flag that the run came to its end, of its boot, and of its checksums
/// (verify/journal.rs).
const SETTLED_AT: u64 = 44;
const BOOT_AT: u64 = 48;
const HEADER_CRC_AT: usize = 508;
const WRITTEN_AT: u64 = 88;
const ENTRIES_AT: u64 = 4096;

/// A word of an entry with its check in the uppermost bits (verify/entry.rs).
fn checked(content: u64, unit: u64, bits: u32, multiplier: u64) -> [u8; 8] {
    let mixed = (content ^ unit).wrapping_mul(multiplier);
    (content | mixed >> (64 - bits) << (64 - bits)).to_le_bytes()
}

const MULTIPLIER: u64 = 0x9e2d_59b3_4a6c_d235;

/// Half reads, half writes, each block of the file many times.
fn verified(directory: &tempfile::TempDir, when: VerifyWhen) -> BlockWorkload {
    let mut workload = workload(file(directory, SIZE), uring(), SIZE);
    workload.streams[0].mix.read_fraction = 0.5;
    workload.streams[0].limit_operations = Some(20_000);
    workload.duration_ns = None;
    workload.verify = Some(Verification {
        when,
        journal_directory: None,
    });
    workload
}

/// A check and another run report a damaged journal, for this reason, and leave it as it is.
#[track_caller]
fn assert_damaged(directory: &tempfile::TempDir, reason: &str) {
    let content = std::fs::read(journal(directory)).unwrap();
    assert_fails(check(&data(directory)), "damaged_journal", reason);
    assert_fails(run(&verified(directory, VerifyWhen::After)), "damaged_journal", reason);
    assert_eq!(std::fs::read(journal(directory)).unwrap(), content);
}

fn written() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    run(&verified(&directory, VerifyWhen::After)).unwrap();
    directory
}

#[track_caller]
fn assert_sound(directory: &tempfile::TempDir) {
    let found = check(&data(directory)).unwrap();
    assert_eq!((found.checked_bytes, found.findings), (SIZE, Vec::new()));
}

fn check(path: &Path) -> Result<VerificationResult, RunError> {
    check_target(&Targets::default(), path, None, &mut |_| true)
}

fn data(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("data")
}

fn journal(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("data.verify")
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.sync_all().unwrap();
}

fn block_of(path: &Path, number: u64) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    bytes[(number * BLOCK) as usize..((number + 1) * BLOCK) as usize].to_vec()
}

/// The only finding, and how many sectors it counts for.
fn only(result: &VerificationResult) -> (Fault, u64, u64) {
    let [finding] = &result.findings[..] else {
        panic!("one finding, not {:?}", result.findings)
    };
    (finding.fault, finding.offset_bytes, finding.bytes)
}

#[test]
fn what_a_load_writes_comes_back_however_it_is_written() {
    for when in [VerifyWhen::During, VerifyWhen::After] {
        for (io_mode, durability) in [
            (IoMode::Direct, Durability::None),
            (IoMode::Buffered, Durability::Flush { every: 16 }),
            (IoMode::Buffered, Durability::Dsync),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let mut workload = verified(&directory, when);
            let sizes = [512, 4096, 65_536].map(|bytes| BlockSize { bytes, weight: 1.0 });
            workload.streams = vec![workload.streams[0].clone(), workload.streams[0].clone()];
            for (number, stream) in workload.streams.iter_mut().enumerate() {
                stream.name = format!("stream{number}");
                stream.limit_operations = Some(1_500);
                stream.jobs = 2;
                stream.queue_depth = 8;
                (stream.io_mode, stream.durability) = (io_mode, durability);
                stream.block_sizes = sizes[usize::from(io_mode == IoMode::Direct)..].to_vec();
            }
            let result = run(&workload).unwrap().0.verification.unwrap();
            assert!(result.complete && result.findings.is_empty(), "{result:?}");
            assert_eq!(result.unknown_bytes, 0);
            match when {
                VerifyWhen::During => assert!(result.checked_bytes > 1_000 * 512),
                VerifyWhen::After => assert_eq!(result.checked_bytes, SIZE),
            }
            assert_eq!(check(&data(&directory)).unwrap().checked_bytes, SIZE);
        }
    }
}

#[test]
fn every_kind_of_damage_to_a_file_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = data(&directory);
    let mut workload = verified(&directory, VerifyWhen::After);
    run(&workload).unwrap();
    let early = std::fs::read(&path).unwrap();
    // Every block is written once more and then read, so that an older one is known to be stale.
    workload.streams[0].mix.read_fraction = 0.0;
    workload.streams[0].access = each_once();
    workload.streams[0].limit_operations = Some(SIZE / BLOCK);
    run(&workload).unwrap();
    let sound = std::fs::read(&path).unwrap();
    let old = |number: u64| early[(number * BLOCK) as usize..][..BLOCK as usize].to_vec();
    let own = |number: u64| sound[(number * BLOCK) as usize..][..BLOCK as usize].to_vec();
    let mut flipped = own(3);
    flipped[1000] ^= 0x10;
    let mut torn = own(3);
    torn[2048..].copy_from_slice(&old(3)[2048..]);
    let at = 3 * BLOCK;
    for (bytes, expected) in [
        (flipped, (Fault::Flipped, at + 512, 512)),
        (own(7), (Fault::Misdirected, at, BLOCK)),
        (old(3), (Fault::Stale, at, BLOCK)),
        (torn, (Fault::Torn, at + 2048, 2048)),
        (vec![0; BLOCK as usize], (Fault::Lost, at, BLOCK)),
        (vec![0x61; BLOCK as usize], (Fault::Foreign, at, BLOCK)),
    ] {
        overwrite(&path, at, &bytes);
        let result = check(&path).unwrap();
        assert_eq!(only(&result), expected);
        assert_eq!(result.checked_bytes, SIZE);
        overwrite(&path, at, &own(3));
    }
    assert_sound(&directory);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(SIZE - 3 * BLOCK).unwrap();
    assert_eq!(check(&path).unwrap().faults.lost, 3 * BLOCK / 512, "it is cut short");
}

#[test]
fn damage_between_two_runs_is_found_by_the_reads_of_the_second() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = verified(&directory, VerifyWhen::During);
    run(&workload).unwrap();
    overwrite(&data(&directory), 5 * BLOCK + 700, &[1, 2, 3]);
    workload.streams[0].mix.read_fraction = 1.0;
    let mut events = Vec::new();
    let result = run_with_events(&workload, &mut |event| events.push(event)).unwrap();
    let verification = result.verification.unwrap();
    assert!(verification.faults.flipped > 1, "{verification:?}");
    assert_eq!(only(&verification), (Fault::Flipped, 5 * BLOCK + 512, 512));
    let place = format!("offset {}", 5 * BLOCK + 512);
    let is_warning = |event: &Event| match event {
        Event::Warning(warning) => warning.code == "wrong_data" && warning.message.contains(&place),
        _ => false,
    };
    assert!(events.iter().any(is_warning), "{events:?}");
}

#[test]
fn data_of_another_file_of_the_target_or_of_one_that_lay_there_before_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = verified(&directory, VerifyWhen::After);
    workload.target = file_per_job(&directory, MIB);
    workload.streams[0].span.bytes = MIB;
    workload.streams[0].jobs = 2;
    run(&workload).unwrap();
    let (one, other) = (directory.path().join("main.0"), directory.path().join("main.1"));
    overwrite(&one, 0, &block_of(&other, 0));
    let result = check(directory.path()).unwrap();
    assert_eq!(only(&result), (Fault::Misdirected, 0, BLOCK));
    assert!(result.findings[0].found.ends_with("in another file of the target"));
    assert_eq!(result.checked_bytes, 2 * MIB);
    let directory = written();
    let before = block_of(&data(&directory), 9);
    std::fs::remove_file(data(&directory)).unwrap();
    std::fs::remove_file(journal(&directory)).unwrap();
    run(&verified(&directory, VerifyWhen::After)).unwrap();
    overwrite(&data(&directory), 9 * BLOCK, &before);
    let result = check(&data(&directory)).unwrap();
    assert_eq!(only(&result), (Fault::Stale, 9 * BLOCK, BLOCK));
    assert!(result.findings[0].found.ends_with("laid out at another time"));
}

#[test]
fn runs_of_other_block_sizes_go_on_with_the_same_journal() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = verified(&directory, VerifyWhen::After);
    let mut written = Vec::new();
    for (bytes, span) in [(65_536, SIZE), (4096, SIZE), (131_072, SIZE), (4096, 2 * SIZE)] {
        workload.streams[0].block_sizes[0].bytes = bytes;
        workload.streams[0].limit_operations = Some(200);
        workload.streams[0].span.bytes = span;
        workload.target = file(&directory, span);
        let result = run(&workload).unwrap().0;
        let verification = result.verification.unwrap();
        assert!(verification.findings.is_empty(), "{bytes}: {verification:?}");
        assert_eq!(verification.checked_bytes, span);
        written.push(result.layout.written_bytes);
    }
    assert_eq!(written, [SIZE, 0, 0, SIZE], "only what is new is laid out");
}

#[test]
fn data_written_without_verification_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut plain = verified(&directory, VerifyWhen::After);
    plain.verify = None;
    run(&plain).unwrap();
    let before = std::fs::read(data(&directory)).unwrap();
    let unknown = "written without verification";
    for layout in [Layout::Missing, Layout::Never] {
        let mut workload = verified(&directory, VerifyWhen::After);
        workload.layout = layout;
        let error = assert_fails(run(&workload), "invalid_spec", unknown);
        assert!(error.hint.contains("`layout = \"always\"`"), "{}", error.hint);
    }
    assert_eq!(std::fs::read(data(&directory)).unwrap(), before);
    assert_fails(check(&data(&directory)), "invalid_spec", unknown);
    let mut workload = verified(&directory, VerifyWhen::After);
    workload.layout = Layout::Always;
    assert!(run(&workload).unwrap().0.verification.unwrap().findings.is_empty());
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_path_buf(), directory.path().join("none")] {
        assert!(!check(&path).unwrap_err().hint.is_empty());
    }
    std::fs::write(directory.path().join("other"), "text").unwrap();
    let path = directory.path().join("other");
    assert_fails(check(&path), "invalid_spec", "there is no journal");
}

#[test]
fn a_run_that_writes_without_verification_ends_what_is_known() {
    let directory = written();
    let mut plain = verified(&directory, VerifyWhen::After);
    plain.verify = None;
    plain.streams[0].mix.read_fraction = 1.0;
    run(&plain).unwrap();
    assert_sound(&directory);
    plain.streams[0].mix.read_fraction = 0.5;
    run(&plain).unwrap();
    assert_fails(check(&data(&directory)), "invalid_spec", "without verification");
}

/// The machine restarted: the journal says that it ran on another boot and did not end.
fn cut_power(directory: &tempfile::TempDir) {
    overwrite(&journal(directory), SETTLED_AT, &0_u32.to_le_bytes());
    overwrite(&journal(directory), BOOT_AT, &[b'x'; 36]);
    correct_header(directory);
}

/// The run was killed: the journal says that it did not end.
fn kill(directory: &tempfile::TempDir) {
    overwrite(&journal(directory), SETTLED_AT, &0_u32.to_le_bytes());
    correct_header(directory);
}

fn correct_header(directory: &tempfile::TempDir) {
    let content = std::fs::read(journal(directory)).unwrap();
    let mut crc = Crc32c::default();
    crc.add(&content[..HEADER_CRC_AT]);
    overwrite(&journal(directory), HEADER_CRC_AT as u64, &crc.value().to_le_bytes());
}

#[test]
fn after_a_power_cut_newer_data_than_the_journal_knows_of_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let workload = verified(&directory, VerifyWhen::After);
    run(&workload).unwrap();
    let old_journal = std::fs::read(journal(&directory)).unwrap();
    run(&workload).unwrap();
    overwrite(&journal(&directory), 0, &old_journal);
    // Without a power cut nobody could have written it.
    assert!(check(&data(&directory)).unwrap().faults.foreign > 0);
    cut_power(&directory);
    assert_sound(&directory);
}

#[test]
fn after_a_power_cut_what_was_durable_must_be_there_and_what_was_not_need_not() {
    for (durability, expected) in [
        (Durability::Dsync, Some(Fault::Lost)),
        (Durability::Flush { every: 1 }, Some(Fault::Lost)),
        (Durability::None, None),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut workload = verified(&directory, VerifyWhen::During);
        workload.streams[0].limit_operations = Some(2);
        run(&workload).unwrap();
        let laid_out = std::fs::read(data(&directory)).unwrap();
        // One block is written again and again, and read by nobody.
        workload.streams[0].durability = durability;
        workload.streams[0].queue_depth = 1;
        workload.streams[0].mix.read_fraction = 0.0;
        workload.streams[0].span.bytes = BLOCK;
        workload.streams[0].limit_operations = Some(20);
        let before_end = {
            // The end of the run makes all of it durable, so the journal is looked at before.
            let path = journal(&directory);
            let mut copy = Vec::new();
            run_with_events(&workload, &mut |event| {
                if matches!(&event, Event::Phase(phase) if phase.phase == Phase::Verify && phase.edge == Edge::Begin) {
                    copy = std::fs::read(&path).unwrap();
                }
            })
            .unwrap();
            copy
        };
        let cut_power_before_the_end = || {
            overwrite(&journal(&directory), 0, &before_end);
            cut_power(&directory);
        };
        cut_power_before_the_end();
        assert_sound(&directory);
        overwrite(&data(&directory), 0, &laid_out[..BLOCK as usize]);
        // The check has seen the newer data, and this is a file of which nobody has.
        cut_power_before_the_end();
        let found = check(&data(&directory)).unwrap();
        let fault = found.findings.first().map(|finding| finding.fault);
        assert_eq!(fault, expected, "{durability:?}");
    }
}

#[test]
fn a_layout_that_was_killed_is_completed() {
    let directory = written();
    // As if the first write of some blocks had been submitted, nothing had come back, and the process had been killed.
    overwrite(&journal(&directory), WRITTEN_AT, &0_u32.to_le_bytes());
    kill(&directory);
    let in_flight: u64 = 1 | 1 << 32 | 1 << 46;
    for unit in 100..110 {
        let state = checked(in_flight, unit, 6, MULTIPLIER);
        overwrite(&journal(&directory), ENTRIES_AT + 16 * unit, &state);
        overwrite(&journal(&directory), ENTRIES_AT + 16 * unit + 8, &[0; 8]);
        overwrite(&data(&directory), unit * BLOCK, &[7; BLOCK as usize]);
    }
    let before = check(&data(&directory)).unwrap();
    assert_eq!((before.unknown_bytes, before.findings.len()), (10 * BLOCK, 0));
    let result = run(&verified(&directory, VerifyWhen::After)).unwrap().0;
    assert_eq!(result.layout.written_bytes, MIB, "the chunk that the blocks lie in");
    let after = result.verification.unwrap();
    assert_eq!([after.checked_bytes, after.unknown_bytes], [SIZE, 0]);
    assert_eq!(after.findings, []);
}

#[test]
fn a_damaged_journal_is_reported_as_damaged_and_its_file_as_nothing() {
    let directory = written();
    let whole = std::fs::read(journal(&directory)).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let cases: [(Damage, &str); 10] = [
        (|content| content.truncate(10), "its header is not that of a journal"),
        (|content| content.truncate(4096), "it is cut off after 4096 of"),
        (|content| content.truncate(5000), "it is cut off after 5000 of"),
        (|content| content.push(b'x'), "1 bytes were appended to its"),
        (|content| content.fill(0xff), "its header is not that of a journal"),
        (|content| content[15] = b'1', "it was written by another version"),
        // The history: every sector seemed stale once.
        (|content| content[32] ^= 1, "its header has the CRC-32C"),
        (|content| content[24] ^= 1, "its header has the CRC-32C"),
        (|content| content[4096 + 16 * 7] ^= 1, "its entries have the CRC-32C"),
        (|content| content[4096 + 16 * 7 + 9] ^= 1, "its entries have the CRC"),
    ];
    for (damage, reason) in cases {
        let mut content = whole.clone();
        damage(&mut content);
        std::fs::write(journal(&directory), &content).unwrap();
        assert_damaged(&directory, reason);
    }
}

#[test]
fn damaged_entries_of_a_killed_run_are_found_also_after_a_restart() {
    const UNCHECKED: &str = "does not match its check";
    type Damage = fn(&mut [u8]);
    let damages: [(Damage, &str); 5] = [
        (|content| content[4096 + 16 * 7] ^= 1, UNCHECKED),
        (|content| content[4096 + 16 * 7 + 12] ^= 0x10, UNCHECKED),
        (|content| content[4096 + 3 * 512..][..512].fill(0x55), UNCHECKED),
        // A write of the journal that went to another place.
        (|content| content.copy_within(4096..4608, 4096 + 8 * 512), UNCHECKED),
        // All of the file was written, so that no entry can be empty.
        (|content| content[4176..][..16 * 8].fill(0), "its entry 5 is empty"),
    ];
    for is_same_boot in [true, false] {
        let directory = written();
        kill(&directory);
        if !is_same_boot {
            cut_power(&directory);
        }
        let whole = std::fs::read(journal(&directory)).unwrap();
        for (damage, reason) in damages {
            let mut content = whole.clone();
            damage(&mut content);
            std::fs::write(journal(&directory), &content).unwrap();
            assert_damaged(&directory, reason);
        }
        std::fs::write(journal(&directory), &whole).unwrap();
        assert_sound(&directory);
    }
    // With a check that matches, and more durable writes than there were.
    let directory = written();
    kill(&directory);
    let durable = checked(1_000_000, 5, 8, MULTIPLIER.reverse_bits());
    overwrite(&journal(&directory), ENTRIES_AT + 16 * 5 + 8, &durable);
    assert_damaged(&directory, "its entry 5 is of more writes");
}

/// With many writers on few units, so that it is killed in the middle of changing entries.
#[test]
fn the_journal_of_a_killed_process_is_sound_until_it_is_damaged() {
    const DIRECTORY: &str = "IOSONDE_TEST_DIRECTORY";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let mut workload = verified(&tempfile::tempdir().unwrap(), VerifyWhen::During);
        workload.target = Target::File {
            path: Path::new(&directory).join("data").display().to_string(),
            size_bytes: SIZE,
        };
        workload.streams[0].jobs = 4;
        workload.streams[0].queue_depth = 8;
        workload.streams[0].io_mode = IoMode::Buffered;
        workload.streams[0].limit_operations = None;
        workload.duration_ns = Some(3_600_000_000_000);
        run(&workload).unwrap();
        panic!("nobody killed it");
    }
    let directory = tempfile::tempdir().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .arg("the_journal_of_a_killed_process")
        .env(DIRECTORY, directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut wait_until = |is_done: &dyn Fn(&[u8]) -> bool| {
        while !is_done(&std::fs::read(journal(&directory)).unwrap_or_default()) {
            assert!(process.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_until(&|content| content.get(WRITTEN_AT as usize) == Some(&1));
    for _ in 0..20 {
        let before = std::fs::read(journal(&directory)).unwrap();
        wait_until(&|content| content[ENTRIES_AT as usize..] != before[ENTRIES_AT as usize..]);
    }
    process.kill().unwrap();
    assert_eq!(process.wait().unwrap().signal(), Some(9));
    assert_sound(&directory);
    overwrite(&journal(&directory), ENTRIES_AT + 512, &[0x55; 512]);
    assert_damaged(&directory, "does not match its check");
}

#[test]
fn a_damaged_journal_is_replaced_when_all_of_its_file_is_rewritten_but_never_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = verified(&directory, VerifyWhen::After);
    run(&workload).unwrap();
    overwrite(&journal(&directory), 32, &[0x55; 8]);
    workload.layout = Layout::Always;
    let verification = run(&workload).unwrap().0.verification.unwrap();
    assert_eq!((verification.checked_bytes, verification.findings.len()), (SIZE, 0));
    // A file of that name that is no journal belongs to somebody.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(journal(&directory), "minutes of the last meeting").unwrap();
    let mut workload = verified(&directory, VerifyWhen::After);
    for layout in [Layout::Missing, Layout::Always] {
        workload.layout = layout;
        assert_eq!(run(&workload).unwrap_err().to_failure().code, "damaged_journal");
    }
    let content = std::fs::read(journal(&directory)).unwrap();
    assert_eq!(content, b"minutes of the last meeting");
}

#[test]
fn a_stopped_run_reports_that_it_did_not_read_everything() {
    let directory = tempfile::tempdir().unwrap();
    let result = run_until_stopped(&verified(&directory, VerifyWhen::After));
    assert_eq!(result.outcome, Outcome::Stopped);
    assert!(!result.verification.unwrap().complete);
}

#[test]
fn journals_can_lie_elsewhere() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut workload = verified(&directory, VerifyWhen::During);
    let place = elsewhere.path().display().to_string();
    workload.verify.as_mut().unwrap().journal_directory = Some(place.clone());
    run(&workload).unwrap();
    assert!(!journal(&directory).exists());
    assert!(elsewhere.path().join("data.verify").exists());
    let result = check_target(&Targets::default(), &data(&directory), Some(&place), &mut |_| true).unwrap();
    assert_eq!((result.checked_bytes, result.findings.len()), (SIZE, 0));
}

#[test]
fn what_cannot_be_verified_is_refused_with_the_place() {
    type Change = fn(&mut BlockWorkload);
    let cases: [(Change, &str); 7] = [
        (|w| w.streams[0].mix.trim_fraction = 0.1, "`main`, `mix`"),
        (|w| w.streams[0].payload = Payload::Zeros, "`main`, `payload`"),
        (|w| w.streams[0].payload = duplicates(), "`main`, `payload`"),
        (|w| w.streams[0].block_sizes[0].bytes = 1000, "`main`, `block_sizes`"),
        (|w| w.streams[0].jobs = 3000, "`jobs`, `queue_depth`"),
        (
            |w| (w.target, w.backend) = (Target::Virtual { size_bytes: SIZE }, Backend::Null),
            "`verify`",
        ),
        (
            |w| {
                w.streams.push(w.streams[0].clone());
                w.streams[1].name = "other".into();
                w.streams[1].io_mode = IoMode::Direct;
            },
            "`io_mode`",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (change, message) in cases {
        let mut workload = verified(&directory, VerifyWhen::During);
        change(&mut workload);
        let error = assert_fails(run(&workload), "invalid_spec", message);
        assert!(error.context.contains("`verify`"), "{error:?}");
    }
    let created = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(created, 0);
}

fn duplicates() -> Payload {
    Payload::Reducible {
        compression_ratio: 1.0,
        duplicate_fraction: 0.5,
        duplicate_bytes: 4096,
    }
}
