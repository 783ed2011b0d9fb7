"""Packages that `scripts/setup` installs on other distributions, versions of Python packages, and needs of tests."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from command_line import CHECKOUT
from needs import CAPABILITIES, lacking
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tiers import LONG_FILES

from iosonde.base import tools
from iosonde.base.tools import LIBRARY_DIRECTORIES, TOOLS

DEBIAN_12 = """\
rustc:
  Candidate: 1.63.0+dfsg1-2
rustc-web:
  Candidate: 1.96.0+dfsg1-1~deb12u2
"""
UBUNTU_24_04 = """\
rustc:
  Candidate: 1.75.0+dfsg0ubuntu1-0ubuntu7.1
rustc-1.80:
  Candidate: 1.80.1+dfsg0ubuntu1-0ubuntu0.24.04
rustc-1.91:
  Candidate: 1.91.1+dfsg-0ubuntu0.24.04
rustc-1.100:
  Candidate: (none)
"""


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_script", CHECKOUT / "scripts" / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("policy", "suffix"),
    [
        *((DEBIAN_12, "-web"), (UBUNTU_24_04, "-1.91"), ("", None)),
        (DEBIAN_12.replace("1.63.0", "1.97.0"), ""),
        (DEBIAN_12.replace("1.96.0", "1.85.0"), None),
    ],
    ids=["Debian 12", "Ubuntu 24.04", "no apt", "a new enough `rustc`", "Debian 12 without updates"],
)
def test_the_compiler_package_is_the_plain_one_or_the_newest(
    setup: ModuleType, policy: str, suffix: str | None
) -> None:
    assert setup.choose_suffix(setup.parse_policy(policy), (1, 90)) == suffix
    names = ["rustc", "rustc-web", "rustc-1.91", "rustc-mozilla-doc", "rustc-web-dbgsym", "rustcat"]
    assert [name for name in names if setup.is_compiler_package(name)] == names[:3]


def test_a_package_that_installs_a_snap_is_not_installed(setup: ModuleType) -> None:
    """Ubuntu's `chromium-browser` downloads a snap, which fails in a container and cannot read pages of tests."""
    policy = "chromium-browser:\n  Candidate: 2:1snap1-0ubuntu2\nfio:\n  Candidate: 3.36-1ubuntu0.1\n"
    assert setup.without_snaps(setup.parse_policy(policy)) == {"fio": "3.36-1ubuntu0.1"}


@pytest.mark.engine
def test_parts_of_the_set_up_run_at_the_same_time(setup: ModuleType, tmp_path: Path) -> None:
    waits = f"while [ ! -e {tmp_path}/made ]; do sleep 0.01; done; touch {tmp_path}/seen"
    makes = f"touch {tmp_path}/made; while [ ! -e {tmp_path}/seen ]; do sleep 0.01; done"
    codes: list[int] = []
    setup.together(
        *(setup.Job(text, lambda text=text: codes.append(setup.call("sh", "-c", text))) for text in (waits, makes))
    )
    assert codes == [0, 0]


@pytest.mark.engine
def test_a_part_that_fails_ends_the_others_and_shows_its_output(
    setup: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except one that installs packages: dpkg must not be interrupted. What would follow it is not started."""

    def fails() -> None:
        if setup.call("sh", "-c", f"while [ ! -e {tmp_path}/installing ]; do sleep 0.01; done; echo the cause; exit 3"):
            setup.fail("it could not be built", "look above")

    def installs() -> None:
        text = f"touch {tmp_path}/installing; sleep 0.3; touch {tmp_path}/installed"
        setup.call("sh", "-c", text, may_be_ended=False)
        setup.call("touch", tmp_path / "next")

    parts = {"engine": fails, "packages": installs, "waits": lambda: setup.call("sleep", "3600")}
    with pytest.raises(setup.SetupError, match=r"^it could not be built\n\nhint: look above$"):
        setup.together(*(setup.Job(name, action) for name, action in parts.items()))
    assert capsys.readouterr().err == "the cause\n"
    assert {path.name for path in tmp_path.iterdir()} == {"installing", "installed"}


def declared() -> list[tuple[Requirement, str]]:
    """Each with the directory of the tested versions."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    listed = [*project["project"]["dependencies"], *(line for extra in extras for line in extra)]
    tools = {name: (CHECKOUT / "packaging" / name / "requirements.txt").read_text() for name in ("moto", "release")}
    return [
        *((Requirement(line), "") for line in [*listed, *project["build-system"]["requires"]]),
        *((Requirement(line), name) for name, text in tools.items() for line in text.splitlines() if line[0] != "#"),
    ]


def pinned(directory: str = "") -> dict[str, Version]:
    lines = (CHECKOUT / "packaging" / directory / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): Version(version) for name, version in pairs}


