"""Rules for parameters of block I/O that depend on each other."""

from __future__ import annotations

from iosonde.protocol import HIGHEST_RATE
from iosonde.units import MIB, format_bytes
from iosonde.workload.block.backends import BACKENDS
from iosonde.workload.block.fields import BlockFields

MOST_DUPLICATED = MIB
"""The largest `duplicate_size`, by the engine."""

Rule = tuple[bool, str]
"""A condition, and the error if it is true."""


def problem(stream: BlockFields) -> str | None:
    """The first rule that a stream breaks, if any."""
    return _backend_problem(stream) or next((text for wrong, text in _rules(stream) if wrong), None)


def _backend_problem(stream: BlockFields) -> str | None:
    """Return why its backend cannot carry out a stream; None if it can."""
    backend = BACKENDS.get(stream.backend)
    if backend is None:
        return None
    if backend.one_at_a_time and stream.queue_depth != 1:
        name = f"the backend `{backend.name}`"
        return f"{name} does one I/O at a time in each job: `queue_depth` must be 1 (use more `jobs`)"
    if backend.direct_only and stream.io_mode != "direct":
        return f'the backend `{backend.name}` needs `io_mode = "direct"`'
    if not backend.trims and stream.trim_fraction > 0:
        return f"the backend `{backend.name}` cannot trim: `trim_fraction` must be 0"
    return None


def _rules(stream: BlockFields) -> list[Rule]:
    strides = [stride for stride in (stream.stride, stream.stride_blocks) if stride is not None]
    is_open = stream.arrival != "closed"
    return [
        ((stream.access == "strided") != (len(strides) == 1),
         "strided access needs one of `stride` and `stride_blocks`, and no other access has them"),
        (stream.stride is not None and stream.stride < stream.largest_block, "`stride` is smaller than `block_size`"),
        (stream.stride_blocks is not None and stream.has_mixed_blocks,
         "`stride_blocks` is undefined for a mix of sizes"),
        (stream.access != "random" and stream.distribution != "uniform", "`distribution` is for random access only"),
        (stream.access != "random" and stream.coverage != "with_replacement", "`coverage` is for random access only"),
        (stream.coverage == "each_once" and stream.distribution != "uniform",
         "`coverage = \"each_once\"` leaves no choice to `distribution`"),
        (stream.coverage == "each_once" and stream.has_mixed_blocks,
         "`coverage = \"each_once\"` needs a single `block_size`"),
        (stream.read_fraction + stream.trim_fraction > 1, "`read_fraction` and `trim_fraction` exceed 1 together"),
        (is_open and stream.rate is None, f"`arrival = \"{stream.arrival}\"` needs a `rate`"),
        (not is_open and stream.rate is not None,
         "`rate` is for open loop: set `arrival` to `constant` or `poisson` as well"),
        (is_open and stream.active is not None and "every" in stream.active,
         "an `active` that repeats is for closed loop; in open loop a step of rate 0 is a pause"),
        (not is_open and stream.load != 1, "`load` is for open loop: set `arrival` and `rate` as well"),
        (stream.offered_rate > HIGHEST_RATE,
         f"a rate of {stream.offered_rate:g} per second is beyond what can be timed, {HIGHEST_RATE:,}"),
        (isinstance(stream.rate, float) and stream.duration is not None
         and stream.offered_rate * stream.duration < 10**9,
         f"a rate of {stream.offered_rate:g} per second starts nothing within `duration`"),
        (stream.payload == "zeros" and (stream.compression_ratio != 1 or stream.duplicate_fraction != 0),
         "`compression_ratio` and `duplicate_fraction` are for `payload = \"random\"`: zeros are fully reducible"),
        (stream.duplicate_fraction > 0 and any(size % 4096 for size in stream.block_sizes),
         "`duplicate_fraction` counts blocks of 4 KiB: `block_size` must be a multiple of that"),
        (stream.duplicate_size % 4096 != 0 or stream.duplicate_size > MOST_DUPLICATED,
         f"`duplicate_size` must be a multiple of 4 KiB, at most {format_bytes(MOST_DUPLICATED)}"),
        *_verification_rules(stream),
        (stream.completion_polling and stream.io_mode != "direct", "`completion_polling` needs `io_mode = \"direct\"`"),
        (stream.duration is None
         and stream.limit_bytes is None and stream.limit_operations is None and stream.limit_spans is None,
         "it would never end: set `duration`, `limit_bytes`, `limit_spans` or `limit_operations`"),
        (stream.limit_bytes is not None and stream.limit_spans is not None,
         "`limit_bytes` and `limit_spans` limit the same: set one of them"),
        (stream.fill > 0 and stream.purge == "none",
         "`fill` needs a `purge`, so that the unfilled part is erased"),
        (stream.fill > 0 and stream.offset != 0, "`fill` starts at offset 0: leave out `offset`"),
        (stream.precondition_access != "sequential" and stream.precondition is None,
         "`precondition_access` is for `precondition`: set that, to the block size of the load"),
        (stream.capacity is not None and not stream.fill, "`capacity` applies to `fill` only: set `fill`"),
        (stream.round_length is not None and stream.round_length % stream.interval != 0,
         "`round_length` must be a multiple of `interval`"),
        (stream.ramp_bytes is not None and stream.ramp == 0,
         "`ramp_bytes` ends a `ramp` early: set a `ramp` above 0, or leave out `ramp_bytes`"),
        (stream.limit_operations is not None and stream.limit_operations < stream.jobs,
         "`limit_operations` is less than one for each job"),
        (stream.limit_bytes is not None and stream.limit_bytes < stream.jobs * stream.largest_block,
         "`limit_bytes` is less than one block for each job"),
        (isinstance(stream.span, int) and stream.span < stream.smallest_span,
         f"`span` is smaller than {format_bytes(stream.smallest_span)}, one block for each job that has a part"),
    ]  # fmt: skip


def _verification_rules(stream: BlockFields) -> list[Rule]:
    """Rules of data verification: it requires stored data of known contents, with space for a seal in each sector."""
    if stream.verify == "none":
        return []
    # A share becomes a multiple of 1 MiB.
    sizes = [*stream.block_sizes, stream.offset if isinstance(stream.offset, int) else 0]
    return [
        (stream.is_virtual, "`verify` needs a target that keeps data, and `null:` and `simulated:` keep none"),
        (stream.trim_fraction > 0, "`verify` does not know the contents of trimmed blocks: leave out `trim_fraction`"),
        (stream.payload == "zeros" or stream.duplicate_fraction > 0,
         "`verify` writes each sector's address into it, so there are no zeros and no duplicates"),
        (stream.purge != "none" or stream.fill > 0 or stream.precondition is not None,
         "`verify` checks only what layout and the load write: leave out `purge`, `fill` and `precondition`"),
        (any(size % 512 for size in sizes), "`verify` needs `block_size` and `offset` in whole sectors of 512 B"),
    ]  # fmt: skip
