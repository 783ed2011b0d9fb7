"""fio's options: the one list of what becomes of each. Import, its notes and docs/fio.md draw on it.

An option is `CARRIED` (a parameter of the study has the same meaning, perhaps with a limit that a note names),
`DROPPED` (it would change what is done or measured, and the study cannot express it: every use is noted), `NEEDLESS`
(it changes nothing that is measured, or is done anyway: no note), or `SETTLED` (about reading the job file itself).

The names are those of fio 3.42 with its engines. What is not here is a mistake in the job file, or too new.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

VERSION = "3.42"
"""The fio whose options these are."""


class Fate(Enum):
    """Ways in which an import handles an option."""

    CARRIED = "carried over"
    DROPPED = "not carried over"
    NEEDLESS = "makes no difference"
    SETTLED = "read"


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of fio."""

    name: str
    aliases: tuple[str, ...] = ()
    fate: Fate
    becomes: str = ""
    """`CARRIED`: parameters of the study, as in docs."""
    why: str = ""
    """`DROPPED`: why it is not carried over; `NEEDLESS`: why that makes no difference."""
    instead: str = ""
    """`DROPPED`: what happens instead."""
    off: tuple[str, ...] = ("0", "none", "")
    """`DROPPED`: values without an effect, so that there is nothing to note."""


def find(name: str) -> Option | None:
    """The option of that name or alias."""
    return _BY_NAME.get(name)


def starting_with(beginning: str) -> list[str]:
    """One name of each option with that beginning; those of engines only where no other has it."""
    named = {id(option): (name, option) for name, option in _BY_NAME.items() if name.startswith(beginning)}
    return [name for name, each in named.values() if each.why != _OF_ENGINE] or [name for name, _ in named.values()]


def nearest(name: str) -> str | None:
    """The known name that a misspelt one probably means."""
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.7)
    return near[0] if near else None


def _carried(name: str, becomes: str, *aliases: str) -> Option:
    return Option(name=name, aliases=aliases, fate=Fate.CARRIED, becomes=becomes)


def _dropped(names: str, why: str, instead: str, *, off: tuple[str, ...] = ("0", "none", "")) -> Iterable[Option]:
    return [_named(each, Fate.DROPPED, why=why, instead=instead, off=off) for each in names.split()]


def _needless(names: str, why: str) -> Iterable[Option]:
    return [_named(each, Fate.NEEDLESS, why=why) for each in names.split()]


def _named(written: str, fate: Fate, *, why: str, instead: str = "", off: tuple[str, ...] = ()) -> Option:
    """`name/alias` as in the lists below."""
    name, *aliases = written.split("/")
    return Option(name=name, aliases=tuple(aliases), fate=fate, why=why, instead=instead, off=off)


_OF_ENGINE = "it configures an I/O engine of fio"

