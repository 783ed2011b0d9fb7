//! Whole runs on small graphs: results against plain implementations in memory, for any number of jobs and way of reading.

use std::collections::BTreeSet;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Control, RunInputs, carry_out};
use iosonde_protocol::{Backend, EdgeFormat, Event, Graph as GraphSpec, Layout, Lists, Observe};
use serde_json::json;
use tempfile::TempDir;

use super::*;

const PAGERANK: Algorithm = pagerank(PagerankMode::Pull);

const fn pagerank(mode: PagerankMode) -> Algorithm {
    Algorithm::Pagerank {
        mode,
        damping: 0.85,
        tolerance: 1e-12,
        iterations: 200,
    }
}

fn edge_list(directory: &TempDir, text: &str) -> EdgeSource {
    let list = directory.path().join("edges");
    std::fs::write(&list, text).unwrap();
    EdgeSource::EdgeList {
        path: list.display().to_string(),
        format: EdgeFormat::Text,
    }
}

fn rmat(scale: u32) -> EdgeSource {
    EdgeSource::Rmat {
        scale,
        edge_factor: 16,
        a: 0.57,
        b: 0.19,
        c: 0.19,
        seed: 1,
    }
}

fn temporary() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

fn workload(directory: &TempDir, source: EdgeSource, lists: Lists, algorithm: Algorithm) -> GraphWorkload {
    let path = directory.path().join("graph").display().to_string();
    let value = json!({
        "target": {"kind": "file", "path": path, "size_bytes": 1 << 30},
        "backend": {"kind": "uring", "registered_files": true, "registered_buffers": true,
                    "submission_polling": false, "completion_polling": false},
        "graph": GraphSpec { source, lists }, "layout": "missing", "sort_memory_bytes": 1 << 20, "algorithm": algorithm,
        "reading": {"queue_depth": 4, "request_bytes": 64 << 10, "cache_bytes": 0},
        "jobs": 2, "duration_ns": null, "interval_ns": 100_000_000, "verify_after": true, "cpus": [],
        "result_path": directory.path().join("result"),
    });
    serde_json::from_value(value).unwrap()
}

fn measured(workload: &GraphWorkload) -> Result<(RunResult, Vec<Event>), RunError> {
    let inputs = RunInputs {
        seed: 5,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &Targets::default(),
    };
    let (mut control, _stopper) = Control::new();
    let mut events = Vec::new();
    let graph = GraphAlgorithm(workload);
    let result = carry_out(&graph, inputs, &mut control, &mut |event| events.push(event))?;
    Ok((result, events))
}

fn facts(workload: &GraphWorkload) -> GraphResult {
    let (result, events) = measured(workload).unwrap();
    assert_eq!(warnings(&events), [""; 0]);
    let facts = result.graph.unwrap();
    let check = facts.check.as_ref().unwrap();
    assert!(check.is_intact && check.violations == 0, "{check:?}");
    assert_eq!(check.checked_edges, facts.edges);
    facts
}

fn warnings(events: &[Event]) -> Vec<&str> {
    let codes = events.iter().filter_map(|event| match event {
        Event::Warning(warning) => Some(warning.code.as_str()),
        _ => None,
    });
    codes.collect()
}

/// The ranks of the result.
fn ranks(directory: &TempDir) -> Vec<f64> {
    let bytes = std::fs::read(directory.path().join("result")).unwrap();
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|chunk| f64::from_le_bytes(*chunk))
        .collect()
}

/// All different edges of a source, without self-loops.
fn edges_of(source: &EdgeSource) -> BTreeSet<(u32, u32)> {
    let targets = Targets::default();
    let mut edges = BTreeSet::new();
    let mut take = |batch: &[(u32, u32)]| {
        edges.extend(batch.iter().filter(|(from, to)| from != to));
        Ok(())
    };
    source::Edges::open(source, &targets).unwrap().each(&mut take).unwrap();
    edges
}

