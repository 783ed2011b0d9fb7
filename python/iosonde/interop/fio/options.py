"""fio's options and engines: the one list of what an import does with each. docs/fio.md explains it.

An option in `CARRIED` has the same meaning in the study, perhaps with a limit that a note names. One in `NEEDLESS`
changes nothing that is measured, or is done anyway. Every use of the others is noted, unless its value disables it:
those in `NOTED` with their own note, the rest with `NO_EQUIVALENT`.

The names are those of fio 3.42 with its engines, aliases after a slash. What is not here is a mistake in the job file,
or too new.
"""

from __future__ import annotations

import difflib

from iosonde.errors import StudyError
from iosonde.interop.fio.jobfile import Setting

VERSION = "3.42"
"""The fio whose options these are."""

CARRIED = (
    "rw/readwrite rwmixread rwmixwrite bs/blocksize bsrange/blocksize_range bssplit ioengine iodepth numjobs size "
    "io_size/io_limit filesize number_ios loops offset/fileoffset offset_increment filename directory filename_format "
    "nrfiles/nr_files direct buffered atomic sync fsync fdatasync runtime/timeout time_based ramp_time startdelay rate "
    "rate_iops rate_process norandommap random_distribution invalidate pre_read overwrite zero_buffers "
    "buffer_compress_percentage dedupe_percentage verify do_verify cpus_allowed cpumask cpus_allowed_policy hipri "
    "fixedbufs registerfiles sqthread_poll stonewall/wait_for_previous wait_for log_avg_msec description name "
    "create_only kb_base"
)

NEEDLESS = (
    "thread/threads group_reporting new_group refill_buffers scramble_buffers randrepeat allrandrepeat randseed "
    "random_generator percentile_list clat_percentiles lat_percentiles slat_percentiles significant_figures "
    "write_bw_log write_lat_log write_iops_log write_hist_log per_job_logs bwavgtime iopsavgtime log_hist_msec "
    "log_hist_coarseness log_max_value log_entries log_compression log_compression_cpus log_store_compressed "
    "log_unix_epoch log_alternate_epoch log_alternate_epoch_clock_id job_start_clock_id log_window_value disk_util "
    "stats unified_rw_reporting unit_base error_dump disable_lat disable_clat disable_slat "
    "disable_bw_measurement/disable_bw gtod_reduce gtod_cpu clocksource create_serialize create_fsync create_on_open "
    "unlink unlink_each_loop allow_file_create unique_filename allow_mounted_write rate_cycle/ratecycle "
    "rate_ignore_thinktime openfiles file_service_type filetype comm softrandommap rwmixcycle mem/iomem hugepage-size "
    "lockmem iomem_align/mem_align verify_interval verify_offset verify_fatal verify_dump verify_async "
    "verify_async_cpus experimental_verify verify_policy verifysort verifysort_nr nonvectored userspace_reap"
)

NOTED = {
    "thinktime thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime thinkcycles": (
        "a stream has no pauses; each I/O follows the one before; for a lower rate give `arrival` and `rate`"
    ),
    "latency_target latency_window latency_percentile latency_run": (
        "the queue depth is constant within a run; the load runs at the full `queue_depth`; a study can vary it as a "
        "factor"
    ),
    "steadystate/ss steadystate_duration/ss_dur steadystate_ramp_time/ss_ramp steadystate_check_interval": (
        "the imported study has runs of fixed length; it is measured for the whole `duration`"
    ),
    "verify_only verify_backlog verify_backlog_batch verify_state_load verify_state_save verify_write_sequence": (
        "data is verified after the load, or on each read; a journal next to the file records the expected contents; "
        "`iosonde verify` checks a kept file at any time"
    ),
    "end_fsync end_syncfs fsync_on_close": (
        "nothing is flushed at the end of a measurement; the last writes may still be cached at the end; `durability` "
        "flushes within the measurement"
    ),
    "percentage_random percentage_sequential bs_is_seq_rand rw_sequencer": (
        "a stream is either random or sequential; every I/O follows `rw`"
    ),
    "exec_prerun exec_postrun": "an imported study contains no commands; nothing is executed",
    "ignore_error continue_on_error": (
        "failed I/Os are counted, and unsupported ones fail the run; the metric `errors` has the number of failed I/Os"
    ),
    "ramp_size": "the ramp is limited by `ramp_time`; set `ramp_bytes` in the study",
    "client": (
        "hosts are named when the study is run; `iosonde run STUDY --target PATH --hosts HOSTS` runs the load on each "
        "of them"
    ),
}
"""Options that change a load, with the reason and what happens instead."""

