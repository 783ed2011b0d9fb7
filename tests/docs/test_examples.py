"""Commands and code in the docs: every option exists, studies exist, and those on simulated targets run."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Iosonde
from engines import real_engine
from typer.testing import CliRunner
from vocabulary import ROOT, pages

from iosonde.cli import COMMANDS, app
from iosonde.cli.commands import man
from iosonde.data import adapters, shipped

OPTIONS = {
    entry.name: {name for names, _ in entry.parameters for name in re.findall(r"--?[a-z-]+", names)}
    for entry in man.entries()
}


def commands(*, sessions: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Every command of iosonde in a block of shell text, with its page; or those after a prompt, in sessions."""
    block_start, prompt = ("console", "$ ") if sessions else ("sh", "")
    for page in pages():
        if page.name == "cli.md":
            continue
        for block in re.findall(rf"^```{block_start}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if not line.startswith(prompt):
                    continue
                words = shlex.split(line.removeprefix(prompt).removeprefix("sudo "), comments=True)
                if words[:1] == ["iosonde"] and len(words) > 1 and words[1] in COMMANDS:
                    yield page.name, words[1:]


def own_options(words: list[str]) -> list[str]:
    before = words[: words.index("--")] if "--" in words else words
    return [word.partition("=")[0] for word in before if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)]


@pytest.mark.parametrize(
    ("page", "words"),
    [*commands(), *commands(sessions=True)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60],
)
def test_every_subcommand_option_and_study_exists(page: str, words: list[str]) -> None:
    name = " ".join(words[:2]) if words[0] == "lab" else words[0]
    assert set(own_options(words)) <= OPTIONS[name] | {"--help"}
    if words[0] in ("run", "plan", "show") and not words[1].endswith(".toml") and words[1] != "STUDY":
        assert words[1] in shipped() | adapters()


def test_measurements_of_the_concepts_page_run(iosonde: Iosonde, tmp_path: Path) -> None:
    measured = [words for page, words in commands() if page == "concepts.md"]
    assert len(measured) == 2
    for words in measured:
        done = iosonde(*words, IOSONDE_ENGINE=str(real_engine()))
        assert done.returncode == 0, done.stderr
        assert ("open loop" if "--rate" in words else "closed loop") in done.stdout


SMALL = shlex.split("--repeats 1 --set queue_depth=1 --set span=64MiB --set duration=50ms --set ramp=10ms")


@pytest.mark.engine
def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulated drive, with a part of its runs, and in this process: each of its own imports all libraries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    every = [*commands(sessions=True), *commands()]  # The page opens with the session.
    sections = [words for page, words in every if page == "tutorial.md" and "/mnt/disk" not in words]
    for words in sections:
        small = [word.replace("sim:pm963", "sim:pm963,capacity=1GiB") for word in words]
        done = CliRunner().invoke(app, [*small, *(SMALL if words[0] == "run" else ())])
        assert done.exit_code == 0, (words, done.output, done.exception)
    assert (tmp_path / "first/report.html").exists()
    assert (tmp_path / "first.md").exists()
    assert list((tmp_path / "first-csv").iterdir())


@pytest.mark.engine
def test_the_session_of_the_python_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    session = (ROOT / "docs/python.md").read_text().partition("```pycon\n")[2].partition("```")[0]
    test = doctest.DocTestParser().get_doctest(session, {}, "python.md", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test) == (0, 4)
