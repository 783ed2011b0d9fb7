"""Rounds: a prepared target is measured by the same loads again and again, until what is tracked is steady.

Each repeat of a case is a pass: preparation (`preparation.py`), then rounds until the last window of them is steady by
`metrics.steady_state` and stays so through the rounds of the closing check (`hold`), or until there were as many as
there may be: then steady state is not achieved, which is a result. The records determine the position of a pass, so a
stopped study continues at the next load of its round.

A real target does not stay as a load left it: it collects garbage while idle, and iosonde removes its file
when it stops. So a pass that continues in another session first prepares the target again, under ids of its own (`a2`
for the second time), and then continues where it was. Earlier measurements count. A simulated target keeps its state.

Stages follow the rounds, once each, whether steady state was achieved or not: a closing load, pauses, other accesses.
Each needs the state that all before it have left. So after a pause the rounds and the stages that were done are carried
out once more, as steps of preparation (`again`), before the next stage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iosonde.errors import StudyError
from iosonde.metrics.steady_state import Criteria, held_window
from iosonde.metrics.sustained import STALLED_SHARE
from iosonde.plan import PREPARATION, Case, JsonObject, Run, target_of
from iosonde.planning.procedure import preparation
from iosonde.planning.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RunGenerator,
    probe,
    procedure_of,
)
from iosonde.study.effective import chosen_parameters, read_level, read_levels
from iosonde.study.model import ROUND, STAGE, Level, Part, Rounds, Scalar, Study
from iosonde.study.workload.block.parameters import active_range_bytes

INTERLEAVED = False
"""A pass is finished before the next begins: another load in between would change the state that it builds up."""

FIXED = ("span", "offset", "files", "layout", "purge", "fill", "capacity", "precondition", "backend")
"""Parameters that cannot vary within a round, since the target is prepared for them."""

Walk = Generator[Run, Observation, Observation]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One repeat of a case."""

    is_steady: bool
    """True if all tracking variables were steady together."""
    unsteady: int
    """Runs that were to continue until steady, and were not steady."""
    failure: str

    @property
    def achieved(self) -> bool:
        return self.is_steady and not self.failure


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Rounds as a procedure's settings have them."""

    loads: Sequence[JsonObject]
    """Of each load within a round its `levels` and `parameters`, and whether it is `tracked`."""
    metric: str
    max_rounds: int
    window: int
    range: float
    slope: float
    repeats: int
    until_steady: bool = False
    hold: int = 0
    """Rounds after a steady window through which it must stay steady at its level: the closing check."""
    min_written: float = 0.0
    """Share of the active range that each round of the window moves at least."""
    stages: Sequence[JsonObject] = ()
    """Of each load after the rounds its `levels` and `parameters`."""

    @property
    def criteria(self) -> Criteria:
        return Criteria(
            window=self.window, range=self.range, slope=self.slope, min_length=0, min_written=self.min_written
        )


def forecast(part: Part, study: Study) -> Forecast:
    """Settings and bounds of preparation, rounds and stages."""
    settings = _settings(part, study)
    assert part.rounds, "a part with rounds"
    most = settings.max_rounds * len(settings.loads)
    loads = f"{len(settings.loads)} loads" if len(settings.loads) > 1 else "1 load"
    if not settings.max_rounds:
        text = "prepares the target"
    elif settings.max_rounds < settings.window:
        count = f"{settings.max_rounds} round{'s' * (settings.max_rounds > 1)}"
        text = f"prepares the target, then measures {count} of {loads}"
    else:
        text = (
            f"prepares the target, then measures rounds of {loads} until {settings.metric} is steady over "
            f"{settings.window} rounds (range {100 * settings.range:g} %, slope {100 * settings.slope:g} %), "
            f"at most {settings.max_rounds}"
        )
        if settings.hold:
            rounds = f"{settings.hold} more round{'s' * (settings.hold > 1)}"
            text += f", with {rounds} as a closing check"
    if settings.until_steady:
        held = f" and stays so for {settings.hold} rounds" if settings.hold else ""
        text += f"; a run ends once it is steady by its own rounds{held}, and may last that long"
    stages = len(settings.stages)
    if stages:
        text += f", then {stages} stage{'s' * (stages > 1)}: " + ", ".join(each.label for each in part.rounds.stages)
    return Forecast(
        settings=vars(settings),
        extremes=[chosen_parameters(combination) for combination in _combinations(part)]
        if settings.max_rounds
        else [{}],
        stages=[chosen_parameters({STAGE: each}) for each in part.rounds.stages],
        decided=list(dict.fromkeys(name for load in settings.loads for name in load["parameters"])),
        max_runs=study.repeats * (most + stages + _STEPS),
        preparing=study.repeats * (stages + _STEPS),
        uncertain=settings.max_rounds >= settings.window or settings.until_steady,
        text=text,
    )


