"""Method and machine: what was measured, on which devices, when, and the commands that repeat it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

from iosonde.base.features import contributed
from iosonde.engine import supervisor
from iosonde.metrics.wording import counted
from iosonde.plan import PREPARATION, Plan, commands
from iosonde.planning.procedure.until import UntilConclusion
from iosonde.report.content import Omitted, computed, incomplete
from iosonde.report.material import WARNING, Material, Source, coverage_of, intervals_of, loop_text
from iosonde.results.schema import RecordPart
from iosonde.study.workload.workload import Engine
from iosonde.units import format_bytes

FactGroup = tuple[str, Sequence[tuple[str, str]]]
"""The title of a group of facts, and their names and values."""


def headline(source: Source, material: Material, omitted: list[Omitted]) -> list[tuple[str, str]]:
    """Return the main facts of a result set; those that cannot be computed are noted in `omitted`."""
    times = sorted(time for record in source.records for time in (record.started_at, record.ended_at) if time)
    servers = (case.parameters.get("server_url") for case in source.cases)
    targets = (record.target["log"] for record in source.records if "log" in record.target)
    logs = (f"{log['name']}, on {', '.join(_lowest_devices(log))}" for log in targets)  # Second targets of stores.
    none: list[tuple[str, str]] = []
    rows = [
        ("Simulated", WARNING if source.simulated else ""),
        ("Device", devices_text(source)),
        ("Target", source.plan.target),
        ("Hosts", _hosts_text(source.plan)),
        ("Server", ", ".join(dict.fromkeys(str(url) for url in servers if url))),
        ("File system", _file_system_text(source)),
        ("Log device", ", ".join(dict.fromkeys(logs))),
        ("Measured", f"{_when(times[0])} to {_when(times[-1])}" if times else "nothing yet"),
        ("Runs", _runs(source)),
        ("Profile", f"{source.plan.profile}, {_repeats(source)}"),
        ("Load", loop_text(source.specs_by_case.values())),
        *computed(omitted, f"Intervals of {source.label}", lambda: _intervals(source, material), instead=none),
        *_prepared_at_a_glance(source),
    ]
    return [(name, value) for name, value in rows if value]


def _repeats(source: Source) -> str:
    """Return the repeats of the plan, or the least and the most of a case that was repeated until it was precise."""
    ended = [each.repeats for _, each in source.procedures if isinstance(each, UntilConclusion)]
    least, most = (min(ended), max(ended)) if ended else (source.plan.repeats,) * 2
    return f"{least} to {counted(most, 'repeat')}" if least < most else counted(most, "repeat")


def _hosts_text(plan: Plan) -> str:
    """Return the hosts of a study on several; values of their total and parameters of each would look alike."""
    hosts, names = plan.hosts, ", ".join(plan.hosts)
    if len(hosts) < 2:
        return names
    most = f"up to {len(hosts)}" if any(case.parameters.get("hosts") for case in plan.cases) else f"{len(hosts)}"
    return f"{most} at the same time ({names}); values are totals, parameters those of each host"


def _intervals(source: Source, material: Material) -> list[tuple[str, str]]:
    """Return the methods of intervals and what they do not show; nothing about what there is not."""
    methods = intervals_of(material, sources=[source])
    if not methods:
        return [("Intervals", "none: too few repeats")]
    count = next(len(group) for group in material.sessions if source in group)
    sessions = "one; another session can differ by more than these intervals show"
    if source.simulated:  # Simulated devices do not vary.
        sessions = ""
    elif count > 1 and not material.paired_sets:
        sessions = f"one of {count} that are pooled in a table"
    return [("Intervals", methods), ("Coverage", coverage_of(material, source)), ("Sessions", sessions)]


def _prepared_at_a_glance(source: Source) -> list[tuple[str, str]]:
    """The header of a report of a prepared target, as SNIA's specification requires."""
    known = dict(next((rows for _, rows in _preparations(source)), ()))
    wanted = ("purge", "preconditioning", "filled to", "write cache", "active range", "data pattern")
    rows = [(name.capitalize(), known[name]) for name in wanted if known.get(name, "not filled") != "not filled"]
    if not rows:
        return []
    machines = sorted({_machine_text(each) for each in source.results.environments().values()})
    return [("Platform", "; ".join(machines)), *rows]


def _machine_text(environment: Mapping[str, Any]) -> str:
    cpu, memory, kernel, software = (environment.get(name) or {} for name in ("cpu", "memory", "kernel", "software"))
    parts = [
        f"{cpu.get('model') or 'unknown CPU'}, {cpu['threads']} threads" if cpu.get("threads") else "",
        format_bytes(memory["total_bytes"]) if memory.get("total_bytes") else "",
        f"{kernel.get('system', 'kernel')} {kernel['release']}" if kernel.get("release") else "",
        f"iosonde {software['iosonde']}" if software.get("iosonde") else "",
    ]
    return ", ".join(filter(None, parts))


