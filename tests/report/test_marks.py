"""Simulated results carry a banner and marks, and stay apart from measured ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Iosonde
from plans import sign, sign_plan
from recordings import recorded

import iosonde.report as report
from iosonde.errors import ResultsError
from iosonde.report.content import collect
from iosonde.results import ResultSet

pytestmark = pytest.mark.engine

VIEW = {"kind": "lines", "title": "Bandwidth", "x": "queue_depth", "y": "bandwidth", "series": "read_fraction"}
ASKED = {"kind": "saturation", "over": "queue_depth", "metric": "iops", "by": ["read_fraction"]}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return recorded("seeded", tmp_path_factory.mktemp("simulated") / "optane", views=[VIEW], analysis=[ASKED])


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """The same study, and nothing simulated about it."""
    made = recorded("seeded", tmp_path_factory.mktemp("measured") / "device", views=[VIEW], analysis=[ASKED])
    for path in (made.directory / "plan.json", *made.directory.glob("records/*/record.json")):
        path.write_text(json.dumps(json.loads(path.read_text(), object_hook=of_a_device)))
    sign_plan(made.directory)
    for record in (made.directory / "records").iterdir():
        sign(record)
    return ResultSet.open(made.directory)


def of_a_device(facts: dict[str, Any]) -> dict[str, Any]:
    if facts.get("kind") == "ssd" and "model" in facts:
        return {"kind": "sync"}
    return facts | {"simulated": False} if "simulated" in facts else facts


def test_records_tables_and_exports_are_marked(simulated: ResultSet, measured: ResultSet, tmp_path: Path) -> None:
    assert simulated.runs["simulated"].all() and not measured.runs["simulated"].any()
    assert simulated.simulated and not measured.simulated
    for result_set in (simulated, measured):
        directory = tmp_path / result_set.directory.name
        runs = [path for name in ("fio-json", "hdr") for path in result_set.export(name, directory / name)]
        documents = [json.loads(path.read_text()) for path in runs if path.suffix == ".json"]
        logs = [path.read_text() for path in runs if path.suffix == ".hlog"]
        assert len(documents) == len(logs) == len(result_set.records())
        assert {document["iosonde"]["simulated"] for document in documents} == {result_set is simulated}
        assert {"#[iosonde: simulated: " in log for log in logs} == {result_set is simulated}


def test_every_figure_and_its_rows_are_marked_and_no_sentence_repeats_it(
    simulated: ResultSet, measured: ResultSet, tmp_path: Path
) -> None:
    (chapter,) = collect([simulated]).chapters
    assert {figure.simulated for figure in chapter.all_figures} == {"simulated"}
    sentences = [finding.sentence for _, found in chapter.findings for finding in found]
    assert sentences and not any("simulated" in sentence for sentence in sentences)
    (plain,) = collect([measured]).chapters
    assert {figure.simulated for figure in plain.all_figures} == {""}
    for figure in chapter.all_figures:
        head, *rows = figure.csv().splitlines()
        place = head.split(",").index("simulated")
        assert rows and all(row.split(",")[place] == "true" for row in rows)
    for path in report.save_figures([simulated], tmp_path):
        assert ">simulated<" in path.read_text(), path.name


def test_page_markdown_and_terminal_are_marked(simulated: ResultSet, tmp_path: Path) -> None:
    page = report.write([simulated], tmp_path / "report.html")[0].read_text()
    assert "<title>Seeded (simulated) – iosonde</title>" in page
    assert '<p class="banner"><strong>Simulated.</strong> Results of a device model, not of a device.</p>' in page
    drawings = re.findall(r'<div class="chart">(<svg.*?</svg>)', page, flags=re.DOTALL)
    assert drawings and all(">simulated</text>" in drawing for drawing in drawings)
    text = report.write([simulated], tmp_path / "report.md", format="md")[0].read_text()
    assert text.startswith("# Seeded\n\n> **Simulated:** results of a device model, not of a device.\n")
    shown = report.as_text(simulated).lstrip()
    assert shown.startswith("Seeded\nSimulated: results of a device model, not of a device.\n")


def test_simulated_and_measured_are_mixed_on_request_only(
    iosonde: Iosonde, simulated: ResultSet, measured: ResultSet, tmp_path: Path
) -> None:
    for order in ([simulated, measured], [measured, simulated]):
        with pytest.raises(ResultsError) as refused:
            report.write(order, tmp_path / "report.html")
        assert str(simulated.directory) in refused.value.what and "simulated result set" in refused.value.what
        assert "--mix-simulated" in refused.value.hint
    assert not (tmp_path / "report.html").exists()
    (figure, *_) = report.figures([simulated, measured], mix_simulated=True)
    assert figure.simulated == "partly simulated"
    head, *rows = figure.csv().splitlines()
    places = [head.split(",").index(name) for name in ("result_set", "simulated")]
    pairs = {tuple(row.split(",")[place] for place in places) for row in rows}
    assert pairs == {("optane (simulated)", "true"), ("device", "false")}
    sets = (simulated.directory, measured.directory)
    for command in (("compare", *sets), ("report", *sets, "--output", tmp_path / "report.html")):
        refused_command = iosonde(*command)
        assert refused_command.returncode != 0 and "--mix-simulated" in refused_command.stderr, command
    compared = iosonde("compare", *sets, "--mix-simulated")
    assert compared.returncode == 0, compared.stderr
    assert "optane (simulated)" in compared.stdout and "device (simulated)" not in compared.stdout