_STEPS = 2
"""Runs of a preparation at most: preconditioning fills by itself."""


def runs(case: Case, observations: Observations) -> RunGenerator:
    """Pass after pass."""
    settings = Settings(**procedure_of(case).settings)
    passes: list[Pass] = []
    for repeat in range(1, settings.repeats + 1):
        passes.append((yield from _pass(case, settings, observations, repeat)))
    sought = settings.max_rounds >= settings.window
    return Conclusion(
        case_id=case.case_id,
        reached=all(each.achieved if sought else not (each.failure or each.unsteady) for each in passes),
        reason=_reason(settings, passes),
    )


def _pass(case: Case, settings: Settings, observations: Observations, repeat: int) -> Generator[Run, Observation, Pass]:
    """Prepare, and measure rounds until they are steady."""
    state = _State(case=case, observations=observations, repeat=repeat)
    tracked = [load for load in settings.loads if load["tracked"]]
    values: list[list[float]] = [[] for _ in tracked]
    measured: list[list[Observation]] = []
    number = unsteady = 0
    enough: dict[str, Any] = {
        "criteria": settings.criteria,
        "hold": settings.hold,
        "moved_bytes": lambda index: sum(map(_moved_bytes, measured[index])),
        "range_bytes": active_range_bytes(case.parameters),
    }
    failure = ""
    try:
        yield from state.prepare()
        while number < settings.max_rounds and not held_window(values, **enough):
            number += 1
            measured.append([])
            for place, load in enumerate(settings.loads, start=1):
                observation = yield from state.measure(number, place, load)
                if settings.until_steady and observation.value("seconds_to_steady_state") is None:
                    unsteady += 1
                measured[-1].append(observation)
                if load["tracked"]:
                    values[tracked.index(load)].append(_tracked_value(observation, settings.metric))
        for place, load in enumerate(settings.stages, start=1):
            # A stage is on the state that everything before it has left.
            yield from state.perform(f"stage{place:02}", load["levels"], load, again=state.done)
    except _FailedError as error:
        failure = str(error)
    whole = min(map(len, values), default=0)
    is_steady = held_window([each[:whole] for each in values], **enough) is not None
    return Pass(is_steady=is_steady, unsteady=unsteady, failure=failure)


def _tracked_value(observation: Observation, metric: str) -> float:
    """The value of a round; not a number, and so never steady, where the engine itself was stalled."""
    if (observation.value("engine_stalled_fraction") or 0.0) >= STALLED_SHARE:
        return math.nan
    return observation.value(metric) or 0.0


def _moved_bytes(observation: Observation) -> float:
    """Bytes that a load read and wrote while it was measured."""
    return (observation.value("bandwidth") or 0.0) * (observation.value("seconds") or 0.0)


