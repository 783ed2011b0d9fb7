//! Refuses a spec that contradicts itself, before anything is opened or written.

use iosonde_harness::load::{LoadError, error as load_error, regions};
use iosonde_harness::{RunError, require};
use iosonde_protocol::{
    Active, Arrival, Backend, BlockWorkload, Durability, IoMode, Layout, Payload, Stream, Target, VerifyWhen,
};

use crate::payload::{DUPLICATE_BYTES_MAX, GRANULE_BYTES};
use crate::target;
use crate::transport::name_of;
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
    require(
        !matches!(workload.target, Target::Virtual { .. }),
        || "verification on a target that keeps no data".into(),
        "`verify`",
        "verify on a file or a device",
    )?;
    require(
        verify.journal_directory.is_some() || !matches!(workload.target, Target::Device { .. }),
        || "verification of a device without a place for its journal".into(),
        "`verify`",
        "name a `journal_directory`: beside a device node there is no storage",
    )?;
    for stream in &workload.streams {
        check_verified_stream(stream, &|field| {
            format!("stream `{}`, `{field}`, with `verify`", stream.name)
        })?;
    }
    let modes = workload.streams.iter().map(|stream| stream.io_mode);
    require(
        modes.clone().all(|mode| Some(mode) == modes.clone().next()),
        || "verification of a file that some streams reach through the page cache and others past it".into(),
        "`io_mode`, with `verify`",
        "use one `io_mode` for all streams: Linux does not guarantee their order (open(2))",
    )?;
    let concurrency = |stream: &Stream| u64::from(stream.jobs) * u64::from(stream.queue_depth);
    let concurrency: u64 = workload.streams.iter().map(concurrency).sum();
    require(
        concurrency <= IN_FLIGHT_MAX,
        || format!("verification with {concurrency} I/Os in flight"),
        "`jobs`, `queue_depth`, with `verify`",
        format!("verification follows at most {IN_FLIGHT_MAX}"),
    )
}

fn check_verified_stream(stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    require(
        stream.mix.trim_fraction == 0.0,
        || "verification of a load that trims".into(),
        at("mix"),
        "what a trimmed block holds is not defined: leave out the trims",
    )?;
    let keeps_seals = match stream.payload {
        Payload::Random => true,
        Payload::Zeros => false,
        Payload::Reducible { duplicate_fraction, .. } => duplicate_fraction == 0.0,
    };
    require(
        keeps_seals,
        || "verification of zeros or duplicates".into(),
        at("payload"),
        "every sector contains its own address, so no two are alike: use random data, compressible or not",
    )?;
    let sizes = stream.block_sizes.iter().map(|size| size.bytes);
    require(
        sizes
            .chain([stream.span.offset_bytes])
            .all(|bytes| bytes % SECTOR_BYTES == 0),
        || "verification of blocks that are not whole sectors".into(),
        at("block_sizes"),
        "use multiples of 512 B as block sizes and offset",
    )
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
    for (time_ns, field) in times_ns {
        require(
            time_ns <= TIME_NS_MAX,
            || format!("a time of {time_ns} ns"),
            field,
            "times are in nanoseconds, and at most a year",
        )?;
    }
    Ok(())
}

/// The user-level driver reaches a device that is laid out already, and past every cache.
fn check_user_driver(workload: &BlockWorkload) -> Result<(), RunError> {
    let name = name_of(&workload.backend);
    require(
        matches!(workload.target, Target::Device { .. }),
        || format!("backend `{name}` on a target that is not a device"),
        "`target`",
        "name an NVMe namespace",
    )?;
    require(
        workload.layout == Layout::Never,
        || format!("a layout with backend `{name}`"),
        "`layout`",
        "lay the device out by a run with another backend first",
    )?;
    let is_read_back = |verify: &iosonde_protocol::Verification| verify.when == VerifyWhen::After;
    require(
        !workload.verify.as_ref().is_some_and(is_read_back),
        || format!("verification after the run with backend `{name}`"),
        "`verify`",
        "verify during the run, or with `iosonde-engine --verify` once the kernel has the device again",
    )
}

fn check_backend(workload: &BlockWorkload) -> Result<(), RunError> {
    let virtual_target = matches!(workload.target, Target::Virtual { .. });
    let virtual_backend = matches!(
        workload.backend,
        Backend::Null | Backend::Simulated { .. } | Backend::Ssd { .. }
    );
    require(
        virtual_target == virtual_backend,
        || "a target and a backend that do not go together".into(),
        "`target`, `backend`",
        "`null`, `simulated` and `ssd` backends need a `virtual` target, all others a real one",
    )?;
    if let Backend::NvmeUser(_) = &workload.backend {
        check_user_driver(workload)?;
    }
    if let Backend::Simulated {
        servers,
        read_service_ns,
        write_service_ns,
        ..
    } = workload.backend
    {
        require(
            servers > 0 && read_service_ns > 0 && write_service_ns > 0,
            || "a simulated device without servers or service time".into(),
            "`backend`",
            "give at least one server and a service time of at least 1 ns",
        )?;
    }
    Ok(())
}