NO_EQUIVALENT = "an imported study has no equivalent; the load runs without it"

RARE = (
    "rate_min/ratemin rate_iops_min max_latency exitall exit_what exitall_on_error flow flow_id flow_sleep "
    "flow_watermark verify_pattern verify_pattern_interval verify_header_seed trim_percentage trim_verify_zero "
    "trim_backlog trim_backlog_batch write_barrier sync_file_range buffer_pattern buffer_compress_chunk dedupe_mode "
    "dedupe_working_set_percentage dedupe_global zonemode zonesize zonecapacity write_zone_remainder zonerange "
    "zoneskip read_beyond_wp max_open_zones job_max_open_zones ignore_zone_limits zone_reset_threshold "
    "zone_reset_frequency recover_zbd_write_error ba/blockalign bs_unaligned/blocksize_unaligned offset_align "
    "iodepth_batch/iodepth_batch_submit iodepth_batch_complete_min/iodepth_batch_complete iodepth_low "
    "iodepth_batch_complete_max serialize_overlap io_submit_mode fill_device/fill_fs file_append opendir lockfile "
    "read_iolog read_iolog_chunked replay_no_stall replay_redirect replay_scale replay_align replay_time_scale "
    "replay_skip merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters write_iolog ioscheduler fallocate "
    "fadvise_hint write_hint write_lifetime_hint nice prio prioclass prio_hint/priohint cmdprio cmdprio_percentage "
    "cmdprio_class cmdprio_bssplit cmdprio_hint log_prio log_offset log_issue_time block_error_percentiles "
    "numa_cpu_nodes numa_mem_policy sqthread_poll_cpu cgroup cgroup_weight cgroup_nodelete uid gid sprandom spr_op "
    "spr_num_regions spr_cs random_sequence_stride profile uncached nowait force_async hipri_percentage readfua "
    "writefua sg_write_mode stream_id cmd_type fdp fdp_pli fdp_pli_select plids plid_select "
    "dataplacement/data_placement dp_scheme md_per_io_size pi_act pi_chk apptag apptag_mask num_range write_mode deac "
    "thp cdb_len read_mode verify_mode verify_bytchk libaio_vectored no_completion_thread"
)

OF_ENGINES = (
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
    "libblkio_vectored libblkio_write_zeroes_on_trim libblkio_wait_mode libblkio_force_enable_completion_eventfd"
)
"""Options of fio's engines, most of which do no block I/O."""

_OFF = ("0", "")
_ALSO_OFF = {
    "percentage_random": ("100",),
    "rw_sequencer": ("sequential",),
    "zonemode": ("none", "not_specified"),
    "lockfile": ("none",),
    "continue_on_error": ("none",),
    "io_submit_mode": ("inline",),
    "fallocate": ("native",),
    "sg_write_mode": ("write",),
    "write_mode": ("write",),
    **dict.fromkeys(("iodepth_batch", "iodepth_batch_complete_min", "iodepth_batch_complete_max"), ("1",)),
}
"""Values with which an option has no effect: `_OFF` except of those for which 0 means something, and others."""
_ZERO_COUNTS = (
    "percentage_random buffer_pattern verify_pattern uid gid pi_act numa_cpu_nodes numa_mem_policy sqthread_poll_cpu "
    f"{OF_ENGINES}"
).split()


