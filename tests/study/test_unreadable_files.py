"""Files that a user names by mistake or on purpose: without end, nested without end, of impossible numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde import text_files
from iosonde.errors import IosondeError, StudyError
from iosonde.interop.fio.load import import_job_file
from iosonde.storage import open_target
from iosonde.study import location
from iosonde.study.load import read, read_text
from iosonde.workload.reading import parse_cpus

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LIMIT_BYTES", 1 << 20)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(StudyError, match=r"cannot read the study `/dev/zero`: it is longer than 1 MiB"):
        read("/dev/zero")
    with pytest.raises(StudyError, match=r"cannot read the job file `/dev/zero`: it is longer than 1 MiB"):
        import_job_file(Path("/dev/zero"))


@pytest.mark.parametrize("path", ["a\0b.toml", "/tmp/a\0b", "x" * 5000 + ".toml"])
def test_a_path_that_no_file_can_have_is_an_error(path: str) -> None:
    for use in (read, lambda each: import_job_file(Path(each)), lambda each: open_target(f"sim:{each}")):
        with pytest.raises(IosondeError):
            use(path)


def test_a_study_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(StudyError, match="the study is not TOML: it is nested too deeply"):
        read_text("levels = " + "[" * 5000 + "]" * 5000)


def test_cpus_end_where_the_kernel_ends_them() -> None:
    assert parse_cpus("0-8191") == list(range(8192))
    with pytest.raises(ValueError, match="CPU numbers end at 8191"):
        parse_cpus("0-99999999999")


def test_places_of_a_study_are_found_once_for_all_its_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 levels took minutes: each read the whole text."""
    text = "[[parts]]\nfactors.queue_depth = [1, 2]\n" + "# a comment\n" * 1000
    source = location.StudyFile(name="s.toml", text=text)
    location._lines.cache_clear()
    for level in range(100):
        assert source.where("parts", 0, "factors", "queue_depth", level).endswith("line 2 of `s.toml`")
    assert location._lines.cache_info().misses == 1
