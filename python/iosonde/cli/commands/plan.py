"""`iosonde plan`: what a study would do."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.cli.options import RunOptions, switch, takes
from iosonde.cli.terminal import joined_levels, text_width, wrap
from iosonde.errors import EngineError
from iosonde.plan import commands
from iosonde.study import workload as workloads
from iosonde.units import compact_duration, compact_size, format_bytes, format_estimate

if TYPE_CHECKING:
    from iosonde.plan import Case, Plan
    from iosonde.study.model import Part, Study
    from iosonde.study.workload.workload import Workload

NO_BREAK = "\N{NO-BREAK SPACE}"
UNITS = "[KMGT]iB|[kMG]?B/s|B|ns|µs|ms|s|min|h"


@takes("study target against against_settings profile repeats precision settings server seed keep hosts as_json")
def plan_command(
    given: RunOptions,
    as_json: bool = switch("--json", "Print JSON, with the spec of every run."),
) -> None:
    """Show what a study would do, without doing it.

    Prints the time, the bytes written and everything that would be created or overwritten, then every case. With
    `--hosts` these are of all hosts together, and no host is contacted.
    """
    from iosonde.execution.session import planned

    plan = planned(given.plan(), given.host_options())
    print(plan.model_dump_json(indent=2) if as_json else "\n".join(lines(plan)))


def lines(plan: Plan) -> Iterator[str]:
    """Yield the plan as text: what will happen, then the cases with their parameters."""
    from iosonde.study.model import Study

    study = Study.model_validate(plan.study)
    yield f"{study.title} ({plan.study_name}, profile {plan.profile})"
    yield f"on {plan.target}"
    yield from arm_lines(plan)
    yield ""
    yield from _wrapped("question", study.question)
    yield from summary(plan)
    if plan.required_options:
        yield f"requires  {' '.join(plan.required_options)}"
    for part in study.parts:
        yield ""
        yield from _part_lines(part, [case for case in plan.cases if case.part == part.name and case.arm != "b"], plan)
    yield from _control_lines(study, plan)
    if commands.has_commands(plan):
        yield ""
        yield from commands.lines(plan)


def _time(plan: Plan) -> str:
    """The time of all runs: an estimate, an upper bound, or the range between the fewest and the most repeats."""
    from iosonde.planning.expand import elapsed_s

    most = plan.cost.seconds
    repeated = [case.procedure for case in plan.adaptive if case.procedure and case.procedure.kind == "until"]
    if not repeated:
        ramps_vary = any("until_steady" in (run.spec["workload"].get("ramp") or {}) for run in plan.runs)
        return f"{'at most ' if plan.adaptive or ramps_vary else ''}about {format_estimate(most)}"
    costs = {case.case_id: elapsed_s(case) for case in plan.cases}
    fewest = most - sum(
        each.max_runs * costs[case.case_id] for case in plan.adaptive for each in [case.procedure] if each
    )
    budget_s = repeated[0].settings["budget_s"]
    if budget_s is not None:
        most = min(most, max(fewest, budget_s))
    return f"about {format_estimate(fewest)} to {format_estimate(most)}"


def arm_lines(plan: Plan) -> Iterator[str]:
    """Both arms of a comparison; nothing without."""
    for arm in plan.arms:
        yield f"arm {arm.label}"


def summary(plan: Plan) -> Iterator[str]:
    """Return the time, bytes and created objects of a plan."""
    written = plan.cost.write_bytes
    limit = f"at most {format_bytes(written)}" if written is not None else "limited only by time"
    layout = f", {format_bytes(plan.layout_bytes)} of it before measuring" if plan.layout_bytes else ""
    order = "shuffled" if plan.study.get("shuffle", True) else "in order"
    adaptive = sum(case.procedure.max_runs for case in plan.cases if case.procedure)
    more = f", plus at most {adaptive} depending on results" if adaptive else ""
    if plan.hosts:
        yield from _wrapped("hosts", f"{len(plan.hosts)}: {', '.join(plan.hosts)}")
    yield f"runs      {len(plan.runs)}, {order} (seed {plan.seed}){more}"
    yield f"time      {_time(plan)}"
    yield f"writes    {limit if written != 0 else 'nothing'}{layout}"
    for note in [*plan.notes, *_unavailable_backends(plan)]:
        yield from _wrapped("note", note)
    yield from _setup_lines(plan)
    yield from _power_lines(plan)
    for thing in plan.destroys:
        yield f"target    {thing.path}:"
        yield from _wrapped("", thing.what)
    if commands.has_commands(plan):
        yield from commands.shared_lines(plan)
        yield f"allow     --allow-commands {commands.commands_hash(plan)}"
    if not plan.destroys:
        yield "creates   nothing"


def _unavailable_backends(plan: Plan) -> Iterator[str]:
    """I/O backends that the plan's runs require and the target does not have; each is tried by a read of the target."""
    from iosonde.study.workload.block.backends import requires_backend

    specs = list(plan.specs())
    if not any(requires_backend(spec["workload"]) for spec in specs):
        return
    from iosonde.execution import engine_programs
    from iosonde.execution.engine import find_engine

    try:
        found = engine_programs.probe_backends(find_engine(), Path(plan.target))
    except EngineError:
        return
    for each in engine_programs.used(found, specs):
        if not each.is_available:
            yield f"backend {each.name} is not available here, and its runs are recorded as unsupported: {each.reason}"
        elif each.note:
            yield f"backend {each.name} {each.note}"


