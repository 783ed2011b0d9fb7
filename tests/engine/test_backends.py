"""Backends of block I/O: what one writes, every other reads back; what is not available is refused with the reason."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from plans import MIB, null_spec

from iosonde.execution.engine_programs import ProbedBackend, name_of, probe_backends

Probed = dict[str, ProbedBackend]

URING = {
    **{"kind": "uring", "registered_files": True, "registered_buffers": True, "required": True},
    **{"submission_polling": False, "completion_polling": False},
}
FLUSHES = {"kind": "flush", "every": 8}
BACKENDS: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync"},
    "preadv2": {"kind": "preadv2"},
    "libaio": {"kind": "libaio"},
    "uring": URING,
    "uring with submission polling": {**URING, "submission_polling": True},
    "uring with completion polling": {**URING, "completion_polling": True},
}


@pytest.fixture(scope="module")
def directory() -> Path:
    """A directory on a disk: the checkout's file system has direct I/O where the temporary directory may have none."""
    return Path(__file__).parent


@pytest.fixture(scope="module")
def probed(directory: Path) -> Probed:
    return {each.name: each for each in probe_backends(real_engine(), directory)}


@pytest.fixture
def file(directory: Path) -> Any:
    """Path of a file for the I/O, removed afterwards with its journal."""
    path = directory / "backends.data"
    yield path
    for each in directory.glob("backends.data*"):
        each.unlink()


def spec(path: Path, backend: dict[str, Any], *, block_bytes: int, reads: bool, **stream: Any) -> dict[str, Any]:
    """Every block of one MiB once, written and sealed, or read and checked."""
    made = null_spec(
        "backend",
        target={"kind": "file", "path": str(path), "size_bytes": MIB},
        backend=backend,
        layout="missing",
        verify={"when": "during"},
        duration_ns=None,
    )
    whole = {
        "queue_depth": 1 if backend["kind"] in ("sync", "preadv2") else 8,
        "access": {"kind": "random", "coverage": "each_once", "distribution": {"kind": "uniform"}},
        "mix": {"read_fraction": 1.0 if reads else 0.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": block_bytes, "weight": 1.0}],
        "limit_bytes": MIB,
    }
    made["workload"]["streams"][0] |= whole | stream
    return made


def carry_out(spec: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run([real_engine()], input=json.dumps(spec), capture_output=True, text=True, check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def available(probed: Probed) -> dict[str, dict[str, Any]]:
    return {name: backend for name, backend in BACKENDS.items() if probed[name].is_available}


def test_blocking_calls_and_linux_aio_are_available(probed: Probed) -> None:
    assert {"sync", "preadv2", "libaio"} <= {name for name, each in probed.items() if each.is_available}
    assert all(each.reason for each in probed.values() if not each.is_available)
    assert {name_of(backend) for backend in BACKENDS.values()} <= set(probed)


@pytest.mark.parametrize("writer", BACKENDS)
def test_what_one_backend_writes_every_other_reads(writer: str, probed: Probed, file: Path) -> None:
    usable = available(probed)
    if writer not in usable:
        refused = carry_out(spec(file, BACKENDS[writer], block_bytes=4096, reads=False))
        assert (refused["event"], refused["code"]) == ("error", "unsupported")
        assert probed[writer].reason in refused["message"]
        return
    for number, (reader, backend) in enumerate(usable.items()):
        sizes = [4096, 16 << 10, 1 << 20]
        flushed = spec(file, usable[writer], block_bytes=sizes[number % 3], reads=False, durability=FLUSHES)
        written, read = carry_out(flushed), carry_out(spec(file, backend, block_bytes=sizes[-number % 3], reads=True))
        for done, kind in ((written, usable[writer]["kind"]), (read, backend["kind"])):
            assert done["event"] == "result", done
            assert done["backend"]["kind"] == kind
        assert read["verification"]["checked_bytes"] == MIB, reader
        assert read["verification"]["unknown_bytes"] == 0, reader
        assert not any(read["verification"]["faults"].values()), reader


def test_submission_polling_has_room_for_ios_that_complete_before_the_ring_is_freed(probed: Probed, file: Path) -> None:
    """Reads of the page cache complete while the kernel's thread submits them, before it frees their entries."""
    name = "uring with submission polling"
    if not probed[name].is_available:
        assert probed[name].reason
        return
    for queue_depth in (1, 4):
        polled = spec(file, BACKENDS[name], block_bytes=4096, reads=True, io_mode="buffered", queue_depth=queue_depth)
        del polled["workload"]["verify"]
        polled["workload"]["streams"][0] |= {
            "access": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
            "limit_bytes": None,
            "limit_operations": 20_000,
        }
        done = carry_out(polled)
        assert done["event"] == "result", done


NVME_COMMANDS = {"kind": "uring_nvme", "registered_buffers": True, "completion_polling": False}
NVME_USER = {"kind": "nvme_user", "data_pointers": "prp", "interrupts": False, "timeout_ns": 30_000_000_000}
NOWHERE = {**NVME_USER, "device": {"address": "ffff:00:00.0", "serial": "S1", "namespace": 1}}
DEVICE = {"target": {"kind": "device", "path": "/dev/nvme0n1", "size_bytes": MIB}, "layout": "never", "verify": None}


@pytest.mark.parametrize(
    ("backend", "stream", "changed", "code", "reason"),
    [
        (BACKENDS["preadv2"], {"queue_depth": 2}, {}, "invalid_spec", "queue_depth"),
        (BACKENDS["preadv2"], {"io_mode": "buffered"}, {}, "invalid_spec", "io_mode"),
        (BACKENDS["libaio"], {"io_mode": "buffered"}, {}, "invalid_spec", "io_mode"),
        (BACKENDS["libaio"], {"block_sizes": [{"bytes": 1000, "weight": 1.0}]}, {}, "invalid_spec", "block_sizes"),
        (NVME_COMMANDS, {}, {}, "unsupported", "NVMe commands need a block device"),
        (NVME_USER, {}, {}, "invalid_spec", "`target`"),
        (NVME_USER, {}, {**DEVICE, "layout": "missing"}, "invalid_spec", "layout"),
        (NVME_USER, {}, {**DEVICE, "verify": {"when": "after"}}, "invalid_spec", "verify"),
        (NVME_USER, {}, DEVICE, "unsupported", "no controller was handed over"),
        (NOWHERE, {}, DEVICE, "unsupported", "nvme_user"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(
    backend: dict[str, Any], stream: dict[str, Any], changed: dict[str, Any], code: str, reason: str, file: Path
) -> None:
    refused = spec(file, backend, block_bytes=4096, reads=True, **stream)
    refused["workload"] |= {"verify": None, **changed}
    found = carry_out(refused)
    assert (found["event"], found["code"]) == ("error", code)
    assert reason in f"{found['context']} {found['message']}"
    assert code == "unsupported" or not file.exists()
