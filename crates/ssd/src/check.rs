//! Refuses models and arrays that could not be built.

use iosonde_protocol::{ArrayModel, Counted, DriveModel, LimitModel, LimitStyle, RaidLevel, SharedBy, Translation};

use crate::PAGE_BYTES;
use crate::geometry::{logical_pages, superblock_pages, superblocks};

/// A place takes 31 bits of a table entry.
const PHYSICAL_PAGES_MAX: u64 = (1 << 31) - 2;
/// With fewer, what is being written would be a large part of the drive.
const SUPERBLOCKS_MIN: u64 = 12;
const DRIVES_MAX: u32 = 64;
/// Pages of a unit are bits of a word.
const UNIT_BYTES_MAX: u64 = 64 * PAGE_BYTES;

/// Error in a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The field, as in the spec.
    pub field: &'static str,
    /// Description of the problem.
    pub message: String,
    /// Imperative that corrects it.
    pub hint: &'static str,
}

/// Everything that keeps a model from being simulated.
pub(crate) fn check(model: &DriveModel, array: &ArrayModel) -> Result<(), ModelError> {
    check_media(model)?;
    check_translation(model)?;
    check_interface(model)?;
    check_array(array)?;
    check_limits(model, array)
}

fn check_media(model: &DriveModel) -> Result<(), ModelError> {
    let media = &model.media;
    require(
        media.channels > 0 && media.dies >= media.channels && media.dies.is_multiple_of(media.channels),
        "media.dies",
        format!(
            "{} dies cannot be spread evenly over {} channels",
            media.dies, media.channels
        ),
        "every channel has the same number of dies, at least one",
    )?;
    require(
        media.program_bytes > 0 && u64::from(media.program_bytes).is_multiple_of(PAGE_BYTES),
        "media.program_bytes",
        format!("a program of {} bytes", media.program_bytes),
        "it is a multiple of 4 KiB, the unit of mapping",
    )?;
    let takes_time = media.read_ns > 0 && media.program_ns > 0 && media.channel_bytes_per_second > 0;
    in_range(takes_time, "media")?;
    let are_shares = (0.0..1.0).contains(&media.time_spread) && (0.0..=1.0).contains(&media.retry_fraction);
    in_range(are_shares, "media.time_spread")
}

fn check_translation(model: &DriveModel) -> Result<(), ModelError> {
    let has_pages = logical_pages(model) > 0 && model.capacity_bytes.is_multiple_of(PAGE_BYTES);
    in_range(has_pages, "capacity_bytes")?;
    let Translation::PageMapped {
        over_provisioning,
        block_programs,
        idle_free_fraction,
        mapping_bytes,
        ..
    } = &model.translation
    else {
        return require(
            logical_pages(model) <= PHYSICAL_PAGES_MAX,
            "capacity_bytes",
            format!("a capacity of {} bytes", model.capacity_bytes),
            "pages are numbered with 31 bits: at most 8 TiB",
        );
    };
    let has_spare_room = *over_provisioning > 0.0 && over_provisioning.is_finite();
    in_range(has_spare_room, "translation.over_provisioning")?;
    let has_blocks = *block_programs > 0 && (0.0..1.0).contains(idle_free_fraction);
    in_range(has_blocks, "translation.block_programs")?;
    require(
        mapping_bytes.is_power_of_two() && (PAGE_BYTES..=UNIT_BYTES_MAX).contains(&u64::from(*mapping_bytes)),
        "translation.mapping_bytes",
        format!("a mapping of {mapping_bytes} bytes"),
        "it is 4 KiB, or a power of two times that, 256 KiB at most",
    )?;
    require(
        superblocks(model) >= SUPERBLOCKS_MIN,
        "translation.block_programs",
        format!(
            "blocks so large that there are only {} of them on each die",
            superblocks(model)
        ),
        "make blocks smaller or the capacity larger: at least 12",
    )?;
    require(
        superblock_pages(model) * superblocks(model) <= PHYSICAL_PAGES_MAX,
        "capacity_bytes",
        format!(
            "a capacity of {} bytes with an over-provisioning of {over_provisioning}",
            model.capacity_bytes
        ),
        "pages are numbered with 31 bits: at most 8 TiB of media",
    )?;
    let smallest = 2 * u64::from(model.media.program_bytes);
    require(
        model.buffer.bytes >= smallest,
        "buffer.bytes",
        format!("a write buffer of {} bytes", model.buffer.bytes),
        "it holds at least two programs of a die, since writes wait in it until they fill one",
    )
}