fn check_stream(workload: &BlockWorkload, stream: &Stream) -> Result<(), RunError> {
    let at = |field: &str| format!("stream `{}`, `{field}`", stream.name);
    load_error::validate(stream).map_err(in_stream(stream))?;
    require(
        stream.queue_depth <= QUEUE_DEPTH_MAX,
        || format!("a queue depth of {}", stream.queue_depth),
        at("queue_depth"),
        format!("the kernel takes at most {QUEUE_DEPTH_MAX}"),
    )?;
    regions(stream, target::addressed_bytes(&workload.target)).map_err(in_stream(stream))?;
    check_one_device(workload, stream, &at)?;
    check_stream_of_backend(&workload.backend, stream, &at)?;
    for size in &stream.block_sizes {
        require(
            stream.io_mode == IoMode::Buffered || size.bytes % SECTOR_BYTES == 0,
            || format!("direct I/O in blocks of {} bytes", size.bytes),
            at("block_sizes"),
            "direct I/O needs multiples of 512 B",
        )?;
    }
    if let Durability::Flush { every } = stream.durability {
        require(
            every > 0,
            || "a flush after every 0 writes".into(),
            at("durability"),
            "flush after 1 or more writes",
        )?;
    }
    check_payload(stream, &at)?;
    check_repetition(stream, &at)?;
    check_ends(workload, stream, &at)
}

/// Checks the span of a stream on one of several devices.
fn check_one_device(workload: &BlockWorkload, stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let Target::Device { size_bytes, beside, .. } = &workload.target else {
        return Ok(());
    };
    require(
        beside.is_empty() || target::offset_in_file(&workload.target, stream) + stream.span.bytes <= *size_bytes,
        || format!("a span of {} bytes on more than one device", stream.span.bytes),
        at("span"),
        format!("end it before the next multiple of the `size_bytes` of the target, {size_bytes}"),
    )?;
    require(
        beside.is_empty() || (workload.verify.is_none() && !matches!(workload.backend, Backend::NvmeUser(_))),
        || "verification, or the user-level driver, on several devices".into(),
        "`target`",
        "leave out `beside`",
    )
}

/// Checks a stream against the capabilities of its backend.
fn check_stream_of_backend(backend: &Backend, stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    let name = name_of(backend);
    require(
        !matches!(backend, Backend::Sync | Backend::Preadv2) || stream.queue_depth == 1,
        || format!("a queue depth of {} with backend `{name}`", stream.queue_depth),
        at("queue_depth"),
        format!("`{name}` has one I/O in flight in each job: raise `jobs` instead, or use `uring`"),
    )?;
    require(
        !matches!(backend, Backend::Preadv2 | Backend::Libaio | Backend::UringNvme(_))
            || stream.io_mode == IoMode::Direct,
        || format!("buffered I/O with backend `{name}`"),
        at("io_mode"),
        "use direct I/O, or the backend `uring` or `sync`",
    )?;
    let may_poll = stream.mix.trim_fraction == 0.0 && !matches!(stream.durability, Durability::Flush { .. });
    require(
        !matches!(backend, Backend::UringNvme(options) if options.completion_polling) || may_poll,
        || format!("trims or flushes with backend `{name}`"),
        at("mix"),
        "polling needs direct reads and writes without trims and flushes",
    )?;
    require(
        !matches!(backend, Backend::Libaio) || stream.mix.trim_fraction == 0.0,
        || "trims with backend `libaio`".into(),
        at("mix"),
        "Linux AIO has no trims: use the backend `uring` or `sync`",
    )
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
    require(
        (1.0..=COMPRESSION_RATIO_MAX).contains(&compression_ratio),
        || format!("a compression ratio of {compression_ratio}"),
        at("payload"),
        format!("it lies between 1 (incompressible) and {COMPRESSION_RATIO_MAX}; for more use zeros"),
    )?;
    require(
        (0.0..=1.0).contains(&duplicate_fraction),
        || format!("a share of duplicates of {duplicate_fraction}"),
        at("payload"),
        "it lies between 0 and 1",
    )?;
    let whole_granules = |bytes: u64| bytes.is_multiple_of(GRANULE_BYTES as u64);
    require(
        whole_granules(duplicate_bytes) && (1..=DUPLICATE_BYTES_MAX).contains(&duplicate_bytes),
        || format!("duplicates of {duplicate_bytes} B"),
        at("payload"),
        "they are multiples of 4 KiB, up to 1 MiB",
    )?;
    require(
        duplicate_fraction == 0.0 || stream.block_sizes.iter().all(|size| whole_granules(size.bytes)),
        || "duplicates in blocks that are not whole multiples of 4 KiB".into(),
        at("payload"),
        "duplicates are multiples of 4 KiB: use multiples of that as `block_sizes`",
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
    require(
        end_ns.is_some_and(|end_ns| begin_ns < end_ns && end_ns - begin_ns <= every_ns),
        || format!("a window that comes again every {every_ns} ns before it is over"),
        at("active"),
        "give it an end, and let `every_ns` be at least as long as the window",
    )?;
    require(
        stream.arrival == Arrival::Closed,
        || "an open loop in a window that repeats".into(),
        at("active"),
        "use a closed loop, or steps of rate 0 as pauses",
    )
}

/// A stream without a duration must reach its limit, which must leave each job something to do.
fn check_ends(workload: &BlockWorkload, stream: &Stream, at: &dyn Fn(&str) -> String) -> Result<(), RunError> {
    require(
        workload.duration_ns.is_some() || loads_until_its_limit(stream),
        || "a stream that falls silent before its limit".into(),
        at("limit_operations"),
        "give the run a duration: an `active` window with an end, or a last step of rate 0, may leave the limit unreached",
    )?;
    let largest = stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
    let jobs = u64::from(stream.jobs);
    require(
        stream.limit_bytes.is_none_or(|bytes| bytes / jobs >= largest),
        || "a limit of less than one block for each job".into(),
        at("limit_bytes"),
        format!(
            "{jobs} jobs with blocks of {largest} bytes need at least {}",
            jobs * largest
        ),
    )
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

/// An error of the load about a stream, with the stream's name.
pub(crate) fn in_stream(stream: &Stream) -> impl FnOnce(LoadError) -> RunError {
    let context = format!("stream `{}`", stream.name);
    move |error| RunError::invalid(error.to_string(), context, error.hint())
}
