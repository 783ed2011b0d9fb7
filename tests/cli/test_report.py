from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import result_set, small_study


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result_set(tmp_path_factory.mktemp("sets") / "first", small_study(), seconds=1).directory


def test_a_report_is_written_into_the_result_set_by_default(iosonde: Iosonde, first: Path) -> None:
    done = iosonde("report", first)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{first}/report.html\n", "")
    assert (first / "report.html").read_text().startswith("<!doctype html>")


def test_markdown_is_written_to_the_given_path(iosonde: Iosonde, first: Path, tmp_path: Path) -> None:
    done = iosonde("report", first, "--format", "md", "--output", tmp_path / "new" / "report.md")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/new/report.md\n", "")
    assert len(list((tmp_path / "new" / "figures").glob("*.svg"))) == 4


def test_another_format_is_refused_with_those_there_are(iosonde: Iosonde, first: Path) -> None:
    refused = iosonde("report", first, "--format", "pdf")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == "Error: Invalid value for '--format': 'pdf' is not one of 'html', 'md'."


def test_figures_alone_for_a_paper(iosonde: Iosonde, first: Path, tmp_path: Path) -> None:
    written = iosonde("report", first, "--figures", "pdf", "--output", tmp_path / "figures").stdout.splitlines()
    assert len(written) == 4
    assert all(Path(line).read_bytes().startswith(b"%PDF") for line in written)


def test_several_result_sets_make_one_report(iosonde: Iosonde, first: Path, tmp_path: Path) -> None:
    second = result_set(tmp_path / "second", small_study(), seconds=1, speed=1.3)
    assert iosonde("report", first, second.directory, "-o", tmp_path / "both.html").returncode == 0
    assert "Comparison, case by case" in (tmp_path / "both.html").read_text()


def test_a_directory_that_is_no_result_set_is_named(iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde("report", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: `{tmp_path}` is not a result set\n")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--output",), "the report"),
        (("--format", "md", "--output"), "the report"),
        (("--figures", "svg", "--output"), "the figures"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(
    iosonde: Iosonde, first: Path, arguments: tuple[str, ...], what: str
) -> None:
    file = first / "plan.json"
    done = iosonde("report", first, *arguments, file / "new")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: cannot write {what} `{file}/new`: ")
    assert done.stderr.splitlines()[-1] == "hint: name another place with `--output`"
