"""Workers on the nodes of a Slurm job: `--hosts slurm:N`, or `slurm:FILE` for what a cluster requires.

dask-jobqueue writes and submits the job. It is one job of all nodes, not one for each worker: so the workers start
together and each is alone on its node. The workers are those of the other carriers, with their settings, not
`dask worker` with its defaults. The script has the session's key, which each worker reads from its standard input.
"""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from iosonde.base import text_files
from iosonde.base.text_files import expanded
from iosonde.base.tools import ask
from iosonde.errors import TargetError

SHAPE = (
    "`nodes`, and optionally `partition`, `account`, `walltime`, `directives`, `prologue`, `python`, `coordinator`, "
    "`log_directory`, `wait_s`"
)
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=4096)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:,@/+-]+$", max_length=255)]
_ENDED = (
    *("", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
ASKED_EVERY_S = 10.0
"""Between questions to the controller, which all users share."""


class SlurmJob(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Annotated[int, Field(ge=1, le=10_000)]
    partition: Word | None = None
    account: Word | None = None
    walltime: Word | None = None
    directives: list[Line] = []
    """Further options of sbatch, such as `--constraint=nvme`."""
    prologue: list[Line] = []
    """Lines of the job's script before the workers start, such as `module load python`."""
    python: str = sys.executable
    """The Python with iosonde on the nodes."""
    coordinator: Word | None = None
    """Address of this machine for the nodes; without it the one that Dask finds."""
    log_directory: str | None = None
    """Where Slurm writes the output of the workers; without it nowhere."""
    wait_s: Annotated[float, Field(gt=0)] = 3600
    """For the job to start."""


def read(text: str) -> SlurmJob:
    """The job that `slurm:TEXT` names: a number of nodes, or a file."""
    hint = f"its keys are {SHAPE}"
    if text.isdecimal():
        found = {"nodes": int(text)}
        return text_files.validated(SlurmJob, found, f"slurm:{text}", "Slurm job", TargetError, hint=hint)
    return text_files.read_toml(SlurmJob, expanded(text), "Slurm job", TargetError, hint=hint)


def slurm_job() -> Any:
    """The class of a job of dask-jobqueue, which exits with 0 at Ctrl-C from its import on: that is undone.

    Raises `ModuleNotFoundError` without the package.
    """
    at_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue.slurm import SLURMJob
    finally:
        signal.signal(signal.SIGINT, at_ctrl_c)
    return SLURMJob


def job(wanted: SlurmJob, order: Mapping[str, Any]) -> Any:
    """The job of dask-jobqueue, which is not submitted yet; `order` is the first line that each worker reads."""
    import dask

    # Skipped: one task for one worker, its CPUs and memory, and a time limit of half an hour.
    skipped = ["-n 1", "--cpus-per-task=", "--mem=", *([] if wanted.walltime else ["-t "])]
    own = [f"--nodes={wanted.nodes}", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--no-requeue", "--no-kill"]
    logs = [] if wanted.log_directory else ["-o /dev/null"]
    with dask.config.set({"jobqueue.slurm": _NO_CONFIGURATION}):
        made = slurm_job()(
            scheduler=order["scheduler"],
            name="iosonde",
            job_name="iosonde",
            cores=1,
            memory="1MB",
            processes=1,
            queue=wanted.partition,
            account=wanted.account,
            walltime=wanted.walltime,
            log_directory=wanted.log_directory,
            job_directives_skip=skipped,
            job_extra_directives=[*own, *logs, *wanted.directives],
            job_script_prologue=wanted.prologue,
        )
    worker = shlex.join([wanted.python, "-P", "-m", "iosonde.features.many_hosts.worker", "--carrier", "slurm"])
    run = "srun --ntasks-per-node=1 --cpu-bind=none --no-kill --kill-on-bad-exit=0 --wait=0"
    made._command_template = f"exec {run} {worker} <<'ORDER'\n{json.dumps(order)}\nORDER"
    return made


_NO_CONFIGURATION: Mapping[str, Any] = {
    **dict.fromkeys(("cores", "memory", "python", "queue", "account", "walltime", "interface", "local-directory")),
    **dict.fromkeys(("extra", "env-extra", "log-directory", "job-cpu", "job-mem", "death-timeout")),
    **{"name": "iosonde", "processes": 1, "worker-command": "none", "shebang": "#!/usr/bin/env bash"},
    **{"worker-extra-args": [], "job-extra-directives": [], "job-script-prologue": [], "job-directives-skip": []},
    **dict.fromkeys(("job-extra", "header-skip")),
}
"""Instead of defaults and the user's configuration of dask-jobqueue, which is for computations."""


@contextmanager
def submitted(wanted: SlurmJob, order: Mapping[str, Any]) -> Iterator[Callable[[], None]]:
    """Submit the job and cancel it at exit; yields a check that raises if it has ended.

    dask-jobqueue writes the script, which has the key, for a moment to a temporary file: these must be in a directory
    that only this user can enter.
    """
    started = job(wanted, order)
    try:
        asyncio.run(started.start())
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(
            f"`sbatch` did not accept the job: {_reason(error)}",
            hint="check partition, account and directives, and that this machine may submit jobs",
        ) from error
    try:
        yield _check(started.job_id, wanted)
    finally:
        asyncio.run(started.close())


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if "error" in line.lower()]
    return (lines or [str(error)])[-1].removeprefix("sbatch: ").strip()


def _check(job_id: str, wanted: SlurmJob) -> Callable[[], None]:
    """Return a function that raises if the job has ended."""
    asked_at_s = -math.inf

    def check() -> None:
        nonlocal asked_at_s
        if time.monotonic() < asked_at_s + ASKED_EVERY_S:
            return
        asked_at_s = time.monotonic()
        asked = ask("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T %r")
        if asked is None or (asked.returncode and "Invalid job id" not in asked.stderr):
            return  # The controller did not answer in time.
        found = asked.stdout.split()
        if (found[0] if found else "") in _ENDED:
            state = " ".join(found) or "it is not known any more"
            logs = wanted.log_directory
            place = f"see `{logs}`" if logs else "set `log_directory` to see its output"
            raise TargetError(
                f"the Slurm job {job_id} ended before its workers connected: {state}",
                hint=f"iosonde of the same version must be installed on the nodes as `{wanted.python}`; {place}",
            )

    return check
