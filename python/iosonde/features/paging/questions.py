"""Questions about accesses to mapped memory."""

from __future__ import annotations

from iosonde.features.paging import fault_overhead, mapped_reads

KINDS = (*fault_overhead.KINDS, *mapped_reads.KINDS)
