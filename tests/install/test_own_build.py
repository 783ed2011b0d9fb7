"""`scripts/own-build`: two checkouts that share a build directory each run their own programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import CHECKOUT

pytestmark = pytest.mark.engine

LONG_AGO = 1_000_000_000


def test_each_checkout_runs_its_own_program(tmp_path: Path) -> None:
    """Both have the same files of the same age, and the second one's program is older than what the first one built."""
    first, second = (checkout(tmp_path / name, says=name) for name in ("first", "second"))
    shared = tmp_path / "target"
    assert [output_of(each, shared) for each in (first, second, first)] == ["first\n", "second\n", "first\n"]


def test_nothing_is_compiled_again_in_the_checkout_that_was_built_last(tmp_path: Path) -> None:
    place = checkout(tmp_path / "only", says="only")
    shared = tmp_path / "target"
    own_build(place, shared)
    source = place / "crates/program/src/main.rs"
    os.utime(source, (LONG_AGO, LONG_AGO))
    own_build(place, shared)
    assert source.stat().st_mtime == LONG_AGO


def checkout(place: Path, *, says: str) -> Path:
    """A workspace with one program, which is as old as that of any other such checkout."""
    crate = place / "crates" / "program"
    (crate / "src").mkdir(parents=True)
    (place / "scripts").mkdir()
    shutil.copy(CHECKOUT / "scripts" / "own-build", place / "scripts")
    (place / "Cargo.toml").write_text('[workspace]\nmembers = ["crates/program"]\nresolver = "3"\n')
    (crate / "Cargo.toml").write_text('[package]\nname = "program"\nversion = "0.0.0"\nedition = "2024"\n')
    (crate / "src" / "main.rs").write_text(f'fn main() {{ println!("{says}"); }}\n')
    for path in crate.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return place


def own_build(place: Path, shared: Path) -> None:
    subprocess.run(["sh", "scripts/own-build"], cwd=place, env=environment(shared), check=True)


def output_of(place: Path, shared: Path) -> str:
    own_build(place, shared)
    command = ["cargo", "run", "--quiet", "--offline"]
    return subprocess.run(
        command, cwd=place, env=environment(shared), stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def environment(shared: Path) -> dict[str, str]:
    return {**os.environ, "CARGO_TARGET_DIR": str(shared)}
