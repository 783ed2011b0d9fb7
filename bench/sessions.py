"""Many sessions out of one: a real (simulated) result set, copied with other dates, machines and speeds.

    python bench/sessions.py DIRECTORY [--sessions 1000] [--seed 1]

Writes result sets below DIRECTORY: four system configurations, a night each, one planted change. A copy is as
consistent as its source: the clock of every run is scaled, so that rates, latencies, histograms and measured time
belong to a device that is faster or slower by one factor; manifests are written again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from iosonde.execution import execute
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.results.column import midpoint_ns
from iosonde.results.reading import manifest
from iosonde.results.schema import RECORD_TABLES
from iosonde.storage import open_target
from iosonde.study.model import Study

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from buckets import bucket_of

STUDY = {
    "name": "nightly",
    "title": "Nightly check",
    "question": "Does the disk still deliver what it did?",
    "repeats": 3,
    "measurement": {
        "access": "random",
        "block_size": "4KiB",
        "span": "64MiB",
        "ramp": "0s",
        "duration": "200ms",
        "interval": "100ms",
    },
    "parts": [
        {
            "factors": {
                "operation": [
                    {"label": "read", "set": {"read_fraction": 1.0}},
                    {"label": "write", "set": {"read_fraction": 0.0}},
                ],
                "queue_depth": [1, 16],
            }
        }
    ],
    "profiles": {"quick": {}},
    "views": [{"kind": "lines", "title": "IOPS", "x": "queue_depth", "y": "iops", "series": "operation"}],
    "analysis": [
        {"kind": "saturation", "over": "queue_depth", "metric": "iops", "by": ["operation"]},
        {"kind": "tail_growth", "over": "queue_depth", "metric": "completion_latency_ns_p99", "by": ["operation"]},
    ],
}
"""Four cases, three repeats."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """Facts of a copy that replace those of its source."""

    name: str
    begin: datetime
    speed: Callable[[str], float] = lambda case_id: 1.0
    """Of each run, by its case: called once for each run."""
    kernel: str = "6.1.0"
    software: str = "0.1.0"
    device: Mapping[str, Any] = field(default_factory=dict)
    verdict: str = ""
    study: str = ""


class Source:
    """A result set in memory."""

    def __init__(self, results: ResultSet) -> None:
        self.plan = json.loads((results.directory / "plan.json").read_text())
        self.records = [each.model_dump(mode="json") for each in results.records()]
        [self.environment] = results.environments().values()
        self.tables = {
            name: pl.concat(
                [
                    pl.read_parquet(results.directory / "records" / record["run_id"] / f"{name}.parquet")
                    for record in self.records
                ]
            )
            for name in RECORD_TABLES
        }


def simulated_source(directory: Path, *, target: str = "sim:pm963") -> Source:
    """Run the nightly study on a simulated drive."""
    plan = expand(Study.model_validate(STUDY), open_target(target), profile="quick", repeats=None, settings=None)
    return Source(execute(plan, directory))


def copy(source: Source, root: Path, session: Session) -> Path:
    """Write a copy of the source."""
    directory = root / session.name
    (directory / "records").mkdir(parents=True)
    (directory / "environments").mkdir()
    plan = source.plan | ({"study_name": session.study} if session.study else {})
    content = json.dumps(plan).encode()
    checksum = hashlib.sha256(content).hexdigest()
    (directory / "plan.json").write_bytes(content)
    (directory / "format.json").write_text(json.dumps({"format": 1, "plan_sha256": checksum}))
    environment = _environment(source, session)
    name = hashlib.sha256(environment).hexdigest()[:16]
    (directory / "environments" / f"{name}.json").write_bytes(environment)
    speeds = {record["run_id"]: session.speed(record["case_id"]) for record in source.records}
    tables = {table: _scaled_table(frame, speeds) for table, frame in source.tables.items()}
    for record in source.records:
        files = {f"{table}.parquet": _parquet(parts[record["run_id"]]) for table, parts in tables.items()}
        files["record.json"] = _record(record, session, speeds[record["run_id"]], name)
        place = directory / "records" / record["run_id"]
        place.mkdir()
        for file, data in {**files, "SHA256SUMS": manifest(files)}.items():
            (place / file).write_bytes(data)
    return directory


def _environment(source: Source, session: Session) -> bytes:
    facts = json.loads(json.dumps(source.environment))
    facts["kernel"]["release"] = session.kernel
    facts["software"]["iosonde"] = session.software
    return json.dumps(facts, sort_keys=True).encode()


def _record(record: Mapping[str, Any], session: Session, speed: float, environment: str) -> bytes:
    changed = json.loads(json.dumps(record))
    length = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["started_at"])
    begin = session.begin + timedelta(seconds=record["order"])
    changed |= {
        "environment": environment,
        "started_at": begin.isoformat(),
        "ended_at": (begin + length / speed).isoformat(),
    }
    result = changed["result"]
    result["begin_ns"] = round(result["begin_ns"] / speed)
    result["end_ns"] = round(result["end_ns"] / speed)
    for job in result["jobs"]:
        job["last_completion_ns"] = round(job["last_completion_ns"] / speed)
    for device in changed["target"].get("devices", []):
        device.update(session.device)
    if session.verdict:
        changed["verdict"] = {"kind": session.verdict, "because": ["fabricated"], "evidence": {}}
    return json.dumps(changed).encode()


def _scaled_table(table: pl.DataFrame, speeds: Mapping[str, float]) -> dict[str, pl.DataFrame]:
    """Divide every time by the speed of its run, and move latencies to their buckets."""
    scale = pl.col("run_id").replace_strict(speeds, return_dtype=pl.Float64)
    times = [name for name in table.columns if "_ns" in name and table.schema[name] == pl.UInt64]
    scaled = table.with_columns((pl.col(name) / scale).round().cast(pl.UInt64) for name in times)
    if "bucket" in table.columns:
        factors = table.select(scale.alias("speed"))["speed"].to_numpy()
        latencies = np.maximum(1, np.round(midpoint_ns(table["bucket"].to_numpy()) / factors)).astype(np.uint64)
        moved = scaled.with_columns(pl.Series("bucket", bucket_of(latencies)).cast(table.schema["bucket"]))
        keys = [name for name in moved.columns if name != "count"]
        scaled = moved.group_by(keys, maintain_order=True).agg(pl.col("count").sum()).select(table.columns)
    return {str(run_id): part for (run_id,), part in scaled.group_by("run_id", maintain_order=True)}


def _parquet(table: pl.DataFrame) -> bytes:
    import io

    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def nights(count: int, *, seed: int, loss: float = 0.05, noise: float = 0.01) -> Iterator[Session]:
    """Yield nightly sessions of four drives; on the first one the speed falls at half time, with a new kernel."""
    random = np.random.default_rng(seed)
    begin = datetime.fromisoformat("2024-01-01T02:00:00+00:00")
    for number in range(count):
        drive, night = number % 4, number // 4
        late = night >= count // 8
        effect = math.exp(random.normal(0, noise)) * (1 - loss if drive == 0 and late else 1.0)
        yield Session(
            name=f"drive-{drive}/{(begin + timedelta(days=night)):%Y-%m-%d}",
            begin=begin + timedelta(days=night, minutes=10 * drive),
            speed=lambda case_id, effect=effect: effect * math.exp(random.normal(0, noise)),
            kernel="6.6.0" if late else "6.1.0",
            device={
                "model": f"EXAMPLE SSD {drive + 1} TB",
                "serial_hash": f"{drive:08x}abcd",
                "firmware": "2.0" if drive == 1 and late else "1.0",
            },
            verdict="undetermined" if random.random() < 0.01 else "device-limited",
        )


def fabricate(root: Path, sessions: Iterator[Session]) -> int:
    """Write copies of a simulated source; returns how many."""
    with tempfile.TemporaryDirectory() as scratch:
        source = simulated_source(Path(scratch) / "source")
        return sum(1 for each in sessions if copy(source, root, each))


def main() -> None:
    """Fabricate result sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(fabricate(options.directory, nights(options.sessions, seed=options.seed)), "result sets")


if __name__ == "__main__":
    main()
