"""Types of the study file.

A study asks one question. It has a measurement (parameters of a workload), factors (parameters that take several
levels), profiles that scale sizes, times and repeats but never the question, and names the views and the analysis
answer it. It contains no paths, and no commands except those of the workload `command`, which need consent,
so a stranger's study does nothing but what `iosonde plan` shows.

`docs/studies.md` explains the format with examples; this module is the truth.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from iosonde.base.features import contributed
from iosonde.base.provided import provided
from iosonde.errors import did_you_mean
from iosonde.plan import Frozen
from iosonde.study.workload import named, workloads
from iosonde.study.workload.workload import Workload
from iosonde.units import parse_duration

Scalar = str | int | float | bool
Parameters = dict[str, Any]
"""Parameters of a workload as written in TOML: sizes and times may be text with a unit (`"4KiB"`, `"1s"`)."""


MOST_REPEATS = 10_000
"""Runs of a case: a week of windows of one minute."""

DeclaredState = Literal["fresh", "preconditioned", "steady", "unknown"]


def _one_of(name: str, known: Collection[str], what: str) -> str:
    if name not in known:
        raise ValueError("; ".join(filter(None, (f"`{name}` is no {what}", did_you_mean(name, known)))))
    return name


WorkloadName = Annotated[str, AfterValidator(lambda name: _one_of(name, workloads(), "workload"))]


class Level(Frozen):
    """A level that sets several parameters at once, under one label."""

    label: str
    set: Parameters


class Stream(Frozen):
    """One of several streams that run together: the measurement's parameters with these on top."""

    name: str
    set: Parameters = Field(default_factory=dict)


class Search(Frozen):
    """The highest value of a parameter at which conditions hold, by bracketing and bisection."""

    over: Literal["rate", "load", "queue_depth", "jobs"] | str
    """`rate`, `load`, `queue_depth` or `jobs`, or what another workload declares; `STREAM.PARAMETER` for one stream."""
    holds: str | list[str]
    """Conditions that must all hold, such as `response_latency_ns_p99_9 <= 1ms`."""
    rule: str = ""
    """Name of all conditions together, such as `ACT's pass rule`."""
    between: tuple[Scalar, Scalar]
    """The lowest value that is tried, and the highest."""
    start: Scalar | None = None
    """The value to begin with; the lowest if not given."""
    precision: float = Field(default=0.05, ge=0.001, le=1)
    """The search ends when what holds and what fails are no further apart than this share of what holds."""
    agree: Literal["majority", "all"] = "majority"
    """In how many of a probe's runs the conditions must hold."""
    also_check: list[str] = Field(default_factory=list)
    """Further conditions that are judged at every probe but decide nothing."""
    also_check_rule: str = ""
    """Name of those together."""


ROUND = "round"
"""Level with the number of a round, from 1."""


STAGE = "stage"
"""Level with the label of a stage after the rounds."""


_Duration = Annotated[int, BeforeValidator(parse_duration), PlainSerializer(lambda ns: f"{ns}ns", when_used="json")]
"""Nanoseconds; text with a unit in studies and in the study that a plan keeps."""


class Rounds(Frozen):
    """The same loads again and again until they are steady, on a target that was prepared for them."""

    factors: dict[str, list[Scalar | Level]] = Field(default_factory=dict)
    """Factors within a round: every combination is measured once, in this order. Empty: one load."""
    track: list[dict[str, Scalar]] = Field(default_factory=list)
    """Loads that must be steady, each by its levels; empty: all of them."""
    metric: str = "iops"
    """Tracking variable, which must be steady."""
    max_rounds: int = Field(default=25, ge=0, le=10_000)
    """Maximum number of rounds. Then steady state is not achieved. 0: no rounds, only `stages`."""
    window: int = Field(default=5, ge=2, le=1000)
    """Rounds that are judged together."""
    range: float = Field(default=0.2, gt=0, le=1)
    """Largest less smallest within the window, as a share of the mean, at most."""
    slope: float = Field(default=0.1, gt=0, le=1)
    """Rise or fall of the line fitted to the window, as a share of the mean, at most."""
    min_length: _Duration = Field(default=200_000_000, ge=0)
    """Shortest round that may be judged, in nanoseconds (a time with its unit): shorter ones are refused."""
    min_written: float = Field(default=0.01, ge=0, le=100)
    """A round moves this share of the active range at least, or the window does not count."""
    until_steady: bool = False
    """A run that is judged by its own rounds (`round_length`) ends once it is steady; `duration` is the most."""
    hold: int = Field(default=0, ge=0, le=10_000)
    """Closing check: for this many further rounds it must stay steady at its level, or the claim is withdrawn and
    the rounds continue."""
    stages: list[Level] = Field(default_factory=list)
    """Loads that follow the rounds, once each in this order, on the state that the one before has left."""

    @property
    def sought(self) -> bool:
        """True if there can be enough rounds for a window at all."""
        return self.max_rounds >= self.window

    @property
    def criteria(self) -> dict[str, float]:
        """The rule of steady state as parameters of a case, which its records contain."""
        return {
            "rounds.window": self.window,
            "rounds.range": self.range,
            "rounds.slope": self.slope,
            "rounds.min_length": self.min_length,
            "rounds.min_written": self.min_written,
        }