def provenance(source: Source) -> list[FactGroup]:
    """Return what was measured on what; where it changed during the study, every state of it."""
    plan = source.plan
    measured = [
        ("study", plan.study_name),
        ("profile", plan.profile),
        ("repeats", _repeats(source)),
        ("seed", str(plan.seed)),
        ("target", plan.target),
        *((f"set {name}", value) for name, value in plan.settings.items()),
        ("result set", str(source.results.directory)),
    ]
    return [("Study", measured), *_preparations(source), *_targets(source), *_environments(source), *_engines(source)]


def _preparations(source: Source) -> list[FactGroup]:
    """Preparation of the target, if any: SNIA's specification requires it at the head of every page."""
    prepared = [case.parameters for case in source.cases if case.parameters.get("purge", "none") != "none"]
    if not prepared:
        return []
    restarted = any(record.part == PREPARATION and "-a1-" not in record.run_id for record in source.records)
    patterns = {"random": "random, incompressible", "zeros": "zeros"}
    rows = [
        ("purge", _each(prepared, "purge", str)),
        ("preconditioning", ", ".join(dict.fromkeys(map(_precondition_text, prepared)))),
        ("filled to", _each(prepared, "fill", lambda percent: f"{percent:g} %" if percent else "not filled")),
        ("active range", _each(prepared, "span", format_bytes)),
        ("data pattern", _each(prepared, "payload", patterns.__getitem__)),
        ("write cache", _write_cache_text(source)),
        ("preparation repeated", "after an interruption" if restarted else "never"),
    ]
    return [("Preparation", rows)]


def _each(prepared: Sequence[Mapping[str, Any]], name: str, text: Callable[[Any], str]) -> str:
    return ", ".join(dict.fromkeys(text(parameters[name]) for parameters in prepared if name in parameters)) or "-"


def _precondition_text(parameters: Mapping[str, Any]) -> str:
    size = parameters.get("precondition")
    if not size:
        return "none before the load itself"
    if parameters.get("precondition_access") == "aging":
        spare = f"{100 * parameters['over_provisioning']:g} % of spare capacity"
        return f"one pass of aging in blocks of {format_bytes(size)}, for {spare}"
    return f"sequential writes of {format_bytes(size)}, twice the range"


def _write_cache_text(source: Source) -> str:
    if any(record.target.get("simulated") for record in source.records):
        return "that of the simulated device"
    devices = [device for record in source.records for device in record.target.get("devices", [])]
    queues = (each["queue"] if isinstance(each.get("queue"), Mapping) else {} for each in devices)
    found = {queue.get("write_cache", each.get("write_cache")) for queue, each in zip(queues, devices, strict=True)}
    return ", ".join(sorted(str(each) for each in found if each)) or "not known"


def rerun(source: Source) -> str:
    """Return the command that runs the study again."""
    plan = source.results.whole_plan
    words = ["iosonde", "run", plan.study_name, "--target", plan.target, "--profile", plan.profile]
    words += ["--repeats", str(plan.repeats), "--seed", str(plan.seed)]
    for name, value in plan.settings.items():
        words += ["--set", f"{name}={value}"]
    if plan.arms:
        first, second = plan.arms
        words += ["--against", second.target] if second.target != first.target else []
        different = {name: value for name, value in second.settings.items() if first.settings.get(name) != value}
        for name, value in different.items():
            words += ["--against-set", f"{name}={value}"]
    if plan.keep:
        words.append("--keep")
    words += allowing(plan)
    return shlex.join(words)


def programs(sources: Sequence[Source]) -> list[str]:
    """Return the programs that carry out single runs; the name of another engine is not shown as a command."""
    names = {str(record.engine.get("engine")) for source in sources for record in source.records}
    known: dict[str, str] = {name: name for name in get_args(Engine)}
    known[supervisor.NAME] = "python -m iosonde.engine.supervisor"
    return [command for name, command in known.items() if name in names] or ["iosonde-engine"]


def allowing(plan: Plan) -> list[str]:
    """Return the option that allows the external commands of a plan, if it has any."""
    return ["--allow-commands", commands.commands_hash(plan)] if commands.has_commands(plan) else []


def completion(source: Source) -> tuple[str, str]:
    """Return the command that completes a result set, after the words that introduce it.

    Runs that were refused because of a setting of the study would be refused again, so they are not retried.
    """
    retryable = [record for record in source.failed if not record.refused]
    if source.failed and not (retryable or source.stopped or source.missing):
        return "To run the corrected study", rerun(source)
    retry = [*(["--retry-failed"] if retryable else []), *allowing(source.results.whole_plan)]
    return "To continue", shlex.join(["iosonde", "resume", str(source.results.directory), *retry])


def devices_text(source: Source) -> str:
    """Name the devices under a target: the models of the lowest ones, each once with their number."""
    found: Counter[str] = Counter()
    for record in source.records:
        found |= Counter(_lowest_devices(record.target))
    texts = [f"{count} × {name}" if count > 1 else name for name, count in sorted(found.items()) if name]
    return ", ".join(texts) or source.plan.target.partition(":")[0].replace("null", "no device")


