//! Refuses inconsistent specs before a store or target is opened.

use iosonde_harness::load::error::{RATE_MAX, validate_arrival};
use iosonde_harness::{RunError, require};
use iosonde_protocol::{
    Arrival, Coverage, Database, KvChoice, KvDistribution, KvOperation, KvSize, KvStream, KvWorkload, Records,
    StoreKind, StoreTarget,
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
    check_records(workload)?;
    require(
        workload.store.library.is_none() || workload.store.kind.has_library(),
        || format!("a library for store `{}`", workload.store.kind.name()),
        "`store.library`",
        "only `rocksdb`, `wiredtiger` and `lmdb` can be loaded from a library",
    )?;
    let has_read_cache = matches!(
        &workload.target,
        StoreTarget::Directory {
            read_cache: Some(_),
            ..
        }
    );
    require(
        !has_read_cache || workload.store.kind == StoreKind::Rocksdb,
        || format!("a read cache for store `{}`", workload.store.kind.name()),
        "`target.read_cache`",
        "only `rocksdb` has a persistent read cache",
    )?;
    check_read_only(workload)?;
    check_order(workload)?;
    check_cache(workload)?;
    check_server(workload)?;
    check_freshness(workload)?;
    check_trace(workload)?;
    if let Database::Loaded { batch, rate, .. } = workload.database {
        check_batch(batch, "`database.batch`")?;
        require(
            rate.is_none_or(|rate| (1.0..=RATE_MAX).contains(&rate)),
            || format!("a load of {} records per second", rate.unwrap_or_default()),
            "`database.rate`",
            "use a rate of at least 1 and up to ten millions, or none",
        )?;
    }
    require(
        workload.streams.iter().any(|stream| !stream.background),
        || "a key-value workload whose streams are all in the background, or that has none".into(),
        "`streams`",
        "add a stream that is not in the background",
    )?;
    workload
        .streams
        .iter()
        .try_for_each(|stream| check_stream(workload, stream))
}

/// A user's database is only read.
fn check_read_only(workload: &KvWorkload) -> Result<(), RunError> {
    if !matches!(workload.target, StoreTarget::ReadOnly { .. }) {
        return Ok(());
    }
    let reads = |operation| matches!(operation, KvOperation::Read | KvOperation::Scan | KvOperation::Iterate);
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    require(
        operations.all(|share| reads(share.operation)),
        || "writes to a read-only database".into(),
        "`streams`",
        "use `read`, `scan` and `iterate` only",
    )?;
    require(
        workload.database == Database::Existing,
        || "a read-only database to be loaded".into(),
        "`database`",
        "use `existing`",
    )?;
    require(
        !workload.transition.settle && !workload.settle_at_end,
        || "settling of a read-only database".into(),
        "`transition.settle`",
        "a read-only database has no background work",
    )
}

/// Only a store that orders its records can be scanned.
fn check_order(workload: &KvWorkload) -> Result<(), RunError> {
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    require(
        workload.store.kind.is_ordered()
            || operations.all(|share| !matches!(share.operation, KvOperation::Scan | KvOperation::Iterate)),
        || format!("scans of `{}`", workload.store.kind.name()),
        "`streams`",
        "it does not order records by key: use `read`, `update`, `insert` and `delete`",
    )
}

/// A cache keeps nothing, and has keys that a line of its protocol can contain.
fn check_cache(workload: &KvWorkload) -> Result<(), RunError> {
    let reads_through = workload.streams.iter().any(|stream| stream.read_through.is_some());
    if !workload.store.kind.is_cache() {
        return require(
            !reads_through,
            || format!("reads through the store `{}`", workload.store.kind.name()),
            "`streams`",
            "only a cache misses: use `memcached`, or leave out `read_through`",
        );
    }
    require(
        workload.streams.iter().all(|stream| !stream.sync),
        || format!("durable writes to the cache `{}`", workload.store.kind.name()),
        "`streams`",
        "a cache keeps nothing across a restart: leave out `sync`",
    )?;
    require(
        !(reads_through && workload.streams.iter().any(|stream| stream.freshness)),
        || "a freshness check of a cache that is read through".into(),
        "`streams`",
        "the modelled backend does not know what was written: leave out `freshness` or `read_through`",
    )?;
    check_size(
        &workload.records.key_bytes,
        CACHE_KEY_BYTES,
        "`records.key_bytes`",
        "keys of a cache",
    )
}

/// MongoDB orders binary keys by their length first, so records of keys of several lengths cannot be scanned in order.
fn check_server(workload: &KvWorkload) -> Result<(), RunError> {
    if workload.store.kind != StoreKind::Mongodb {
        return Ok(());
    }
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    let scans = operations.any(|share| matches!(share.operation, KvOperation::Scan | KvOperation::Iterate));
    require(
        !scans || matches!(workload.records.key_bytes, KvSize::Fixed { .. }),
        || "scans of MongoDB with keys of several sizes".into(),
        "`records.key_bytes`",
        "MongoDB orders binary keys by their length first: use keys of one size",
    )
}