def _power_lines(plan: Plan) -> Iterator[str]:
    """Yield the difference that the repeats can show; simulated and null targets do not vary.

    A study with requirements compares with limits, not with another session.
    """
    from iosonde.findings.comparison.sessions import power_of
    from iosonde.planning import is_simulated
    from iosonde.storage import open_target

    if plan.study.get("requirement") or is_simulated(open_target(plan.target)):
        return
    yield from _wrapped("power", power_of(plan, Path("iosonde-results")).text)


def _wrapped(name: str, text: str) -> Iterator[str]:
    """A fact of the summary; no line ends between a number and its unit, or within a word."""
    bound = re.sub(rf"(?<=\d) (?=(?:{UNITS})\b|%)", NO_BREAK, text)
    lines = wrap(f"{name:<10}{bound}", indent=" " * 10)
    yield from (line.replace(NO_BREAK, " ") for line in lines)


def _setup_lines(plan: Plan) -> Iterator[str]:
    """Every array and file system, with how often it is created."""
    setups: dict[tuple[str, str], list[Case]] = {}
    for case in plan.cases:
        if case.setup:
            setups.setdefault((case.setup.text, case.setup.fresh), []).append(case)
    for (text, fresh), cases in setups.items():
        runs = sum(run.case_id in {case.case_id for case in cases} for run in plan.runs)
        of_runs = f" ({runs} runs)" if runs else ""
        number = f"{len(cases)} case{'s' * (len(cases) != 1)}"
        often = {"run": f"for every run of {number}{of_runs}", "case": f"for each of {number}"}
        yield f"setup     {text}: created {often.get(fresh, f'once for {number}')}"


def _part_lines(part: Part, cases: Sequence[Case], plan: Plan) -> Iterator[str]:
    seconds = sum(case.cost.seconds for case in cases) / max(len(cases), 1)
    heading = f"{part.name}: {part.title}" if part.title else part.name
    if not cases:
        yield f"{heading} (left out, see notes)"
        return
    procedure = cases[0].procedure
    runs = f"at most {procedure.max_runs}" if procedure else str(plan.repeats)
    if procedure and procedure.kind == "until":
        runs = f"{plan.repeats} to {plan.repeats + procedure.max_runs}"
    number = f"{len(cases)} case{'s' * (len(cases) != 1)}"
    yield f"{heading} ({number} x {runs} runs of about {format_estimate(seconds)})"
    if procedure:
        yield from textwrap.wrap(procedure.text, text_width(), initial_indent="  ", subsequent_indent="  ")
    workload = workloads.named(part.workload or plan.study["workload"])
    yield from _parameter_lines(_shared(cases, workload), workload)
    yield from _compound_lines(part, workload)
    yield from _case_lines(cases, workload)


