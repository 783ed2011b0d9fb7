"""Every warning that iosonde derives from the facts of a run: its name, when it is given, what to do.

This is the one list: `verdict.py` gives no other, and docs/warnings.md is compared with it. Thresholds stand here,
beside the words that state them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PointsTo = Literal["harness-limited", "cache-served", "undetermined", "note"]
"""What a warning makes of the verdict; a note leaves it."""

BUSY = 0.95
"""Of its time, a core that has nothing left."""
TOOL_SHARE = 0.10
"""Of the time of an I/O, what the tool may take before the figure is partly its own."""
MOST = 0.5
SOME = 0.10
"""Of the bytes, what memory may answer before it shows; and what makes the figure memory's."""
WAIT_SHARE = 0.10
STEAL_SHARE = 0.02
STEAL_NS = 30_000_000
SWITCHES_PER_SECOND = 1000
INTERRUPTS_PER_SECOND = 10_000
CLOCK_SHARE = 0.05
OTHER_SHARE = 0.05
OTHER_BYTES = 1 << 20
MISSING_SHARE = 0.01
HIGH_IOPS = 50_000
"""From here on the block layer's own work shows."""
HOT_CELSIUS = 70.0
"""Where a device does not say what it calls too hot."""
DEVICE_CACHE_BYTES = 64 << 20
"""Every drive of today has at least so much memory, and none says how much."""
LATENCIES_IN_A_RUN = 5


@dataclass(frozen=True, kw_only=True)
class WarningKind:
    """One named warning."""

    code: str
    title: str
    """What is the case, without the numbers of a run."""
    when: str
    """The rule, for docs/warnings.md."""
    hint: str
    points_to: PointsTo


