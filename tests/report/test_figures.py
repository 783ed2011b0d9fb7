from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
from fabricate import FAILED, SKIPPED, device, result_set, small_study, study
from hypothesis import given
from hypothesis import strategies as st

from iosonde.report import figures, save_figures
from iosonde.report.content import Chapter, collect
from iosonde.report.figure import Figure, as_svg, drawings, specification
from iosonde.report.html import differences
from iosonde.results import ResultSet

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def drawn(whole: ResultSet) -> dict[str, Figure]:
    return {figure.title: figure for figure in figures([whole])}


def test_every_view_but_a_table_becomes_a_figure_and_so_does_drift(drawn: dict[str, Figure]) -> None:
    asked = [view["title"] for view in study()["views"] if view["kind"] != "table"]
    assert list(drawn) == [*asked, "Drift"]


def test_drawn_values_match_the_drive(drawn: dict[str, Figure]) -> None:
    rows = drawn["Bandwidth over block size"].rows
    row = rows.row(
        by_predicate=(pl.col("panel") == "read") & (pl.col("x") == 8192) & (pl.col("series") == "16"), named=True
    )
    parameters = {"read_fraction": 1.0, "block_size": 8192, "jobs": 1, "queue_depth": 16}
    assert row["y"] == pytest.approx(device(parameters)[0] * 8192 / 1e6, rel=0.05)
    assert row["low"] <= row["y"] <= row["high"]


def test_a_percentile_is_drawn_only_with_ten_samples_beyond_it(drawn: dict[str, Figure], whole: ResultSet) -> None:
    rows = drawn["Latency percentiles"].rows
    counted = whole.sql(
        "SELECT runs.queue_depth::VARCHAR AS series, sum(count)::DOUBLE AS samples"
        " FROM intervals JOIN runs USING (run_id) WHERE runs.part = 'mixed' AND NOT runs.control GROUP BY ALL"
    )
    deepest = rows.group_by("series").agg(pl.col("x").max()).join(counted, on="series")
    assert deepest.height == 4
    for nines, samples in deepest.select("x", "samples").rows():
        assert samples * 10**-nines >= 10 * (1 - 1e-9)


def test_figures_are_labelled_and_described_in_words(drawn: dict[str, Figure]) -> None:
    chart = drawn["IOPS against tail latency"].panels[0].chart
    titles = {layer["encoding"]["y"].get("title") for layer in chart["layer"]}
    assert titles == {"Completion latency, p99 (closed loop)"}
    description = drawn["The bandwidth surface"].description
    assert description.startswith("Heat map: Bandwidth (MB/s) over Block size, for 2 values of Jobs. From ")
    assert "One line per run: repeats have the same colour." in drawn["Bandwidth over time"].caption


def test_a_case_without_a_result_is_marked_with_the_reason(interrupted: ResultSet) -> None:
    drawn = {figure.title: figure for figure in figures([interrupted])}
    failed = drawn["The bandwidth surface"].rows.filter(pl.col("no_value") != "")
    assert failed.select("x", "series", "y", "no_value").rows() == [
        ("64 KiB", "32", None, "the device answered with an error")
    ]
    assert FAILED.endswith("block_size=65536/jobs=32")
    skipped = drawn["Bandwidth over block size"].rows.filter(pl.col("no_value") != "")
    assert skipped.select("panel", "x", "series", "no_value").rows() == [("write", 8192, "16", "not run")]
    assert SKIPPED.endswith("block_size=8192/queue_depth=16")


def _study_of(part: str, view: dict[str, Any], **changes: Any) -> dict[str, Any]:
    parts = [each for each in study()["parts"] if each["name"] == part]
    return study(parts=parts, views=[view], analysis=[], **changes)


def _of_tails(directory: Path, *, failed: str = "$^", **view: Any) -> Chapter:
    facts = _study_of("mixed", {"kind": "lines", "title": "Tail", "part": "mixed", "x": "queue_depth"} | view)
    made = result_set(
        directory / "set", facts, seconds=1, repeats=1, failed=lambda run: bool(re.search(failed, run.case_id))
    )
    return collect([made]).chapters[0]


TOO_FEW = "a percentile needs at least ten samples beyond it, and no case has them"