@dataclass
class _State:
    """State of the target after the steps of a pass, and whether it still holds."""

    case: Case
    observations: Observations
    repeat: int
    restart: int = 0
    session: str = ""
    """Session in which the target was brought into its present state; empty before it was prepared."""
    done: list[tuple[str, JsonObject]] = field(default_factory=list)
    """Name and load of everything that was measured since the target was prepared, in this order."""

    def prepare(self, again: Sequence[tuple[str, JsonObject]] = ()) -> Generator[Run, Observation, None]:
        """Every step, then what is to be done `again`; from the first when a pause came between."""
        self.session = ""
        steps: list[str | tuple[str, JsonObject]] = [*preparation.steps(self.case.parameters), *again]
        done = 0
        while done < len(steps):
            run = self._step(steps[done])
            if self._is_lost(run):
                self.restart, self.session, done = self.restart + 1, "", 0
                continue
            observation = yield run
            if observation.failure:
                raise _FailedError(f"preparation by `{run.levels[preparation.STEP]}` failed: {observation.failure}")
            self.session, done = observation.session, done + 1

    def measure(self, number: int, place: int, load: JsonObject) -> Walk:
        """One load of a round, on the state that it needs."""
        name, levels = f"round{number:03}-{place:02}", {ROUND: number, **load["levels"]}
        return (yield from self.perform(name, levels, load, until=self._until(load)))

    def _until(self, load: JsonObject) -> JsonObject | None:
        """Criteria for a run during its measurement, if there are any."""
        parameters = {**self.case.parameters, **load["parameters"]}
        if not procedure_of(self.case).settings.get("until_steady") or not parameters.get("round_length"):
            return None
        return {
            "round_ns": parameters["round_length"],
            "tracking": parameters["tracking"],
            "hold": procedure_of(self.case).settings["hold"],
            "criteria": {name: value for name, value in self.case.parameters.items() if name.startswith("rounds.")},
            "range_bytes": active_range_bytes(parameters),
        }

    def perform(
        self,
        name: str,
        levels: Mapping[str, Scalar],
        load: JsonObject,
        *,
        until: JsonObject | None = None,
        again: Sequence[tuple[str, JsonObject]] = (),
    ) -> Walk:
        while self._is_lost(run := self._load(name, levels, load)):
            self.restart += 1
            yield from self.prepare(again)
        observation = yield run.model_copy(update={"until": until})
        if observation.failure:
            raise _FailedError(observation.failure)
        self.session = observation.session
        self.done.append((name, load))
        return observation

    def _load(self, name: str, levels: Mapping[str, Scalar], load: JsonObject) -> Run:
        ending = f"a{self.restart + 1}-{name}"
        run = probe(self.case, ending, self.repeat, levels=dict(levels), parameters=load["parameters"])
        return run.model_copy(update={"restart": self.restart})

    def _step(self, step: str | tuple[str, JsonObject], *, ahead: int = 0) -> Run:
        """A step of preparation by name, or a load that is carried out again; `ahead` restarts from now."""
        restart = self.restart + ahead
        if isinstance(step, str):
            return preparation.step_run(self.case, step, self.repeat, restart=restart)
        name, load = step
        levels: dict[str, Scalar] = {preparation.STEP: f"again {name}"}
        run = probe(
            self.case, f"a{restart + 1}-again-{name}", self.repeat, levels=levels, parameters=load["parameters"]
        )
        case_id = f"{PREPARATION}/{run.case_id}"
        return run.model_copy(update={"case_id": case_id, "part": PREPARATION, "restart": restart})

    def _is_lost(self, run: Run) -> bool:
        """Return True if the state that a run requires is gone, or was when it was to be prepared."""
        names = preparation.steps(self.case.parameters)
        # On simulated storage no time passes between sessions.
        survives = target_of(procedure_of(self.case).spec["workload"])["kind"] == "virtual"
        if not names or not self.session or survives:
            return False
        observation = self.observations.observation(run)
        if observation is not None and not observation.failure:
            return False
        if self.observations.observation(self._step(names[0], ahead=1)) is not None:
            return True
        return observation is None and self.observations.session not in ("", self.session)


class _FailedError(Exception):
    """A run has no result, which ends its pass."""


def _reason(settings: Settings, passes: Sequence[Pass]) -> str:
    failed = next((each.failure for each in passes if each.failure), "")
    if not failed and any(each.unsteady for each in passes):
        return "it did not become steady within the length of the run"
    if failed or settings.max_rounds < settings.window:
        return failed
    missed = sum(not each.achieved for each in passes)
    if not missed:
        return ""
    of = f" in {missed} of {len(passes)} passes" if len(passes) > 1 else ""
    return f"it did not become steady in {settings.max_rounds} rounds{of}"


