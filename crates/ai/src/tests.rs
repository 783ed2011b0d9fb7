//! Loads on simulated devices, whose results follow from the device, and on files.

use std::path::Path;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Control, RunError, RunInputs, Workload, carry_out};
use iosonde_protocol::{
    AiTarget, AiVectorWorkload, AiWeightsWorkload, Backend, Counted, LimitModel, LimitStyle, Observe, Outcome,
    PageCache, Ramp, RunResult, Service, SharedBy, WeightFile, WeightMemory, WeightStrategy,
};
use iosonde_ssd::sample;

use crate::{AiVector, AiWeights};

mod ingest;

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

pub(crate) fn run(workload: &dyn Workload) -> Result<RunResult, RunError> {
    let targets = Targets::default();
    let inputs = RunInputs {
        seed: 7,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &targets,
    };
    carry_out(workload, inputs, &mut Control::new().0, &mut |_| {})
}

pub(crate) fn servers(servers: u32, service_ns: u64) -> Option<Backend> {
    Some(Backend::Simulated {
        servers,
        read_service_ns: service_ns,
        write_service_ns: service_ns,
        service: Service::Constant,
        stalls: Vec::new(),
    })
}

/// A drive that is limited to this rate only, after a burst of `bucket` bytes.
pub(crate) fn limited(bytes_per_second: f64, bucket: f64) -> Option<Backend> {
    let mut model = sample::crosspoint();
    model.limits = vec![LimitModel {
        counts: Counted::Bytes,
        rate: bytes_per_second,
        burst_rate: None,
        bucket,
        unit_bytes: None,
        merge: false,
        read_weight: 1.0,
        write_weight: 1.0,
        style: LimitStyle::Queue,
        shared_by: SharedBy::Volume,
        changes: Vec::new(),
    }];
    Some(Backend::Ssd {
        model: Box::new(model),
        array: sample::SINGLE,
        state_path: None,
    })
}

fn virtual_target() -> AiTarget {
    AiTarget::Virtual { size_bytes: 1 << 30 }
}

fn queries(target: AiTarget, backend: Option<Backend>) -> AiVectorWorkload {
    AiVectorWorkload {
        target,
        backend,
        index_bytes: 64 * MIB,
        concurrency: 1,
        hops: 30,
        beam_width: 4,
        read_bytes: [4096, 4096],
        cached_fraction: 0.0,
        ramp: Ramp::default(),
        duration_ns: SECOND_NS,
        interval_ns: SECOND_NS / 10,
        cpus: Vec::new(),
    }
}

fn operations(result: &RunResult) -> u64 {
    result.jobs.iter().map(|job| job.operations).sum()
}

#[test]
fn a_query_takes_the_service_time_of_each_hop_while_servers_are_free() {
    // 30 hops of 100 us: 3 ms each, so 333 in a second.
    let result = run(&AiVector(&queries(virtual_target(), servers(4, 100_000)))).unwrap();
    assert_eq!(operations(&result), 333);
    assert_eq!(result.ai.unwrap().reads, Some(333 * 120));
    // Two servers serve a beam of four in two turns.
    let result = run(&AiVector(&queries(virtual_target(), servers(2, 100_000)))).unwrap();
    assert_eq!(operations(&result), 166);
    // Eight queries at a time share 16 servers: 160,000 reads in a second.
    let mut workload = queries(virtual_target(), servers(16, 100_000));
    workload.concurrency = 8;
    let result = run(&AiVector(&workload)).unwrap();
    assert!((1325..=1334).contains(&operations(&result)), "{}", operations(&result));
}

#[test]
fn reads_served_from_memory_shorten_a_query_only_where_a_whole_beam_is_in_memory() {
    let mut workload = queries(virtual_target(), servers(4, 100_000));
    workload.beam_width = 1;
    workload.cached_fraction = 0.5;
    let result = run(&AiVector(&workload)).unwrap();
    assert!((640..=690).contains(&operations(&result)), "{}", operations(&result));
    workload.beam_width = 4;
    let result = run(&AiVector(&workload)).unwrap();
    let expected = 333.3 / (1.0 - 0.5_f64.powi(4));
    assert!((operations(&result) as f64 / expected - 1.0).abs() < 0.02);
}

fn weights(target: AiTarget, backend: Option<Backend>, strategy: WeightStrategy) -> AiWeightsWorkload {
    let file = |name: &str| WeightFile {
        path: name.into(),
        bytes: 8 * MIB + 4096,
        tensors: vec![4096, 3 * MIB, 3 * MIB + 1000],
    };
    AiWeightsWorkload {
        target,
        backend,
        files: vec![file("a.safetensors"), file("b.safetensors")],
        generate: true,
        strategy,
        request_bytes: MIB,
        threads: 2,
        memory: WeightMemory::Pageable,
        page_cache: PageCache::Drop,
        interval_ns: SECOND_NS / 10,
        cpus: Vec::new(),
    }
}

