//! Checkpoints on a simulated device of known bandwidth, and on files.

use std::path::Path;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Control, RunInputs, carry_out};
use iosonde_protocol::{
    AiCheckpointWorkload, AiResult, AiTarget, Backend, CheckpointFile, CheckpointMode, Event, Observe, Outcome,
};

use crate::AiCheckpoint;
use crate::tests::{directory, limited, run, servers};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// `ranks` ranks with a model file of 1 MiB and an optimizer file of 9 MiB, of which one tensor is no multiple of a page.
fn checkpoints(target: AiTarget, backend: Option<Backend>, ranks: u32) -> AiCheckpointWorkload {
    let rank = |number: u32| {
        let file = |name: &str, tensors: &[u64]| CheckpointFile {
            name: format!("zero_pp_rank_{number}_mp_rank_0_{name}_states.pt"),
            tensors: tensors.to_vec(),
        };
        vec![
            file("model", &[MIB - 1000, 1000]),
            file("optim", &[4 * MIB, 500, 5 * MIB - 500]),
        ]
    };
    AiCheckpointWorkload {
        target,
        backend,
        ranks: (0..ranks).map(rank).collect(),
        mode: CheckpointMode::Buffered,
        sync: true,
        request_bytes: 256 * KIB,
        checkpoints: 3,
        pause_ns: SECOND_NS,
        grid_ns: None,
        keep: 1,
        restores: 2,
        interval_ns: SECOND_NS / 10,
        cpus: Vec::new(),
    }
}

fn virtual_target() -> AiTarget {
    AiTarget::Virtual { size_bytes: 256 * MIB }
}

fn facts(workload: &AiCheckpointWorkload) -> AiResult {
    let result = run(&AiCheckpoint(workload)).unwrap();
    assert_eq!(result.outcome, Outcome::Complete);
    result.ai.unwrap()
}

fn assert_close(time_ns: u64, seconds: f64) {
    let ratio = time_ns as f64 / 1e9 / seconds;
    assert!((ratio - 1.0).abs() < 0.03, "{time_ns} ns for {seconds} s");
}

#[test]
fn checkpoints_and_restores_take_their_bytes_over_the_bandwidth() {
    for (ranks, sync) in [(1, true), (4, true), (4, false)] {
        let mut workload = checkpoints(virtual_target(), limited(1e8, 0.0), ranks);
        workload.sync = sync;
        let found = facts(&workload);
        let seconds = (u64::from(ranks) * 10 * MIB) as f64 / 1e8;
        assert_eq!((found.checkpoints.len(), found.restores.len()), (3, 2));
        assert_eq!(found.file_bytes, u64::from(ranks) * 10 * MIB);
        let mut end_ns = 0;
        for checkpoint in &found.checkpoints {
            assert_close(checkpoint.complete_ns, seconds);
            assert!(checkpoint.returned_ns <= checkpoint.complete_ns);
            assert!(checkpoint.complete_median_ns <= checkpoint.complete_ns);
            assert!(checkpoint.begin_ns == 0 || checkpoint.begin_ns >= end_ns + SECOND_NS);
            end_ns = checkpoint.begin_ns + checkpoint.complete_ns;
        }
        for restore in &found.restores {
            assert_close(restore.complete_ns, seconds);
            assert_eq!(restore.cached_bytes, Some(0));
        }
    }
}

#[test]
fn checkpoints_in_a_row_take_the_bandwidth_of_a_burst_until_its_credits_are_used_up() {
    // Credits for one checkpoint of 40 MiB and a half at the speed of the drive, which is at least 10 times the limit's.
    let mut workload = checkpoints(virtual_target(), limited(1e7, 60.0 * MIB as f64), 4);
    workload.pause_ns = 0;
    let found = facts(&workload);
    let times: Vec<_> = found
        .checkpoints
        .iter()
        .map(|each| each.complete_ns as f64 / 1e9)
        .collect();
    let sustained = 40.0 * MIB as f64 / 1e7;
    assert!(times[0] < 0.1 * sustained, "{times:?}");
    assert!(times[1] > 0.4 * sustained && times[1] < 0.6 * sustained, "{times:?}");
    assert!((times[2] / sustained - 1.0).abs() < 0.03, "{times:?}");
}

#[test]
fn a_background_write_returns_at_once_unless_the_one_before_is_not_complete() {
    let mut workload = checkpoints(virtual_target(), limited(1e8, 0.0), 4);
    workload.mode = CheckpointMode::Background;
    let seconds = 40.0 * MIB as f64 / 1e8;
    let found = facts(&workload);
    for checkpoint in &found.checkpoints {
        assert_eq!(checkpoint.returned_ns, 0);
        assert_close(checkpoint.complete_ns, seconds);
    }
    let begins: Vec<_> = found.checkpoints.iter().map(|each| each.begin_ns).collect();
    assert_eq!(begins, [0, SECOND_NS, 2 * SECOND_NS]);
    // Training for half the time of a checkpoint: the next one waits for the other half.
    workload.pause_ns = (seconds * 0.5e9) as u64;
    let found = facts(&workload);
    assert_eq!(found.checkpoints[0].returned_ns, 0);
    assert_close(found.checkpoints[1].returned_ns, seconds / 2.0);
    assert_close(found.checkpoints[1].complete_ns, seconds * 1.5);
}

