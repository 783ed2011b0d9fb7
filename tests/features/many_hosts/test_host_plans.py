"""Plans of hosts, and what is refused before a host is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from many_hosts_plans import planned

from iosonde import ssh_hosts
from iosonde.errors import TargetError
from iosonde.execution import execute, resume
from iosonde.execution.carrier import HostOptions
from iosonde.execution.checks.admission import Admission
from iosonde.features.many_hosts import host_plan
from iosonde.features.many_hosts.carrier import connected
from iosonde.features.many_hosts.host_plan import MIB
from iosonde.features.many_hosts.together import Together
from iosonde.features.network_storage.targets import NfsTarget
from iosonde.metrics import wording
from iosonde.plan import Plan, Setup
from iosonde.planning import load
from iosonde.planning.expand import study_size
from iosonde.procedure.probe import probe
from iosonde.results import ResultSet
from iosonde.storage.targets import workspace
from iosonde.storage.targets.device_target import DeviceTarget

pytestmark = pytest.mark.unit


def test_a_study_uses_the_first_hosts_that_its_cases_require(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"hosts": [1, 2]})
    assert host_plan.taking_part(plan, ["one", "two", "three"]) == ["one", "two"]
    with pytest.raises(TargetError, match="requires 2 hosts; got 1"):
        host_plan.taking_part(plan, ["one"])
    one, two = (host_plan.of_host(plan.model_copy(update={"hosts": ["one", "two"]}), name) for name in ("one", "two"))
    assert [case.parameters["hosts"] for case in one.cases] == [1, 2]
    assert [case.parameters["hosts"] for case in two.cases] == [2]
    assert {run.case_id for run in two.runs} == {"main/hosts=2"}


SSH_HOSTS = """
[[hosts]]
address = "10.0.0.11"
name = "north"
[[hosts]]
address = "10.0.0.12"
[[hosts]]
address = "nas"
role = "server"
"""


def shown(plan: Plan, hosts: str) -> Plan:
    return Together().planned(plan, HostOptions(hosts=hosts))


def test_the_hosts_of_a_specification_are_known_before_any_is_started(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(SSH_HOSTS, encoding="utf-8")
    (tmp_path / "job.toml").write_text("nodes = 2", encoding="utf-8")
    plan = planned(tmp_path)
    assert shown(plan, "local:2").hosts == ["host0", "host1"]
    over_ssh = shown(plan, f"ssh:{tmp_path / 'hosts.toml'}")
    assert (over_ssh.hosts, over_ssh.notes[-1]) == (["north", "10.0.0.12"], "counters are read on nas")
    for slurm in ("slurm:2", f"slurm:{tmp_path / 'job.toml'}"):
        of_slurm = shown(plan, slurm)
        assert (of_slurm.hosts, of_slurm.notes[-1].partition(" ")[0]) == (["node1", "node2"], "Slurm")
    unknown = shown(plan, "tls://10.0.0.1:8786")
    assert (unknown.hosts, unknown.cost) == ([], plan.cost) and "those of one host" in unknown.notes[-1]
    with pytest.raises(TargetError, match="must be `local:N`"):
        shown(plan, "nonsense")


def test_a_plan_on_hosts_has_the_bytes_and_the_files_of_all(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"hosts": [1, 2]}, read_fraction=0.0, arrival="constant", rate=100.0)
    both = shown(plan, "local:4")
    assert both.hosts == ["host0", "host1"], "the study uses no more"
    assert (plan.layout_bytes, both.layout_bytes) == (MIB, 2 * MIB)
    of_a_run = plan.cases[0].cost.write_bytes
    assert of_a_run and plan.cost.write_bytes == MIB + 2 * 2 * of_a_run
    assert both.cost.write_bytes == 2 * MIB + 2 * (1 + 2) * of_a_run, "layout, and repeats on one and on two hosts"
    of_each = [host_plan.of_host(host_plan.on_hosts(plan, both.hosts), name) for name in both.hosts]
    assert [each.path for each in both.destroys] == [each.destroys[0].path for each in of_each]
    assert [each.what.partition(":")[0] for each in both.destroys] == ["host host0", "host host1"]
    one = shown(planned(tmp_path, host_files="shared"), "local:4")
    assert (one.layout_bytes, len(one.destroys)) == (MIB, 1)


@pytest.mark.parametrize("hosts", ["local:1", "slurm:1", "ssh:FILE"])
def test_missing_hosts_are_an_error_before_any_is_started(tmp_path: Path, hosts: str) -> None:
    """Nothing is started here: the host of the file and Slurm do not exist."""
    (tmp_path / "hosts.toml").write_text(SSH_HOSTS.partition('[[hosts]]\naddress = "10.0.0.12"')[0], encoding="utf-8")
    plan = planned(tmp_path, {"hosts": [1, 2]})
    options = HostOptions(hosts=hosts.replace("FILE", str(tmp_path / "hosts.toml")))
    with pytest.raises(TargetError, match="requires 2 hosts; got 1"):
        execute(plan, tmp_path / "set", hosts=options)
    result_set = ResultSet.create(tmp_path / "begun", plan.model_copy(update={"hosts": ["north", "south"]}))
    with pytest.raises(TargetError, match="requires 2 hosts; got 1"):
        resume(result_set.directory, hosts=options)


def test_shared_files_are_created_by_the_first_host_only(tmp_path: Path) -> None:
    plan = planned(tmp_path, host_files="shared").model_copy(update={"hosts": ["one", "two"]})
    host_plan.check(plan)
    one, two = (host_plan.of_host(plan, name) for name in ("one", "two"))
    assert one.created_name == two.created_name == plan.created_name
    assert (one.joins, two.joins) == (False, True)
    assert workspace.reused(two) == [], "it neither creates nor removes anything"
    assert [run.spec["workload"]["layout"] for run in (one.runs[0], two.runs[0])] == ["missing", "never"]
    assert two.runs[0] == host_plan.run_of_host(plan, plan.runs[0], "two")
    Admission.for_plan(two, tmp_path).check_plan()


def test_what_is_not_the_file_of_the_first_host_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, host_files="shared")
    spec = plan.runs[0].spec
    own = Path(spec["workload"]["target"]["path"])
    with pytest.raises(TargetError, match="which the first host creates: No such file"):
        workspace.join(spec)
    own.parent.mkdir()
    own.write_bytes(b"data")
    assert set(workspace.join(spec)) == {str(own.parent), str(own)}
    own.with_name("another").hardlink_to(own)
    with pytest.raises(TargetError, match="is not what iosonde created there"):
        workspace.join(spec)
    own.unlink()
    own.symlink_to(own.with_name("another"))
    with pytest.raises(TargetError, match="is not what iosonde created there"):
        workspace.join(spec)


def test_hosts_do_not_share_files_that_are_verified_or_only_in_some_cases(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="does not support verification of what hosts share"):
        host_plan.check(planned(tmp_path, host_files="shared", verify="after"))
    with pytest.raises(TargetError, match="all cases of a study must have the same `host_files`"):
        host_plan.check(planned(tmp_path, {"host_files": ["shared", "per_host"]}))


def test_all_hosts_take_part_in_cases_that_name_no_number(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert host_plan.taking_part(plan, ["one", "two", "three"]) == ["one", "two", "three"]
    assert host_plan.of_case(plan.cases[0], ["one", "two", "three"]) == ["one", "two", "three"]


def test_findings_count_hosts() -> None:
    assert wording.level_words("hosts", 1) == "1 host"
    assert wording.range_words("hosts", [1, 2, 4], [1, 2]) == " with numbers of hosts up to 2"


def test_a_study_about_hosts_needs_no_root() -> None:
    assert not study_size(load("shared-storage"), profile="quick").needs_root
    assert study_size(load("kernel-tax"), profile="quick").needs_root


def test_hosts_differ_in_files_and_seeds_and_in_nothing_else(tmp_path: Path) -> None:
    plan = planned(tmp_path).model_copy(update={"hosts": ["one", "other"]})
    one, other = (host_plan.of_host(plan, name) for name in ("one", "other"))
    assert one == host_plan.of_host(plan, "one"), "the same in every session"
    assert one.created_name != other.created_name
    assert one.hosts == ["one"]
    for run, first, second in zip(plan.runs, one.runs, other.runs, strict=True):
        assert first == host_plan.run_of_host(plan, run, "one"), "what an agent is sent is in its plan"
        assert first.spec["seed"] != second.spec["seed"]
        same = second.model_dump_json().replace(other.created_name, one.created_name)
        assert type(run).model_validate_json(same).spec | {"seed": 0} == first.spec | {"seed": 0}


def test_the_plan_of_a_host_writes_only_to_its_own_files(tmp_path: Path) -> None:
    plan = planned(tmp_path).model_copy(update={"hosts": ["one"]})
    Admission.for_plan(host_plan.of_host(plan, "one"), tmp_path).check_plan()


def test_a_directory_is_required(tmp_path: Path) -> None:
    host_plan.check(planned(tmp_path))
    for target in (tmp_path / "file", "null:1GiB"):
        with pytest.raises(TargetError, match="requires a directory"):
            host_plan.check(planned(target))


@pytest.mark.parametrize(
    ("measurement", "what"),
    [
        ({"backend": "null"}, "the backend `null`"),
    ],
)
def test_what_hosts_cannot_do_together_is_named(tmp_path: Path, measurement: dict[str, Any], what: str) -> None:
    with pytest.raises(TargetError, match=f"does not support {what}"):
        host_plan.check(planned(tmp_path, **measurement))


def with_setup(plan: Plan, setup: Setup, **parameters: Any) -> Plan:
    """The plan of a study whose cases have that setup, on a machine that may lack what it needs."""
    cases = [
        case.model_copy(update={"setup": setup, "parameters": case.parameters | parameters}) for case in plan.cases
    ]
    return plan.model_copy(update={"cases": cases})


def test_each_host_has_setups_of_its_own_files_only(tmp_path: Path) -> None:
    """Two hosts that mount one file system would destroy it."""
    plan = planned(tmp_path)
    own = with_setup(plan, Setup(file_system="ext4", setup_size=1 << 26))
    host_plan.check(own)
    with pytest.raises(TargetError, match="files that hosts share on one device, ext4, which each of them creates"):
        host_plan.check(with_setup(plan, Setup(file_system="ext4", setup_size=1 << 26), host_files="shared"))
    for parts in ({"nfs": {}}, {"fabric": {"kind": "nvme-tcp"}}):
        with pytest.raises(TargetError, match="each host would use a server of its own") as refused:
            host_plan.check(with_setup(plan, Setup(parts=parts)))
        assert "`nfs:SERVER:/EXPORT`" in refused.value.hint
    with pytest.raises(TargetError, match="1000000 hosts require 61 TiB"):
        host_plan.check_space(own, 1_000_000)


def test_what_is_created_on_a_shared_device_belongs_to_one_machine() -> None:
    device = DeviceTarget(devices=(Path("/dev/x"),), numbers=("1:1",), incarnations=("",), hardware=("",))
    device.check_on_hosts(None)
    with pytest.raises(TargetError, match="only one of them can use it as one device, xfs"):
        device.check_on_hosts(Setup(file_system="xfs"))
    two = replace(device, devices=(Path("/dev/x"), Path("/dev/y")))
    with pytest.raises(TargetError, match="requires a directory, one block device"):
        two.check_on_hosts(None)


def test_each_host_mounts_an_export_and_has_a_directory_on_it() -> None:
    export = NfsTarget(name="nfs:server:/export", source=Path("server:/export"), room_bytes=1 << 30)
    export.check_on_hosts(Setup(parts={"nfs": {"connections": 4}}, file_system="nfs"))


def test_hosts_have_names_of_their_own_on_both_targets_of_a_comparison(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    plan = planned(tmp_path / "one", against=tmp_path / "other").model_copy(update={"hosts": ["north", "south"]})
    host_plan.check(plan)
    host_plan.check_space(plan, 2)
    used = []
    for host in plan.hosts:
        own = host_plan.of_host(plan, host)
        assert [run.run_id for run in own.runs] == [run.run_id for run in plan.runs], "pairs in the same order"
        assert own.runs == [host_plan.run_of_host(plan, run, host) for run in plan.runs]
        for part in own.by_target():
            Admission.for_plan(part, tmp_path).check_plan()
            used.append(f"{part.target}/{part.created_name}")
    assert len(set(used)) == 4
    assert not any(plan.created_name in each for each in used)


def test_a_directory_and_a_device_are_not_compared_on_hosts(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    plan = planned(tmp_path, against=tmp_path / "other")
    device = {"kind": "device", "path": "/dev/sdx", "size_bytes": 1 << 20}
    runs = [
        run
        if run.case_id.startswith("a/")
        else run.model_copy(update={"spec": {**run.spec, "workload": {**run.spec["workload"], "target": device}}})
        for run in plan.runs
    ]
    with pytest.raises(TargetError, match="two directories or two block devices; got one of each"):
        host_plan.check(plan.model_copy(update={"runs": runs}))


def test_an_arm_may_have_more_hosts_than_the_other(tmp_path: Path) -> None:
    plan = planned(tmp_path, hosts=1, against_settings={"hosts": "2"}).model_copy(update={"hosts": ["north", "south"]})
    south = host_plan.of_host(plan, "south")
    assert {case.arm for case in south.cases} == {"b"}
    [part] = south.by_target()
    Admission.for_plan(part, tmp_path).check_plan()


def test_runs_that_a_procedure_decides_on_are_those_of_each_host(tmp_path: Path) -> None:
    search = {"over": "queue_depth", "between": [1, 64], "holds": "iops >= 100"}
    plan = planned(tmp_path, {"read_fraction": [1.0]}, part={"search": search})
    plan = plan.model_copy(update={"hosts": ["north", "south"]})
    host_plan.check(plan)
    run = probe(plan.cases[0], "p01", 1, levels={"queue_depth": 8}, parameters={"queue_depth": 8})
    north, south = (host_plan.run_of_host(plan, run, host) for host in plan.hosts)
    assert north.spec["seed"] != south.spec["seed"]
    assert {each.spec["workload"]["streams"][0]["queue_depth"] for each in (north, south)} == {8}
    own = host_plan.of_host(plan, "south")
    admission = Admission.for_plan(own, tmp_path)
    admission.check_plan()
    case = own.case_of(south.run_id)
    assert case
    admission.check(south.run_id, case, south.spec)


@pytest.mark.parametrize(
    ("part", "measurement", "what"),
    [
        ({"rounds": {"max_rounds": 2}}, {"purge": "overwrite"}, "preparation of the target by `purge`"),
        ({"rounds": {"max_rounds": 2}}, {"precondition": "1MiB"}, "preparation of the target by `precondition`"),
        ({"rounds": {"max_rounds": 1, "until_steady": True}}, {"round_length": "1s"}, "runs that end once they are"),
    ],
)
def test_procedures_that_hosts_would_end_at_different_times_are_refused(
    tmp_path: Path, part: dict[str, Any], measurement: dict[str, Any], what: str
) -> None:
    host_plan.check(planned(tmp_path, part={"rounds": {"max_rounds": 2}}))
    with pytest.raises(TargetError, match=f"does not support {what}"):
        host_plan.check(planned(tmp_path, part=part, **measurement))


def test_no_parameter_of_each_host_is_derived_from_a_total(tmp_path: Path) -> None:
    derived = {"derived": {"queue_depth": {"part": "main", "metric": "iops"}}, "factors": {}}
    plan = planned(tmp_path, further={"name": "half", **derived})
    with pytest.raises(TargetError, match="`queue_depth` derived from `iops`, which is that of all hosts"):
        host_plan.check(plan)


def test_the_files_of_all_hosts_must_fit(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    host_plan.check_space(plan, 4)
    with pytest.raises(TargetError, match="4 hosts require 4096 PiB"):
        host_plan.check_space(plan.model_copy(update={"layout_bytes": 1 << 60}), 4)


@pytest.mark.parametrize("names", [["a", "a"], ["a", "../b"], ["tcp://127.0.0.1:4567"], [""]])
def test_names_of_hosts_are_names_of_directories(names: list[str]) -> None:
    host_plan.check_names(["host0", "rack-2.node_7"])
    with pytest.raises(TargetError, match="hosts must have different names"):
        host_plan.check_names(names)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("local:0", "requires a number from 1 to 64"),
        ("local:many", "requires a number from 1 to 64"),
        ("somewhere", "must be `local:N`, `ssh:FILE`, `slurm:N` or the address of a Dask scheduler"),
        ("tls://", "must be `local:N`, `ssh:FILE`, `slurm:N` or the address of a Dask scheduler"),
        ("tcp://127.0.0.1:8786", "has no authentication: anyone who reaches this scheduler can run any program"),
    ],
)
def test_hosts_are_refused_before_anything_starts(spec: str, problem: str) -> None:
    with pytest.raises(TargetError, match=problem), connected(spec):
        pass


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hosts = [", "is not TOML"),
        ("", "`hosts` is missing"),
        ("hosts = []", "`hosts` is wrong"),
        ('[[hosts]]\naddress = "-oProxyCommand=id"', "`hosts.0.address` is wrong"),
        ('[[hosts]]\naddress = "a"\nuser = "-oProxyCommand=id"', "`hosts.0.user` is wrong"),
        ('[[hosts]]\naddress = "a"\nport = 70000', "`hosts.0.port` is wrong"),
        ('[[hosts]]\naddress = "a"\npassword = "b"', "there is no key `hosts.0.password`"),
        ('[[hosts]]\naddress = "a"\n[[hosts]]\naddress = "a"', "hosts must have different names"),
    ],
)
def test_files_of_hosts_are_checked(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "hosts.toml").write_text(text)
    with pytest.raises(TargetError, match=problem):
        ssh_hosts.read(tmp_path / "hosts.toml")
    with pytest.raises(TargetError, match="cannot read the list of hosts"):
        ssh_hosts.read(tmp_path / "missing.toml")