def _compound_lines(part: Part, workload: Workload) -> Iterator[str]:
    from iosonde.study.model import Level

    for name, levels in part.factors.items():
        for level in levels:
            if isinstance(level, Level):
                yield from _parameter_lines(level.set, workload, start=f"  {name} {level.label}: ", indent="    ")


def _case_lines(cases: Sequence[Case], workload: Workload) -> Iterator[str]:
    """Every case; those that differ only in the factor with most levels share a line."""
    factors = list(cases[0].levels) if cases else []
    counts = {name: len({str(case.levels[name]) for case in cases}) for name in factors}
    across = max(factors, key=lambda name: counts[name], default=None)
    if across is None:
        return
    groups: dict[str, list[str]] = {}
    for case in cases:
        others = "  ".join(_level_text(name, case.levels[name], workload) for name in factors if name != across)
        groups.setdefault(others, []).append(_value_text(across, case.levels[across], workload))
    width = max(map(len, groups))
    for others, levels in groups.items():
        start = f"    {others:{width}}{'  ' if width else ''}{across} "
        width_of_line = max(shutil.get_terminal_size().columns, len(start) + 20)
        yield from wrap(joined_levels(levels), start=start, indent=" " * len(start), width=width_of_line)


def _control_lines(study: Study, plan: Plan) -> Iterator[str]:
    control = [case for case in plan.cases if case.control]
    if study.control and control:
        count = sum(run.case_id == control[0].case_id for run in plan.runs)
        yield ""
        yield f"control ({count} runs, one after every {study.control.every})"
        workload = workloads.named(plan.study["workload"])
        yield from _parameter_lines(_shared(control, workload), workload)


def _shared(cases: Sequence[Case], workload: Workload) -> dict[str, Any]:
    """Parameters that all cases share and that differ from the default, and always the main ones."""
    shared = {
        name: value
        for name, value in cases[0].parameters.items()
        if name not in cases[0].levels and all(case.parameters.get(name, ...) == value for case in cases)
    }
    return {
        name: value
        for name, value in shared.items()
        if not name.startswith("rounds.")  # The text of the procedure has these criteria.
        and _is_shown(name.rpartition(".")[2], value, workload)
    }


def _is_shown(parameter: str, value: Any, workload: Workload) -> bool:
    """Return True if a value is not the default or is always shown; lists are commands, which are printed in full."""
    from iosonde.plan import Setup

    field = {**workload.parameters.model_fields, **Setup.model_fields}.get(parameter)
    if workload.io == "command" and parameter in commands.PRINTED:
        return False
    return parameter in workload.shown or field is None or value != field.get_default(call_default_factory=True)


def _parameter_lines(
    parameters: Mapping[str, Any], workload: Workload, *, start: str = "  ", indent: str = "  "
) -> list[str]:
    # A parameter and its value stay on one line.
    pairs = (pair for name, value in parameters.items() for pair in _pairs(name, value))
    text = ", ".join(_level_text(name, value, workload).replace(" ", NO_BREAK) for name, value in pairs)
    return [line.replace(NO_BREAK, " ") for line in wrap(text, start=start, indent=indent)]


def _pairs(name: str, value: Any) -> list[tuple[str, Any]]:
    """A parameter and its value; one pair for each of a store's options, as `--set` writes them."""
    if isinstance(value, Mapping):
        return [(name, f"{option}={_plain(chosen)}") for option, chosen in value.items()]
    return [(name, value)]


def _plain(value: Any) -> str:
    """Write a value as a study does."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _level_text(name: str, value: Any, workload: Workload) -> str:
    return f"{name} {_value_text(name, value, workload)}"


def _value_text(name: str, value: Any, workload: Workload) -> str:
    from iosonde.study.setup import SIZES as SETUP_SIZES

    parameter = name.rpartition(".")[2]
    if isinstance(value, int) and not isinstance(value, bool):
        if parameter in (*workload.sizes, *SETUP_SIZES):
            return compact_size(value)
        if parameter in workload.durations:
            return compact_duration(value)
    return f"{value:g}" if isinstance(value, float) else _plain(value)
