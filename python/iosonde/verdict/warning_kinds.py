"""Every warning that iosonde derives from the facts of a run: its code, its rule, what to do.

`verdict.py` returns no other warnings, and docs/warnings.md is compared with this list. Thresholds are here, next to
the words that state them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PointsTo = Literal["harness-limited", "cache-served", "network-limited", "server-limited", "undetermined", "note"]
"""The verdict that a warning leads to; a note leads to none."""

Bias = Literal["none", "slower", "faster", "faster reads", "unknown"]
"""How storage looks to an application in such a run: as it is, slower or faster than it is. Reads look faster only if
nothing shows that they reached storage. That of a note does not count."""

BUSY = 0.95
"""CPU time used, as a share, from which on a core is saturated."""
APART = 0.1
"""Share by which counters that advance in ticks or are read at different instants may differ."""
HARNESS_SHARE = 0.10
"""Share of the time of an I/O from which on the harness is a limit."""
MOST = 0.5
SOME = 0.10
"""Shares of bytes served from the page cache: the smallest with a warning, and the one that decides the verdict."""
WAIT_SHARE = 0.10
STEAL_SHARE = 0.02
STEAL_NS = 30_000_000
OTHER_CPU_SHARE = 0.20
IDLE_CPU_SHARE = 0.10
"""CPU time of other processes disturbs a run from the first share on, if no more than the second is left idle."""
SWITCHES_PER_SECOND = 1000
INTERRUPTS_PER_SECOND = 10_000
CLOCK_SHARE = 0.05
OTHER_SHARE = 0.05
OTHER_BYTES = 1 << 20
MISSING_SHARE = 0.01
STALLED_SHARE = 0.05
STALL_NS = 100_000_000
LATENCIES_IN_A_STALL = 20
HIGH_IOPS = 50_000
"""Rate from which on the work of the block layer is noticeable."""
HOT_CELSIUS = 70.0
"""Critical temperature of a device that reports none."""
DEVICE_CACHE_BYTES = 64 << 20
"""Current drives have at least this much memory, and none reports how much."""
LATENCIES_IN_A_RUN = 5
FEW_OF_SERVER = 0.2
"""Share of empty calls in the server's time up to which its threads and CPU are not the reason."""
SPLIT = 2
"""Fewest calls for an operation at which it is called divided."""
LINK_SHARE = 0.90
"""Use of an interface from which on it is the limit: headers of the lower layers are not in its counters."""


@dataclass(frozen=True, kw_only=True)
class WarningKind:
    """One named warning."""

    code: str
    title: str
    """The condition, without the numbers of a run."""
    when: str
    """The rule, for docs/warnings.md."""
    hint: str
    points_to: PointsTo
    bias: Bias = "unknown"