OPTIONS: tuple[Option, ...] = (
    _carried("rw", "`access`, `read_fraction`, `trim_fraction`; `rw=read:8k` becomes `strided`", "readwrite"),
    _carried("rwmixread", "`read_fraction`"),
    _carried("rwmixwrite", "`read_fraction`"),
    _carried("bs", "`block_size`", "blocksize"),
    _carried("bsrange", "`block_size`, as a mix of all multiples of the smallest", "blocksize_range"),
    _carried("bssplit", "`block_size`, as a mix"),
    _carried("ioengine", "`backend`; see [engines](#engines)"),
    _carried("iodepth", "`queue_depth`"),
    _carried("numjobs", "`jobs`"),
    _carried("size", "`span`, and `limit_bytes` where the time does not end the job"),
    _carried("io_size", "`limit_bytes`", "io_limit"),
    _carried("filesize", "`span` where there is no `size`"),
    _carried("number_ios", "`limit_operations`"),
    _carried("loops", "a factor on `limit_bytes` and `limit_operations`"),
    _carried("offset", "`offset`", "fileoffset"),
    _carried("offset_increment", '`span_sharing = "split"` where it equals `size`'),
    _carried(
        "filename",
        "one shared file, or a range of it for each name; the name itself is dropped. A section that is named after a "
        "device (`[/dev/nvme0n1]`) and has no `filename` has that one",
    ),
    _carried("directory", "nothing: `--target` names the place; without a file name each job has its own file"),
    _carried("filename_format", "whether jobs share a file"),
    _carried("nrfiles", "a factor on `filesize`; the files of a job become one", "nr_files"),
    _carried("direct", "`io_mode`"),
    _carried("buffered", "`io_mode`"),
    _carried("atomic", "`io_mode` (atomicity is not requested)"),
    _carried("sync", "`durability`"),
    _carried("fsync", "`durability`"),
    _carried("fdatasync", "`durability`"),
    _carried("runtime", "`duration`; `active` where jobs that run together differ", "timeout"),
    _carried("time_based", "whether `size` ends the job"),
    _carried("ramp_time", "`ramp`"),
    _carried("startdelay", "`active`"),
    _carried("rate", "`arrival`, `rate`, in I/Os of the mean block size"),
    _carried("rate_iops", "`arrival`, `rate`"),
    _carried("rate_process", "`arrival`: `constant` or `poisson`"),
    _carried("norandommap", "`coverage`"),
    _carried("random_distribution", "`distribution`"),
    _carried("invalidate", "`page_cache`"),
    _carried("pre_read", "`page_cache`"),
    _carried("overwrite", "`layout`"),
    _carried(
        "zero_buffers",
        "`payload`, of writes and of files that are written before they are read, without the two options below",
    ),
    _carried("buffer_compress_percentage", "`compression_ratio`: 100 / (100 - percentage); zeros for 100"),
    _carried(
        "dedupe_percentage",
        "`duplicate_fraction` and `duplicate_size`, the block size: as in fio, whole I/Os are duplicates",
    ),
    _carried("verify", '`verify`: `"during"` where a job only reads, or else `"after"`; the method is always CRC-32C'),
    _carried("do_verify", "`verify`"),
    _carried("cpus_allowed", "`cpus`"),
    _carried("cpumask", "`cpus`"),
    _carried("cpus_allowed_policy", "`cpus`: job `i` runs on the `i`-th of them (`split`)"),
    _carried("hipri", "`completion_polling`"),
    _carried("fixedbufs", "`registered_buffers`"),
    _carried("registerfiles", "`registered_files`"),
    _carried("sqthread_poll", "`submission_polling`; fio registers files with it, so `registered_files` too"),
    _carried("stonewall", "a new part of the study", "wait_for_previous"),
    _carried("wait_for", "a new part of the study"),
    _carried("log_avg_msec", "`interval`, from 100 ms on"),
    _carried("description", "the title of the part"),
    _carried("name", "the name of the part or stream"),
    _carried("create_only", "nothing: the section is left out, and files are created as loads need them"),
    Option(name="kb_base", fate=Fate.SETTLED, why="sizes are read accordingly"),
    *_needless("thread/threads", "jobs are always threads"),
    *_needless("group_reporting new_group", "each stream and their total are always reported"),
    *_needless("refill_buffers scramble_buffers", "written data always differs between writes"),
    *_needless(
        "randrepeat allrandrepeat randseed random_generator",
        "random numbers are seeded by the study; `--seed` changes the seed",
    ),
    *_needless(
        "percentile_list clat_percentiles lat_percentiles slat_percentiles significant_figures",
        "the full latency distribution is recorded; any percentile can be derived",
    ),
    *_needless(
        "write_bw_log write_lat_log write_iops_log write_hist_log per_job_logs bwavgtime iopsavgtime log_hist_msec "
        "log_hist_coarseness log_max_value log_entries log_compression log_compression_cpus log_store_compressed "
        "log_unix_epoch log_alternate_epoch log_alternate_epoch_clock_id job_start_clock_id log_window_value",
        "every interval is recorded with its latencies; `iosonde export` writes them",
    ),
    *_needless(
        "disk_util stats unified_rw_reporting unit_base error_dump disable_lat disable_clat disable_slat "
        "disable_bw_measurement/disable_bw gtod_reduce gtod_cpu clocksource",
        "records always have the same contents, and their cost is measured",
    ),
    *_needless(
        "create_serialize create_fsync create_on_open unlink unlink_each_loop allow_file_create unique_filename "
        "allow_mounted_write",
        "test files are created before the measurement and removed after the study",
    ),
    *_needless("rate_cycle/ratecycle rate_ignore_thinktime", "every single I/O is scheduled"),
    *_needless("openfiles file_service_type filetype", "a job has one file"),
    *_needless("comm", "threads have names of iosonde's own"),
    *_needless("softrandommap", "the map of covered blocks needs no allocation that can fail"),
    *_needless("rwmixcycle", "each I/O chooses its direction independently"),
    *_needless(
        "mem/iomem hugepage-size lockmem iomem_align/mem_align", "buffers are aligned and in memory before the start"
    ),
    *_needless(
        "verify_interval verify_offset verify_fatal verify_dump verify_async verify_async_cpus experimental_verify "
        "verify_policy verifysort verifysort_nr",
        "every sector has a checksum, and every difference is counted and reported with its position",
    ),
    *_needless("nonvectored userspace_reap", "it concerns system calls of fio only"),
    *_dropped(
        "thinktime thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime thinkcycles",
        "a stream has no pauses",
        "each I/O follows the one before; for a lower rate give `arrival` and `rate`",
    ),
    *_dropped(
        "rate_min/ratemin rate_iops_min max_latency",
        "a slow run is not stopped",
        "the run continues, and the report shows the achieved rate",
    ),
    *_dropped(
        "latency_target latency_window latency_percentile latency_run",
        "the queue depth is constant within a run",
        "the load runs at the full `queue_depth`; a study can vary it as a factor",
    ),
    *_dropped(
        "steadystate/ss steadystate_duration/ss_dur steadystate_ramp_time/ss_ramp steadystate_check_interval",
        "the imported study has runs of fixed length",
        "it is measured for the whole `duration`",
    ),
    *_dropped(
        "exitall exit_what exitall_on_error",
        "concurrent streams end independently",
        "each stream runs to its own end",
    ),
    *_dropped(
        "flow flow_id flow_sleep flow_watermark",
        "the ratio of streams is not controlled",
        "each stream runs at its own speed",
    ),
    *_dropped(
        "verify_pattern verify_pattern_interval verify_header_seed",
        "iosonde's own pattern distinguishes lost, torn, misdirected and stale data",
        "every sector contains its position, its generation and a CRC-32C",
    ),
    *_dropped(
        "verify_only verify_backlog verify_backlog_batch verify_state_load verify_state_save verify_write_sequence",
        "data is verified after the load, or on each read",
        "a journal next to the file records the expected contents; `iosonde verify` checks a kept file at any time",
        off=("0", ""),
    ),
    *_dropped(
        "trim_percentage trim_verify_zero trim_backlog trim_backlog_batch",
        "trimmed blocks are not verified",
        "the load runs without this check",
    ),
    *_dropped(
        "end_fsync end_syncfs fsync_on_close",
        "nothing is flushed at the end of a measurement",
        "the last writes may still be cached at the end; `durability` flushes within the measurement",
    ),
    *_dropped(
        "write_barrier sync_file_range",
        "not supported by `durability`",
        "`durability` decides when writes are durable",
    ),
    *_dropped(
        "buffer_pattern buffer_compress_chunk dedupe_mode dedupe_working_set_percentage dedupe_global",
        "a study sets the compression ratio and the share of duplicates, not how data is generated",
        "data is random and differs between writes, except for duplicates",
    ),
    *_dropped(
        "zonemode zonesize zonecapacity write_zone_remainder zonerange zoneskip read_beyond_wp max_open_zones "
        "job_max_open_zones "
        "ignore_zone_limits zone_reset_threshold zone_reset_frequency recover_zbd_write_error",
        "zoned devices are not supported",
        "the whole `span` is addressed",
        off=("0", "none", "", "not_specified"),
    ),
    *_dropped(
        "percentage_random percentage_sequential bs_is_seq_rand rw_sequencer",
        "a stream is either random or sequential",
        "every I/O follows `rw`",
        off=("100", "0", "sequential"),
    ),
    *_dropped(
        "ba/blockalign bs_unaligned/blocksize_unaligned offset_align",
        "offsets are multiples of the block size",
        "offsets are aligned to the block size",
    ),
    *_dropped(
        "iodepth_batch/iodepth_batch_submit iodepth_batch_complete_min/iodepth_batch_complete iodepth_low "
        "iodepth_batch_complete_max",
        "the engine chooses the batch size of submissions and completions",
        "up to `queue_depth` are in flight",
        off=("0", "1"),
    ),
    *_dropped(
        "serialize_overlap",
        "I/Os in flight may overlap",
        "overlapping I/Os are not delayed",
    ),
    *_dropped(
        "io_submit_mode",
        "the same thread generates and submits I/Os",
        "with a `rate`, response latency counts from the intended start in any case",
        off=("inline",),
    ),
    *_dropped(
        "fill_device/fill_fs file_append opendir lockfile",
        "a run uses its own file of known size",
        "all I/O is within `span`",
    ),
    *_dropped(
        "read_iolog read_iolog_chunked replay_no_stall replay_redirect replay_scale replay_align replay_time_scale "
        "replay_skip merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters write_iolog",
        "traces are neither replayed nor written",
        "the other options define the load",
    ),
    *_dropped(
        "exec_prerun exec_postrun",
        "an imported study contains no commands",
        "nothing is executed",
    ),
    *_dropped(
        "ioscheduler fallocate fadvise_hint write_hint write_lifetime_hint",
        "settings of device and file are not changed",
        "the record contains the settings found",
        off=("native", "0"),
    ),
    *_dropped(
        "nice prio prioclass prio_hint/priohint cmdprio cmdprio_percentage cmdprio_class cmdprio_bssplit "
        "cmdprio_hint log_prio",
        "I/Os have no priorities",
        "all I/Os have the same priority",
        off=("0",),
    ),
    *_dropped(
        "log_offset log_issue_time", "single I/Os are not recorded", "the latency distribution is recorded", off=("0",)
    ),
    *_dropped(
        "block_error_percentiles", "errors are counted without percentiles", "the metric `errors` has the number"
    ),
    *_dropped(
        "numa_cpu_nodes numa_mem_policy sqthread_poll_cpu",
        "`cpus` is the only placement option",
        "the kernel places memory and kernel threads",
        off=(),
    ),
    *_dropped(
        "ignore_error continue_on_error",
        "failed I/Os are counted, and unsupported ones fail the run",
        "the metric `errors` has the number of failed I/Os",
    ),
    *_dropped(
        "cgroup cgroup_weight cgroup_nodelete uid gid",
        "a run has the user and group of iosonde",
        "the run has your user and group",
    ),
    *_dropped(
        "sprandom spr_op spr_num_regions spr_cs",
        "an imported study does not precondition",
        'the device is measured as it is; in a study with rounds, `precondition_access = "aging"` preconditions in '
        "one pass",
    ),
    *_dropped("ramp_size", "the ramp is limited by `ramp_time`", "set `ramp_bytes` in the study"),
    *_dropped("random_sequence_stride", "random offsets have no stride", "offsets follow `random_distribution`"),
    *_dropped("profile", "only options are imported", "the profile is not applied"),
    *_dropped(
        "uncached nowait force_async hipri_percentage readfua writefua sg_write_mode stream_id cmd_type fdp fdp_pli "
        "fdp_pli_select plids plid_select dataplacement/data_placement dp_scheme md_per_io_size pi_act pi_chk "
        "apptag apptag_mask "
        "num_range write_mode deac thp cdb_len read_mode verify_mode verify_bytchk "
        "libaio_vectored no_completion_thread",
        "I/Os carry no such flag",
        "plain reads and writes",
        off=("0", "write"),
    ),
    *_dropped(
        "client",
        "hosts are named when the study is run",
        "`iosonde run STUDY --target PATH --hosts HOSTS` runs the load on each of them",
    ),
    *_dropped(
        "hostname bindname listen port protocol interface pingpong ttl window_size mss nodelay verb serverip "
        "direct_write_to_pmem busy_wait_polling volume brick single-instance uri clustername rbdname pool clientname "
        "conf busy_poll touch_objects cont chunk_size object_class nfs_url namenode hdfsdirectory hdfs_use_direct "
        "http_host http_user http_pass http_s3_key http_s3_keyid http_s3_region http_s3_security_token "
        "http_s3_sse_customer_key http_s3_sse_customer_algorithm http_s3_storage_class http_mode http_verbose https "
        "http_swift_auth_token http_object_mode program arguments grace_time std_redirect cpuload cpuchunks "
        "cpumode exit_on_io_done donorname inplace stat_type skip_bad gpu_dev_ids gpu_dev_id cuda_io rocm_io svcl "
        "chunck_size single_instance initiator rbd_encryption_format rbd_encryption_passphrase xnvme_be xnvme_async "
        "xnvme_sync xnvme_admin xnvme_dev_nsid xnvme_dev_subnqn xnvme_mem xnvme_iovec libblkio_driver libblkio_path "
        "libblkio_pre_connect_props libblkio_num_entries libblkio_queue_size libblkio_pre_start_props "
        "libblkio_vectored libblkio_write_zeroes_on_trim libblkio_wait_mode libblkio_force_enable_completion_eventfd",
        _OF_ENGINE,
        "`--target` names the target",
        off=(),
    ),
)

_BY_NAME = {name: option for option in OPTIONS for name in (option.name, *option.aliases)}
