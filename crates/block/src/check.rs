//! Refuses a spec that contradicts itself, before anything is opened or written.

use iosonde_harness::load::check::validate;
use iosonde_harness::load::regions;
use iosonde_harness::{RunError, require};
use iosonde_protocol::{
    Active, Arrival, Backend, BlockWorkload, Durability, IoMode, Layout, Payload, Stream, Target, VerifyWhen,
};

use crate::payload::{DUPLICATE_BYTES_MAX, GRANULE_BYTES};
use crate::target;
use crate::verify::IN_FLIGHT_MAX;

/// The kernel's limit for a submission queue.
const QUEUE_DEPTH_MAX: u32 = 32_768;
/// A year. Far beyond any run, and far below where instants would overflow.
const TIME_NS_MAX: u64 = 365 * 24 * 3600 * 1_000_000_000;
/// Beyond it so little of a block is random that its format's own bytes decide how far it compresses.
const COMPRESSION_RATIO_MAX: f64 = 32.0;
/// No device takes direct I/O in smaller units.
const SECTOR_BYTES: u64 = 512;

/// Everything that can be known to be wrong from the spec alone.
pub(crate) fn check(workload: &BlockWorkload) -> Result<(), RunError> {
    check_times(workload)?;
    check_backend(workload)?;
    for stream in &workload.streams {
        check_stream(workload, stream)?;
    }
    check_verification(workload)
}

/// Checks the requirements of verification: stored data of known contents, with space for a seal in each sector.
fn check_verification(workload: &BlockWorkload) -> Result<(), RunError> {
    let Some(verify) = &workload.verify else {
        return Ok(());
    };
    // A target that keeps no data cannot be verified, and beside a device node there is no room for a journal.
    let has_room = match workload.target {
        Target::Virtual { .. } => false,
        Target::Device { .. } => verify.journal_directory.is_some(),
        _ => true,
    };
    require(has_room, "`verify`")?;
    for stream in &workload.streams {
        check_verified_stream(stream, &|field| {
            format!("stream `{}`, `{field}`, with `verify`", stream.name)
        })?;
    }
    // Linux does not guarantee the order of I/O through the page cache and past it (open(2)).
    let mut modes = workload.streams.iter().map(|stream| stream.io_mode);
    let first = modes.next();
    require(modes.all(|mode| Some(mode) == first), "`io_mode`, with `verify`")?;
    let concurrency = |stream: &Stream| u64::from(stream.jobs) * u64::from(stream.queue_depth);
    let concurrency: u64 = workload.streams.iter().map(concurrency).sum();
    require(concurrency <= IN_FLIGHT_MAX, "`jobs`, `queue_depth`, with `verify`")
}

/// What a trimmed block holds is not defined. Every sector contains its own address, so no two are alike.
fn check_verified_stream(stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    require(stream.mix.trim_fraction == 0.0, at("mix"))?;
    let keeps_seals = match stream.payload {
        Payload::Random => true,
        Payload::Zeros => false,
        Payload::Reducible { duplicate_fraction, .. } => duplicate_fraction == 0.0,
    };
    require(keeps_seals, at("payload"))?;
    let sizes = stream.block_sizes.iter().map(|size| size.bytes);
    let mut sizes = sizes.chain([stream.span.offset_bytes]);
    require(sizes.all(|bytes| bytes % SECTOR_BYTES == 0), at("block_sizes"))
}

fn check_times(workload: &BlockWorkload) -> Result<(), RunError> {
    let mut times_ns = vec![
        (workload.interval_ns, "`interval_ns`".to_string()),
        (workload.duration_ns.unwrap_or(0), "`duration_ns`".into()),
        (workload.ramp.duration_ns, "`ramp.duration_ns`".into()),
    ];
    if let Backend::Simulated {
        read_service_ns,
        write_service_ns,
        ref stalls,
        ..
    } = workload.backend
    {
        let stall_ns = stalls.iter().flat_map(|stall| [stall.at_ns, stall.duration_ns]);
        let of_device_ns = [read_service_ns, write_service_ns].into_iter().chain(stall_ns);
        times_ns.extend(of_device_ns.map(|time_ns| (time_ns, "`backend`".into())));
    }
    for stream in &workload.streams {
        let active_ns = stream
            .active
            .iter()
            .flat_map(|active| [Some(active.begin_ns), active.end_ns, active.every_ns]);
        let field = format!("stream `{}`, `active`", stream.name);
        times_ns.extend(active_ns.flatten().map(|time_ns| (time_ns, field.clone())));
        if let Arrival::Steps { steps, .. } = &stream.arrival {
            let field = format!("stream `{}`, `arrival`", stream.name);
            times_ns.extend(steps.iter().map(|step| (step.duration_ns, field.clone())));
        }
    }
    times_ns
        .into_iter()
        .try_for_each(|(time_ns, field)| require(time_ns <= TIME_NS_MAX, field))
}

