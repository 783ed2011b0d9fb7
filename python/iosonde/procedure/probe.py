"""The runs of a procedure: variations of its case."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from iosonde.plan import Case, JsonObject, Run, Scalar
from iosonde.workload.block.spec import vary


def probe(
    case: Case,
    name: str,
    repeat: int,
    *,
    levels: dict[str, Scalar],
    parameters: JsonObject,
    streams: Sequence[str] = (),
) -> Run:
    """Repeat `repeat` of the case with these parameters on top; its id ends in `NAME-rREPEAT`, or `rREPEAT`.

    `levels` is what a reader sees of them: with any, the run belongs to a case of its own, named after them. Its
    place in the order of execution is set when it is carried out. `streams` are other streams than those of the case.
    """
    assert case.procedure, "only a procedure makes runs"
    ending = f"{name}-r{repeat}" if name else f"r{repeat}"
    run_id = f"{case.procedure.stem}-{ending}"
    seed = _seed(case.procedure.spec["seed"], ending)
    return Run(
        run_id=run_id,
        case_id="/".join([case.case_id, *(f"{key}={level_text(level)}" for key, level in levels.items())]),
        repeat=repeat,
        order=-1,
        spec=vary(case.procedure.spec, {**case.parameters, **parameters}, seed=seed, run_id=run_id, streams=streams),
        levels=levels,
        parameters=parameters,
    )


def rounded(value: float) -> float:
    """Six digits, which is what the name of a case shows."""
    return float(f"{value:.6g}")


def level_text(level: Any) -> str:
    """A number as in the name of a case."""
    if isinstance(level, float) and not level.is_integer():
        return f"{level:.6g}"
    return str(int(level) if isinstance(level, float) else level)


def _seed(seed: int, ending: str) -> int:
    """Another for each run; below 2^53, so that every reader of JSON has it exactly."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{ending}".encode()).digest()[:8]) >> 11
