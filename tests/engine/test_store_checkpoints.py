"""Checkpoints of databases: created before the first writes, and restored by later runs without loading again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from stores import EACH_ONCE, LOADED, Spec, carry_out, spec, stream

COUNT = 10_000
VALUE = 400
MARK = "iosonde-database.json"
WRITTEN = {**LOADED, "checkpoint": True}
RESTORED = {**WRITTEN, "restore": True}

pytestmark = pytest.mark.needs("rocksdb")


def overwrites(target: Path, database: Spec) -> Spec:
    writer = stream("writer", "update", limit_operations=COUNT)
    options = {"write_buffer_size": 1 << 20}
    settle = {"settle": True, "reopen": False, "page_cache": "keep"}
    return spec(
        "rocksdb", target, writer, database=database, options=options, count=COUNT, value_bytes=VALUE, transition=settle
    )


def content(directory: Path) -> dict[str, str]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_run_after_writes_is_restored_and_costs_less_than_loading(tmp_path: Path) -> None:
    first = carry_out(overwrites(tmp_path, WRITTEN))
    assert first.result["layout"]["written_bytes"] == COUNT * (16 + VALUE)
    assert "restored_copied_bytes" not in first.store
    saved = content(tmp_path / "database-checkpoint")
    assert saved
    for _ in range(2):
        again = carry_out(overwrites(tmp_path, RESTORED))
        assert again.warnings == []
        assert again.phases[:2] == [("layout", "begin"), ("layout", "end")]
        assert again.store["restored_linked_bytes"] > 0
        copied = again.store["restored_copied_bytes"]
        assert copied == again.result["layout"]["written_bytes"]
        assert content(tmp_path / "database-checkpoint") == saved, "runs do not modify it"
    assert copied < COUNT * VALUE / 4, "tables are links; only logs and manifests are copied"


def test_the_restored_database_has_the_loaded_records_also_after_an_interrupted_restore(
    tmp_path: Path,
) -> None:
    """Deletes in between would leave records missing."""
    carry_out(overwrites(tmp_path, WRITTEN))
    delete = overwrites(tmp_path, RESTORED)
    delete["workload"]["streams"] = [stream("delete", "delete", choice=EACH_ONCE, limit_operations=COUNT)]
    assert carry_out(delete).store["restored_linked_bytes"] > 0
    # The restore is interrupted, and repeated by the next run.
    mark = json.loads((tmp_path / MARK).read_text())
    assert mark["has_checkpoint"]
    (tmp_path / MARK).write_text(json.dumps({**mark, "state": "incomplete"}))
    for file in (tmp_path / "database").rglob("*"):
        if file.is_file():
            file.unlink()
    read = overwrites(tmp_path, RESTORED)
    read["workload"]["streams"] = [stream("reader", "read", choice=EACH_ONCE, limit_operations=COUNT)]
    done = carry_out(read)
    assert done.warnings == []
    assert done.checks("values") == COUNT
    assert done.checks("missing") == done.checks("corrupted") == 0


def test_a_file_linked_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    carry_out(overwrites(tmp_path / "target", WRITTEN))
    foreign = tmp_path / "foreign"
    foreign.write_text("data of somebody else")
    os.link(foreign, tmp_path / "target/database/linked")
    run = overwrites(tmp_path / "target", LOADED)
    assert carry_out(run).error["code"] == "wrong_target"
    assert foreign.read_text() == "data of somebody else"