fn check_interface(model: &DriveModel) -> Result<(), ModelError> {
    let interface = &model.interface;
    let moves = interface.read_bytes_per_second > 0 && interface.write_bytes_per_second > 0;
    in_range(moves && interface.queue_depth > 0, "interface")?;
    require(
        interface.command_bytes >= PAGE_BYTES && interface.command_bytes.is_multiple_of(PAGE_BYTES),
        "interface.command_bytes",
        format!("commands of at most {} bytes", interface.command_bytes),
        "it is a multiple of 4 KiB",
    )
}

fn check_array(array: &ArrayModel) -> Result<(), ModelError> {
    let (least, step) = match array.level {
        RaidLevel::Raid0 => (1, 1),
        RaidLevel::Raid1 => (2, 1),
        RaidLevel::Raid10 => (4, 2),
        RaidLevel::Raid5 => (3, 1),
        RaidLevel::Raid6 => (4, 1),
    };
    require(
        array.drives >= least && array.drives.is_multiple_of(step) && array.drives <= DRIVES_MAX,
        "array.drives",
        format!("a {:?} of {} drives", array.level, array.drives),
        "RAID 0 takes 1 drive or more, RAID 1 2, RAID 5 3, RAID 6 4, RAID 10 4 and an even number; 64 at most",
    )?;
    require(
        array.chunk_bytes >= PAGE_BYTES && array.chunk_bytes.is_multiple_of(PAGE_BYTES),
        "array.chunk_bytes",
        format!("a chunk of {} bytes", array.chunk_bytes),
        "it is a multiple of 4 KiB",
    )?;
    let moves = array.bytes_per_second != Some(0) && array.parity_bytes_per_second != Some(0);
    in_range(moves, "array.bytes_per_second")
}

fn check_limits(model: &DriveModel, array: &ArrayModel) -> Result<(), ModelError> {
    for limit in &model.limits {
        check_limit(limit)?;
        let alone = array.drives == 1 || limit.shared_by == SharedBy::Machine;
        let slower = array.bytes_per_second.or(array.parity_bytes_per_second).is_some();
        require(
            limit.style == LimitStyle::Queue || (alone && !slower),
            "limits",
            "a paced limit of each drive of an array, or one on an array with a limit of its own".into(),
            "use `style = \"queue\"`; `paced` needs one drive or `shared_by = \"machine\"`",
        )?;
    }
    require(
        model.first_touch.is_none_or(|touch| touch.region_bytes >= PAGE_BYTES),
        "first_touch.region_bytes",
        "regions of less than a page".into(),
        "it is at least 4 KiB",
    )
}

fn check_limit(limit: &LimitModel) -> Result<(), ModelError> {
    let rates = limit.changes.iter().map(|change| change.rate);
    require(
        rates
            .chain([limit.rate])
            .chain(limit.burst_rate)
            .all(|rate| rate > 0.0 && rate.is_finite()),
        "limits.rate",
        "a limit that lets nothing pass".into(),
        "every rate is above 0",
    )?;
    require(
        limit.bucket >= 0.0 && limit.bucket.is_finite() && limit.burst_rate.is_none_or(|burst| burst >= limit.rate),
        "limits.bucket",
        format!("a bucket of {} credits, or a burst below the rate", limit.bucket),
        "`bucket` is at least 0, `burst_rate` at least `rate`",
    )?;
    let weights = [limit.read_weight, limit.write_weight];
    let are_weights = weights.iter().all(|weight| *weight >= 0.0 && weight.is_finite());
    in_range(are_weights, "limits.read_weight")?;
    require(
        limit.unit_bytes != Some(0)
            && (limit.counts == Counted::Operations || limit.unit_bytes.is_none())
            && (!limit.merge || limit.unit_bytes.is_some()),
        "limits.unit_bytes",
        "a limit by bytes with a unit, or one that merges without a unit".into(),
        "only operations are counted in units, and merged up to one",
    )?;
    require(
        limit.changes.windows(2).all(|pair| pair[0].after_ns < pair[1].after_ns),
        "limits.changes",
        "changes that are not in order".into(),
        "each change comes later than the one before it",
    )
}

/// What every source of models makes sure of.
fn in_range(holds: bool, field: &'static str) -> Result<(), ModelError> {
    let message = format!("`{field}` is out of range");
    require(holds, field, message, "docs/simulation.md lists the fields of a model")
}

fn require(holds: bool, field: &'static str, message: String, hint: &'static str) -> Result<(), ModelError> {
    if holds {
        Ok(())
    } else {
        Err(ModelError { field, message, hint })
    }
}
