"""WiredTiger: the shim that it needs, direct I/O, its log, and what is refused before anything is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from plans import without_places
from stores import EACH_ONCE, EMPTY, SEQUENTIAL, carry_out, spec, stream

from iosonde.errors import StudyError
from iosonde.features.key_value_stores import shim
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.storage import open_target

pytestmark = pytest.mark.needs("wiredtiger", "wiredtiger-header", "cc")

STUDY = """
name = "tiger"
title = "Tiger"
question = "?"
workload = "kv"
repeats = 1
[measurement]
store = "wiredtiger"
records = 1000
{measurement}
[[parts]]
measurement = { phase = "readrandom" }
[profiles.standard]
"""
READER = stream("reader", "read", choice=EACH_ONCE, limit_operations=2000)


@pytest.fixture
def forget_compilers() -> Iterator[None]:
    """Headers and compilers change in a test, and not in a session."""
    shim._versions.cache_clear()
    yield
    shim._versions.cache_clear()


def plan(place: Path, measurement: str = "") -> Plan:
    measurement, settings = without_places(measurement)
    return expand(parse(STUDY.replace("{measurement}", measurement)), open_target(str(place)), settings=settings)


def test_the_record_has_version_interface_and_options(tmp_path: Path) -> None:
    options = {"cache_size": 20 << 20, "checkpoint.wait": 60, "block_compressor": "snappy", "leaf_page_max": "16KB"}
    output = carry_out(spec("wiredtiger", tmp_path, READER, options=options))
    store = output.store
    assert store["build"]["interface"] == f"C shim, compiled with the header of WiredTiger {store['version']}"
    assert store["build"]["release"].startswith(f"WiredTiger {store['version']}")
    assert {name: store["options"][name] for name in options} == {
        "cache_size": str(20 << 20),
        "checkpoint.wait": "60",
        "block_compressor": "snappy",
        "leaf_page_max": "16KB",
    }
    assert store["options"]["type"] == "file"
    assert store["statistics_at_end"]["cache: maximum bytes configured"] == 20 << 20
    assert output.checks("values") == 2000


def test_direct_io_is_confirmed_by_the_flags_of_the_open_files(tmp_path: Path) -> None:
    place = tmp_path / "direct"
    place.mkdir()
    options = {"direct_io": "[data]", "cache_size": 2 << 20}
    output = carry_out(spec("wiredtiger", place, READER, options=options, value_bytes=4000))
    assert (output.store["build"]["data_files"], output.store["build"]["log_files"]) == ("direct", "buffered")
    read = output.store["statistics_at_end"]["block-manager: bytes read"]
    assert read > 4 << 20, "most values are not in a cache of 2 MiB"
    assert (output.checks("values"), output.checks("corrupted"), output.checks("missing")) == (2000, 0, 0)


def test_the_log_may_be_in_another_directory(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    log.mkdir()
    target = {"kind": "directory", "path": str(data), "log_path": str(log)}
    writer = stream("writer", "update", choice=SEQUENTIAL, limit_operations=100)
    output = carry_out(spec("wiredtiger", target, writer, database=EMPTY))
    assert list(log.glob("log/WiredTigerLog.*")) and not list(data.glob("database/WiredTigerLog.*"))
    assert (output.store["build"]["data_files"], output.store["build"]["log_files"]) == ("buffered", "buffered")


@pytest.mark.usefixtures("forget_compilers")
def test_a_header_of_another_version_than_the_library_is_refused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = tmp_path_factory.mktemp("include")
    header = headers / "wiredtiger.h"
    shutil.copyfile("/usr/include/wiredtiger.h", header)
    header.write_text(header.read_text().replace("WIREDTIGER_VERSION_PATCH\t", "WIREDTIGER_VERSION_PATCH\t9"))
    monkeypatch.setenv("C_INCLUDE_PATH", str(headers))
    error = carry_out(spec("wiredtiger", tmp_path, READER)).error
    assert (error["code"], error["context"]) == ("library", "`store`")
    assert "it was compiled with the header of WiredTiger" in error["message"]
    assert "libwiredtiger-dev" in error["hint"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("forget_compilers")
def test_a_missing_compiler_header_library_or_option_is_an_error_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libwiredtiger.so").write_bytes(b"\x7fELF and nothing of WiredTiger")
    for measurement, message in (
        (f'library = "{tmp_path}/libwiredtiger.so"', "does not export `wiredtiger_config_validate`"),
        ("wiredtiger = { cachesize = 1 }", "has no option `cachesize`; the nearest name is `cache_size`"),
    ):
        with pytest.raises(StudyError, match=message):
            plan(tmp_path, measurement)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StudyError, match="WiredTiger cannot be used: the compiler `cc` was not found") as refused:
        plan(tmp_path)
    assert refused.value.hint == "install it: `apt-get install gcc`"
    without_headers = tmp_path / "cc"
    without_headers.write_text("#!/bin/sh\nexit 1\n")
    without_headers.chmod(0o755)
    with pytest.raises(StudyError, match=r"the headers of WiredTiger \(`wiredtiger\.h`\) were not found") as refused:
        plan(tmp_path)
    assert "libwiredtiger-dev" in refused.value.hint


def test_options_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for options, reason in (
        ({"cache_size": "lots"}, "reports: "),
        ({"extensions": "[/tmp/x.so]"}, "the nearest name is"),
        ({"cache_size": "1GB,extensions=[/tmp/x.so]"}, "one value, or a list"),
        ({"log.path": "/tmp"}, "`target.log_path`"),
    ):
        error = carry_out(spec("wiredtiger", tmp_path, READER, options=options)).error
        assert error["code"] == "invalid_spec" and reason in error["hint"]
    assert list(tmp_path.iterdir()) == []
