//! Refuses inconsistent specs before a store or target is opened.

use iosonde_harness::load::check::{RATE_MAX, validate_arrival};
use iosonde_harness::{RunError, require};
use iosonde_protocol::{
    Arrival, Coverage, Database, KvChoice, KvDistribution, KvOperation, KvSize, KvStream, KvWorkload, Records,
    StoreKind, StoreTarget, WeightedSize,
};

use crate::freshness::RECORDS_MAX;
use crate::records::{HEADER_BYTES, NUMBER_BYTES};

const BATCH_MAX: u32 = 1_000_000;
const SPEED_MAX: f64 = 1e6;
const BYTES_MAX: u64 = 64 << 20;
/// Smallest key of a cache: the hexadecimal digits of the eight bytes that identify the record.
const CACHE_KEY_BYTES: u64 = 2 * NUMBER_BYTES as u64;

/// Checks everything that follows from the spec alone.
pub(crate) fn check(workload: &KvWorkload) -> Result<(), RunError> {
    let kind = workload.store.kind;
    check_records(&workload.records)?;
    require(
        workload.store.library.is_none() || kind.has_library(),
        "`store.library`",
    )?;
    let has_read_cache = match &workload.target {
        StoreTarget::Directory { read_cache, .. } => read_cache.is_some(),
        _ => false,
    };
    require(!has_read_cache || kind == StoreKind::Rocksdb, "`target.read_cache`")?;
    check_read_only(workload)?;
    check_order(workload)?;
    check_cache(workload)?;
    check_freshness(workload)?;
    check_trace(workload)?;
    if let Database::Loaded { batch, rate, .. } = workload.database {
        require((1..=BATCH_MAX).contains(&batch), "`database.batch`")?;
        require(
            rate.is_none_or(|rate| (1.0..=RATE_MAX).contains(&rate)),
            "`database.rate`",
        )?;
    }
    let has_foreground = workload.streams.iter().any(|stream| !stream.background);
    require(has_foreground, "`streams`")?;
    let mut streams = workload.streams.iter();
    streams.try_for_each(|stream| check_stream(workload, stream))
}

fn operations(workload: &KvWorkload) -> impl Iterator<Item = KvOperation> {
    let shares = workload.streams.iter().flat_map(|stream| &stream.operations);
    shares.map(|share| share.operation)
}

fn scans(operation: KvOperation) -> bool {
    matches!(operation, KvOperation::Scan | KvOperation::Iterate)
}

/// A user's database is only read, and has no background work.
fn check_read_only(workload: &KvWorkload) -> Result<(), RunError> {
    if !matches!(workload.target, StoreTarget::ReadOnly { .. }) {
        return Ok(());
    }
    let reads = |operation| scans(operation) || operation == KvOperation::Read;
    require(operations(workload).all(reads), "`streams`")?;
    require(workload.database == Database::Existing, "`database`")?;
    let settles = workload.transition.settle || workload.settle_at_end;
    require(!settles, "`transition.settle`")
}

/// Only a store that orders its records can be scanned. MongoDB orders binary keys by their length first.
fn check_order(workload: &KvWorkload) -> Result<(), RunError> {
    if !operations(workload).any(scans) {
        return Ok(());
    }
    require(workload.store.kind.is_ordered(), "`streams`")?;
    let is_one_size = matches!(workload.records.key_bytes, KvSize::Fixed { .. });
    require(
        workload.store.kind != StoreKind::Mongodb || is_one_size,
        "`records.key_bytes`",
    )
}

/// A cache keeps nothing, and has keys that a line of its protocol can contain. The backend that it is read through does not
/// know what was written.
fn check_cache(workload: &KvWorkload) -> Result<(), RunError> {
    let any = |holds: fn(&KvStream) -> bool| workload.streams.iter().any(holds);
    let reads_through = any(|stream| stream.read_through.is_some());
    if !workload.store.kind.is_cache() {
        return require(!reads_through, "`streams`");
    }
    require(!any(|stream| stream.sync), "`streams`")?;
    require(!reads_through || !any(|stream| stream.freshness), "`streams`")?;
    check_size(&workload.records.key_bytes, CACHE_KEY_BYTES, "`records.key_bytes`")
}

/// Freshness is known of single writes to records that exist before the run and are not deleted.
fn check_freshness(workload: &KvWorkload) -> Result<(), RunError> {
    if !workload.streams.iter().any(|stream| stream.freshness) {
        return Ok(());
    }
    let is_single = workload.records.fields == 1 && workload.streams.iter().all(|stream| stream.batch == 1);
    let deletes = operations(workload).any(|operation| operation == KvOperation::Delete);
    require(is_single && !deletes, "`streams`")?;
    require(workload.records.count <= RECORDS_MAX, "`records.count`")
}

/// A trace decides operations, sizes and instants, so nothing else may.
fn check_trace(workload: &KvWorkload) -> Result<(), RunError> {
    let Some(trace) = workload.streams.iter().find_map(|stream| stream.trace.as_ref()) else {
        return Ok(());
    };
    let [stream] = &workload.streams[..] else {
        return Err(RunError::out_of_range("`streams`"));
    };
    let is_alone = stream.batch == 1
        && matches!(stream.arrival, Arrival::Closed | Arrival::Trace { .. })
        && stream.rate_limit.is_none()
        && !stream.freshness;
    require(workload.records.fields == 1, "`records.fields`")?;
    require(is_alone && trace.rows > 0, at(stream, "trace"))
}