def test_each_pinned_version_installs_with_the_python_of_debian_12() -> None:
    """`make setup-dev` failed there: a pinned package required Python 3.11.5, and Debian 12 has 3.11.2."""
    for name, version in pinned().items():
        found = metadata.metadata(name)
        assert Version(found["Version"]) == version, "run `make setup-dev`"
        assert Version("3.11.2") in SpecifierSet(found.get("Requires-Python", "")), name


def test_a_program_is_found_once_it_is_installed_unless_by_a_snap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setup asks before and after it installs: the directories of `postgres` have its version in their names."""
    tool = replace(tools.TOOLS["postgres"], name="a-program", places=(f"{tmp_path}/*/bin",))
    assert tool.find() is None
    program = tmp_path / "15" / "bin" / "a-program"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert tool.find() == str(program)
    monkeypatch.setattr(tools, "SNAP", str(program))
    assert tool.find() is None


def test_each_python_dependency_has_both_bounds_or_one_version_and_a_tested_version_within_them() -> None:
    for requirement, directory in declared():
        operators = {each.operator for each in requirement.specifier} - {"!="}  # Versions with defects are excluded.
        assert operators in ({">=", "<"}, {"=="}), requirement
        assert pinned(directory)[requirement.name.lower()] in requirement.specifier, requirement


SOURCES = [path for folder in ("python", "tests", "bench") for path in sorted((CHECKOUT / folder).rglob("*.py"))]


def test_a_test_is_skipped_only_by_its_declared_needs() -> None:
    """A skip in a test's body would be a second way. `tiers.py` also has the one for a busy machine."""
    skip = re.compile(r"\bpytest\.(mark\.)?(skip|skipif|importorskip|xfail)\b")
    found = [path for path in SOURCES if path.name not in ("tiers.py", Path(__file__).name)]
    assert [path for path in found if skip.search(path.read_text())] == []


def test_scripts_test_collects_every_test_of_the_lab() -> None:
    """It collects `tests/lab` alone for that tier."""
    of_lab = ("mark.lab", "machine_image", "guest_report")
    tests = [path for path in SOURCES if path.name.startswith("test_") and path.name != Path(__file__).name]
    found = {path.parent.name for path in tests if any(name in path.read_text() for name in of_lab)}
    assert found == {"lab"}


def test_files_that_are_started_first_exist() -> None:
    assert [name for name in LONG_FILES if not (CHECKOUT / "tests" / name).is_file()] == []


def test_every_declared_need_exists() -> None:
    calls = [call for path in SOURCES for call in re.findall(r"\.needs\(([^()]*)\)", path.read_text())]
    declared = {need for call in calls for need in re.findall(r'"([^"{]+)"', call)}
    assert len(declared) > 50
    assert {need for need in declared if need.partition(" of ")[0] not in {*TOOLS, *CAPABILITIES}} == set()


def test_a_need_that_is_not_met_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking.cache_clear()
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert lacking("mkfs.xfs") == "`mkfs.xfs` is not installed: install the package `xfsprogs`"
    lacking.cache_clear()


def test_libraries_are_looked_for_where_the_engine_finds_them() -> None:
    listed = (CHECKOUT / "crates/kv/src/library_directories.txt").read_text().split()
    assert list(LIBRARY_DIRECTORIES) == listed


def test_text_of_other_programs_is_never_decoded_by_the_locale() -> None:
    """Ruff's PLW1514 covers files, not pipes."""
    by_locale = re.compile(r"\b(text|universal_newlines)=True\b")
    package = [path for path in SOURCES if path.is_relative_to(CHECKOUT / "python")]
    assert [path for path in package if by_locale.search(path.read_text())] == []