/// Freshness is known of single writes to records that exist before the run and are not deleted.
fn check_freshness(workload: &KvWorkload) -> Result<(), RunError> {
    if !workload.streams.iter().any(|stream| stream.freshness) {
        return Ok(());
    }
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    require(
        workload.records.fields == 1
            && workload.streams.iter().all(|stream| stream.batch == 1)
            && operations.all(|share| share.operation != KvOperation::Delete),
        || "a freshness check with batches, deletes or fields".into(),
        "`streams`",
        "use single writes of whole values without deletes",
    )?;
    require(
        workload.records.count <= RECORDS_MAX,
        || format!("a freshness check of {} records", workload.records.count),
        "`records.count`",
        format!("use at most {RECORDS_MAX} records: it takes 8 bytes of memory for each"),
    )
}

/// A trace decides operations, sizes and instants, so nothing else may.
fn check_trace(workload: &KvWorkload) -> Result<(), RunError> {
    let Some(trace) = workload.streams.iter().find_map(|stream| stream.trace.as_ref()) else {
        return Ok(());
    };
    let [stream] = &workload.streams[..] else {
        return Err(RunError::invalid(
            "a trace beside other streams",
            "`streams`",
            "a trace is replayed by one stream",
        ));
    };
    let at = |field: &str| format!("stream `{}`, `{field}`", stream.name);
    require(
        stream.batch == 1
            && matches!(stream.arrival, Arrival::Closed | Arrival::Trace { .. })
            && stream.rate_limit.is_none()
            && !stream.freshness,
        || "a trace with a batch, a rate or a freshness check".into(),
        at("trace"),
        "use the arrival `trace` or `closed`, and `batch` 1",
    )?;
    require(
        workload.records.fields == 1,
        || format!("a trace with {} fields", workload.records.fields),
        "`records.fields`",
        "a trace writes whole values: use 1",
    )?;
    require(
        trace.rows > 0,
        || "a trace without rows".into(),
        at("trace"),
        "use at least one row",
    )
}

fn check_records(workload: &KvWorkload) -> Result<(), RunError> {
    let records = &workload.records;
    require(
        records.count > 0 && records.count <= 1 << 50,
        || format!("a database of {} records", records.count),
        "`records.count`",
        "use 1 to 2^50",
    )?;
    check_size(&records.key_bytes, NUMBER_BYTES as u64, "`records.key_bytes`", "keys")?;
    check_size(
        &records.value_bytes,
        HEADER_BYTES as u64,
        "`records.value_bytes`",
        "values",
    )?;
    check_fields(records)?;
    let ratio = records.value_compression_ratio;
    require(
        ratio > 0.0 && ratio <= 1.0,
        || format!("values that can be compressed to {ratio} of their size"),
        "`records.value_compression_ratio`",
        "use a fraction above 0 and up to 1",
    )
}

fn check_fields(records: &Records) -> Result<(), RunError> {
    let fields = u64::from(records.fields);
    let fits = match records.value_bytes {
        KvSize::Fixed { bytes } => fields > 0 && bytes % fields == 0 && bytes / fields >= HEADER_BYTES as u64,
        _ => false,
    };
    require(
        fields == 1 || fits,
        || format!("values of {fields} fields"),
        "`records.fields`",
        format!("fields are of the same size, at least {HEADER_BYTES} bytes: use a fixed value size that they divide"),
    )
}

fn check_size(size: &KvSize, least: u64, context: &str, what: &str) -> Result<(), RunError> {
    let sizes: Vec<u64> = match size {
        KvSize::Fixed { bytes } => vec![*bytes],
        KvSize::Uniform { min_bytes, max_bytes } => {
            require(
                min_bytes <= max_bytes,
                || format!("{what} of at least {min_bytes} and at most {max_bytes} bytes"),
                context,
                "the smallest size comes first",
            )?;
            vec![*min_bytes, *max_bytes]
        }
        KvSize::Pareto {
            scale,
            shape,
            min_bytes,
            max_bytes,
        } => {
            require(
                *scale > 0.0 && scale.is_finite() && *shape > 0.0 && *shape < 1.0 && min_bytes <= max_bytes,
                || format!("{what} with scale {scale}, shape {shape}, {min_bytes} to {max_bytes} bytes"),
                context,
                "use a scale above 0, a shape between 0 and 1, and the smaller limit first",
            )?;
            vec![*min_bytes, *max_bytes]
        }
        KvSize::Weighted { sizes } => {
            require(
                !sizes.is_empty() && sizes.iter().all(|size| size.weight > 0.0 && size.weight.is_finite()),
                || format!("{what} without a size that could be chosen"),
                context,
                "give at least one size, each with a weight above 0",
            )?;
            sizes.iter().map(|size| size.bytes).collect()
        }
    };
    for bytes in sizes {
        require(
            (least..=BYTES_MAX).contains(&bytes),
            || format!("{what} of {bytes} bytes"),
            context,
            format!("{what} have {least} bytes to 64 MiB: the smallest size identifies the record"),
        )?;
    }
    Ok(())
}

