"""Every job file that fio's own package of examples ships is imported, or refused for what it measures.

Debian puts them into the package `fio-examples`. Where they are not installed, `IOSONDE_FIO_EXAMPLES` names a directory
with them, such as one that `apt-get download fio-examples && dpkg-deb -x fio-examples_*.deb DIR` has filled.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from iosonde.errors import StudyError
from iosonde.interop.fio import Imported, import_job_file
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.tools import find

VARIABLES = {"FIO_RW": "randread", "FIO_IODEPTH": "4", "FIO_BS": "4k"}

NO_FILE_IO = re.compile(
    "cpuio|exec|dfs|file(create|delete|stat|xattr)|dir(create|delete|stat)|ftruncate|gfapi|gpudirect|http|ime|libhdfs|libiscsi"
    "|librpma|nbd|netio|nfs|rados|rbd|rdmaio"
)
"""Names of examples that keep a processor busy, send over a network or handle files, and nothing else."""


@pytest.fixture
def examples(tmp_path: Path) -> list[Path]:
    """The job files, unpacked where they are compressed."""
    found = sorted(Path(str(find("fio-examples"))).rglob("*.fio*"))
    for path in found:
        if path.suffix == ".gz":
            (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return [tmp_path / path.stem if path.suffix == ".gz" else path for path in found]


@pytest.mark.needs("fio-examples")
def test_examples_are_imported_or_refused_for_what_they_measure(examples: list[Path]) -> None:
    results = {path.name: outcome(path) for path in examples}
    refused = {name: str(result) for name, result in results.items() if isinstance(result, StudyError)}
    assert {name for name in refused if not NO_FILE_IO.match(name)} == set()
    assert all("has no load that iosonde measures" in text for text in refused.values()), refused
    imported = {name: result for name, result in results.items() if isinstance(result, Imported)}
    assert {name for name in imported if NO_FILE_IO.match(name)} == set()
    for result in imported.values():
        # `null:` has room for all of them, and keeps no data that could be verified.
        assert expand(parse(result.text), open_target("null:64TiB"), settings={"verify": "none"}).runs


def outcome(path: Path) -> Imported | StudyError:
    try:
        return import_job_file(path, environment=VARIABLES)
    except StudyError as error:
        return error
