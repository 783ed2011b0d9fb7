from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
from fabricate import FAILED, SKIPPED, device, result_set, study
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import ValidationError

from iosonde.plan import Run
from iosonde.report import figures, save_figures
from iosonde.report.charts import svg, vega
from iosonde.report.charts.figure import Figure, Undrawn
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.content.report import Chapter, collect
from iosonde.report.writers.document import embedded_json
from iosonde.report.writers.html import differences
from iosonde.results import ResultSet
from iosonde.results.schema import RecordVerdict


@pytest.fixture(scope="module")
def drawn(whole: ResultSet) -> dict[str, Figure]:
    return {figure.title: figure for figure in figures([whole])}


@pytest.mark.engine
def test_every_view_but_a_table_becomes_a_figure_and_so_does_drift(drawn: dict[str, Figure]) -> None:
    asked = [view["title"] for view in study()["views"] if view["kind"] != "table"]
    assert list(drawn) == [*asked, "Drift"]


@pytest.mark.engine
def test_every_chart_is_vega_lite(tmp_path: Path) -> None:
    """Reports do not compare their charts with the schema, which would take longer than drawing them."""
    marked = figures([result_set(tmp_path / "set", seconds=1, repeats=1, verdict=_harness_limited)])
    for figure in marked:
        for panel in figure.panels:
            alt.LayerChart.from_dict(panel.chart)
    with pytest.raises(ValidationError):
        alt.LayerChart.from_dict({**marked[0].panels[0].chart, "height": "tall"})


def _harness_limited(run: Run) -> RecordVerdict:
    return RecordVerdict(kind="harness-limited", because=["so it is"], evidence={})


def test_several_lines_of_one_colour_over_time_are_explained(drawn: dict[str, Figure]) -> None:
    assert "One line per run: repeats have the same colour." in drawn["Bandwidth over time"].caption


def test_drawn_values_match_the_drive(drawn: dict[str, Figure]) -> None:
    rows = drawn["Bandwidth over block size"].rows
    row = rows.row(
        by_predicate=(pl.col("panel") == "read") & (pl.col("x") == 8192) & (pl.col("series") == "16"), named=True
    )
    parameters = {"read_fraction": 1.0, "block_size": 8192, "jobs": 1, "queue_depth": 16}
    assert row["y"] == pytest.approx(device(parameters)[0] * 8192 / 1e6, rel=0.05)
    assert row["low"] <= row["y"] <= row["high"]


def test_columns_of_a_csv_name_their_units(drawn: dict[str, Figure]) -> None:
    head = drawn["Bandwidth over block size"].csv().splitlines()[0]
    assert head == "panel,block_size_bytes,queue_depth,result_set,bandwidth_mb_per_s,bandwidth_mb_per_s_low,bandwidth_mb_per_s_high,repeats"  # fmt: skip


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


def test_latency_is_labelled_with_its_loop(drawn: dict[str, Figure]) -> None:
    chart = drawn["IOPS against tail latency"].panels[0].chart
    titles = {layer["encoding"]["y"].get("title") for layer in chart["layer"]}
    assert titles == {"Completion latency, p99 (closed loop)"}


def test_a_figure_has_a_description_in_words(drawn: dict[str, Figure]) -> None:
    description = drawn["The bandwidth surface"].description
    assert description.startswith("Heat map: Bandwidth (MB/s) over Block size, for 4 values of Jobs. From 5")


@pytest.mark.engine
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
    """The study with one part and one view."""
    parts = [each for each in study()["parts"] if each["name"] == part]
    return study(parts=parts, views=[view], analysis=[], **changes)


def _of_tails(directory: Path, *, failed: str = "$^", **view: Any) -> Chapter:
    shown = {"kind": "lines", "title": "Tail", "part": "mixed", "x": "queue_depth"} | view
    facts = _study_of("mixed", shown)

    def is_failed(run: Run) -> bool:
        return re.search(failed, run.case_id) is not None

    (chapter,) = collect([result_set(directory / "set", facts, seconds=1, repeats=1, failed=is_failed)]).chapters
    return chapter