class Derived(Frozen):
    """Source of a parameter's value that an earlier part determines."""

    part: str
    """A part before this one."""
    metric: str = ""
    """The best value of this metric in that part; empty: what its search found."""


PROCEDURES = contributed("", "PROCEDURES", str)
"""Procedures of features."""

ProcedureName = Annotated[str, AfterValidator(lambda name: _one_of(name, PROCEDURES, "procedure"))]


class FeatureProcedure(Frozen):
    """A procedure of a feature that decides on the runs of each case."""

    name: ProcedureName
    settings: Parameters = Field(default_factory=dict)
    """Its settings as written: times and sizes have units."""


class Part(Frozen):
    """A grid of cases: the measurement, and the factors that vary over it."""

    name: str = "main"
    title: str = ""
    workload: WorkloadName | None = None
    """Another workload than the study's. Such a part has none of the study's or a profile's parameters but its own."""
    measurement: Parameters = Field(default_factory=dict)
    """Parameters for this part, on top of the study's."""
    streams: list[Stream] = Field(default_factory=list)
    """Empty for a single stream."""
    factors: dict[str, list[Scalar | Level]] = Field(default_factory=dict)
    """Each factor with its levels, in the order of the figures. A plain level sets the parameter of that name (for all
    streams; `STREAM.PARAMETER` for one)."""
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    """Combinations of levels that are left out."""
    search: Search | None = None
    """Each case is a search."""
    derived: dict[str, Derived] = Field(default_factory=dict)
    """Parameters whose values an earlier part finds out."""
    rounds: Rounds | None = None
    """Each case is prepared, and then measured in rounds until it is steady."""
    procedure: FeatureProcedure | None = None
    """A procedure of a feature decides on the runs of each case."""
    device_state: DeclaredState | None = None
    """Instead of the study's."""
    optional: bool = False
    """Cases that target or machine cannot carry out are listed with the reason, instead of refusing the study."""

    @property
    def stream_names(self) -> list[str]:
        return [stream.name for stream in self.streams]

    @property
    def all_factors(self) -> dict[str, list[Scalar | Level]]:
        """Those of the cases, those that vary within a round, and the stages that follow."""
        if not self.rounds:
            return self.factors
        stages: dict[str, list[Scalar | Level]] = {STAGE: list(self.rounds.stages)} if self.rounds.stages else {}
        return {**self.factors, **self.rounds.factors, **stages}


def _read_share(value: Any) -> Any:
    """`3%` as 0.03."""
    return float(value.strip().removesuffix("%")) / 100 if isinstance(value, str) and "%" in value else value


def _read_budget(value: str) -> str:
    if value and parse_duration(value) <= 0:
        raise ValueError("a time budget must be greater than 0, such as `30min`")
    return value


class Until(Frozen):
    """Stop conditions for the repeats of a case, for `repeats = "until"`."""

    half_width: Annotated[float, BeforeValidator(_read_share)] = Field(default=0.03, gt=0, le=1)
    """Half the width of the confidence interval of every metric requested, as a share of its value."""
    minimum: int | None = Field(default=None, ge=3, le=1000)
    """Repeats of every case; five, three with the profile `quick`, if not given."""
    maximum: int = Field(default=30, ge=3, le=1000)
    """Repeats after which a case ends although it is not precise."""
    budget: Annotated[str, AfterValidator(_read_budget)] = ""
    """Time of all runs after which no further repeat starts, such as `2h`; empty: none."""
    metrics: list[str] = Field(default_factory=list)
    """Metrics that must be precise; empty: those that views and analyses of the part show."""


UNTIL = "until"
"""Value of `repeats` for repeats until precise."""