_AS_WRITTEN = {"metric", "max_rounds", "window", "range", "slope", "until_steady", "hold", "min_written"}
"""Settings that are those of a study."""


def _settings(part: Part, study: Study) -> Settings:
    from iosonde.metrics.registry import find

    rounds = part.rounds
    assert rounds, "a part with rounds"
    _check_loads(rounds)
    if rounds.until_steady and rounds.sought:
        raise StudyError(
            "`until_steady` requires rounds within a run, but each round of this part is a separate run",
            hint="set `max_rounds = 1`, and set the length of rounds with `round_length`",
        )
    if rounds.sought and rounds.max_rounds < rounds.window + rounds.hold:
        raise StudyError(
            f"{rounds.max_rounds} rounds are too few for a window of {rounds.window} and a closing check of "
            f"{rounds.hold}",
            hint=f"set `max_rounds = {rounds.window + rounds.hold}` or more, or a smaller `hold`",
        )
    for name in rounds.factors:
        if name == ROUND or name.rpartition(".")[2] in FIXED:
            raise StudyError(
                f"`{name}` cannot vary within a round: the target is prepared for it",
                hint="make it a factor of the part; each of its levels is then prepared by itself",
            )
    if find(rounds.metric) is None:
        raise StudyError(f"unknown tracked metric `{rounds.metric}`", hint="docs/metrics.md lists them")
    loads: list[JsonObject] = [
        {
            "levels": {name: read_level(name, level) for name, level in combination.items()},
            "parameters": _parameters(combination),
        }
        for combination in (_combinations(part) if rounds.max_rounds else [])
    ]
    unknown = next((name for track in rounds.track for name in track if name not in rounds.factors), None)
    if unknown:
        raise StudyError(f"`{unknown}` does not vary within a round, so the tracked load is ambiguous")
    tracks = [read_levels(rounds.factors, track) for track in rounds.track] or [{}]
    for load in loads:
        load["tracked"] = any(track.items() <= load["levels"].items() for track in tracks)
    for track in tracks if loads else []:
        if not any(track.items() <= load["levels"].items() for load in loads):
            listed = ", ".join(f"{name} {level}" for name, level in track.items())
            raise StudyError(
                f"the tracked load must be a load of the rounds; got {listed}", hint="see `rounds.factors`"
            )
    return Settings(
        **rounds.model_dump(include=_AS_WRITTEN),
        loads=loads,
        repeats=study.repeats,
        stages=[{"levels": {STAGE: each.label}, "parameters": _parameters({STAGE: each})} for each in rounds.stages],
    )


def _check_loads(rounds: Rounds) -> None:
    """Reject loads that set parameters of the preparation; all levels of a factor must set the same parameters."""
    factors: dict[str, list[Level]] = {
        name: [each for each in levels if isinstance(each, Level)] for name, levels in rounds.factors.items()
    }
    for name, levels in (*factors.items(), (STAGE, rounds.stages)):
        fixed = next((each for level in levels for each in level.set if each.rpartition(".")[2] in FIXED), None)
        if fixed:
            raise StudyError(
                f"`{fixed}` cannot vary within a round or stage: the target is prepared for it",
                hint="make it a factor of the part; each of its levels is then prepared by itself",
            )
        differing = [level.label for level in levels if set(level.set) != set(levels[0].set)]
        if differing and name != STAGE:
            raise StudyError(
                f"levels of `{name}` must set the same parameters; `{levels[0].label}` and `{differing[0]}` differ",
                hint="let all levels of a factor of rounds set the same parameters",
            )


def _combinations(part: Part) -> list[dict[str, Scalar | Level]]:
    assert part.rounds, "a part with rounds"
    factors = part.rounds.factors
    return [dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())]


def _parameters(combination: Mapping[str, Scalar | Level]) -> dict[str, Any]:
    """Return the parameters of a combination, in bytes and nanoseconds."""
    return {name: read_level(name, value) for name, value in chosen_parameters(combination).items()}