_LIST = (
    WarningKind(
        code="core_saturated",
        title="A job had no CPU time left: its core, not the disk, was the limit",
        when="a job's thread used and waited for its CPU 95 % of the time or more; in open loop only if it fell behind "
        "its schedule, and never with polling, which is always busy",
        hint="use more `jobs`, larger blocks or a faster core; look at `cpu_ns_per_operation`",
        points_to="harness-limited",
    ),
    WarningKind(
        code="turnaround",
        title="Submission overhead left the queue underfilled while preparing the next I/O",
        when="the queue was underfilled 10 % of the time or more between finding a completion and submitting the "
        "next I/O, waiting for a CPU not counted",
        hint='a larger `queue_depth` or more `jobs` hide it; `payload = "zeros"` shows what filling blocks costs',
        points_to="harness-limited",
    ),
    WarningKind(
        code="harness_cost",
        title="What the harness itself costs is a noticeable part of each I/O",
        when="with one I/O in flight in each job, its cost on the null backend is 10 % of the job's time or more",
        hint="with one I/O in flight this is latency that is not the disk's; compare with the null backend: "
        "`iosonde io --target null:`",
        points_to="harness-limited",
    ),
    WarningKind(
        code="slow_clock",
        title="Reading the clock takes a noticeable part of each I/O",
        when="two readings for each I/O are 5 % of a job's time or more",
        hint="let the kernel use the processor's counter (`clocksource=tsc`), if it is stable",
        points_to="harness-limited",
    ),
    WarningKind(
        code="null_backend",
        title="The null backend completes every I/O at once: the figures are the tool's own",
        when="the backend is `null`",
        hint="name a directory as the target to measure a disk",
        points_to="harness-limited",
    ),
    WarningKind(
        code="reads_from_memory",
        title="Reads were served from the page cache and not by the disk",
        when="the process asked devices for less than 90 % of the bytes that it read; below half it is memory's figure",
        hint='read past the page cache with `io_mode = "direct"`, or make the `span` several times as large as memory',
        points_to="cache-served",
    ),
    WarningKind(
        code="writes_to_memory",
        title="Writes had not reached the disk when the measurement ended",
        when="the device took less than 90 % of the bytes written during the measurement; from half missing on, the "
        "figure is memory's",
        hint='write with `io_mode = "direct"`, make them durable with `durability`, or run until write-back keeps up',
        points_to="cache-served",
    ),
    WarningKind(
        code="memory_file_system",
        title="The target lies in memory: there is no disk under it",
        when="the file system is `tmpfs` or `ramfs`",
        hint="name a directory on a disk",
        points_to="cache-served",
    ),
    WarningKind(
        code="unwritten_extents",
        title="Part of what is read was never written: the file system answers without asking the disk",
        when="1 % or more of the bytes under reads lie in holes or unwritten extents (FIEMAP), before or after the "
        "run; from half on, the figure is not the disk's",
        hint='let iosonde write them first with `layout = "missing"`; with trims in the mix, trim another span',
        points_to="cache-served",
    ),
    WarningKind(
        code="cache_below",
        title="A loop device answered from the page cache of its backing file",
        when="less than 90 % of what a loop device moved reached the device under it; below half it is memory's figure",
        hint="attach it with `losetup --direct-io=on`",
        points_to="cache-served",
    ),
    WarningKind(
        code="cpu_contention",
        title="Other work took the CPU from a job",
        when="a job's thread was ready to run and had no CPU 10 % of the time or more; where the kernel does not "
        "report it, the job lost its CPU 1,000 times a second or more",
        hint="end other work, or give the jobs CPUs of their own with `cpus`",
        points_to="undetermined",
    ),
    WarningKind(
        code="late_counters",
        title="The kernel's counters were read late, so what was served from the page cache is not known",
        when="less than 90 % of the measurement lies between the two readings of the counters of process and devices",
        hint="leave a core to the thread that keeps time: fewer `jobs`, `cpus` for them, or an idle machine",
        points_to="undetermined",
    ),
    WarningKind(
        code="steal_time",
        title="The hypervisor gave this machine's CPUs to others",
        when="2 % of all CPUs' time or more was stolen, and at least 30 ms",
        hint="measure when the host is quiet, or on one whose CPUs are not shared",
        points_to="undetermined",
    ),
    WarningKind(
        code="foreign_interrupts",
        title="A core that a job is pinned to served interrupts of others",
        when="10,000 interrupts a second or more beyond three for each of its own I/Os",
        hint="pin the job elsewhere with `cpus`, or move the interrupts (`/proc/irq/*/smp_affinity`)",
        points_to="undetermined",
    ),
    WarningKind(
        code="other_io",
        title="Others used the device at the same time",
        when="5 % or more of the bytes that the device moved, and at least 1 MiB, were not this run's; writes count "
        "only where each byte written is one on the device",
        hint="end what else uses the device; `iotop` and `fatrace` show it",
        points_to="undetermined",
    ),
    WarningKind(
        code="throttled_device",
        title="A cgroup limits I/O on the device",
        when="a limit of the process's control groups (`blkio.throttle.*`, `io.max`) names a device under the target",
        hint="the figure is at most the limit; lift it, or measure from another control group",
        points_to="undetermined",
    ),
    WarningKind(
        code="hot_device",
        title="The device is so hot that it may slow itself down",
        when="before or after the run it had the temperature that it calls too hot, or 70 °C where it does not say",
        hint="cool it, or let it rest between runs",
        points_to="undetermined",
    ),
    WarningKind(
        code="queue_too_short",
        title="More I/Os were asked for than the kernel lets a device have",
        when="direct I/O with more in flight than `nr_requests` of the device times its hardware queues",
        hint="what is beyond waits in the kernel; raise `/sys/block/DEVICE/queue/nr_requests`, or ask for fewer",
        points_to="undetermined",
    ),
    WarningKind(
        code="span_fits_device_cache",
        title="The device may have answered from its own memory",
        when="direct I/O on no more than 64 MiB, gone over twice or more",
        hint="make the `span` larger than any cache on the way: gigabytes",
        points_to="undetermined",
    ),
    WarningKind(
        code="no_block_device",
        title="No block device is visible under the target: what answered cannot be determined",
        when="the target is a file on a network, FUSE or other file system without a block device of this machine",
        hint="take the figure for what it is, the file system's; measure on the server to learn about its disks",
        points_to="undetermined",
    ),
    WarningKind(
        code="short_run",
        title="The run is too short for its latency: begin and end weigh too much",
        when="the measurement lasted less than 5 times the mean completion latency",
        hint="give it time with a longer `duration`, or a larger `limit_bytes`",
        points_to="undetermined",
    ),
    WarningKind(
        code="places_free",
        title="Unexplained queue underutilization",
        when="10 % of the time and one mean latency or more remain after I/Os in flight, turnaround, and the begin and "
        "end of the load",
        hint="look at the run over time; another engine, or a fault of this one, may be the reason",
        points_to="undetermined",
    ),
    WarningKind(
        code="span_fits_memory",
        title="Memory can hold all that is addressed",
        when="buffered I/O on a span no larger than the machine's memory, or than its control group's",
        hint="make the `span` several times as large as memory, or use direct I/O",
        points_to="note",
    ),
    WarningKind(
        code="array_thread_saturated",
        title="The array's own thread had no CPU time left: it, not the members, was the limit",
        when="a kernel thread of the array (`md127_raid5`) used 95 % of a core or more",
        hint="the figure is the array's, not its members'; for RAID 4, 5 and 6 `group_thread_cnt` in "
        "`/sys/block/MD/md` gives the thread helpers, and several arrays have a thread each",
        points_to="note",
    ),
    WarningKind(
        code="one_hardware_queue",
        title="All jobs go through the one hardware queue of the device",
        when="two or more jobs with 50,000 IOPS or more, on a device that does not rotate and has one hardware queue",
        hint="more jobs may only wait for each other; the driver or the virtual machine sets the number of queues",
        points_to="note",
    ),
    WarningKind(
        code="io_scheduler",
        title="An I/O scheduler stands between the load and a fast device",
        when="50,000 IOPS or more, on a device that does not rotate and has a scheduler other than `none`",
        hint="compare with `echo none > /sys/block/DEVICE/queue/scheduler`",
        points_to="note",
    ),
    WarningKind(
        code="cpu_governor",
        title="The processor's speed varies with load",
        when="the CPU frequency governor is not `performance`",
        hint="`cpupower frequency-set -g performance`",
        points_to="note",
    ),
    WarningKind(
        code="copying_file_system",
        title="The file system writes elsewhere than it reads: its own work is in the figures",
        when="writes on btrfs (without `nodatacow`), ZFS, bcachefs, NILFS or an overlay, or to a file of which 1 % or "
        "more is shared with others (reflinks)",
        hint="for the disk alone measure on ext4 or XFS; on btrfs with `nodatacow`",
        points_to="note",
    ),
    WarningKind(
        code="compressing_file_system",
        title="The file system compresses: bytes of the load are not bytes on the disk",
        when="a mount option says so (`compress`, `compress_algorithm`), or extents under the reads are stored encoded",
        hint="mount it without, or measure elsewhere; the default payload cannot be compressed",
        points_to="note",
    ),
    WarningKind(
        code="compressible_data",
        title="What was written can be compressed or recognised by the device",
        when="something is written that is zeros, compressible, or holds duplicates",
        hint='a device that compresses, or treats zeros apart, is flattered; use `payload = "random"`',
        points_to="note",
    ),
    WarningKind(
        code="short_for_tail",
        title="The run is too short for the percentile that the study asks of it",
        when="fewer than ten I/Os lie beyond the farthest percentile that the study's questions and views name",
        hint="give it time with a longer `duration`",
        points_to="note",
    ),
)

WARNINGS: dict[str, WarningKind] = {kind.code: kind for kind in _LIST}
"""Every warning by its code, those first that weigh most."""