@pytest.mark.parametrize(
    ("view", "failed", "undrawn"),
    [
        ({"y": "completion_latency_ns_p99_9999"}, "$^", f"figure: {TOO_FEW}"),
        ({"y": "completion_latency_ns_p99_9999"}, "queue_depth=1$", f"figure: {TOO_FEW}"),
        ({"y": "completion_latency_ns_p99"}, "queue_depth=", "figure: no case has a result"),
        (
            {"kind": "accounts", "metrics": ["rpc_round_trip_ns_mean", "rpc_retransmits"], "x": None},
            "$^",
            "table: no case has a value of its metrics",
        ),
    ],
)
def test_an_empty_figure_or_table_is_omitted_with_the_reason(
    tmp_path: Path, view: dict[str, Any], failed: str, undrawn: str
) -> None:
    chapter = _of_tails(tmp_path, failed=failed, **view)
    assert [each.undrawn for each in chapter.sections if each.undrawn] == [undrawn]
    assert "Tail" not in [each.title for each in (*chapter.figures, *chapter.tables)]


def test_panels_without_a_value_are_omitted_and_counted(tmp_path: Path) -> None:
    chapter = _of_tails(tmp_path, y="completion_latency_ns_p99_99", facet="queue_depth", x="jobs")
    (tail,) = (figure for figure in chapter.figures if figure.title == "Tail")
    lacking = tail.rows.filter(pl.col("y").is_null())
    assert set(lacking["no_value"]) == {""}, "too few samples are no missing case"
    assert f"Not drawn: {len(lacking)} cases with too few samples" in tail.caption
    assert {panel.key for panel in tail.panels} == set(tail.rows.drop_nulls("y")["panel"])


def test_parts_of_a_stacked_bar_are_metrics_in_their_order(tmp_path: Path) -> None:
    metrics = ["completion_latency_ns_min", "completion_latency_ns_mean"]
    chapter = _of_tails(tmp_path, kind="stack", y="completion_latency_ns_mean", metrics=metrics)
    (tail,) = (figure for figure in chapter.figures if figure.title == "Tail")
    series = tail.rows.sort("step")["series"].unique(maintain_order=True).to_list()
    assert series == ["Completion latency, min", "Completion latency, mean"]
    sums = tail.rows.group_by("panel", "x").agg(pl.col("y").sum())["y"].to_list()
    for panel in tail.panels:
        alt.LayerChart.from_dict(panel.chart)
        assert panel.chart["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0, pytest.approx(1.05 * max(sums))]
    assert chapter.summary is not None and chapter.summary.caption.startswith("Lowest values")
    [column] = [at for at, head in enumerate(chapter.summary.heads) if head.startswith("Completion latency, mean")]
    lowest = tail.rows.group_by("panel", maintain_order=True).agg(pl.col("total").min())["total"]
    assert [row[column].number for row in chapter.summary.rows] == lowest.to_list()


def test_long_names_of_levels_are_broken_and_not_cut(tmp_path: Path) -> None:
    levels = [{"label": f"InnoDB flush_log_at_trx_commit={each}", "set": {"jobs": each + 1}} for each in range(3)]
    view = {"kind": "bars", "title": "Commits", "part": "settings", "x": "setting", "y": "iops"}
    facts = study(parts=[{"name": "settings", "factors": {"setting": levels}}], views=[view], analysis=[])
    (bars, *_) = figures([result_set(tmp_path / "set", facts, seconds=1, repeats=1)])
    [(_, drawing)] = drawings(bars)
    assert all(f">{piece}<" in drawing for piece in ("flush_log_", "commit=0", "commit=1", "commit=2"))
    assert "…" not in drawing


def test_few_published_lines_are_drawn_dashed_over_measured_ones(tmp_path: Path) -> None:
    reference = {
        **{"name": "table", "csv": "davidovic2019_raid0.csv", "source": "Davidovic 2019", "label": "SP900"},
        "columns": {"op": "direction", "queue_depth": "queue_depth", "block_bytes": "block_size"},
        **{"where": {"drives": 1}, "value": "bandwidth_mb_s", "scale": 1e6},
    }
    view = {
        **{"kind": "lines", "title": "Mine and theirs", "part": "grid", "x": "block_size", "reference": "table"},
        **{"series": "queue_depth", "facet": "direction", "where": {"queue_depth": 4}},
    }
    facts = _study_of("grid", view, references=[reference])
    figure = figures([result_set(tmp_path / "set", facts, seconds=1, repeats=1)])[0]
    assert [panel.key for panel in figure.panels] == ["read", "write"]
    published = figure.rows.filter("published")
    assert published["source"].unique().to_list() == ["SP900 (Davidovic 2019)"]
    assert published.filter((pl.col("x") == 4096) & (pl.col("panel") == "read"))["y"].to_list() == [131.0]
    layers = [layer["encoding"] for layer in figure.panels[0].chart["layer"]]
    dashes = next(each["strokeDash"]["scale"] for each in layers if "strokeDash" in each)
    assert dict(zip(dashes["domain"], dashes["range"], strict=True)) == {
        "set": [1, 0],
        "SP900 (Davidovic 2019)": [6, 4],
    }
    assert "Published: SP900 (Davidovic 2019)." in figure.caption


def test_bars_show_published_values_of_the_same_levels_and_small_ones_stay_visible(tmp_path: Path) -> None:
    """On an axis from 0 to 60 million, one's own 30 thousand would not be seen."""
    reference = {
        **{"name": "table", "csv": "han2021_fig6to7_dbbench.csv", "source": "Han 2021", "label": "raid_level"},
        **{"columns": {"workload": "load"}, "value": "million_ops_s", "metric": "iops", "scale": 1e6},
    }
    levels = [{"label": name, "set": {"jobs": jobs}} for name, jobs in (("readrandom", 1), ("readseq", 2))]
    view = {"kind": "bars", "x": "load", "y": "iops", "title": "Reading", "part": "read", "reference": "table"}
    parts = [{"name": "read", "factors": {"load": levels}}]
    facts = study(parts=parts, views=[view], references=[reference], analysis=[])
    drawn = figures([result_set(tmp_path / "set", facts, seconds=1, repeats=1)])
    figure = next(each for each in drawn if each.title == "Reading")
    assert set(figure.rows["x"]) == {"readrandom", "readseq"}
    published = figure.rows.filter("published")
    assert published["source"].unique(maintain_order=True).to_list()[:2] == ["raid0, published", "raid1, published"]
    assert "Published: raid0, raid1, raid10, raid5, raid6 (Han 2021)." in figure.caption
    bars, *_, symbols = figure.panels[0].chart["layer"]
    assert bars["mark"]["type"] == "tick"
    assert bars["encoding"]["y"]["scale"]["type"] == "log"
    assert bars["encoding"]["color"]["legend"] is None, "one's own bars are all of one result set"
    assert symbols["encoding"]["shape"]["title"] == "Published"


def test_every_reference_in_a_drawing_names_an_id_of_its_own(whole: ResultSet) -> None:
    drawn = [text for figure in figures([whole]) for _, text in drawings(figure)]
    ids = [name for text in drawn for name in re.findall(r' id="([^"]*)"', text)]
    assert len(ids) == len(set(ids)) > 0
    for text in drawn:
        assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(re.findall(r' id="([^"]*)"', text))


def test_a_drawing_is_kept_in_the_cache_and_independent_of_those_before(
    whole: ResultSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specifications = [specification(figure) for figure in figures([whole])[:2]]
    drawn: list[list[str]] = []
    for place, order in enumerate((specifications, specifications[::-1])):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(place)))
        drawn.append([as_svg(each) for each in order])
    assert drawn[0] == drawn[1][::-1]
    kept = {path.read_text(): path for path in (tmp_path / "1/iosonde/report/drawings").iterdir()}
    assert set(kept) == set(drawn[0])
    kept[drawn[1][0]].write_text("<svg>kept</svg>")
    assert "<svg>kept</svg>" in [as_svg(each) for each in specifications]


