"""Messages of hosts, which are strangers: wrong ones fail one target with one line, and write nothing."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_samples import STUDY

from iosonde.base.ssh_hosts import Lines, SshHost
from iosonde.collections.fleet import directory as fleets
from iosonde.collections.fleet import hosts, model
from iosonde.collections.fleet.directory import FleetDirectory, FleetFile
from iosonde.collections.fleet.messages import (
    PROGRESS,
    Checked,
    Described,
    DescribedTarget,
    Ended,
    Files,
    Note,
    Problem,
    read,
)
from iosonde.collections.fleet.session import FleetSession, TargetProcess
from iosonde.errors import IosondeError, ResultsError, TargetError
from iosonde.plan import Plan
from iosonde.planning import load
from iosonde.results import ResultSet
from iosonde.results.reading import manifest
from iosonde.results.schema import MANIFEST, RECORD_TABLES
from iosonde.storage.safety.guard import NO_CONSENT
from iosonde.study.model import Study

MUTATIONS = 3_000
ENVIRONMENT = "44136fa355b3678a.json"
"""Named after its content, `{}`."""
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 70, 1e308, "", "x", "\x1b[2J", "../../etc/passwd", ".tmp-a", "a/b", "\0", "\ud800", "é" * 300,
    [], [[]], {}, {"is": {}}, "=" * 7, ["--destroy /dev/sda; id"], "records", "environments", "files", "note", "ended",
)  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "tiny.toml").write_text(STUDY)
    return load(str(tmp_path / "tiny.toml"))


@pytest.fixture
def plan(study: Study) -> Plan:
    fleet = model.Fleet.model_validate({"targets": [{"name": "a", "target": "sim:p900"}]})
    return fleets.plan_fleet(fleet, study, {"profile": "standard"}).plans["a"]


def record_files() -> dict[str, bytes]:
    files = {"record.json": b"{}", **{f"{table}.parquet": b"PAR1" for table in RECORD_TABLES}}
    return {**files, MANIFEST: manifest(files)}


def valid(plan: Plan) -> list[Any]:
    dumped, problem = plan.model_dump(mode="json"), Problem(what="it is mounted")
    described = DescribedTarget(hardware=["drive"], devices=[], plan=dumped, required=["--destroy /dev/sda"])
    machine = {"machine": "m", "cpus": 4, "software": {"iosonde": "1", "engine": "1", "engine_sha256": "a"}}
    found = [
        Note(text="a note"),
        Files.of("records", plan.runs[0].run_id, record_files()),
        Files.of("environments", ENVIRONMENT, {ENVIRONMENT: b"{}"}),
        Ended(),
        Ended(stopped=True),
        Ended(failed="its device is gone"),
        Described(**machine, targets={"a": described, "b": problem}),  # type: ignore[arg-type]
        Checked(targets={"a": None, "b": problem}, notes=["a note"]),
    ]
    return [json.loads(each.model_dump_json()) for each in found]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys or indices."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def mutated(messages: list[Any], chosen: random.Random) -> bytes:
    message = json.loads(json.dumps(chosen.choice(messages)))
    for _ in range(chosen.randint(0, 3)):
        if not (found := list(places(message))):
            break
        container, key = chosen.choice(found[:20] if chosen.random() < 0.7 else found)
        kind = chosen.randrange(4)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[str(chosen.choice(WRONG))] = container.pop(key)
        else:
            container[key] = copy.deepcopy(chosen.choice(WRONG))
    line = json.dumps(chosen.choice((message, [message], *[message] * 8))).encode()
    kind = chosen.randrange(12)
    place = chosen.randrange(len(line))
    if kind == 0:
        line = line[:place]
    elif kind == 1:
        line = line[:place] + chosen.randbytes(3).replace(b"\n", b"") + line[place:]
    elif kind == 2:
        line = b"Welcome to north " + line
    return line


@pytest.fixture
def fleet(tmp_path: Path, plan: Plan) -> FleetDirectory:
    targets = [model.FleetTarget(name="a", target="sim:p900", host="north")]
    description = FleetFile(study=plan.study_name, targets=targets, hosts=[SshHost(address="north")])
    found = FleetDirectory(path=tmp_path / "fleet", description=description)
    ResultSet.create(found.path / "a", plan)
    return found


@pytest.fixture
def process() -> Iterator[TargetProcess]:
    found = TargetProcess.start("iosonde.collections.fleet.worker")
    found.host = SshHost(address="north")
    yield found
    found.close()


def session(fleet: FleetDirectory, notes: list[str]) -> FleetSession:
    options = {"parallel": 1, "consent": NO_CONSENT, "retry_failed": False, "time_limit_s": None}
    return FleetSession(fleet, fleet.result_sets, fleet.description.hosts, **options, note=notes.append)  # type: ignore[arg-type]


@pytest.mark.engine
def test_no_message_of_a_host_ends_a_fleet(
    fleet: FleetDirectory, process: TargetProcess, plan: Plan, study: Study
) -> None:
    chosen, messages, valid_lines, kept = random.Random(39), valid(plan), 0, 0
    notes: list[str] = []
    own, asked = {"iosonde": "1", "engine": "1", "engine_sha256": "a"}, {"a": "sim:p900", "b": "/dev/sdb"}
    fleet_session = session(fleet, notes)
    for _ in range(MUTATIONS):
        line = mutated(messages, chosen)
        process.target = "a"
        fleet_session.take(process, line)
        try:
            message = read(PROGRESS, line, "host `north`")
            valid_lines += 1
            if isinstance(message, Files):
                hosts.keep(fleet.path / "a", plan, message)
                kept += 1
        except IosondeError as error:
            assert "\n" not in error.what and len(error.what) < 500
        for answer in (
            lambda line=line: hosts.answered(Checked, "north", line, asked),
            lambda line=line: [
                hosts.plan_of_host("north", study, asked[name], each)
                for name, each in hosts.described_by("north", line, own, asked).targets.items()
                if isinstance(each, DescribedTarget)
            ],
        ):
            try:
                answer()
            except IosondeError as error:
                assert "\n" not in error.what
    assert valid_lines > 100 and kept > 20, "some mutations leave a valid message"
    directory = fleet.path / "a"
    assert {each.name for each in directory.iterdir()} == {"format.json", "plan.json", "records", "environments"}
    run_ids = {run.run_id for run in plan.runs}
    assert {each.name.partition(".")[0] for each in (directory / "records").iterdir()} <= run_ids
    assert [each.name for each in (directory / "environments").iterdir()] == [ENVIRONMENT]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"Welcome to north", "text of another program: `Welcome to north` (let the startup files of its shell print"),
        (b"[]", "sent `[]`, where `message` is wrong: Input should be a valid dictionary"),
        (b'{"type": "note"}', "where `note.text` is wrong: Field required (install the same version of iosonde"),
        (b'{"type": "hello"}', "where `message` is wrong: Input tag 'hello' found using 'type' does not match"),
    ],
)
def test_a_line_that_is_no_message_fails_its_target_with_one_line(
    fleet: FleetDirectory, process: TargetProcess, line: bytes, text: str
) -> None:
    notes: list[str] = []
    process.target = "a"
    session(fleet, notes).take(process, line)
    assert process.is_stopping and not process.target
    process.send()  # It shows all hosts that it still listens.
    [note] = notes
    assert note.startswith("a: failed: host `north` sent ") and text in note and "\n" not in note


@pytest.mark.unit
@pytest.mark.parametrize(
    ("kind", "name", "files"),
    [
        ("records", "../a", record_files()),
        ("records", "c9999-r1", record_files()),
        ("records", ".tmp-1", record_files()),
        ("records", "RUN", {**record_files(), "record.json": b"[]"}),
        ("records", "RUN", {**record_files(), "extra": b""}),
        ("records", "RUN", {"record.json": b"{}"}),
        ("environments", "RUN", record_files()),
        ("environments", "0123456789abcdef.json", {"0123456789abcdef.json": b"{}"}),
        ("environments", ENVIRONMENT, {"other.json": b"{}"}),
    ],
)
def test_only_records_of_the_plan_and_environments_are_kept(
    tmp_path: Path, plan: Plan, kind: str, name: str, files: dict[str, bytes]
) -> None:
    with pytest.raises(ResultsError, match="is damaged or not part of the study"):
        hosts.keep(tmp_path, plan, Files.of(kind, name.replace("RUN", plan.runs[0].run_id), files))
    assert {each.name for each in tmp_path.iterdir()} == {"tiny.toml"}


@pytest.mark.unit
def test_an_answer_is_about_the_targets_that_were_asked_for(plan: Plan, study: Study) -> None:
    own = {"iosonde": "1", "engine": "1", "engine_sha256": "a"}
    *_, described, checked = valid(plan)
    with pytest.raises(TargetError, match="host `north` sent no answer for `c`"):
        hosts.answered(Checked, "north", json.dumps(checked).encode(), dict.fromkeys("abc"))
    with pytest.raises(TargetError, match="sent an answer for an unknown target, `b`"):
        hosts.described_by("north", json.dumps(described).encode(), own, {"a": "sim:p900"})
    older = described | {"software": own | {"iosonde": "0"}, "targets": None}
    with pytest.raises(TargetError, match="must have the same `iosonde` as this machine; got `0`"):
        hosts.described_by("north", json.dumps(older).encode(), own, {"a": "sim:p900"})
    with pytest.raises(TargetError, match="sent a wrong plan of `tiny` on `/dev/sda`: it is of the study `tiny` on"):
        hosts.plan_of_host("north", study, "/dev/sda", DescribedTarget.model_validate(described["targets"]["a"]))


@pytest.mark.unit
def test_lines_arrive_in_any_parts() -> None:
    stream, chosen, lines, found = b'{"type":"ended"}\n\nhello\nrest', random.Random(1), Lines(), []
    while stream:
        size = chosen.randint(1, 4)
        found += lines.add(stream[:size])
        stream = stream[size:]
    assert found == [b'{"type":"ended"}', b"hello"]


@pytest.mark.engine
def test_what_a_library_prints_on_a_host_is_no_message() -> None:
    program = """
import os, sys
from iosonde.collections.fleet.messages import Ended, Outbox
outbox = Outbox()
print("from Python", flush=True)
os.write(1, b"from C\\n")
outbox.send(Ended())
outbox.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert isinstance(read(PROGRESS, done.stdout, "host `north`"), Ended)
    assert done.stderr == b"from Python\nfrom C\n"