fn check_stream(workload: &KvWorkload, stream: &KvStream) -> Result<(), RunError> {
    let at = |field: &str| format!("stream `{}`, `{field}`", stream.name);
    check_operations(workload, stream, &at)?;
    check_choice(workload, stream, &at)?;
    require(
        stream.scan_records_min >= 1 && stream.scan_records_min <= stream.scan_records_max,
        || {
            format!(
                "scans of {} to {} records",
                stream.scan_records_min, stream.scan_records_max
            )
        },
        at("scan_records_min"),
        "use at least 1, and no more than `scan_records_max`",
    )?;
    check_batch(stream.batch, at("batch"))?;
    check_pace(stream, &at)
}

fn check_operations(workload: &KvWorkload, stream: &KvStream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let operations = || stream.operations.iter().map(|share| share.operation);
    require(
        !stream.operations.is_empty()
            && stream
                .operations
                .iter()
                .all(|share| share.weight > 0.0 && share.weight.is_finite()),
        || "a stream without operations".into(),
        at("operations"),
        "give at least one operation, each with a weight above 0",
    )?;
    require(
        operations().count() == 1 || operations().all(|operation| operation != KvOperation::Iterate),
        || "`iterate` beside other operations".into(),
        at("operations"),
        "an iterator stays open: use a separate stream for it",
    )?;
    let can_be_batched = operations().all(|operation| match operation {
        KvOperation::Update | KvOperation::Insert | KvOperation::Delete => true,
        KvOperation::Read => workload.store.kind.is_cache(),
        _ => false,
    });
    require(
        stream.batch <= 1 || can_be_batched,
        || format!("a batch of {} with operations that read", stream.batch),
        at("batch"),
        "batches can only contain `update`, `insert` and `delete`, on a cache also `read`; use 1 otherwise",
    )
}

fn check_choice(workload: &KvWorkload, stream: &KvStream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    if let KvChoice::Random { coverage, distribution } = stream.choice {
        require(
            coverage == Coverage::WithReplacement || distribution == KvDistribution::Uniform,
            || "each record once with a skewed distribution".into(),
            at("choice"),
            "`each_once` requires the distribution `uniform`",
        )?;
        if let KvDistribution::ScrambledZipfian { key_space, .. } = distribution {
            require(
                key_space >= workload.records.count,
                || format!("a key space of {key_space} for {} records", workload.records.count),
                at("choice"),
                "use at least the number of records",
            )?;
        }
        if let KvDistribution::Zipfian { churn: Some(churn), .. } = distribution {
            require(
                churn > 0.0 && churn <= RATE_MAX,
                || format!("a churn of {churn} records per second"),
                at("choice"),
                "use a rate above 0 and up to ten millions, or none",
            )?;
        }
        if let KvDistribution::Zipfian { theta, .. }
        | KvDistribution::Latest { theta }
        | KvDistribution::ScrambledZipfian { theta, .. } = distribution
        {
            require(
                theta > 0.0 && theta.is_finite(),
                || format!("a skew of {theta}"),
                at("choice"),
                "use a number above 0; YCSB uses 0.99",
            )?;
        }
    }
    let ordered = !matches!(
        stream.choice,
        KvChoice::Random {
            coverage: Coverage::WithReplacement,
            ..
        }
    );
    require(
        !ordered || u64::from(stream.jobs) <= workload.records.count,
        || format!("{} jobs for {} records", stream.jobs, workload.records.count),
        at("jobs"),
        "use no more jobs than records",
    )
}

fn check_batch(batch: u32, context: impl Into<String>) -> Result<(), RunError> {
    require(
        (1..=BATCH_MAX).contains(&batch),
        || format!("a batch of {batch}"),
        context,
        format!("use 1 to {BATCH_MAX}"),
    )
}

fn check_pace(stream: &KvStream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    match (&stream.arrival, &stream.trace) {
        (Arrival::Trace { speed }, Some(_)) => require(
            *speed > 0.0 && *speed <= SPEED_MAX,
            || format!("a trace at {speed} times its speed"),
            at("arrival"),
            "use a speed above 0 and up to a million",
        )?,
        _ => validate_arrival(&stream.arrival)
            .map_err(|error| RunError::invalid(error.to_string(), at("arrival"), error.hint()))?,
    }
    require(
        stream.rate_limit.is_none_or(|rate| rate > 0.0 && rate <= RATE_MAX),
        || format!("{} records per second", stream.rate_limit.unwrap_or_default()),
        at("rate_limit"),
        "use a rate above 0 and up to ten millions, or none",
    )?;
    let is_closed = stream.arrival == Arrival::Closed;
    require(
        is_closed || stream.rate_limit.is_none(),
        || "an open loop with a limit of its rate".into(),
        at("rate_limit"),
        "set the rate of an open loop in `arrival`",
    )?;
    require(
        is_closed || stream.batch == 1,
        || format!("an open loop in batches of {}", stream.batch),
        at("batch"),
        "operations of an open loop arrive one by one: use 1, or a closed loop",
    )
}