_LIST = (
    WarningKind(
        code="core_saturated",
        title="A job used all CPU time of its core: CPU-limited",
        when="a job's thread used 95 % of the time of a CPU or more, or the engine 95 % of all CPUs that its jobs may "
        "use; in open loop only if it fell behind its schedule; never with polling, which is always busy",
        hint="use more `jobs`, larger blocks or a faster core; see `cpu_ns_per_operation`",
        points_to="harness-limited",
        bias="slower",
    ),
    WarningKind(
        code="turnaround",
        title="Queue slots stayed free between a completion and the next submission",
        when="queue slots were free 10 % of the time or more between a completion and the next submission, "
        "not counting time without a CPU; not with `engine_stalled`",
        hint='increase `queue_depth` or `jobs`; `payload = "zeros"` shows the cost of filling blocks',
        points_to="harness-limited",
        bias="slower",
    ),
    WarningKind(
        code="harness_cost",
        title="Harness overhead is a noticeable part of each I/O",
        when="with one I/O in flight per job, the cost of an I/O on the null backend is 10 % of the job's time or more",
        hint="compare with the null backend: `iosonde io --target null:`",
        points_to="harness-limited",
        bias="slower",
    ),
    WarningKind(
        code="slow_clock",
        title="Reading the clock takes a noticeable part of each I/O",
        when="two readings for each I/O are 5 % of a job's time or more",
        hint="use the CPU's time-stamp counter (`clocksource=tsc`), if it is stable",
        points_to="harness-limited",
        bias="slower",
    ),
    WarningKind(
        code="null_backend",
        title="The null backend completes every I/O at once: no device is measured",
        when="the backend is `null`",
        hint="name a directory as the target to measure a device",
        points_to="harness-limited",
        bias="faster",
    ),
    WarningKind(
        code="reads_from_memory",
        title="Reads were not served by a device",
        when="less than 90 % of the bytes that the load read were requested from a visible device, by the kernel's "
        "account of the process, or of the device below a FUSE daemon; below half the run is cache-served",
        hint='use `io_mode = "direct"` and `payload = "random"` on ext4 or XFS, or make the `span` several times the '
        "size of memory",
        points_to="cache-served",
        bias="faster",
    ),
    WarningKind(
        code="writes_to_memory",
        title="Writes had not reached the device when the measurement ended",
        when="the device received less than 90 % of the bytes that the load wrote during the measurement: still in "
        "memory, merged, compressed or deduplicated; below half the run is cache-served",
        hint='use `io_mode = "direct"` or `durability`, and `payload = "random"`, or run until write-back keeps up',
        points_to="cache-served",
        bias="faster",
    ),
    WarningKind(
        code="memory_file_system",
        title="The target is in memory",
        when="the file system is `tmpfs` or `ramfs`",
        hint="name a directory on a device",
        points_to="cache-served",
        bias="faster",
    ),
    WarningKind(
        code="unwritten_extents",
        title="Reads of extents that were never written",
        when="1 % or more of the bytes that reads address are in holes or unwritten extents (FIEMAP), before or "
        "after the run; from half on the run is cache-served",
        hint='write them first with `layout = "missing"`; with trims in the mix, trim another span',
        points_to="cache-served",
        bias="faster",
    ),
    WarningKind(
        code="cache_below",
        title="I/O of a stacked device did not reach the devices below it",
        when="less than 90 % of the bytes of a loop device, array, volume or block cache reached the devices below it, "
        "all of them visible: served from the page cache or a stripe cache, in holes, or compressed; below half the "
        "run is cache-served",
        hint="write the device once before reads of it; attach a loop device with `losetup --direct-io=on`; use a span "
        "larger than the stripe cache of an array",
        points_to="cache-served",
        bias="faster",
    ),
    WarningKind(
        code="engine_stalled",
        title="The engine did not run for part of the measurement",
        when="its heartbeat was late for 5 % of the measurement or more, or once for 100 ms or more: stopped by a "
        "signal, frozen, or without a CPU",
        hint="latencies of that time are not the device's; repeat the run without suspending it, on an idle machine",
        points_to="undetermined",
        bias="slower",
    ),
    WarningKind(
        code="device_stalled",
        title="The device stalled: closed-loop latencies hide the waiting of later requests",
        when="closed loop; an I/O took 100 ms and 20 mean latencies or more, and half of those expected in that time "
        "were missing",
        hint="measure with an open loop (`arrival`, `rate`) to include the waiting time",
        points_to="note",
    ),
    WarningKind(
        code="cache_unknown",
        title="Page cache under a loop device cannot be checked",
        when="a loop device without direct I/O (`dio`) whose backing device is not visible",
        hint="attach it with `losetup --direct-io=on`",
        points_to="undetermined",
        bias="faster reads",
    ),
    WarningKind(
        code="cpu_contention",
        title="Job threads waited for CPU",
        when="a job's thread was ready to run and had no CPU 10 % of the time or more; where the kernel does "
        "not report it, it was preempted 1,000 times a second or more",
        hint="stop other work, or give the jobs CPUs of their own with `cpus`",
        points_to="undetermined",
        bias="slower",
    ),
    WarningKind(
        code="late_counters",
        title="Kernel counters were read late: page-cache hits are unknown",
        when="less than 90 % of the measurement lies between the two readings of the counters of process and devices",
        hint="leave a core to the supervising thread: fewer `jobs`, or `cpus` for them",
        points_to="undetermined",
    ),
    WarningKind(
        code="counters_disagree",
        title="Counters of the run contradict each other",
        when="a share computed from counters is below -0.1 or above 1.1: it is unknown then",
        hint="read the counters in `record.json`; a counter that was reset, or a defect of kernel or iosonde",
        points_to="undetermined",
    ),
    WarningKind(
        code="steal_time",
        title="CPU time stolen by the hypervisor",
        when="2 % or more of the time of all CPUs was stolen, and at least 30 ms",
        hint="measure when the host is idle, or on one whose CPUs are not shared",
        points_to="undetermined",
        bias="slower",
    ),
    WarningKind(
        code="cpus_shared",
        title="Other processes took CPU time that the server and its client could have used",
        when="a run on a server that iosonde started; other processes used 20 % or more of all CPU time, and no more "
        "than 10 % was idle",
        hint="stop other work, or give the server and its client CPUs of their own (`taskset`, `cpuset`)",
        points_to="undetermined",
    ),
    WarningKind(
        code="foreign_interrupts",
        title="A pinned core served interrupts of other devices",
        when="10,000 interrupts a second or more beyond three for each of its own I/Os",
        hint="pin the job elsewhere with `cpus`, or move the interrupts (`/proc/irq/*/smp_affinity`)",
        points_to="undetermined",
        bias="slower",
    ),
    WarningKind(
        code="other_io",
        title="Concurrent I/O from other processes",
        when="5 % or more of the bytes that the device read or wrote, and at least 1 MiB, were not from this run, "
        "by the control group of the engine; what block I/O can have in flight counts as its own; writes that the "
        "kernel does not attribute count as foreign up to the bytes written by other processes with files on the "
        "device",
        hint="stop other users of the device; `iotop` and `fatrace` show them",
        points_to="undetermined",
        bias="slower",
    ),
    WarningKind(
        code="throttled_device",
        title="A control group limits I/O on the device",
        when="a limit of the process's control groups (`blkio.throttle.*`, `io.max`) names a device under the target",
        hint="lift the limit, or measure from another control group",
        points_to="undetermined",
    ),
    WarningKind(
        code="hot_device",
        title="Device temperature may cause throttling",
        when="before or after the run the device was at its critical temperature, or at 70 °C if it reports none",
        hint="cool the device, or let it rest between runs",
        points_to="undetermined",
    ),
    WarningKind(
        code="queue_too_short",
        title="Queue depth exceeds the device's queue in the kernel",
        when="direct I/O with more in flight than `nr_requests` of the device times its hardware queues; of an open "
        "loop the mean number counts",
        hint="raise `/sys/block/DEVICE/queue/nr_requests`, or use a smaller `queue_depth`",
        points_to="undetermined",
        bias="none",
    ),
    WarningKind(
        code="span_fits_device_cache",
        title="The span fits in the device's own cache",
        when="direct I/O on no more than 64 MiB, covered twice or more",
        hint="use a `span` of several GiB, larger than any device cache",
        points_to="undetermined",
        bias="faster",
    ),
    WarningKind(
        code="no_block_device",
        title="No block device visible under the target",
        when="the target is a file on a FUSE, overlay or other local file system, and the directory or device in which "
        "it keeps its files is not visible",
        hint="name a directory on a file system with a visible device, such as a volume of the container",
        points_to="undetermined",
        bias="faster reads",
    ),
    WarningKind(
        code="network_file_system",
        title="The target is on a network file system",
        when="the target is a file on a file system of a server, such as NFS, SMB, Ceph or SSHFS",
        hint="measure on the server to learn about its devices",
        points_to="undetermined",
        bias="faster reads",
    ),
    WarningKind(
        code="network_limited",
        title="The network took most of the time of an operation",
        when="of NFS: the median round trip of probes of the network, with the time of the payload, was 50 % or more "
        "of the mean latency without the client's queue. Of direct I/O over other TCP: the shortest round trip of the "
        "connections, or the shortest echo, was. Of any: the interface carried 90 % of its speed",
        hint="compare the round trip of the network with that before the load: queues of a full link, or distance "
        "(docs/network.md)",
        points_to="network-limited",
        bias="none",
    ),
    WarningKind(
        code="server_limited",
        title="The server took most of the time of an operation",
        when="of NFS, calls of 32 KiB or less, no packets lost: mean round trip without the time on the network was "
        "50 % or more of the mean latency without the client's queue. Of direct I/O on a block device, blocks of "
        "32 KiB or less: mean time of its I/Os without an echo with their payload was. Of direct I/O on FUSE: the CPU "
        "time of the daemon and its wait for a CPU were",
        hint="compare the round trips of empty calls and of the network: busy threads of the server, or its storage "
        "(docs/network.md)",
        points_to="server-limited",
        bias="none",
    ),
    WarningKind(
        code="network_or_server",
        title="Network and server are not separable",
        when="of direct I/O on a block device of a server: an echo with the payload of an I/O took 50 % or more of "
        "the mean latency, and the shortest echo less",
        hint="measure smaller blocks at queue depth 1, whose payload takes less of the time",
        points_to="undetermined",
        bias="none",
    ),
    WarningKind(
        code="connection_limited",
        title="The TCP connections to the server were the limit",
        when="the connections that moved the data had data to send, and a full receive window or send buffer, 50 % of "
        "the time or more (`TCP_INFO`)",
        hint="compare with `nconnect`, or allow larger buffers (`net.ipv4.tcp_wmem` here, `tcp_rmem` on the server)",
        points_to="network-limited",
        bias="none",
    ),
    WarningKind(
        code="packets_lost",
        title="Packets to or from the server were lost",
        when="of NFS and block devices: segments sent again or out of order, or lost probes, which can have taken 10 % "
        "or more of the round trips at 200 ms each",
        hint="look at drops and errors of the interfaces and switches on the path (docs/network.md)",
        points_to="undetermined",
        bias="none",
    ),
    WarningKind(
        code="split_calls",
        title="Operations were divided into several calls",
        when="of NFS: two calls or more for an operation of the load",
        hint="mount with an `rsize` and `wsize` of the block size or more",
        points_to="undetermined",
        bias="none",
    ),
    WarningKind(
        code="client_limited",
        title="The client's kernel or CPU took most of the time of an operation",
        when="of NFS: the mean latency without the client's queue was twice the mean round trip or more; of block "
        "devices: the mean latency was twice the mean time of their I/Os or more; of all network "
        "storage: the engine or a job had no CPU 50 % of the time or more",
        hint="look at the CPU time of the machine, at larger blocks, and at its load by other processes",
        points_to="harness-limited",
        bias="none",
    ),
    WarningKind(
        code="short_run",
        title="The run is too short for its latency",
        when="the measurement lasted less than 5 times the mean completion latency",
        hint="use a longer `duration`, or a larger `limit_bytes`",
        points_to="undetermined",
        bias="none",
    ),
    WarningKind(
        code="queue_underutilized",
        title="Unexplained queue underutilization",
        when="queue slots were free for 10 % of the time and one mean latency or more, besides turnaround and the "
        "start and end of the load",
        hint="look at the run over time",
        points_to="undetermined",
    ),
    WarningKind(
        code="span_fits_memory",
        title="The span fits in memory",
        when="buffered I/O, other than flushed writes, on a span no larger than the machine's memory, or than its "
        "control group's",
        hint="make the `span` several times the size of memory, or use direct I/O",
        points_to="note",
    ),
    WarningKind(
        code="one_hardware_queue",
        title="All jobs share one hardware queue",
        when="two or more jobs with 50,000 IOPS or more, on a non-rotating device with one hardware queue",
        hint="the driver or the virtual machine sets the number of queues",
        points_to="note",
    ),
    WarningKind(
        code="io_scheduler",
        title="A fast device has an I/O scheduler",
        when="50,000 IOPS or more, on a non-rotating device with a scheduler other than `none`",
        hint='compare with `io_scheduler = "none"` (`--set io_scheduler=none`)',
        points_to="note",
    ),
    WarningKind(
        code="cpu_governor",
        title="CPU frequency varies with load",
        when="the CPU frequency governor is not `performance`",
        hint="`cpupower frequency-set -g performance`",
        points_to="note",
    ),
    WarningKind(
        code="copying_file_system",
        title="The file system copies on write",
        when="writes on btrfs (without `nodatacow`), ZFS, bcachefs or NILFS, or to a file of which 1 % or more is "
        "shared with others (reflinks)",
        hint="for the device alone measure on ext4 or XFS; on btrfs with `nodatacow`",
        points_to="note",
    ),
    WarningKind(
        code="not_direct",
        title="Direct I/O went through the page cache",
        when="direct I/O was requested, and a direct write to a new file left its page in the page cache (btrfs with "
        "checksums), or reads added 10 % or more of the span to the page cache (compressed files)",
        hint="on btrfs disable checksums and compression (mount option `nodatacow`, or `chattr +C` for the directory), "
        "or measure on ext4 or XFS",
        points_to="note",
    ),
    WarningKind(
        code="cold_start",
        title="The measurement includes the warm-up of the page cache",
        when="reads through the page cache, which was dropped before a measurement without a ramp; not with "
        '`start = "cold"`',
        hint='use `ramp` with `ramp_until = "steady"`, or request the cold start: `start = "cold"`',
        points_to="note",
    ),
    WarningKind(
        code="compressing_file_system",
        title="The file system compresses data",
        when="a mount option enables it (`compress`, `compress_algorithm`), or extents that reads address are "
        "stored encoded",
        hint="mount it without compression; the default payload cannot be compressed",
        points_to="note",
    ),
    WarningKind(
        code="compressible_data",
        title="Written data can be compressed or deduplicated by the device",
        when="the load writes zeros, compressible data or duplicates",
        hint='use `payload = "random"`',
        points_to="note",
    ),
    WarningKind(
        code="short_for_tail",
        title="Too few I/Os for a percentile of the study",
        when="fewer than ten I/Os lie beyond the highest percentile of the study's questions and views",
        hint="use a longer `duration`",
        points_to="note",
    ),
)

WARNINGS: dict[str, WarningKind] = {kind.code: kind for kind in _LIST}
"""Every warning by its code."""