fn check_backend(workload: &BlockWorkload) -> Result<(), RunError> {
    let virtual_target = matches!(workload.target, Target::Virtual { .. });
    let virtual_backend = match workload.backend {
        Backend::Null | Backend::Ssd { .. } => true,
        Backend::Simulated {
            servers,
            read_service_ns,
            write_service_ns,
            ..
        } => {
            require(servers > 0 && read_service_ns > 0 && write_service_ns > 0, "`backend`")?;
            true
        }
        _ => false,
    };
    require(virtual_target == virtual_backend, "`target`, `backend`")?;
    // The user-level driver reaches a device that is laid out already, and past every cache.
    if let Backend::NvmeUser(_) = workload.backend {
        require(matches!(workload.target, Target::Device { .. }), "`target`")?;
        require(workload.layout == Layout::Never, "`layout`")?;
        let when = workload.verify.as_ref().map(|verify| verify.when);
        require(when != Some(VerifyWhen::After), "`verify`")?;
    }
    Ok(())
}

fn check_stream(workload: &BlockWorkload, stream: &Stream) -> Result<(), RunError> {
    let at = |field: &str| format!("stream `{}`, `{field}`", stream.name);
    validate(stream)?;
    require(stream.queue_depth <= QUEUE_DEPTH_MAX, at("queue_depth"))?;
    regions(stream, target::addressed_bytes(&workload.target))?;
    check_one_device(workload, stream, &at)?;
    check_stream_of_backend(&workload.backend, stream, &at)?;
    let mut sizes = stream.block_sizes.iter().map(|size| size.bytes);
    let are_sectors = stream.io_mode == IoMode::Buffered || sizes.all(|bytes| bytes % SECTOR_BYTES == 0);
    require(are_sectors, at("block_sizes"))?;
    require(stream.durability != Durability::Flush { every: 0 }, at("durability"))?;
    check_payload(stream, &at)?;
    check_repetition(stream, &at)?;
    check_ends(workload, stream, &at)
}

/// Checks the span of a stream on one of several devices.
fn check_one_device(workload: &BlockWorkload, stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let Target::Device { size_bytes, beside, .. } = &workload.target else {
        return Ok(());
    };
    if beside.is_empty() {
        return Ok(());
    }
    let end = target::offset_in_file(&workload.target, stream) + stream.span.bytes;
    require(end <= *size_bytes, at("span"))?;
    let is_plain = workload.verify.is_none() && !matches!(workload.backend, Backend::NvmeUser(_));
    require(is_plain, "`target`")
}

/// Checks a stream against the capabilities of its backend.
fn check_stream_of_backend(backend: &Backend, stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let trims = stream.mix.trim_fraction > 0.0;
    let flushes = matches!(stream.durability, Durability::Flush { .. });
    let one_at_a_time = matches!(backend, Backend::Sync | Backend::Preadv2);
    require(!one_at_a_time || stream.queue_depth == 1, at("queue_depth"))?;
    let direct_only = matches!(backend, Backend::Preadv2 | Backend::Libaio | Backend::UringNvme(_));
    require(!direct_only || stream.io_mode == IoMode::Direct, at("io_mode"))?;
    let can_mix = match backend {
        Backend::UringNvme(options) if options.completion_polling => !trims && !flushes,
        Backend::Libaio => !trims,
        _ => true,
    };
    require(can_mix, at("mix"))
}

fn check_payload(stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let Payload::Reducible {
        compression_ratio,
        duplicate_fraction,
        duplicate_bytes,
    } = stream.payload
    else {
        return Ok(());
    };
    let whole_granules = |bytes: u64| bytes.is_multiple_of(GRANULE_BYTES as u64);
    let has_granules = duplicate_fraction == 0.0 || stream.block_sizes.iter().all(|size| whole_granules(size.bytes));
    require(
        (1.0..=COMPRESSION_RATIO_MAX).contains(&compression_ratio)
            && (0.0..=1.0).contains(&duplicate_fraction)
            && whole_granules(duplicate_bytes)
            && (1..=DUPLICATE_BYTES_MAX).contains(&duplicate_bytes)
            && has_granules,
        at("payload"),
    )
}

/// Pauses between windows: each window has an end before the next begins, and no schedule runs through them.
fn check_repetition(stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let Some(Active {
        begin_ns,
        end_ns,
        every_ns: Some(every_ns),
    }) = stream.active
    else {
        return Ok(());
    };
    let is_over = end_ns.is_some_and(|end_ns| begin_ns < end_ns && end_ns - begin_ns <= every_ns);
    require(is_over && stream.arrival == Arrival::Closed, at("active"))
}

/// A stream without a duration must reach its limit, which must leave each job something to do.
fn check_ends(workload: &BlockWorkload, stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let ends = workload.duration_ns.is_some() || loads_until_its_limit(stream);
    require(ends, at("limit_operations"))?;
    let largest = stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
    let share = |bytes: u64| bytes / u64::from(stream.jobs);
    let is_enough = stream.limit_bytes.is_none_or(|bytes| share(bytes) >= largest);
    require(is_enough, at("limit_bytes"))
}

/// Returns true if nothing but its limit ends a stream's load.
fn loads_until_its_limit(stream: &Stream) -> bool {
    let pauses_for_good = match &stream.arrival {
        Arrival::Steps { steps, .. } => steps.last().is_some_and(|step| step.rate == 0.0),
        Arrival::Closed | Arrival::Constant { .. } | Arrival::Poisson { .. } | Arrival::Trace { .. } => false,
    };
    let has_end = stream
        .active
        .is_some_and(|active| active.end_ns.is_some() && active.every_ns.is_none());
    !pauses_for_good && !has_end
}
