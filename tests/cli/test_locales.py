"""Files and results are the same in every locale; only the terminal's encoding is that of the locale."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from command_line import Iosonde

PACKAGE = Path(__file__).parents[2] / "python" / "iosonde"
DURATION = ("--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms")


@pytest.mark.engine
@pytest.mark.needs("localedef", "charmaps")
@pytest.mark.parametrize(
    ("language", "charmap"), [("ja_JP", "EUC-JP"), ("zh_CN", "GBK"), ("en_US", "ISO-8859-1"), ("C", "")]
)
def test_a_measurement_is_reported_in_utf_8_whatever_the_locale(
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
    measured = iosonde_process("io", "--target", "sim:pm963", "-o", tmp_path / "set", *DURATION, **plain)
    assert (measured.returncode, measured.stderr.count("Traceback")) == (0, 0), measured.stderr
    for name in ("here.md", "here.html"):
        reported = iosonde_process("report", tmp_path / "set", "--output", tmp_path / name, **plain)
        assert reported.returncode == 0, reported.stderr
    assert "µs" in (tmp_path / "here.md").read_text(encoding="utf-8")
    assert "Âµ" not in (tmp_path / "here.html").read_text(encoding="utf-8")


def test_text_of_other_programs_is_never_decoded_by_the_locale() -> None:
    """Ruff's PLW1514 covers files, not pipes."""
    by_locale = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg in ("text", "universal_newlines") and getattr(keyword.value, "value", None) is True
    ]
    assert by_locale == []
