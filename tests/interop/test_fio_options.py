"""The options table covers fio 3.42: `fio_options.txt` lists every name and alias in its source."""

from __future__ import annotations

from pathlib import Path

from iosonde.interop.fio.options import find


def test_every_option_of_fio_is_known() -> None:
    names = (Path(__file__).parent / "fio_options.txt").read_text().split()
    assert len(names) > 370
    assert [name for name in names if find(name) is None] == []
