"""Preparation of a target before its rounds: purge, fill, preconditioning, each an ordinary run with a record.

Which steps there are follows from a case's parameters alone (`purge`, `fill`, `precondition`), so every record of the
case lists them by name. All steps address the whole range that the plan's specs name, from its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, PREPARATION, Case, Cost, Run
from iosonde.planning.procedure.observations import procedure_of, seed_of
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.block.backends import VIRTUAL
from iosonde.study.workload.block.parameters import BlockParameters
from iosonde.units import MIB

STEP = "step"
"""Level with the name of the step."""

PASSES = 2
"""Preconditioning writes of the whole range: SNIA's workload-independent preconditioning requires two."""

AGING_QUEUE_DEPTH = 32
"""Small random writes need more in flight than large ordered ones."""


def steps(parameters: Mapping[str, Any]) -> list[str]:
    """The steps that a case's parameters require, in their order."""
    purge = parameters["purge"] not in ("none", "unneeded")
    filled = bool(parameters["fill"]) and not parameters["precondition"]
    return [
        name
        for name, wanted in (("purge", purge), ("fill", filled), ("precondition", bool(parameters["precondition"])))
        if wanted
    ]


def step_run(case: Case, name: str, repeat: int, *, restart: int) -> Run:
    """One step, for that repeat of the case, after this many restarts."""
    ending = f"a{restart + 1}-{name}-r{repeat}"
    procedure = procedure_of(case)
    run_id = f"{procedure.stem}-{ending}"
    spec, parameters = BLOCK.prepare(
        procedure.spec,
        case.parameters,
        _load(name, case.parameters, procedure.spec["workload"]["target"]["size_bytes"]),
        seed=seed_of(procedure.spec["seed"], ending),
        run_id=run_id,
    )
    return Run(
        run_id=run_id,
        case_id=f"{PREPARATION}/{case.case_id}/{STEP}={name}",
        repeat=repeat,
        order=-1,
        spec=spec,
        levels={STEP: name},
        parameters=parameters,
        part=PREPARATION,
        purges=name == "purge",
        restart=restart,
    )


def cost(streams: Mapping[str, BlockParameters]) -> Cost:
    """Return the cost of one preparation; streams must be settled."""
    whole = next(iter(streams.values()))
    size_bytes = BLOCK.addressed_bytes(streams)
    written = 0
    for name in steps(whole.model_dump()):
        load = _load(name, whole.model_dump(), size_bytes)
        written += 0 if load.get("trim_fraction") else load["limit_bytes"]
    virtual = not BLOCK.files(streams)
    return Cost(seconds=written / ASSUMED_BYTES_PER_SECOND, write_bytes=0 if virtual else written)


def _load(name: str, parameters: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
    """Return the parameters of a step for this range."""
    whole: dict[str, Any] = {
        "access": "sequential",
        "read_fraction": 0.0,
        "span": size_bytes,
        "layout": "never",
        "ramp": 0,
        "duration": None,
        "limit_bytes": size_bytes,
        "queue_depth": 4 if parameters["backend"] != "sync" else 1,
        # Other real backends have one I/O in flight, or cannot trim; the state of the device does not depend on them.
        "backend": parameters["backend"] if parameters["backend"] in ("sync", *VIRTUAL) else "uring",
        "block_size": MIB,
    }
    # On a simulated drive the files of jobs are one after the other in one range.
    if parameters["files"] == "per_job" and parameters["backend"] not in VIRTUAL:
        whole |= {"files": "per_job", "jobs": parameters["jobs"], "limit_bytes": parameters["jobs"] * size_bytes}
    if name == "precondition":
        return {**whole, **_precondition(parameters, whole["limit_bytes"])}
    if name == "purge" and parameters["purge"] == "overwrite":
        return {**whole, "payload": "zeros"}
    return {**whole, "trim_fraction": 1.0} if name == "purge" else whole


def _precondition(parameters: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
    """Two passes in order, or one of aging, which uses up the spare capacity of the drive as well."""
    block_size = parameters["precondition"]
    if parameters["precondition_access"] == "sequential":
        return {"block_size": block_size, "limit_bytes": PASSES * size_bytes}
    physical = size_bytes // block_size + round(size_bytes // block_size * parameters["over_provisioning"])
    depth = 1 if parameters["backend"] == "sync" else AGING_QUEUE_DEPTH
    return {"access": "aging", "block_size": block_size, "limit_bytes": physical * block_size, "queue_depth": depth}