#[test]
fn the_slowest_rank_is_the_one_with_most_bytes() {
    // One server: requests of all ranks take turns, so a rank with twice the requests is ready after all others.
    let mut workload = checkpoints(virtual_target(), servers(3, 1_000_000), 3);
    let last = &mut workload.ranks[2][1].tensors;
    last[0] += 10 * MIB;
    let found = facts(&workload);
    // 40 requests and 2 flushes of 1 ms; 80 of the last.
    assert_close(found.checkpoints[0].complete_median_ns, 0.042);
    assert_close(found.checkpoints[0].complete_ns, 0.082);
    assert_close(found.restores[0].complete_median_ns, 0.040);
    assert_close(found.restores[0].complete_ns, 0.080);
    let of_ranks = &found.checkpoints[0].rank_complete_ns;
    assert_eq!((of_ranks.len(), of_ranks[2]), (3, found.checkpoints[0].complete_ns));
}

#[test]
fn steps_on_a_grid_begin_at_its_multiples_however_long_the_one_before_took() {
    let mut workload = checkpoints(virtual_target(), limited(1e8, 0.0), 4);
    let seconds = 40.0 * MIB as f64 / 1e8;
    for grid_ns in [SECOND_NS, SECOND_NS / 4] {
        workload.grid_ns = Some(grid_ns);
        let found = facts(&workload);
        let steps: Vec<_> = found.checkpoints.iter().chain(&found.restores).collect();
        let apart_ns = ((seconds * 1e9) as u64).next_multiple_of(grid_ns);
        for (number, step) in (0..).zip(&steps) {
            assert_eq!(step.begin_ns, number * apart_ns);
            assert_close(step.complete_ns, seconds);
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_are_written_restored_from_the_device_and_removed_in_each_mode() {
    for mode in [
        CheckpointMode::Buffered,
        CheckpointMode::Direct,
        CheckpointMode::Background,
    ] {
        for sync in [true, false] {
            let place = tempfile::tempdir().unwrap();
            let mut workload = checkpoints(directory(place.path()), None, 2);
            (workload.mode, workload.sync, workload.pause_ns) = (mode, sync, 0);
            let result = run(&AiCheckpoint(&workload)).unwrap();
            // Tensors apart are 42 requests, joined 40; each checkpoint has two flushes.
            let requests = if mode == CheckpointMode::Direct { 40 } else { 42 };
            let operations: u64 = result.jobs.iter().map(|job| job.operations).sum();
            assert_eq!(operations, 2 * (3 * (requests + 2) + 2 * requests), "{mode:?} {sync}");
            let found = result.ai.unwrap();
            let bytes: u64 = result.jobs.iter().map(|job| job.bytes).sum();
            assert_eq!(bytes, 5 * 20 * MIB, "{mode:?} {sync}");
            assert_eq!((found.checkpoints.len(), found.restores.len()), (3, 2));
            for checkpoint in &found.checkpoints {
                assert!(checkpoint.returned_ns > 0);
                assert!(checkpoint.returned_ns <= checkpoint.complete_ns);
            }
            assert!(
                found
                    .restores
                    .iter()
                    .all(|restore| restore.cached_bytes < Some(MIB / 5))
            );
            assert_eq!(result.evidence.unwrap().page_cache, None);
            let places = ["global_epoch1_step1", "global_epoch1_step2"];
            assert_eq!(names(place.path()), places);
            assert!(places.iter().all(|each| names(&place.path().join(each)).is_empty()));
        }
    }
}

#[test]
fn a_checkpoint_in_the_background_is_complete_before_its_files_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let mut workload = checkpoints(directory(place.path()), None, 4);
    (workload.mode, workload.pause_ns, workload.restores) = (CheckpointMode::Background, 0, 0);
    assert_eq!(facts(&workload).checkpoints.len(), 3);
    assert!(
        names(place.path())
            .iter()
            .all(|each| names(&place.path().join(each)).is_empty())
    );
}

#[test]
fn a_restore_that_the_page_cache_served_is_reported() {
    // The files of a file system in memory are always there.
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let workload = checkpoints(directory(place.path()), None, 1);
    let (targets, mut warnings) = (Targets::default(), Vec::new());
    let inputs = RunInputs {
        seed: 7,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &targets,
    };
    let result = carry_out(&AiCheckpoint(&workload), inputs, &mut Control::new().0, &mut |event| {
        if let Event::Warning(warning) = event {
            warnings.push(warning.code);
        }
    });
    let restores = result.unwrap().ai.unwrap().restores;
    assert!(restores.iter().all(|restore| restore.cached_bytes >= Some(10 * MIB)));
    assert_eq!(warnings, ["cached_restore"]);
}

#[test]
fn files_that_an_earlier_run_left_are_replaced() {
    let place = tempfile::tempdir().unwrap();
    let left = place.path().join("global_epoch1_step2");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("zero_pp_rank_0_mp_rank_0_optim_states.pt"), "left").unwrap();
    let mut workload = checkpoints(directory(place.path()), None, 1);
    (workload.checkpoints, workload.restores) = (1, 0);
    assert_eq!(facts(&workload).checkpoints.len(), 1);
    assert_eq!(names(&left), [""; 0]);
}

#[test]
fn a_spec_that_contradicts_itself_is_refused() {
    let valid = checkpoints(virtual_target(), servers(1, 1000), 2);
    let refused = |change: fn(&mut AiCheckpointWorkload)| {
        let mut workload = valid.clone();
        change(&mut workload);
        run(&AiCheckpoint(&workload)).unwrap_err().to_failure().code
    };
    for change in [
        (|workload| workload.request_bytes = 1000) as fn(&mut AiCheckpointWorkload),
        |workload| workload.checkpoints = 0,
        |workload| workload.keep = 0,
        |workload| workload.grid_ns = Some(0),
        |workload| workload.ranks.clear(),
        |workload| workload.ranks[0][0].tensors.push(0),
        |workload| workload.ranks[0][0].name = "../a".into(),
        |workload| workload.ranks[0] = workload.ranks[1].clone(),
    ] {
        assert_eq!(refused(change), "invalid_spec");
    }
}
