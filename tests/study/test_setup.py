"""Arrays and file systems of a study: read, checked, and kept apart from the workload's parameters."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import IosondeError, ServerError, StudyError, TargetError
from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan import Plan, Setup
from iosonde.planning import expand, load
from iosonde.planning.load import parse
from iosonde.storage import open_target
from iosonde.study.model import Study
from iosonde.study.setup import resolve
from iosonde.study.workload.servers import check_reachable, open_directory

DRIVES = "sim:pm963*4,capacity=1GiB"


def study(text: str = "", *, factors: str = "", repeats: int = 2, **measurement: str) -> Study:
    lines = "\n".join(f"{name} = {value}" for name, value in measurement.items())
    return parse(
        f"""
        name = "arrays"
        title = "Arrays"
        question = "?"
        repeats = {repeats}
        [measurement]
        span = "16MiB"
        duration = "100ms"
        {lines}
        [[parts]]
        [parts.factors]
        {factors}
        {text}
        [profiles.standard]
        """
    )


def array_of(devices: int, **array: Any) -> Setup:
    return Setup(devices=devices, parts={"array": ArraySetup(**array).model_dump()})


def planned(text: str = "", *, target: str = DRIVES, settings: dict[str, str] | None = None, **parts: Any) -> Plan:
    return expand(study(text, **parts), open_target(target), settings=settings or {})


def refusal(kind: type[IosondeError] = StudyError, **parts: Any) -> str:
    with pytest.raises(kind) as caught:
        planned(**parts)
    return str(caught.value)


def test_a_setup_belongs_to_the_case_with_everything_decided_and_not_to_the_workload() -> None:
    plan = planned(factors='array = ["raid0", "raid5"]', chunk='"64KiB"')
    setups = {case.levels["array"]: case.setup for case in plan.cases}
    assert setups == {level: array_of(4, level=level, chunk=64 << 10) for level in ("raid0", "raid5")}
    arrays = {run.spec["workload"]["backend"]["array"]["level"] for run in plan.runs}
    assert arrays == {"raid0", "raid5"}
    assert plan.cases[0].parameters["chunk"] == 64 << 10
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert all(case.setup is None and "array" not in case.parameters for case in planned().cases)


def test_a_setup_can_be_set_by_part_profile_compound_level_and_command_line() -> None:
    stripes = '{ label = "stripes", set = { array = "raid0", devices = 2 } }'
    factors = f'layout_of = [{stripes}, {{ label = "one", set = {{ array = "single" }} }}]'
    plan = planned(factors=factors, settings={"chunk": "16KiB"})
    by_label = {case.levels["layout_of"]: case.setup for case in plan.cases}
    assert by_label["stripes"] == array_of(2, level="raid0", chunk=16 << 10)
    assert by_label["one"] == Setup(devices=1)
    chunks = {case.parameters["array"]: case.parameters["chunk"] for case in plan.cases}
    assert chunks == {"raid0": 16 << 10, "single": 16 << 10}
    again = planned(factors='array = ["raid0", "raid1"]', settings={"array": "raid10", "devices": "4"})
    assert [case.case_id for case in again.cases] == ["main/array=raid10"]


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        ({"array": '"raid7"'}, "it is one of `single`, `raid0`, `raid1`, `raid10`, `raid5`, `raid6`"),
        ({"chunk": '"48KiB"'}, "`chunk` cannot be `48KiB`: chunk size must be a power of two"),
        ({"fresh": '"always"'}, "it is one of `study`, `case`, `run`"),
        ({"mount_options": '"noatime, discard"'}, "separated by commas, without spaces"),
        ({"mount_options": '"journal_path=/dev/sda"'}, "names a path or device"),
        ({"mount_options": '"noatime,logdev=sda"'}, "must not change what is mounted"),
        ({"mount_options": '"BIND"'}, "must not change what is mounted"),
        ({"setup_size": '"4KiB"'}, "size must be at least 1 MiB"),
    ],
)
def test_a_wrong_value_is_reported_with_its_place_in_the_file(measurement: dict[str, str], expected: str) -> None:
    text = refusal(**measurement)
    assert expected in text
    assert f"measurement.{next(iter(measurement))}`, line" in text


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        ({"array": '"raid5"', "devices": "2"}, "`raid5` requires at least 3 devices; `devices` is 2"),
        ({"array": '"raid10"', "devices": "3"}, "at least 4 devices and an even number"),
        ({"devices": "2"}, "requires one device; `devices` is 2"),
        ({"array": '"raid0"', "devices": "8"}, "the case requires 8 devices; the target has 4"),
        ({"array": '"raid0"', "array_state": '"degraded"'}, "does not survive 1 failed member: at most 0"),
        ({"array": '"raid5"', "failed_members": "1"}, 'nothing fails with `array_state = "synced"`'),
        ({"array": '"raid5"', "array_state": '"rebuilding"', "failed_members": "0"}, "requires a failed member"),
        ({"array": '"raid1"', "array_kind": '"btrfs"', "file_system": '"ext4"'}, "an array inside a file system"),
        ({"array": '"raid0"', "array_kind": '"btrfs"', "chunk": '"16KiB"'}, "btrfs requires chunks of 64 KiB"),
        ({"file_system": '"xfs"', "journal": '"off"'}, "`journal` requires ext4; `file_system` is `xfs`"),
        ({"mount_options": '"noatime"'}, "`mount_options` require a file system"),
        ({"file_system": '"xfs"', "setup_size": '"64MiB"'}, "`xfs` requires at least 300 MiB"),
    ],
)
def test_contradictions_are_reported_with_their_case(measurement: dict[str, str], expected: str) -> None:
    text = refusal(**measurement)
    assert expected in text
    assert "in case `main` of the study `arrays`" in text


@pytest.mark.parametrize(
    ("level", "devices", "kind", "survives"),
    [
        ("raid0", 8, "md", 0),
        ("raid1", 4, "md", 3),
        ("raid1", 4, "btrfs", 1),
        ("raid10", 8, "md", 4),
        ("raid10", 8, "btrfs", 1),
        ("raid5", 8, "md", 1),
        ("raid6", 8, "md", 2),
    ],
)
def test_levels_survive_what_their_redundancy_allows(level: Any, devices: int, kind: Any, survives: int) -> None:
    assert ArraySetup(level=level, kind=kind).tolerated_failures(devices) == survives


def test_what_is_left_open_is_decided() -> None:
    assert resolve({}, devices=4) is None
    assert resolve({"block_size": 4096}, devices=4) is None
    degraded = resolve({"array": "raid6", "array_state": "degraded"}, devices=6)
    assert degraded and degraded == array_of(6, level="raid6", state="degraded", failed_members=1)
    btrfs = resolve({"array": "raid0", "array_kind": "btrfs"}, devices=2)
    assert btrfs and (btrfs.file_system, btrfs.parts["array"]["chunk"]) == ("btrfs", 64 << 10)
    journal = resolve({"file_system": "ext4", "journal": False}, devices=1)
    assert journal and journal.journal == "off"


def test_a_setup_is_of_no_stream() -> None:
    text = """
        [[parts.streams]]
        name = "reader"
        [[parts.streams]]
        name = "writer"
        set = { array = "raid0" }
    """
    assert "`array` belongs to the case and not to a stream" in refusal(text=text)
    within = text.replace('{ array = "raid0" }', "{ read_fraction = 0.0 }")
    assert "belongs to the case" in refusal(text=within, factors='"writer.devices" = [1, 2]')


def test_settings_of_the_command_line_are_checked_alike() -> None:
    assert "`--set chunk=5KiB`" in refusal(settings={"chunk": "5KiB"}, array='"raid0"')
    assert "did you mean `file_system`?" in refusal(settings={"file_systems": "ext4"})
    assert planned(settings={"devices": "1"}).cases[0].setup == Setup(devices=1)
    text = refusal(TargetError, settings={"file_system": "ext4", "mount_options": "noatime,discard"})
    assert "simulated drives cannot have a file system (`ext4`)" in text, "mount options may contain commas"


def test_a_target_refuses_what_it_cannot_have() -> None:
    for measurement in (
        {"array": '"raid5"', "array_state": '"degraded"'},
        {"array": '"raid1"', "array_kind": '"btrfs"'},
    ):
        assert "a simulated array cannot have" in refusal(TargetError, **measurement)
    assert planned(target="null:1GiB", array='"single"').cases[0].setup == Setup()
    assert "cannot be raid0 of 1" in refusal(TargetError, target="null:1GiB", array='"raid0"')


def test_the_order_keeps_runs_of_one_setup_together_and_shuffles_within() -> None:
    plan = planned(
        factors='array = ["raid0", "raid1", "raid5", "single"]\nqueue_depth = [1, 2, 4, 8]', repeats=3, target=DRIVES
    )
    level_of = {case.case_id: str(case.levels["array"]) for case in plan.cases}
    levels = [level_of[run.case_id] for run in plan.runs]
    assert sorted(level for level, _ in itertools.groupby(levels)) == ["raid0", "raid1", "raid5", "single"]
    depths = [run.case_id.rpartition("=")[2] for run in plan.runs if "raid0" in run.case_id]
    assert [sorted(depths[at : at + 4]) for at in (0, 4, 8)] == [["1", "2", "4", "8"]] * 3
    assert depths != sorted(depths)


def test_repeats_follow_each_other_with_one_setup_for_each_case_and_are_interleaved_with_one_for_every_run() -> None:
    plan = planned(factors="queue_depth = [1, 2, 4, 8]", repeats=3, array='"raid0"', fresh='"case"')
    order = [run.case_id for run in plan.runs]
    assert [len(list(runs)) for _, runs in itertools.groupby(order)] == [3, 3, 3, 3]
    plan = planned(factors='array = ["raid0", "raid1"]\nqueue_depth = [1, 2]', repeats=2, fresh='"run"')
    order = [run.case_id for run in plan.runs]
    assert len(set(order[:4])) == len(set(order[4:])) == 4


def test_the_control_runs_between_setups() -> None:
    factors = 'array = ["raid0", "raid1", "raid5"]\nqueue_depth = [1, 2]'
    plan = planned("[control]\nevery = 2\n", factors=factors, repeats=2)
    places = [index for index, run in enumerate(plan.runs) if run.case_id == "control"]
    assert places == [0, 5, 10, 15]


def test_layout_is_counted_for_everything_that_is_created(tmp_path: Path) -> None:
    for fresh, mebibytes in {"study": 16, "case": 32, "run": 96}.items():
        parts = {"factors": "queue_depth = [1, 2]", "array": '"single"', "fresh": f'"{fresh}"'}
        assert planned(target=str(tmp_path), repeats=3, **parts).layout_bytes == mebibytes << 20  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "size"), [("oltp", {"warehouses": "1"}), ("jo2024-ceph", {"osd_size": "1GiB"})])
def test_a_device_on_which_nothing_is_created_has_the_name_that_the_user_gave(
    name: str, size: dict[str, str], tmp_path: Path
) -> None:
    settings = {"setup_size": "4GiB", "file_system": "none", **size}
    with pytest.raises(TargetError, match=f"^`{tmp_path}` as one device is not a directory"):
        expand(load(name), open_target(str(tmp_path)), profile="quick", settings=settings)


@pytest.mark.needs("root")
def test_the_place_of_a_log_is_a_directory_that_is_reachable_by_the_user_of_the_server(reachable: Path) -> None:
    with pytest.raises(TargetError, match="is not a directory"):
        open_directory("null:1GiB")
    data, private = reachable / "data", reachable / "private"
    data.mkdir(mode=0o755)
    private.mkdir(mode=0o700)
    check_reachable(("nobody",), open_target(str(data)))
    with pytest.raises(ServerError, match=f"`nobody` cannot enter `{private}`"):
        check_reachable(("nobody",), open_target(str(data)), str(private))