/// PageRank with a table of all edges, until it changes no more.
fn expected_ranks(edges: &BTreeSet<(u32, u32)>, vertices: usize) -> Vec<f64> {
    let mut degrees = vec![0.0; vertices];
    edges.iter().for_each(|(from, _)| degrees[*from as usize] += 1.0);
    let mut ranks = vec![1.0 / vertices as f64; vertices];
    for _ in 0..300 {
        let dangling = (0..vertices).filter(|vertex| degrees[*vertex] == 0.0);
        let dangling: f64 = dangling.map(|vertex| ranks[vertex]).sum();
        let mut next = vec![(0.15 + 0.85 * dangling) / vertices as f64; vertices];
        for (from, to) in edges {
            next[*to as usize] += 0.85 * ranks[*from as usize] / degrees[*from as usize];
        }
        ranks = next;
    }
    ranks
}

fn both(edges: &BTreeSet<(u32, u32)>) -> BTreeSet<(u32, u32)> {
    let both = edges.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]);
    both.collect()
}

#[test]
fn ranks_are_those_of_a_plain_implementation_pulled_and_pushed_over_all_kinds_of_lists() {
    let directed = edges_of(&rmat(9));
    let push = pagerank(PagerankMode::Push);
    for (lists, algorithm) in [
        (Lists::In, PAGERANK),
        (Lists::Out, push),
        (Lists::Both, PAGERANK),
        (Lists::Both, push),
    ] {
        let directory = temporary();
        let found = facts(&workload(&directory, rmat(9), lists, algorithm));
        let mut edges = directed.clone();
        if lists == Lists::Both {
            edges = both(&directed);
        }
        assert_eq!((found.edges, found.vertices), (edges.len() as u64, 512));
        let expected = expected_ranks(&edges, 512);
        let found_ranks = ranks(&directory);
        for (found, expected) in found_ranks.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-11, "{lists:?}: {found} and {expected}");
        }
        assert!(found.is_complete && (found.rank_sum.unwrap() - 1.0).abs() < 1e-12);
        assert!(found.residual.unwrap() < 1e-12);
        let traversed: u64 = found.iterations.iter().map(|iteration| iteration.edges).sum();
        assert_eq!(traversed, found.traversed_edges);
        assert_eq!(traversed, found.edges * found.iterations.len() as u64);
    }
}

#[test]
fn the_result_depends_on_neither_jobs_nor_backend_nor_the_way_of_reading() {
    let directory = temporary();
    for algorithm in [PAGERANK, pagerank(PagerankMode::Push)] {
        let base = workload(&directory, rmat(10), Lists::Both, algorithm);
        let reference = facts(&base);
        let mut variants = vec![base.clone(); 5];
        variants[0].jobs = 1;
        variants[1].jobs = 7;
        variants[1].reading.queue_depth = 1;
        variants[2].backend = Backend::Sync;
        variants[3].reading.request_bytes = 4096;
        variants[4].reading.cache_bytes = 1 << 18;
        for variant in variants {
            let found = facts(&variant);
            assert_eq!(found.result_hash, reference.result_hash, "{algorithm:?} {variant:?}");
            assert_eq!(found.iterations.len(), reference.iterations.len());
            assert_eq!(found.traversed_edges, reference.traversed_edges);
            let read: u64 = found.request_sizes.iter().map(|size| size.bytes * size.count).sum();
            assert_eq!(read + found.cache_hit_bytes, found.needed_bytes);
            let by_iteration = found.iterations.iter().map(|iteration| iteration.read_bytes);
            assert_eq!(read, by_iteration.sum::<u64>());
        }
    }
}

#[test]
fn a_graph_in_the_cache_is_read_once_and_a_dense_pass_reads_every_page_once() {
    let directory = temporary();
    let mut cached = workload(&directory, rmat(11), Lists::Both, PAGERANK);
    cached.reading.cache_bytes = 1 << 30;
    cached.jobs = 1;
    let found = facts(&cached);
    let pages = found.adjacency_bytes.div_ceil(4096) * 4096;
    assert_eq!(found.iterations[0].read_bytes, pages);
    assert!(found.iterations[1..].iter().all(|iteration| iteration.read_bytes == 0));
    cached.reading.cache_bytes = 0;
    let found = facts(&cached);
    assert!(found.iterations.iter().all(|iteration| iteration.read_bytes == pages));
    assert!(found.request_sizes.iter().all(|size| size.bytes <= 64 << 10));
    assert_eq!(found.cache_hit_bytes, 0);
}