def _lowest_devices(target: Mapping[str, Any]) -> list[str]:
    """Name the devices that no other is under: their models and sizes."""
    devices = target.get("devices", [])
    return [
        " ".join(
            filter(
                None,
                [
                    str(each.get("model") or each.get("name") or ""),
                    f"({format_bytes(each['size_bytes'])})" if each.get("size_bytes") else "",
                ],
            )
        )
        for each in [device for device in devices if not device.get("under")] or devices
    ]


def target_line(source: Source) -> str:
    """Name what was measured: devices, file system and where it is mounted."""
    systems = [record.target.get("file_system") or {} for record in source.records]
    mounted = {
        f"{each['kind']} on {each['mount_point']}" for each in systems if each.get("kind") and each.get("mount_point")
    }
    devices = source.plan.target if source.plan.target.startswith(("simulated:", "null:")) else devices_text(source)
    return "; ".join([devices, *sorted(mounted)])


def _file_system_text(source: Source) -> str:
    kinds = {str(r.target.get("file_system", {}).get("kind", "")) for r in source.records if r.target}
    return ", ".join(sorted(filter(None, kinds)))


def _when(text: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    except ValueError:
        return text


def _targets(source: Source) -> list[FactGroup]:
    """Return each state of a file system, a device and what features record of the target, without changing values."""
    states: dict[str, FactGroup] = {}

    def add(title: str, facts: Mapping[str, Any]) -> None:
        states.setdefault(f"{title}{facts}", (title, _flat(facts)))

    for target in (each for record in source.records for each in (record.target, record.target.get("log", {}))):
        if file_system := {k: v for k, v in target.get("file_system", {}).items() if k != "free_bytes"}:
            add("File system", file_system)
        for device in target.get("devices", []):
            steady = {key: value for key, value in device.items() if "temperature" not in key}
            add(f"Device {device.get('name', '')}".strip(), steady)
    kinds: tuple[type[RecordPart], ...] = contributed("record", "PARTS")
    for kind in kinds:
        for part in (found for record in source.records if (found := record.of(kind))):
            for title, facts in part.about_target().items():
                add(title, facts)
    return list(states.values())


def _environments(source: Source) -> list[FactGroup]:
    found = source.results.environments()
    used = Counter(record.environment for record in source.records)
    runs = {name: f" ({count} runs)" if len(used) > 1 else "" for name, count in used.items() if name in found}
    return [(f"Machine and software{text}", _machine_rows(found[name])) for name, text in runs.items()]


def _machine_rows(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of a machine, with its CPU mitigations in one line."""
    cpu = environment.get("cpu")
    if not isinstance(cpu, Mapping) or not isinstance(cpu.get("mitigations"), Mapping):
        return _flat(environment)
    states = {name: str(state) for name, state in cpu["mitigations"].items()}
    vulnerable = [name.replace("_", " ") for name, state in states.items() if state.startswith("Vulnerable")]
    counts = {"mitigated": "Mitigation", "not affected": "Not affected"}
    text = ", ".join(
        f"{sum(state.startswith(start) for state in states.values())} {words}" for words, start in counts.items()
    )
    listed = f"; vulnerable: {', '.join(vulnerable)}" if vulnerable else ""
    plain = {name: value for name, value in cpu.items() if name != "mitigations"}
    rows = _flat({**environment, "cpu": plain})
    return [*rows, ("CPU vulnerabilities", f"{text} of {len(states)}{listed}")]


def _engines(source: Source) -> list[FactGroup]:
    wanted = ("engine", "version", "build", "protocol", "clock")
    seen = {tuple((k, str(r.engine[k])) for k in wanted if k in r.engine) for r in source.records if r.engine}
    backends = Counter(_backend(record.result) for record in source.records if record.result)
    shown = [("backend in effect", f"{name} ({counted(count, 'run')})") for name, count in backends.items() if name]
    return [("Engine", [*rows, *shown]) for rows in sorted(seen)]


def _backend(result: Mapping[str, Any]) -> str:
    backend = result.get("backend", {})
    features = ", ".join(backend.get("features", []))
    return str(backend.get("kind", "")) + (f" with {features}" if features else "")


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Write nested facts as lines; sizes with their unit."""
    lines: list[tuple[str, str]] = []
    for name, value in facts.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            lines += _flat(value, f"{key}.")
        elif isinstance(value, list | tuple):
            lines.append((key.replace("_", " "), ", ".join(map(str, value))))
        elif name.endswith("_bytes") and isinstance(value, int):
            lines.append((key.removesuffix("_bytes").replace("_", " "), format_bytes(value)))
        elif value is not None:
            lines.append((key.replace("_", " "), str(value)))
    return lines


def _runs(source: Source) -> str:
    complete = sum(record.outcome == "complete" for record in source.records)
    impossible = f", {len(source.impossible)} unsupported" if source.impossible else ""
    return f"{complete} of {source.planned} complete{impossible}"


_FUNCTIONS = (headline, incomplete, provenance, rerun, completion, target_line)
IN_TEMPLATES = {"simulated_meaning": WARNING, **{each.__name__: each for each in _FUNCTIONS}}
"""Names in the templates of the page and of Markdown."""
