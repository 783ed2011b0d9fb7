"""Files and results are the same in every locale; only the terminal's encoding is that of the locale."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import Iosonde
from recordings import recorded

DURATION = ("--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms")


@pytest.mark.engine
@pytest.mark.needs("localedef", "charmaps")
@pytest.mark.parametrize(("language", "charmap"), [("ja_JP", "EUC-JP"), ("C", "")])
def test_reports_are_in_utf_8_whatever_the_locale(
    language: str, charmap: str, tmp_path: Path, iosonde_process: Iosonde
) -> None:
    locale = f"{language}.{charmap}" if charmap else language
    if charmap:
        subprocess.run(["localedef", "-i", language, "-f", charmap, tmp_path / locale], check=True)
    # Without these Python would use UTF-8 in the locale `C`, as on most machines.
    # The terminal's encoding is not what is tested.
    plain = {
        "PYTHONIOENCODING": "utf-8",
        "LC_ALL": locale,
        "LOCPATH": str(tmp_path),
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
    }
    name = "here.md" if charmap else "here.html"
    recorded("arms", tmp_path / "set")
    done = iosonde_process("report", tmp_path / "set", "--output", tmp_path / name, **plain)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / name).read_text(encoding="utf-8")
    assert "µs" in page and "Âµ" not in page
    if not charmap:
        done = iosonde_process("io", "--target", "sim:pm963", *DURATION, **plain)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