#[test]
fn edges_are_counted_and_the_graph_is_the_same_however_little_memory_sorts() {
    let directory = temporary();
    let source = edge_list(&directory, "5 6\n6 7\n9 1\n1 9\n2 2\n");
    let found = facts(&workload(&directory, source, Lists::Both, PAGERANK));
    assert_eq!((found.vertices, found.isolated_vertices), (10, 5));
    let counts = [found.source_edges, found.self_loops, found.duplicates, found.edges];
    assert_eq!(counts, [5, 1, 2, 6]);
    let (small, large) = (temporary(), temporary());
    let in_parts = workload(&small, rmat(13), Lists::Both, PAGERANK);
    let mut at_once = workload(&large, rmat(13), Lists::Both, PAGERANK);
    at_once.sort_memory_bytes = 1 << 30;
    assert_eq!(facts(&in_parts).edges, facts(&at_once).edges);
    let file = |directory: &TempDir| std::fs::read(directory.path().join("graph")).unwrap();
    // All but the header, which has the time to write.
    assert!(file(&small)[4096..] == file(&large)[4096..]);
}

#[test]
fn a_graph_is_written_once_and_again_when_its_edge_list_changes() {
    let directory = temporary();
    let source = edge_list(&directory, "0 1\n1 2\n");
    let imported = workload(&directory, source, Lists::Both, PAGERANK);
    let written = |workload: &GraphWorkload| measured(workload).unwrap().0.layout.written_bytes;
    assert!(written(&imported) > 0);
    assert_eq!(written(&imported), 0);
    edge_list(&directory, "0 1\n1 2\n2 3\n");
    assert!(written(&imported) > 0);
    assert_eq!(facts(&imported).vertices, 4);
    let mut never = imported.clone();
    never.graph.lists = Lists::Out;
    never.algorithm = pagerank(PagerankMode::Push);
    never.layout = Layout::Never;
    assert_eq!(measured(&never).unwrap_err().to_failure().code, "foreign_data");
}

#[test]
fn wrong_lists_on_the_device_are_found() {
    use std::os::unix::fs::FileExt;
    let directory = temporary();
    let intact = workload(&directory, rmat(9), Lists::Both, PAGERANK);
    facts(&intact);
    let path = directory.path().join("graph");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Header, then two pages of the index.
    let adjacency_at = 3 * 4096;
    file.write_all_at(&7_u32.to_le_bytes(), adjacency_at + 400).unwrap();
    let (result, events) = measured(&intact).unwrap();
    assert!(!result.graph.unwrap().check.unwrap().is_intact);
    assert!(warnings(&events).contains(&"damaged_graph"));
    file.write_all_at(&600_u32.to_le_bytes(), adjacency_at + 400).unwrap();
    assert_eq!(measured(&intact).unwrap_err().to_failure().code, "io_error");
}

#[test]
fn specs_that_contradict_themselves_and_lists_of_garbage_are_refused() {
    let directory = temporary();
    let good = workload(&directory, rmat(9), Lists::Both, PAGERANK);
    let mut wrong = vec![good.clone(); 5];
    wrong[0].graph.lists = Lists::Out;
    wrong[1].reading.request_bytes = 5000;
    wrong[2].jobs = 0;
    wrong[3].graph.source = rmat(40);
    wrong[4].target = Target::Virtual { size_bytes: 1 << 30 };
    for spec in wrong {
        assert_eq!(measured(&spec).unwrap_err().to_failure().code, "invalid_spec");
    }
    let directory = temporary();
    let source = edge_list(&directory, "");
    let imported = workload(&directory, source, Lists::Both, PAGERANK);
    let graph_bytes = || std::fs::metadata(directory.path().join("graph")).map_or(0, |found| found.len());
    let code = || measured(&imported).unwrap_err().to_failure().code;
    for content in ["0 1\nx y\n", "3 3\n", ""] {
        edge_list(&directory, content);
        assert_eq!((code(), graph_bytes()), ("invalid_input".into(), 0), "{content:?}");
    }
    std::fs::remove_file(directory.path().join("edges")).unwrap();
    assert_eq!(code(), "vanished");
}