fn check_records(records: &Records) -> Result<(), RunError> {
    require((1..=1 << 50).contains(&records.count), "`records.count`")?;
    check_size(&records.key_bytes, NUMBER_BYTES as u64, "`records.key_bytes`")?;
    check_size(&records.value_bytes, HEADER_BYTES as u64, "`records.value_bytes`")?;
    let fields = u64::from(records.fields);
    let fits = match records.value_bytes {
        KvSize::Fixed { bytes } => fields > 0 && bytes % fields == 0 && bytes / fields >= HEADER_BYTES as u64,
        _ => false,
    };
    require(fields == 1 || fits, "`records.fields`")?;
    let ratio = records.value_compression_ratio;
    require(ratio > 0.0 && ratio <= 1.0, "`records.value_compression_ratio`")
}

/// The smallest size identifies the record.
fn check_size(size: &KvSize, least: u64, context: &str) -> Result<(), RunError> {
    let is_size = |bytes: u64| (least..=BYTES_MAX).contains(&bytes);
    let is_range = |min: u64, max: u64| min <= max && is_size(min) && is_size(max);
    let holds = match size {
        KvSize::Fixed { bytes } => is_size(*bytes),
        KvSize::Uniform { min_bytes, max_bytes } => is_range(*min_bytes, *max_bytes),
        KvSize::Pareto {
            scale,
            shape,
            min_bytes,
            max_bytes,
        } => is_positive(*scale) && *shape > 0.0 && *shape < 1.0 && is_range(*min_bytes, *max_bytes),
        KvSize::Weighted { sizes } => {
            let is_weighted = |size: &WeightedSize| is_positive(size.weight) && is_size(size.bytes);
            !sizes.is_empty() && sizes.iter().all(is_weighted)
        }
    };
    require(holds, context)
}

fn check_stream(workload: &KvWorkload, stream: &KvStream) -> Result<(), RunError> {
    check_operations(workload, stream)?;
    check_choice(workload, stream)?;
    let (least, most) = (stream.scan_records_min, stream.scan_records_max);
    require(least >= 1 && least <= most, at(stream, "scan_records_min"))?;
    require((1..=BATCH_MAX).contains(&stream.batch), at(stream, "batch"))?;
    check_pace(stream)
}

/// An iterator stays open, so it has a stream of its own. Reads are batched by caches only.
fn check_operations(workload: &KvWorkload, stream: &KvStream) -> Result<(), RunError> {
    let shares = &stream.operations;
    let iterates = shares.iter().any(|share| share.operation == KvOperation::Iterate);
    let is_weighted = !shares.is_empty() && shares.iter().all(|share| is_positive(share.weight));
    require(
        is_weighted && (shares.len() == 1 || !iterates),
        at(stream, "operations"),
    )?;
    let can_be_batched = shares.iter().all(|share| match share.operation {
        KvOperation::Update | KvOperation::Insert | KvOperation::Delete => true,
        KvOperation::Read => workload.store.kind.is_cache(),
        _ => false,
    });
    require(stream.batch <= 1 || can_be_batched, at(stream, "batch"))
}

fn check_choice(workload: &KvWorkload, stream: &KvStream) -> Result<(), RunError> {
    let records = workload.records.count;
    let is_independent = match stream.choice {
        KvChoice::Random { coverage, distribution } => {
            let is_independent = coverage == Coverage::WithReplacement;
            let is_uniform = distribution == KvDistribution::Uniform;
            let fits = (is_independent || is_uniform) && is_possible(&distribution, records);
            require(fits, at(stream, "choice"))?;
            is_independent
        }
        _ => false,
    };
    let has_records = is_independent || u64::from(stream.jobs) <= records;
    require(has_records, at(stream, "jobs"))
}

fn is_possible(distribution: &KvDistribution, records: u64) -> bool {
    match *distribution {
        KvDistribution::Zipfian { theta, churn } => {
            is_positive(theta) && churn.is_none_or(|churn| churn > 0.0 && churn <= RATE_MAX)
        }
        KvDistribution::Latest { theta } => is_positive(theta),
        KvDistribution::ScrambledZipfian { theta, key_space } => is_positive(theta) && key_space >= records,
        KvDistribution::Uniform => true,
    }
}

/// The operations of an open loop arrive one by one, at the rate of its `arrival`.
fn check_pace(stream: &KvStream) -> Result<(), RunError> {
    match (&stream.arrival, &stream.trace) {
        (Arrival::Trace { speed }, Some(_)) => require(*speed > 0.0 && *speed <= SPEED_MAX, at(stream, "arrival"))?,
        _ => validate_arrival(&stream.arrival, at(stream, "arrival"))?,
    }
    let is_closed = stream.arrival == Arrival::Closed;
    let is_rate = |rate: f64| is_closed && rate > 0.0 && rate <= RATE_MAX;
    require(stream.rate_limit.is_none_or(is_rate), at(stream, "rate_limit"))?;
    require(is_closed || stream.batch == 1, at(stream, "batch"))
}

fn is_positive(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

fn at(stream: &KvStream, field: &str) -> String {
    format!("stream `{}`, `{field}`", stream.name)
}