class _Repeated(Frozen):
    """Something with `repeats`: a number, or `until`."""

    @model_validator(mode="before")
    @classmethod
    def _read_until(cls, data: Any) -> Any:
        """Read `repeats = "until"` as a switch in addition to the number."""
        if isinstance(data, dict) and data.get("repeats") == UNTIL:
            return {name: value for name, value in data.items() if name != "repeats"} | {"repeats_until": True}
        return data


class Profile(_Repeated):
    """Size and duration of a study; a profile never changes its factors."""

    title: str = ""
    repeats: int | None = Field(default=None, ge=1, le=1000)
    """Runs of each case, or `until`."""
    repeats_until: bool = False
    """Set by `repeats = "until"`."""
    measurement: Parameters = Field(default_factory=dict)
    """Parameters that this profile sets, on top of the study's and the parts'."""
    parts: dict[str, Parameters] = Field(default_factory=dict)
    """The same for single parts, by name."""
    factors: dict[str, list[Scalar | Level]] = Field(default_factory=dict)
    """Levels that this profile uses for a factor instead (fewer points of the same axis)."""
    max_rounds: int | None = Field(default=None, ge=1, le=10_000)
    """The most rounds of all parts instead of their own."""
    procedure: Parameters = Field(default_factory=dict)
    """Settings of the parts' procedures of features, on top of their own."""
    precision: float | None = Field(default=None, ge=0.001, le=1)
    """Precision of all searches instead of their own."""


class Control(Frozen):
    """A case repeated through the study, so that drift of the machine shows."""

    every: int = Field(ge=1)
    """Once before the first run, after every N runs, and after the last."""
    measurement: Parameters = Field(default_factory=dict)


TOPICS: dict[str, str] = {
    "device": "One device",
    "load": "Latency under load",
    "sustained": "Sustained performance",
    "arrays": "Arrays and file systems",
    "databases": "Databases",
    **dict(contributed("", "TOPICS", tuple)),
}
"""Groups of studies, with their headings in `iosonde list`."""

Topic = Annotated[str, AfterValidator(lambda name: _one_of(name, TOPICS, "topic"))]

ViewKind = Literal[
    "lines",
    "heatmap",
    "tradeoff",
    "percentiles",
    "timeseries",
    "bars",
    "table",
    "accounts",
    "limits",
    "improvements",
    "stack",
]


class View(Frozen):
    """A figure or table that answers part of the question."""

    kind: ViewKind
    title: str
    part: str = "main"
    x: str | None = None
    """Factor (or metric, for `tradeoff`) on the x axis."""
    metrics: list[str] = Field(default_factory=list)
    """`accounts`: the metrics that are its columns, of each case one row; `stack`: those that add up to a bar."""
    over: Literal["time", "written"] = "time"
    """`timeseries`: its x axis, seconds or what was written as a multiple of the active range."""
    y: str = "bandwidth"
    """Metric: a name of `docs/metrics.md`, such as `bandwidth`, `iops`, `completion_latency_ns_p99`."""
    series: str | None = None
    """Factor that separates the lines (or, for `heatmap`, the y axis)."""
    facet: str | None = None
    """Factor that separates the panels."""
    where: dict[str, Scalar] = Field(default_factory=dict)
    """Only cases with these levels."""
    best: bool = False
    """`lines`, `bars`: over the factors without a role, only the case with the best value."""
    shared_y: bool = True
    """`lines`, `bars`: panels share one y axis. False where they show loads of different magnitudes."""
    reference: str | None = None
    """Published values to draw next to the user's own: name of an entry of `references`."""
    caption: str = ""


class Reference(Frozen):
    """Published values in `reference/`, and how their columns map to this study's factors and metrics."""

    name: str
    csv: str
    """File name in `reference/`."""
    source: str
    """Short citation."""
    columns: dict[str, str] = Field(default_factory=dict)
    """CSV column -> factor of this study. Columns that make up one factor together are joined by `+`."""
    values: dict[str, dict[str, Scalar]] = Field(default_factory=dict)
    """Per CSV column: what a value there is called here (`a+b` of joined columns). Rows with a value that is not listed
    are left out."""
    fixed: dict[str, Scalar] = Field(default_factory=dict)
    """Factor (or `operation`) -> level that all rows have, although it has no column."""
    where: dict[str, Scalar] = Field(default_factory=dict)
    """Only rows of the CSV with these values."""
    metric: str = "bandwidth"
    """Metric that the value column holds."""
    value: str = ""
    """CSV column with the value."""
    value_high: str = ""
    """View `improvements`: CSV column with the upper end, where the publication gives a range."""
    against: str = ""
    """View `improvements`: CSV column with the device that the values are improvements over."""
    scale: float = 1.0
    """Factor from the CSV's unit to the metric's."""
    metrics: dict[str, str] = Field(default_factory=dict)
    """Instead of `value`, where several columns hold values: CSV column -> metric."""
    scales: dict[str, float] = Field(default_factory=dict)
    """Of these columns, factors from the CSV's unit to the metric's, where they are not 1."""
    compared: list[str] = Field(default_factory=list)
    """Of these metrics, those that findings compare; the others depend on size or speed of the device alone."""
    label: str = ""
    """CSV column, or fixed text, that names the device in the legend."""
    part: str = ""
    """Part of the study that it is of; empty: whatever has its factors."""

    @property
    def held(self) -> dict[str, str]:
        """CSV column -> metric."""
        return self.metrics or {self.value: self.metric}