#[test]
fn weights_take_the_time_of_their_requests_or_pages() {
    // 17 or 18 requests of 1 ms on one server.
    for (strategy, requests) in [(WeightStrategy::Direct, 18), (WeightStrategy::Read, 18)] {
        let result = run(&AiWeights(&weights(virtual_target(), servers(1, 1_000_000), strategy))).unwrap();
        assert_eq!(result.end_ns - result.begin_ns, requests * 1_000_000);
        assert_eq!(result.ai.unwrap().loaded_bytes, Some(16 * MIB + 8192));
        assert_eq!(result.outcome, Outcome::Complete);
    }
    let random = weights(virtual_target(), servers(1, 1_000_000), WeightStrategy::MmapRandom);
    let result = run(&AiWeights(&random)).unwrap();
    assert_eq!(result.end_ns - result.begin_ns, 4096 * 1_000_000);
    let refused = weights(virtual_target(), servers(1, 1_000_000), WeightStrategy::Mmap);
    assert_eq!(run(&AiWeights(&refused)).unwrap_err().to_failure().code, "unsupported");
}

pub(crate) fn directory(path: &Path) -> AiTarget {
    AiTarget::Directory {
        path: path.to_str().unwrap().into(),
    }
}

#[test]
fn weights_are_generated_once_and_loaded_in_each_way() {
    let place = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for strategy in [
        WeightStrategy::Mmap,
        WeightStrategy::MmapRandom,
        WeightStrategy::MmapWillneed,
        WeightStrategy::MmapPopulate,
        WeightStrategy::Read,
        WeightStrategy::Direct,
    ] {
        let mut workload = weights(directory(place.path()), None, strategy);
        workload.memory = WeightMemory::Locked;
        let result = run(&AiWeights(&workload)).unwrap();
        written.push(result.layout.written_bytes);
        let (facts, evidence) = (result.ai.unwrap(), result.evidence.unwrap());
        let headers = if written.len() < 5 { 0 } else { 8192 };
        assert_eq!(facts.loaded_bytes, Some(16 * MIB + headers), "{strategy:?}");
        assert_eq!(facts.file_bytes, 16 * MIB + 8192);
        assert_eq!(evidence.page_cache.unwrap().before_bytes, 0, "{strategy:?}");
    }
    assert_eq!(written, [16 * MIB + 8192, 0, 0, 0, 0, 0]);
    let head = std::fs::read(place.path().join("a.safetensors")).unwrap();
    let length = u64::from_le_bytes(head[..8].try_into().unwrap());
    let json = std::str::from_utf8(&head[8..8 + length as usize]).unwrap().trim_end();
    assert!(json.starts_with(r#"{"tensor.0":{"dtype":"U8","shape":[3141632],"data_offsets":[0,3141632]}"#));
    assert!(json.ends_with("}}"), "{json}");
}

#[test]
fn files_of_the_user_are_never_written_and_must_be_as_planned() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("model.safetensors");
    std::fs::write(&path, vec![7; MIB as usize]).unwrap();
    let mut workload = weights(directory(place.path()), None, WeightStrategy::Read);
    workload.generate = false;
    workload.files = vec![WeightFile {
        path: path.to_str().unwrap().into(),
        bytes: MIB,
        tensors: vec![64],
    }];
    let modified = path.metadata().unwrap().modified().unwrap();
    let result = run(&AiWeights(&workload)).unwrap();
    assert_eq!(
        (result.layout.written_bytes, result.ai.unwrap().loaded_bytes),
        (0, Some(MIB))
    );
    workload.files[0].bytes += 1;
    assert_eq!(
        run(&AiWeights(&workload)).unwrap_err().to_failure().code,
        "invalid_spec"
    );
    assert_eq!(path.metadata().unwrap().modified().unwrap(), modified);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn queries_read_an_index_of_files_with_parallel_reads() {
    let place = tempfile::tempdir().unwrap();
    let mut workload = queries(directory(place.path()), None);
    workload.hops = 3;
    workload.ramp.duration_ns = SECOND_NS / 10;
    workload.read_bytes = [4096, 12288];
    let result = run(&AiVector(&workload)).unwrap();
    let (queries, reads) = (operations(&result), result.ai.unwrap().reads.unwrap());
    assert!(queries > 0);
    assert_eq!(reads, queries * 12);
    let bytes: u64 = result.jobs.iter().map(|job| job.bytes).sum();
    assert!(
        (4096..=12288).contains(&(bytes / reads)),
        "{bytes} bytes in {reads} reads"
    );
}
