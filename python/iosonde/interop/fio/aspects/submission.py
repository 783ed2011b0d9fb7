"""Submission of I/O: the engine, direct or buffered, how much at once and on which CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iosonde.interop.fio import engines, units
from iosonde.interop.fio.given import Given


def engine_name(given: Given) -> str:
    """The engine as fio calls it."""
    return given.text("ioengine", "psync").partition(":")[0]


def chosen_engine(given: Given) -> engines.Engine:
    """fio's engine, with the backend that corresponds to it."""
    engine = engines.find(engine_name(given))
    if engine is None:
        given.fail(
            "ioengine",
            f"fio has no engine `{engine_name(given)}`",
            hint="use `io_uring`, `libaio` or `psync` for I/O on files and devices",
        )
    if engine.backend and engine.differs:
        given.note("ioengine", why="iosonde has no such engine", instead=engine.differs)
    return engine if _is_direct(given) else replace(engine, backend=engine.buffered or engine.backend)


def backend(given: Given, engine: engines.Engine, stream: dict[str, Any]) -> dict[str, Any]:
    """fio registers neither files nor buffers unless an option requests it."""
    if engine.backend != "uring":
        if given.flag("hipri"):
            given.note("hipri", why=f"the backend `{engine.backend}` does not poll", instead="completions interrupt")
        return {"backend": engine.backend}
    polled = given.flag("hipri")
    if polled and stream["io_mode"] == "buffered":
        given.note("hipri", why="completions can be polled for with direct I/O only", instead="completions interrupt")
    return {
        "backend": "uring",
        "registered_files": given.flag("registerfiles") or given.flag("sqthread_poll"),
        "registered_buffers": given.flag("fixedbufs"),
        "submission_polling": given.flag("sqthread_poll"),
        "completion_polling": polled and stream["io_mode"] == "direct",
    }


def concurrency(given: Given, engine: engines.Engine, jobs: int) -> dict[str, Any]:
    """Jobs, and how many I/Os each has in flight."""
    depth = given.number("iodepth", 1)
    if engine.backend == "sync" and depth > 1:
        with_mode = " with `direct=0`" if engine.buffered else ""
        given.note(
            "iodepth",
            why=f"`ioengine={engine_name(given)}`{with_mode} does one I/O at a time, in fio too",
            instead="`queue_depth` is 1",
        )
        depth = 1
    return {"jobs": jobs, "queue_depth": depth}


def io_mode(given: Given) -> dict[str, Any]:
    """Past the page cache, or through it."""
    is_direct = _is_direct(given)
    if is_direct and given.last_of(*_MODES) == "atomic":
        given.note("atomic", why="atomic writes are not requested", instead="writes are plain direct I/O")
    return {"io_mode": "direct" if is_direct else "buffered"}


_MODES = ("direct", "buffered", "atomic")


def _is_direct(given: Given) -> bool:
    name = given.last_of(*_MODES)
    return name is not None and given.flag(name) != (name == "buffered")


def cpus(given: Given, jobs: int) -> dict[str, Any]:
    """CPUs to run on."""
    name = given.last_of("cpus_allowed", "cpumask")
    if name is None:
        return {}
    cpus = given.read(name, units.cpu_list) if name == "cpus_allowed" else units.cpus_of_mask(given.size(name))
    if len(cpus) > 1 and given.text("cpus_allowed_policy", "shared") != "split":
        given.note(
            name, why="fio lets every job run on any of these CPUs", instead="job `i` is pinned to the `i`-th of them"
        )
    return {"cpus": cpus}


def page_cache(given: Given) -> dict[str, Any]:
    """Return the page cache state before the load; a parameter of the whole run."""
    if given.flag("pre_read"):
        return {"page_cache": "warm"}
    return {"page_cache": "drop" if given.flag("invalidate", True) else "keep"}