AnalysisKind = Annotated[
    str, AfterValidator(lambda kind: _one_of(kind, provided("questions").names(), "kind of analysis"))
]


class Analysis(Frozen):
    """A question that the analysis answers in words."""

    kind: AnalysisKind
    part: str = "main"
    over: str
    """Factor along which to look (for `asymmetry`: the factor whose levels are compared)."""
    metric: str = "bandwidth"
    by: list[str] = Field(default_factory=list)
    """Answer apart for each combination of these factors."""
    where: dict[str, Scalar] = Field(default_factory=dict)
    published: float | None = Field(default=None, gt=0)
    """Published ratio, which kinds that compare two levels state next to the measured one."""
    device_part: str = ""
    """Of kinds that compare with other reads: the part that has them."""


RequirementLevel = Literal["required", "recommended"]


class RequirementSource(Frozen):
    """The document that states a limit."""

    title: str
    publisher: str
    version: str
    """Version or year."""
    address: str = ""


class Requirement(Frozen):
    """A limit that an application sets, and the case that it applies to."""

    name: str
    holds: str
    """Condition, such as `flush.completion_latency_ns_p99 < 10ms`."""
    part: str = "main"
    where: dict[str, Scalar] = Field(default_factory=dict)
    """Only cases with these levels."""
    level: RequirementLevel = "required"
    means: str
    """Its meaning for the application, in one sentence."""
    every_run: bool = False
    """Each run must meet the limit by itself; otherwise all runs together."""
    source: RequirementSource


FORMAT: Literal[1] = 1
"""Version of the study format. What is added must be optional; any other change is a new version."""


class Study(_Repeated):
    """One question, and how it is answered."""

    format: Literal[1] = Field(default=FORMAT, exclude=True)
    """Version of the study format. The study of a plan has that of its result set."""
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    question: str
    description: str = ""
    source: str = ""
    """The publication whose method this is, if any."""
    topic: Topic = "device"
    """Group of `iosonde list`."""
    workload: WorkloadName = "block"
    """Workload of the parameters."""
    repeats: int = Field(default=3, ge=1, le=MOST_REPEATS)
    """Runs of each case, or `until`: repeat until confidence intervals are narrow enough."""
    repeats_until: bool = False
    """Set by `repeats = "until"`; `repeats` is then the minimum."""
    until: Until = Field(default_factory=Until)
    on_member_failure: Literal["continue", "stop"] = "continue"
    """Reaction to the failure of an array member during a run: continue degraded, or stop after that run."""
    asks: list[str] = Field(default_factory=list)
    """Parameters without a value that fits everyone, such as a limit of the user's own: they must be set."""
    shuffle: bool = True
    """Runs in a seeded random order, repeats spread over the study."""
    seed: int = 1
    device_state: DeclaredState | None = None
    """State of the device that the study measures. Where target or profile do not allow it, the plan shows that, and
    records have the state that they do allow."""
    measurement: Parameters = Field(default_factory=dict)
    parts: list[Part] = Field(min_length=1)
    control: Control | None = None
    profiles: dict[str, Profile]
    """`quick`, `standard` and `paper` (all three, unless the study has no published setting)."""
    references: list[Reference] = Field(default_factory=list)
    views: list[View] = Field(default_factory=list)
    analysis: list[Analysis] = Field(default_factory=list)
    requirement: list[Requirement] = Field(default_factory=list)
    """Limits that decide between pass and fail."""
    pass_after: _Duration = Field(default=0, ge=0)
    """Least measurement of a load before a requirement passes: a shorter one may lie between two slow phases."""

    def workload_of(self, part: Part) -> Workload:
        """Return the workload that defines the parameters of a part."""
        return named(part.workload or self.workload)
