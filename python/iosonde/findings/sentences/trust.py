"""Whether the numbers can be trusted: holes, errors, a tool that limits, a machine that drifts, warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from iosonde.findings.drift import drift
from iosonde.findings.finding import Finding, Untyped, cases_of
from iosonde.findings.littles_law import LONGEST_CUT, littles_law
from iosonde.findings.sentences import verdict
from iosonde.metrics import wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.results.schema import CANNOT_BE
from iosonde.verdict.warning_kinds import BUSY, WARNINGS

STEADY = 0.05


def tell(
    runs: pl.DataFrame,
    *,
    outcomes: pl.DataFrame | None,
    warnings: pl.DataFrame | None,
    probes: Collection[str] = (),
) -> Iterator[Finding]:
    """Say what a reader must know before believing the rest.

    `outcomes` is the view `runs` of the result set; `probes` are cases of which a search took as many repeats as it
    needed.
    """
    if outcomes is not None:
        yield from _holes(outcomes)
        yield from verdict.tell(outcomes, warnings)
    judged = _judged(outcomes)
    unjudged = runs.filter(~pl.col("run_id").is_in(judged))
    yield from _errors(runs)
    yield from _in_flight(runs, judged)
    yield from _busy_core(unjudged)
    yield from _drift(runs)
    yield from _few_repeats(runs.filter(~pl.col("case_id").is_in(list(probes))))
    if warnings is not None:
        yield from _warnings(warnings, outcomes)


def _judged(outcomes: pl.DataFrame | None) -> list[str]:
    """Return the runs with a verdict, which says whatever can be said of the tool."""
    if outcomes is None:
        return []
    return outcomes.filter(pl.col("verdict").is_not_null())["run_id"].to_list()


def _holes(outcomes: pl.DataFrame) -> Iterator[Finding]:
    ended = outcomes.filter(pl.col("outcome") != "complete", pl.col("failure").fill_null("") != CANNOT_BE)
    for (outcome,), group in ended.group_by("outcome", maintain_order=True):
        reasons = group["failure_message"].drop_nulls().value_counts(sort=True, name="times").head(3)
        listed = "; ".join(f"{message} ({times})" for message, times in reasons.iter_rows())
        measured = outcomes.filter(pl.col("outcome") == "complete")["case_id"]
        empty = group["case_id"].unique().is_in(measured.unique().to_list()).not_().sum()
        holes = f"; {empty} {'case has' if empty == 1 else 'cases have'} no value" if empty else ""
        verb = "were stopped" if outcome == "stopped" else "failed"
        yield Untyped(
            kind="trust",
            title=f"{len(group)} of {len(outcomes)} runs {verb}{holes}",
            note=listed or "they were ended before their limit",
            strength="strong",
            case_ids=cases_of(group),
        )


def _errors(runs: pl.DataFrame) -> Iterator[Finding]:
    failed = overall(runs).filter(pl.col("metric") == "errors", pl.col("value") > 0)
    if len(failed):
        total = float(failed["value"].sum())
        yield Untyped(
            kind="trust",
            title=f"{wording.counted(int(total), 'I/O')} failed in {wording.counted(len(failed), 'run')} that went on",
            note="failed and short I/Os are counted apart and are in no rate or latency",
            strength="strong",
            case_ids=cases_of(failed),
        )


def _in_flight(runs: pl.DataFrame, judged: list[str]) -> Iterator[Finding]:
    """Too many in flight is a fault; too few is explained by the verdict, where there is one."""
    checked = littles_law(runs)
    explained = pl.col("run_id").is_in(judged)
    yield from _too_short(checked.filter(~explained))
    telling = checked.filter(pl.col("verdict") != "too_short", ~(explained & (pl.col("verdict") == "below")))
    for law, title, meaning in (
        ("below", "fewer I/Os were in flight than asked for", "the figure may be the tool's and not the disk's"),
        ("above", "more I/Os were in flight than can have been", "their latencies cannot be right"),
    ):
        bad = telling.filter(pl.col("verdict") == law)
        if len(bad):
            yield Untyped(
                kind="trust",
                title=f"In {len(bad)} of {wording.counted(len(telling), 'run')} {title}: {meaning}",
                note=f"Little's law: mean in flight over concurrency {_range(bad['ratio'])}",
                strength="strong",
                case_ids=cases_of(bad),
            )
    if len(telling) and (telling["verdict"] == "holds").all():
        every = "the only run" if len(telling) == 1 else f"all {wording.counted(len(telling), 'run')}"
        yield Untyped(
            kind="trust",
            title=f"Little's law holds in {every}{' that can tell' if len(telling) < len(checked) else ''}:"
            " rates and latencies agree with each other",
            note=f"mean in flight over concurrency {_range(telling['ratio'])}",
            strength="strong",
        )


def _too_short(checked: pl.DataFrame) -> Iterator[Finding]:
    short = checked.filter(pl.col("verdict") == "too_short")
    if len(short):
        yield Untyped(
            kind="trust",
            title=f"{len(short)} of {wording.counted(len(checked), 'run')} lasted less than {1 / LONGEST_CUT:.0f} times"
            " their mean latency: begin and end weigh too much in their figures",
            note="a longer `duration`, or a larger `limit_bytes`, gives them time",
            strength="strong",
            case_ids=cases_of(short),
        )


def _range(ratios: pl.Series) -> str:
    return "..".join(wording.ratio_text(float(end)) for end in (ratios.min(), ratios.max()))  # type: ignore[arg-type]


def _busy_core(runs: pl.DataFrame) -> Iterator[Finding]:
    utilisation = overall(runs).filter(pl.col("metric") == "core_utilisation")
    busy = utilisation.filter(pl.col("value") >= BUSY)
    if len(busy):
        yield Untyped(
            kind="trust",
            title=f"In {len(busy)} of {len(utilisation)} runs a thread kept its core busy: more jobs may give more",
            note=f"a job's thread used at least {100 * BUSY:.0f} % of a core",
            strength="moderate",
            case_ids=cases_of(busy),
        )


def _drift(runs: pl.DataFrame) -> Iterator[Finding]:
    found = drift(runs, metric="iops")
    if found is None:
        return
    change = found.change
    interval = (
        "no interval"
        if change.low is None or change.high is None
        else f"95 % interval {wording.percent_text(change.low)}..{wording.percent_text(change.high)}"
    )
    evidence = (
        f"IOPS of the control case, {found.controls} runs: {interval}; spread {wording.percent_text(found.spread)}"
    )
    if change.above(0) or change.below(0):
        verb = "gained" if change.value > 0 else "lost"
        title = f"The machine drifted: the control case {verb} {wording.percent_text(abs(change.value))} over the study"
        small = abs(change.value) < STEADY
        yield Untyped(kind="drift", title=title, note=evidence, strength="moderate" if small else "strong")
    elif found.spread <= STEADY:
        title = f"The machine was steady: the control case stayed within {wording.percent_text(found.spread)}"
        yield Untyped(kind="drift", title=title, note=evidence, strength="strong")
    else:
        title = f"The control case varied by {wording.percent_text(found.spread)} without a trend"
        yield Untyped(kind="drift", title=title, note=evidence, strength="moderate")


def _few_repeats(runs: pl.DataFrame) -> Iterator[Finding]:
    repeats = runs.filter(~pl.col("control")).group_by("case_id", maintain_order=True).agg(pl.col("run_id").n_unique())
    few = repeats.filter(pl.col("run_id") < MINIMUM_REPEATS)
    if len(few):
        yield Untyped(
            kind="trust",
            title=f"{len(few)} of {len(repeats)} cases have fewer than {MINIMUM_REPEATS} repeats and so no interval",
            note=f"run with `--repeats {MINIMUM_REPEATS}` or more to learn how sure their figures are",
            strength="strong",
            case_ids=cases_of(few),
        )


def _warnings(warnings: pl.DataFrame, outcomes: pl.DataFrame | None) -> Iterator[Finding]:
    for (code,), group in warnings.group_by(["code"], maintain_order=True):
        known = WARNINGS.get(str(code))
        count = wording.counted(group["run_id"].n_unique(), "run")
        message, hint = group["message"][0], group["hint"][0]
        evidence = [f"warning `{code}`", *([f"for example {message}"] if known else []), *([hint] if hint else [])]
        yield Untyped(
            kind="trust",
            title=wording.sentence(f"{known.title if known else message} ({count})"),
            note=": ".join(evidence[:2]) + "".join(f"; {rest}" for rest in evidence[2:]),
            strength="weak" if known and known.points_to == "note" else "moderate",
            case_ids=_cases_of(group, outcomes) if known else (),
        )


def _cases_of(group: pl.DataFrame, outcomes: pl.DataFrame | None) -> tuple[str, ...]:
    if outcomes is None:
        return ()
    return tuple(group.join(outcomes, on="run_id", maintain_order="left")["case_id"].unique(maintain_order=True))
