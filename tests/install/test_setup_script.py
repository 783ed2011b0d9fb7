"""`scripts/setup` on distributions other than this one: which compiler it uses, and the error without one."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from command_line import CHECKOUT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from iosonde import tools

DEBIAN_12 = """\
rustc:
  Installed: (none)
  Candidate: 1.63.0+dfsg1-2
  Version table:
     1.63.0+dfsg1-2 500
        500 http://archive.example/debian bookworm/main amd64 Packages
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


@pytest.fixture(scope="module")
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
        (DEBIAN_12, "-web"),
        (UBUNTU_24_04, "-1.91"),
        (DEBIAN_12.replace("1.63.0", "1.97.0"), ""),
        (DEBIAN_12.replace("1.96.0", "1.85.0"), None),
        ("", None),
    ],
    ids=["Debian 12", "Ubuntu 24.04", "a new enough `rustc`", "Debian 12 without updates", "no apt"],
)
def test_the_compiler_package_is_the_plain_one_or_else_the_newest_that_is_new_enough(
    setup: ModuleType, policy: str, suffix: str | None
) -> None:
    assert setup.choose_suffix(setup.parse_policy(policy), (1, 90)) == suffix
    names = ["rustc", "rustc-web", "rustc-1.91", "rustc-mozilla-doc", "rustc-web-dbgsym", "rustcat"]
    assert [name for name in names if setup.is_compiler_package(name)] == names[:3]


@pytest.mark.parametrize(
    ("suffix", "hint"),
    [("-web", "apt-get install rustc-web cargo-web"), (None, "rustup")],
    ids=["packages that could not be installed", "no package"],
)
def test_an_old_compiler_is_an_error_that_names_the_way_to_a_newer_one(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], suffix: str, hint: str
) -> None:
    monkeypatch.setattr(setup, "installed_rust", lambda: (1, 63, 0))
    monkeypatch.setattr(setup, "link_compiler", lambda suffix, venv: None)
    with pytest.raises(SystemExit):
        setup.require_rust(setup.Rust(minimum=(1, 90), installed=(1, 63, 0), suffix=suffix), CHECKOUT)
    shown = capsys.readouterr().err
    assert shown.startswith("error: Rust 1.90 or newer is required to build the engine, found 1.63.0")
    assert hint in shown


def test_a_package_that_installs_a_snap_is_not_installed(setup: ModuleType) -> None:
    """Ubuntu's `chromium-browser` downloads a snap, which fails in a container and cannot read pages of tests."""
    policy = "chromium-browser:\n  Candidate: 2:1snap1-0ubuntu2\nfio:\n  Candidate: 3.36-1ubuntu0.1\n"
    assert setup.without_snaps(setup.parse_policy(policy)) == {"fio": "3.36-1ubuntu0.1"}


def test_a_package_that_cannot_be_obtained_is_left_out_and_the_others_are_installed(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Setup continues without it: a warning names it, and tests that need it are skipped and listed."""
    installed: list[list[str]] = []

    def install(packages: list[str], *, wait_s: int) -> bool:
        installed.append(packages)
        return "broken" not in packages

    monkeypatch.setattr(setup, "can_install", lambda: True)
    monkeypatch.setattr(setup, "update_package_lists", lambda: None)
    monkeypatch.setattr(setup, "candidates", lambda names: {name: "1" for name in names if name != "unknown"})
    monkeypatch.setattr(setup, "apt_install", install)
    setup.install_packages([("fio",), ("broken",), ("unknown",), ("unknown", "memcached")])
    assert installed == [["broken", "fio", "memcached"], ["broken"], ["fio"], ["memcached"]]
    missing = [replace(tools.TOOLS["fio"], name="a-program", packages=("broken",))]
    monkeypatch.setattr(tools, "missing", lambda kinds: missing)
    setup.warn_of_missing(tools, dev=True)
    assert "warning: `a-program` is missing" in capsys.readouterr().err


def test_the_command_for_a_user_who_may_not_install_is_in_one_line(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "can_install", lambda: False)
    monkeypatch.setattr(setup, "candidates", lambda names: dict.fromkeys(set(names) - {"librocksdb7.8"}, "1"))
    monkeypatch.setattr(tools, "missing", lambda kinds: [tools.TOOLS["fio"], tools.TOOLS["rocksdb"]])
    setup.warn_of_missing(tools, dev=True)
    assert "hint: `sudo apt-get install fio librocksdb8.9`" in capsys.readouterr().err


def declared() -> list[Requirement]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    listed = [*project["project"]["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in [*listed, *project["build-system"]["requires"]]]


def declared_of_moto() -> list[Requirement]:
    lines = (CHECKOUT / "packaging" / "moto" / "requirements.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def pinned(directory: str = "") -> dict[str, Version]:
    lines = (CHECKOUT / "packaging" / directory / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): Version(version) for name, version in pairs}


@pytest.mark.parametrize("name", sorted(pinned().keys() - {"ziglang"}))  # which only `make wheel` installs
def test_each_pinned_version_installs_with_the_python_of_debian_12(name: str) -> None:
    """`make setup-dev` failed there: a pinned package required Python 3.11.5, and Debian 12 has 3.11.2."""
    found = metadata.metadata(name)
    assert Version(found["Version"]) == pinned()[name], "run `make setup-dev`"
    assert Version("3.11.2") in SpecifierSet(found.get("Requires-Python", ""))


def test_a_program_is_found_once_its_package_is_installed_and_not_if_it_is_that_of_a_snap(
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


@pytest.mark.parametrize(
    ("requirement", "versions"),
    [*((each, pinned()) for each in declared()), *((each, pinned("moto")) for each in declared_of_moto())],
    ids=lambda each: each.name if isinstance(each, Requirement) else "",
)
def test_each_python_dependency_has_both_bounds_or_one_version_and_a_tested_version_within_them(
    requirement: Requirement, versions: dict[str, Version]
) -> None:
    operators = {each.operator for each in requirement.specifier} - {"!="}  # Versions with defects are excluded.
    assert operators in ({">=", "<"}, {"=="})
    assert versions[requirement.name.lower()] in requirement.specifier
