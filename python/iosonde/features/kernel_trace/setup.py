"""Tracing of the kernel during a run, as a study may set it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from iosonde.plan import Frozen
from iosonde.study.workload.reading import renamed


def _read_flag(value: Any) -> Any:
    return renamed(value, {"true": True, "on": True, "false": False, "off": False})


class TraceParameters(Frozen):
    """Parameters of tracing; omitted: no tracing."""

    needs_root: ClassVar[bool] = True

    kernel_trace: Annotated[bool | None, BeforeValidator(_read_flag)] = None
    """Record tracepoints of the kernel during the measurement, for the time of each stage of an I/O
    (`docs/kernel-tax.md`). Queue depth 1. Needs root."""


SETTINGS = (TraceParameters,)
