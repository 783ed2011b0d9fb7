"""Any contents of a job file give a study that can be planned, or an error with the reason."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iosonde.base.tools import find
from iosonde.errors import IosondeError, StudyError
from iosonde.interop.fio import Imported, import_command_line, import_job_file, options
from iosonde.planning import expand, parse
from iosonde.storage import open_target

NAMES = list(dict.fromkeys(options.NAMES.values()))
CARRIED = [name.partition("/")[0] for name in options.CARRIED.split()]
CORNERS = """
    0 1 2 4k 1m 64k 1g 10s 500ms -1 50% 120% 0% 4k,8k ,4k 4k, 1k-16k 0-4k 1-9g 4k/50:8k/ 4k/0 / : , - = $ncpus
    $pagesize*2 ${X} rand read write rw randrw randtrimwrite read:4k read:-4k trim:0 libaio sync null net io_uring
    zipf:1.1 zipf: zipf:x zoned:50/5:50/95 zoned:x/y zoned: pareto:0.3 random poisson dsync none a:b 0-3 3-1 0-999999999
    0xff 1e9 99999999999g 0x 1.5m 4kib nan inf nan% inf%
"""
VALUES = st.one_of(st.sampled_from(CORNERS.split()), st.integers(-10, 10**6).map(str), st.text(max_size=8))
LINES = st.one_of(
    st.tuples(st.sampled_from(CARRIED), VALUES).map("=".join),
    st.tuples(st.sampled_from(NAMES), VALUES).map("=".join),
    st.sampled_from(NAMES),
    st.sampled_from(
        ["[global]", "[a]", "[b c]", "[control]", "[]", "[é]", "stonewall", "; x", "size=64m", "include no"]
    ),
    st.text(max_size=12),
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES, max_size=14))
def test_any_text_becomes_a_study_or_an_error_with_a_reason(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "any.fio"
    path.write_text("\n".join(["[job]", "size=1m", *lines]), encoding="utf-8", errors="replace")
    try:
        result = import_job_file(path, environment={"X": "4k"})
    except StudyError as error:
        assert error.what
        return
    assert parse(result.text).parts


PASTED = st.one_of(
    st.tuples(st.sampled_from(CARRIED), VALUES).map(lambda each: f"--{'='.join(each)}"),
    st.sampled_from(
        [
            "fio",
            "$",
            "# ",
            "[a@b ~]#",
            "sudo",
            "A=1",
            ">x",
            "2>&1",
            "|",
            "&&",
            ";",
            "\\",
            "\n",
            "'",
            '"',
            "--name=b",
            "--section=b",
        ]
    ),
    st.text(max_size=12),
)


@settings(max_examples=200)
@given(words=st.lists(PASTED, min_size=1, max_size=14))
def test_any_pasted_text_becomes_a_study_or_an_error_with_a_reason(words: list[str]) -> None:
    for pasted in ([" ".join(["fio --name=a --size=1m", *words])], ["fio", "--name=a", "--size=1m", *words]):
        try:
            result = import_command_line(pasted, environment={})
        except StudyError as error:
            assert error.what
            continue
        assert parse(result.text).parts


FEW = ["0", "", "4k,8k", "9" * 400, "inf%"]
MORE = ["1", "-1", "x", "100%", "1-2", "9" * 20, "1:2:3:4", "nan"]


@pytest.mark.parametrize("values", [FEW, pytest.param(MORE, marks=pytest.mark.extended)], ids=["few", "more"])
@pytest.mark.parametrize("name", CARRIED)
def test_no_value_of_an_option_is_too_much(name: str, values: list[str], tmp_path: Path) -> None:
    for value in values:
        path = tmp_path / "one.fio"
        path.write_text(f"[job]\nsize=64m\nrw=randrw\nnumjobs=2\nfilename=x\n{name}={value}\n")
        try:
            expand(parse(import_job_file(path, environment={}).text), open_target("null:1024TiB"), settings={})
        except IosondeError as error:
            assert error.what


VARIABLES = {"FIO_RW": "randread", "FIO_IODEPTH": "4", "FIO_BS": "4k"}

NO_FILE_IO = re.compile(
    "cpuio|exec|dfs|file(create|delete|stat|xattr)|dir(create|delete|stat)|ftruncate|gfapi|gpudirect|http|ime|libhdfs|libiscsi"
    "|librpma|nbd|netio|nfs|rados|rbd|rdmaio"
)
"""Names of examples that keep a processor busy, send over a network or handle files, and nothing else."""


@pytest.mark.needs("fio-examples")
def test_examples_of_fio_are_imported_or_refused_for_what_they_measure(tmp_path: Path) -> None:
    """Without Debian's package `fio-examples`, `IOSONDE_FIO_EXAMPLES` names a directory with them."""
    results: dict[str, Imported | StudyError] = {}
    for path in sorted(Path(str(find("fio-examples"))).rglob("*.fio*")):
        unpacked = tmp_path / path.name.removesuffix(".gz")
        unpacked.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        try:
            results[unpacked.name] = import_job_file(unpacked, environment=VARIABLES)
        except StudyError as error:
            results[unpacked.name] = error
    refused = {name: str(result) for name, result in results.items() if isinstance(result, StudyError)}
    assert {name for name in refused if not NO_FILE_IO.match(name)} == set()
    assert all("has no load that iosonde measures" in text for text in refused.values()), refused
    imported = {name: result for name, result in results.items() if isinstance(result, Imported)}
    assert {name for name in imported if NO_FILE_IO.match(name)} == set()
    for result in imported.values():
        # `null:` has room for all of them, and keeps no data that could be verified.
        assert expand(parse(result.text), open_target("null:64TiB"), settings={"verify": "none"}).runs