@pytest.mark.parametrize(("format", "magic"), [("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_figures_are_saved_for_papers(tmp_path: Path, format: Any, magic: bytes) -> None:
    small = result_set(tmp_path / "set", small_study(), seconds=1, repeats=1)
    paths = save_figures([small], tmp_path, format=format)
    assert paths and all(path.read_bytes().startswith(magic) for path in paths)


def test_two_result_sets_share_panels_and_differ_by_colour(whole: ResultSet, faster: ResultSet) -> None:
    drawn = {figure.title: figure for figure in figures([whole, faster])}
    lines = drawn["Bandwidth over block size"]
    assert len(lines.panels) == 8
    assert lines.rows["series"].unique(maintain_order=True).to_list() == ["first", "second"]
    ratio = lines.rows.group_by("series").agg(pl.col("y").sum()).sort("series")["y"].to_list()
    assert ratio[1] / ratio[0] == pytest.approx(2, rel=0.03)


specs = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(specs, specs)
def test_a_spec_is_its_base_and_what_differs(base: Any, other: Any) -> None:
    rebuilt: Any = [base]
    for path, value in differences(base, other):
        rebuilt = _set(rebuilt, [0, *path], value)
    assert rebuilt[0] == other
    assert repr(rebuilt[0]) == repr(other)


def _set(place: Any, path: list[Any], value: Any) -> Any:
    if not path:
        return value
    copy = dict(place) if isinstance(place, dict) else list(place)
    copy[path[0]] = _set(place[path[0]], path[1:], value)
    return copy