def test_an_empty_figure_is_omitted_with_the_reason(tmp_path: Path) -> None:
    chapter = _of_tails(tmp_path, y="completion_latency_ns_p99_9999")
    assert "Tail" not in [figure.title for figure in chapter.figures]
    assert chapter.undrawn == [
        Undrawn(title="Tail", why="a percentile needs at least ten samples beyond it, and no case has them")
    ]


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ("queue_depth=1$", "a percentile needs at least ten samples beyond it, and no case has them"),
        ("queue_depth=", "no case has a result"),
    ],
)
def test_crosses_alone_are_no_figure(tmp_path: Path, failed: str, why: str) -> None:
    chapter = _of_tails(tmp_path, failed=failed, y="completion_latency_ns_p99_9999")
    assert chapter.undrawn == [Undrawn(title="Tail", why=why)]


def test_a_metric_without_any_value_is_named(tmp_path: Path) -> None:
    (left_out,) = _of_tails(tmp_path, y="rebuild_seconds").undrawn
    assert left_out.why == "no case has a value of this metric (Time to rebuild a member)"


def test_a_table_without_any_value_is_omitted_with_the_reason(tmp_path: Path) -> None:
    metrics = ["rpc_round_trip_ns_mean", "rpc_retransmits"]
    chapter = _of_tails(tmp_path, kind="accounts", metrics=metrics, x=None)
    assert chapter.undrawn == [Undrawn(title="Tail", what="table", why="no case has a value of its metrics")]
    assert "Tail" not in [table.title for table in chapter.tables]


