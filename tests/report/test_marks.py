"""Simulated results carry a banner and marks, and stay apart from measured ones."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from command_line import Iosonde
from engines import real_engine
from rich.console import Console

import iosonde.report as report
from iosonde.errors import ResultsError
from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

pytestmark = pytest.mark.engine

STUDY = """
name = "two-depths"
title = "Two depths"
question = "How fast is it?"
repeats = 3

[measurement]
span = "16MiB"
access = "random"

[[parts]]
name = "main"

[parts.factors]
queue_depth = [1, 16]

[control]
every = 3

[profiles.quick]
title = "a moment"
measurement = { ramp = "0", duration = "200ms", interval = "100ms" }

[[views]]
kind = "lines"
title = "Bandwidth over depth"
x = "queue_depth"
y = "bandwidth"

[[analysis]]
kind = "saturation"
over = "queue_depth"
metric = "iops"
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """One study on a simulated drive."""
    return carried_out("sim:p900,capacity=64MiB", tmp_path_factory.mktemp("simulated") / "optane")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """The same study, and nothing simulated about it."""
    return carried_out("null:64MiB", tmp_path_factory.mktemp("measured") / "device")


def carried_out(target: str, directory: Path) -> ResultSet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOSONDE_ENGINE", str(real_engine()))
        return execute(expand(parse(STUDY), open_target(target), profile="quick"), directory)


def shown(result_set: ResultSet) -> str:
    console = Console(file=io.StringIO(), width=120)
    report.terminal(result_set, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_records_and_tables_are_marked(simulated: ResultSet, measured: ResultSet) -> None:
    assert all(record.target["simulated"] for record in simulated.records())
    assert simulated.runs["simulated"].all() and not measured.runs["simulated"].any()
    assert simulated.simulated and not measured.simulated


def test_exports_are_marked(simulated: ResultSet, measured: ResultSet, tmp_path: Path) -> None:
    for result_set in (simulated, measured):
        directory = tmp_path / result_set.directory.name
        runs = [path for name in ("fio-json", "hdr") for path in result_set.export(name, directory / name)]
        documents = [json.loads(path.read_text()) for path in runs if path.suffix == ".json"]
        logs = [path.read_text() for path in runs if path.suffix == ".hlog"]
        assert len(documents) == len(logs) == len(result_set.records())
        assert {document["iosonde"]["simulated"] for document in documents} == {result_set is simulated}
        assert {"#[iosonde: simulated: " in log for log in logs} == {result_set is simulated}


def test_every_figure_is_marked_and_no_sentence_repeats_it(simulated: ResultSet, measured: ResultSet) -> None:
    from iosonde.report.content.report import collect

    (chapter,) = collect([simulated]).chapters
    assert len(chapter.all_figures) == 2 and chapter.drift
    assert {figure.simulated for figure in chapter.all_figures} == {"simulated"}
    sentences = [finding.sentence for _, found in chapter.findings for finding in found]
    assert sentences and not any("simulated" in sentence for sentence in sentences)
    (plain,) = collect([measured]).chapters
    assert {figure.simulated for figure in plain.all_figures} == {""}


def test_saved_figures_and_their_rows_are_marked(simulated: ResultSet, tmp_path: Path) -> None:
    for path in report.save_figures([simulated], tmp_path):
        assert ">simulated<" in path.read_text(), path.name
    for figure in report.figures([simulated]):
        head, *rows = figure.csv().splitlines()
        place = head.split(",").index("simulated")
        assert rows and all(row.split(",")[place] == "true" for row in rows)


@pytest.mark.engine
def test_page_markdown_and_terminal_are_marked(simulated: ResultSet, tmp_path: Path) -> None:
    page = report.write([simulated], tmp_path / "report.html")[0].read_text()
    assert "<title>Two depths (simulated) – iosonde</title>" in page
    assert '<p class="banner"><strong>Simulated.</strong> Results of a device model, not of a device.</p>' in page
    drawings = re.findall(r'<div class="chart">(<svg.*?</svg>)', page, flags=re.DOTALL)
    assert len(drawings) == 2 and all(">simulated</text>" in drawing for drawing in drawings)
    text = report.write([simulated], tmp_path / "report.md", format="md")[0].read_text()
    assert text.startswith("# Two depths\n\n> **Simulated:** results of a device model, not of a device.\n")
    assert shown(simulated).lstrip().startswith("Two depths\nSimulated: results of a device model, not of a device.\n")


def test_simulated_and_measured_are_not_mixed_unasked(
    simulated: ResultSet, measured: ResultSet, tmp_path: Path
) -> None:
    for order in ([simulated, measured], [measured, simulated]):
        with pytest.raises(ResultsError) as refused:
            report.write(order, tmp_path / "report.html")
        assert str(simulated.directory) in refused.value.what and "simulated result set" in refused.value.what
        assert "--mix-simulated" in refused.value.hint
    assert not (tmp_path / "report.html").exists()


def test_on_request_simulated_and_real_result_sets_are_drawn_together_and_marked(
    simulated: ResultSet, measured: ResultSet
) -> None:
    (figure, *_) = report.figures([simulated, measured], mix_simulated=True)
    assert figure.simulated == "partly simulated"
    head, *rows = figure.csv().splitlines()
    places = [head.split(",").index(name) for name in ("result_set", "simulated")]
    pairs = {tuple(row.split(",")[place] for place in places) for row in rows}
    assert pairs == {("optane (simulated)", "true"), ("device", "false")}


def test_commands_refuse_and_allow(iosonde: Iosonde, simulated: ResultSet, measured: ResultSet, tmp_path: Path) -> None:
    sets = (simulated.directory, measured.directory)
    for command in (("compare", *sets), ("report", *sets, "--output", tmp_path / "report.html")):
        refused = iosonde(*command)
        assert refused.returncode != 0 and "--mix-simulated" in refused.stderr, command
    compared = iosonde("compare", *sets, "--mix-simulated")
    assert compared.returncode == 0, compared.stderr
    assert "optane (simulated)" in compared.stdout and "device (simulated)" not in compared.stdout
