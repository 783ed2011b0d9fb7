"""`iosonde check`: a regression gate for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosonde.cli import session

if TYPE_CHECKING:
    from iosonde.regression import Check


def command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Result sets to check.")],
    baseline: Annotated[
        list[Path],
        typer.Option("--baseline", metavar="DIR", help="Result set of a known good system (repeatable; five or more)."),
    ],
    allow: Annotated[
        str, typer.Option("--allow", metavar="PERCENT", help="Accepted loss of IOPS or operations per second.")
    ] = "5%",
    allow_latency: Annotated[
        str, typer.Option("--allow-latency", metavar="PERCENT", help="Accepted increase of latency.")
    ] = "10%",
    margin: Annotated[
        str,
        typer.Option(
            "--margin",
            metavar="PERCENT",
            help="Exit with 2 unless a loss of this size (twice as much for latency) is excluded with 95 % confidence.",
        ),
    ] = "10%",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", metavar="PERCENTILE", help="Let a tail of latency decide too, such as `p99` (repeatable)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write Markdown for a pull request.")
    ] = None,
) -> None:
    """Check result sets for regressions.

    Exit codes: 0 no regression, 1 regression, 2 undetermined (including errors), 4 wrong data in a result set.

    Each result set is one session of the same study. The variance between baseline sessions decides what counts as a
    loss. Rates and median latencies decide; p99 is listed, unless `--metric p99` lets it decide.
    """
    from iosonde.regression import Settings, check, writers
    from iosonde.results import ResultSet

    settings = Settings(
        allow=_share("--allow", allow),
        allow_latency=_share("--allow-latency", allow_latency),
        margin=_share("--margin", margin),
        percentiles=[_percentile(each) for each in metric or ()],
    )
    opened = [[ResultSet.open(each) for each in group] for group in (results, baseline)]
    outcome = check(opened[0], opened[1], settings)
    _write(outcome, junit, markdown)
    if json:
        print(writers.to_json(outcome))
    else:
        print("\n".join(writers.lines(outcome)))
    session.exit_for_wrong_data([*opened[0], *opened[1]])
    raise typer.Exit(outcome.exit_code)


def _write(outcome: Check, junit: Path | None, markdown: Path | None) -> None:
    from iosonde.errors import ResultsError
    from iosonde.regression import writers
    from iosonde.results.files import write_output

    for path, content in ((junit, writers.junit), (markdown, writers.markdown)):
        if path is None:
            continue
        try:
            write_output(path, content(outcome).encode())
        except OSError as error:
            reason = error.strerror or str(error)
            raise ResultsError(f"cannot write `{path}`: {reason}", hint="name a file in a writable directory") from None


def _percentile(text: str) -> str:
    from iosonde.metrics.scopes import PERCENTILES

    if text not in PERCENTILES:
        raise typer.BadParameter(
            f"`--metric` must be one of {', '.join(f'`{name}`' for name in PERCENTILES)}; got `{text}`",
            param_hint="--metric",
        )
    return text


def _share(option: str, text: str) -> float:
    """Read a percentage such as `5%` or `5` as a share."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise typer.BadParameter(
            f"`{option}` must be a percentage from 0 to below 100, such as `5%`; got `{text}`", param_hint=option
        )
    return share