def test_a_table_with_one_value_or_reason_is_shown(tmp_path: Path) -> None:
    chapter = _of_tails(tmp_path / "value", kind="accounts", metrics=["rpc_round_trip_ns_mean", "iops"], x=None)
    failed = _of_tails(tmp_path / "reason", kind="accounts", metrics=["rpc_retransmits"], x=None, failed="")
    for each in (chapter, failed):
        assert each.undrawn == []
        assert "Tail" in [table.title for table in each.tables]


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
    assert tail.rows["step"].unique().sort().to_list() == [0, 1]
    assert tail.rows["series"].unique(maintain_order=True).to_list() == [
        "Completion latency, min",
        "Completion latency, mean",
    ]
    sums = tail.rows.group_by("panel", "x").agg(pl.col("y").sum())["y"].to_list()
    for panel in tail.panels:
        alt.LayerChart.from_dict(panel.chart)
        [low, top] = panel.chart["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert low == 0
        assert top == pytest.approx(1.05 * max(sums))
    assert tail.description.startswith("Stacked bar chart: Completion latency, mean")


def test_the_summary_of_stacked_bars_has_the_lowest_whole_bar(tmp_path: Path) -> None:
    metrics = ["completion_latency_ns_min", "completion_latency_ns_p50"]
    chapter = _of_tails(tmp_path, kind="stack", y="completion_latency_ns_mean", metrics=metrics)
    (tail,) = (figure for figure in chapter.figures if figure.title == "Tail")
    table = chapter.summary
    assert table is not None
    lowest = tail.rows.group_by("panel", maintain_order=True).agg(pl.col("total").min())["total"]
    [column] = [place for place, head in enumerate(table.heads) if head.startswith("Completion latency, mean")]
    assert [row[column].number for row in table.rows] == lowest.to_list()
    assert table.caption.startswith("Lowest values")


INTERFACES = ["sync", "preadv2", "libaio", "uring", "uring sqpoll", "uring iopoll", "uring_nvme", "uring_nvme iopoll"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("labels", "width", "angle", "broken"),
    [
        (["4 KiB", "64 KiB"], 640, 0, ["length(datum.label) > 12"]),
        (INTERFACES, 540, 0, ["length(datum.label) > 10"]),
        (INTERFACES[3:], 308, 0, ["length(datum.label) > 9"]),
        (INTERFACES, 308, -40, []),
    ],
)
def test_labels_of_bars_never_overlap(labels: list[str], width: int, angle: int, broken: list[str]) -> None:
    """Labels without room have a line for each word, and are slanted where a word has no room either."""
    frame = Frame(x=Axis(title="Interface", kind="category", order=labels), y=Axis(title="IOPS"), width=width)
    for chart in (vega.bars(frame), vega.stacked(frame, top=1)):
        axis = chart["layer"][0]["encoding"]["x"]["axis"]
        assert axis["labelAngle"] == angle
        assert [each for each in broken if not axis.get("labelExpr", "").startswith(each)] == []
        assert ("labelExpr" in axis) == bool(broken)


def test_a_run_with_one_interval_is_a_point_over_time(tmp_path: Path) -> None:
    shown = {"kind": "timeseries", "title": "Over time", "part": "mixed", "y": "bandwidth", "series": "queue_depth"}
    for seconds, points in ((1, 12), (3, 0)):
        results = result_set(tmp_path / str(seconds), _study_of("mixed", shown), seconds=seconds)
        (over_time, *_) = figures([results])
        [(_, drawing)] = svg.panels(over_time)
        symbols = re.findall(r'<g class="mark-symbol role-mark[^>]*>(.*?)</g>', drawing, re.DOTALL)
        under_the_pointer = 12 * seconds
        assert sum(each.count("<path") for each in symbols) - under_the_pointer == points


def test_long_names_of_levels_are_broken_and_not_cut(tmp_path: Path) -> None:
    levels = [{"label": f"InnoDB flush_log_at_trx_commit={each}", "set": {"jobs": each + 1}} for each in range(3)]
    view = {"kind": "bars", "title": "Commits", "part": "settings", "x": "setting", "y": "iops"}
    facts = study(parts=[{"name": "settings", "factors": {"setting": levels}}], views=[view], analysis=[])
    (bars, *_) = figures([result_set(tmp_path / "set", facts, seconds=1, repeats=1)])
    [(_, drawing)] = svg.panels(bars)
    assert all(f">{piece}<" in drawing for piece in ("flush_log_", "commit=0", "commit=1", "commit=2"))
    assert "…" not in drawing


def test_a_surface_of_efficiency_states_that_its_cells_are_the_lowest_values(tmp_path: Path) -> None:
    levels = [
        {"label": "one drive", "set": {"array": "single", "devices": 1}},
        {"label": "RAID 0 of 2", "set": {"array": "raid0", "devices": 2}},
    ]
    asked = {"kind": "array_efficiency", "part": "grid", "over": "drives", "by": ["queue_depth"]}
    parts = [{"name": "grid", "factors": {"drives": levels, "queue_depth": [1, 16]}}]

    def performance(parameters: dict[str, Any], *, speed: float = 1.0) -> tuple[float, float]:
        gain = parameters["devices"] if parameters["queue_depth"] == 16 else 1
        return 1e4 * speed * gain, 1e5

    facts = study(parts=parts, views=[], analysis=[asked])
    drawn = figures([result_set(tmp_path / "set", facts, seconds=1, performance=performance)])
    (surface,) = (figure for figure in drawn if figure.title == "Array efficiency")
    assert surface.rows["y"].to_list() == pytest.approx([50], rel=0.1)
    assert "Each cell: the lowest value over queue depth." in surface.caption


REFERENCE = {
    "name": "table",
    "csv": "davidovic2019_raid0.csv",
    "source": "Davidovic 2019",
    "columns": {"op": "direction", "queue_depth": "queue_depth", "block_bytes": "block_size"},
    "where": {"drives": 1},
    "value": "bandwidth_mb_s",
    "scale": 1e6,
    "label": "SP900",
}


def _with_reference(directory: Path, **view: Any) -> Figure:
    shown = {
        "kind": "lines",
        "title": "Mine and theirs",
        "part": "grid",
        "x": "block_size",
        "reference": "table",
    } | view
    facts = _study_of("grid", shown, references=[REFERENCE])
    return figures([result_set(directory / "set", facts, seconds=1, repeats=1)])[0]


def test_few_published_lines_are_drawn_dashed_over_measured_ones(tmp_path: Path) -> None:
    figure = _with_reference(tmp_path, series="queue_depth", facet="direction", where={"queue_depth": 4})
    assert [panel.title for panel in figure.panels] == ["read", "write"]
    published = figure.rows.filter("published")
    assert published["source"].unique().to_list() == ["SP900 (Davidovic 2019)"]
    assert published.filter((pl.col("x") == 4096) & (pl.col("panel") == "read"))["y"].to_list() == [131.0]
    dashes = next(
        layer["encoding"]["strokeDash"]
        for layer in figure.panels[0].chart["layer"]
        if "strokeDash" in layer["encoding"]
    )
    assert dict(zip(dashes["scale"]["domain"], dashes["scale"]["range"], strict=True)) == {
        "set": [1, 0],
        "SP900 (Davidovic 2019)": [6, 4],
    }
    assert "Published: SP900 (Davidovic 2019)." in figure.caption


@pytest.mark.engine
def test_many_published_lines_have_panels_and_a_scale_of_their_own(tmp_path: Path) -> None:
    figure = _with_reference(tmp_path, series="queue_depth", facet="direction")
    assert [panel.title for panel in figure.panels] == [
        "Measured · read",
        "Measured · write",
        "SP900 (Davidovic 2019) · read",
        "SP900 (Davidovic 2019) · write",
    ]
    tops = [panel.chart["layer"][1]["encoding"]["y"]["scale"]["domain"][1] for panel in figure.panels]
    assert tops[0] == tops[1] > 2000 > 600 > tops[2]


PARTS_OF_A_PUBLICATION = {
    "name": "table",
    "csv": "han2021_fig6to7_dbbench.csv",
    "source": "Han 2021",
    "columns": {"workload": "load"},
    "value": "million_ops_s",
    "metric": "iops",
    "scale": 1e6,
    "label": "raid_level",
}
"""Published values of four loads; `_reading` has two of them."""


def _reading(directory: Path, **view: Any) -> ResultSet:
    levels = [{"label": name, "set": {"jobs": jobs}} for name, jobs in (("readrandom", 1), ("readseq", 2))]
    facts = study(
        parts=[{"name": "read", "factors": {"load": levels}}],
        views=[{"title": "Reading", "part": "read", "reference": "table", **view}],
        references=[PARTS_OF_A_PUBLICATION],
        analysis=[],
    )
    return result_set(directory / "set", facts, seconds=1, repeats=1)


def test_bars_show_published_values_of_the_same_levels_and_small_ones_stay_visible(tmp_path: Path) -> None:
    """On an axis from 0 to 60 million, one's own 30 thousand would not be seen."""
    drawn = figures([_reading(tmp_path, kind="bars", x="load", y="iops")])
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


def test_published_accounts_follow_the_case_they_match(tmp_path: Path) -> None:
    [chapter] = collect([_reading(tmp_path, kind="accounts", metrics=["iops"])]).chapters
    table = next(each for each in chapter.tables if each.title == "Reading")
    assert table.heads == ["Load", "Source", "IOPS", "Repeats"]
    assert [(row[0].text, row[1].text) for row in table.rows[:7]] == [
        ("readrandom", "measured"),
        *(("readrandom", f"raid{level}, published") for level in (0, 1, 10, 5, 6)),
        ("readseq", "measured"),
    ]
    assert table.keys[0].endswith("read/load=readrandom") and table.keys[1] == ""


@pytest.mark.engine
def test_every_reference_in_a_drawing_names_an_id_of_its_own(whole: ResultSet) -> None:
    drawn = [text for figure in figures([whole]) for _, text in svg.panels(figure)]
    ids = [name for text in drawn for name in re.findall(r' id="([^"]*)"', text)]
    assert len(ids) == len(set(ids)) > 0
    for text in drawn:
        assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(re.findall(r' id="([^"]*)"', text))


@pytest.mark.parametrize(("format", "magic"), [("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
@pytest.mark.engine
def test_figures_are_saved_for_papers(whole: ResultSet, tmp_path: Path, format: Any, magic: bytes) -> None:
    paths = save_figures([whole], tmp_path, format=format)
    assert len(paths) == 7
    assert all(path.read_bytes().startswith(magic) for path in paths)


@pytest.mark.engine
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


@given(st.text())
def test_data_in_the_page_cannot_end_their_element(text: str) -> None:
    import json

    written = embedded_json([text, "</script><!--"])
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == [text, "</script><!--"]


def test_log_ticks_are_few_and_inside() -> None:
    from iosonde.report.charts.vega import Axis, _ticks

    for domain in ((10, 50), (10, 1e4), (1e3, 1e10), (3.3, 7.7)):
        ticks = _ticks(Axis(title="", kind="log", domain=domain))
        assert ticks is not None and 1 <= len(ticks) <= 12
        assert all(domain[0] <= tick <= domain[1] and math.isfinite(tick) for tick in ticks)