def _names(written: str) -> dict[str, str]:
    """Names and aliases of a list above, each with the name of its option."""
    return {name: each.partition("/")[0] for each in written.split() for name in each.split("/")}


_NOTES = {name: text for names, text in NOTED.items() for name in _names(names).values()}
_NOTES |= dict.fromkeys(_names(f"{RARE} {OF_ENGINES}").values(), NO_EQUIVALENT)
NAMES = _names(" ".join([CARRIED, NEEDLESS, *NOTED, RARE, OF_ENGINES]))
"""Every name and alias with the name of its option."""


def note_on(setting: Setting) -> str:
    """Reason and replacement of an option that is not carried over; empty for others, and for values without effect."""
    name = NAMES[setting.option]
    off = (*_ALSO_OFF.get(name, ()), *(() if name in _ZERO_COUNTS else _OFF))
    return "" if setting.value in off else _NOTES.get(name, "")


def starting_with(beginning: str) -> list[str]:
    """One name of each option with that beginning; those of engines only where no other has it."""
    found = {NAMES[name]: name for name in NAMES if name.startswith(beginning)}
    engines = OF_ENGINES.split()
    return [name for option, name in found.items() if option not in engines] or list(found.values())


def name_of(setting: Setting) -> str:
    """The name of a setting's option; `StudyError` for one that fio does not have."""
    if setting.option in NAMES:
        return NAMES[setting.option]
    near = difflib.get_close_matches(setting.option, NAMES, n=1, cutoff=0.7)
    raise StudyError(
        f"unknown option `{setting.option}` (fio {VERSION})",
        where=setting.where(),
        hint=f"did you mean `{near[0]}`?"
        if near
        else "docs/fio.md lists the known options; remove the line if the load does not need it",
    )


ENGINES = {
    "io_uring": ("uring", ""),
    # Linux AIO completes a buffered request before io_submit(2) returns: `convert` changes its backend then.
    "libaio": ("uring", ""),
    # glibc processes the requests of one file descriptor one after the other, in one thread.
    "posixaio": ("sync", "I/O is done by `pread` and `pwrite`, one at a time as in glibc"),
    "solarisaio windowsaio guasi": ("uring", "I/O goes through io_uring"),
    "psync sync pvsync pvsync2 vsync": ("sync", ""),
    "mmap splice": ("sync", "I/O is done by `pread` and `pwrite`"),
    "null cpp_null": ("null", ""),
    "io_uring_cmd xnvme libblkio libcufile libhipfile": (
        "uring",
        "I/O goes through the file or block device by io_uring",
    ),
    "sg libpmem dev-dax pmemblk mtd libzbc": (
        "sync",
        "I/O is done on the file or block device by `pread` and `pwrite`",
    ),
    "net netsplice rdma librpma_apm_client librpma_apm_server librpma_gpspm_client librpma_gpspm_server": (
        "",
        "it sends data over a network",
    ),
    "rados rbd gfapi gfapi_async http libhdfs nbd nfs libiscsi dfs ime_psync ime_psyncv ime_aio": (
        "",
        "it uses a network protocol; iosonde measures files and devices",
    ),
    "cpuio exec page_fault": ("", "it does no I/O"),
    "filecreate filestat filedelete filexattr dircreate dirstat dirdelete ftruncate falloc e4defrag fileoperations": (
        "",
        "it measures file and directory operations, not reads and writes",
    ),
    "external": ("", "it is a separate program"),
}
"""fio's engines: backend that does their load here (none: no block I/O, and the section is left out); difference."""


def engine(name: str) -> tuple[str, str] | None:
    """The backend and the difference of one of fio's engines; None for an unknown one."""
    return next((found for names, found in ENGINES.items() if name in names.split()), None)
