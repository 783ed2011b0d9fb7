"""Plans of hosts, proof that they see the same device, and what is refused before a host is started."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from many_hosts_plans import planned

from iosonde.base import ssh_hosts
from iosonde.errors import TargetError
from iosonde.execution.admission import Admission
from iosonde.execution.session import HostOptions
from iosonde.features.many_hosts import host_plan, same_device, worker
from iosonde.features.many_hosts.host_plan import MIB
from iosonde.features.many_hosts.hosts import Host, HostLostError, connected
from iosonde.features.many_hosts.together import Together
from iosonde.features.network_storage.storage import NfsTarget
from iosonde.plan import Plan, Setup
from iosonde.storage.targets import workspace
from iosonde.storage.targets.device_target import DeviceTarget

pytestmark = pytest.mark.unit


def test_a_study_uses_the_first_hosts_that_its_cases_require(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"hosts": [1, 2]})
    assert host_plan.taking_part(plan, ["one", "two", "three"]) == ["one", "two"]
    assert host_plan.taking_part(planned(tmp_path), ["one", "two", "three"]) == ["one", "two", "three"]
    with pytest.raises(TargetError, match="requires 2 hosts; got 1"):
        host_plan.taking_part(plan, ["one"])
    one, two = (host_plan.of_host(plan.model_copy(update={"hosts": ["one", "two"]}), name) for name in ("one", "two"))
    assert [case.parameters["hosts"] for case in one.cases] == [1, 2]
    assert [case.parameters["hosts"] for case in two.cases] == [2]
    assert {run.case_id for run in two.runs} == {"main/hosts=2"}


@pytest.mark.parametrize("message", [{}, {"is": "note"}, "text"])
def test_a_malformed_message_loses_its_host_whose_agent_ends_by_itself(message: Any) -> None:
    calls = []

    class Client:
        async def run(self, *call: Any, workers: list[str]) -> dict[str, Any]:
            calls.append(call[1])
            return {workers[0]: 1 if call[0] is worker.start else [message]}

    async def answer() -> None:
        host = Host(name="north", address="tls://10.0.0.1", client=Client())  # type: ignore[arg-type]
        await host.start()
        with pytest.raises(HostLostError, match="host `north` was lost: a message of its agent is malformed: "):
            await asyncio.wait_for(host.receive("opened"), 10.0)
        await host.end()

    asyncio.run(answer())
    assert "end" in calls
    assert "kill" not in calls, "it restores what it has changed"


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


def test_hosts_differ_in_files_and_seeds_and_in_nothing_else(tmp_path: Path) -> None:
    plan = planned(tmp_path).model_copy(update={"hosts": ["one", "other"]})
    one, other = (host_plan.of_host(plan, name) for name in ("one", "other"))
    assert one == host_plan.of_host(plan, "one"), "the same in every session"
    assert one.created_name != other.created_name
    assert one.hosts == ["one"]
    Admission.for_plan(one, tmp_path).check_plan()
    for run, first, second in zip(plan.runs, one.runs, other.runs, strict=True):
        assert first == host_plan.run_of_host(plan, run, "one"), "what an agent is sent is in its plan"
        assert first.spec["seed"] != second.spec["seed"]
        same = second.model_dump_json().replace(other.created_name, one.created_name)
        assert type(run).model_validate_json(same).spec | {"seed": 0} == first.spec | {"seed": 0}


DERIVED = {"name": "half", "derived": {"queue_depth": {"part": "main", "metric": "iops"}}, "factors": {}}
ROUNDS = {"part": {"rounds": {"max_rounds": 2}}}
STEADY = {"part": {"rounds": {"max_rounds": 1, "until_steady": True}}, "round_length": "1s"}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"backend": "null"}, "does not support the backend `null`"),
        ({"host_files": "shared", "verify": "after"}, "does not support verification of what hosts share"),
        ({"factors": {"host_files": ["shared", "per_host"]}}, "all cases of a study must have the same `host_files`"),
        ({"further": DERIVED}, "`queue_depth` derived from `iops`, which is that of all hosts"),
        (ROUNDS | {"purge": "overwrite"}, "does not support preparation of the target by `purge`"),
        (ROUNDS | {"precondition": "1MiB"}, "does not support preparation of the target by `precondition`"),
        (STEADY, "does not support runs that end once they are"),
    ],
)
def test_what_hosts_cannot_do_together_is_named(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    host_plan.check(planned(tmp_path))
    host_plan.check(planned(tmp_path, **ROUNDS))
    with pytest.raises(TargetError, match=what):
        host_plan.check(planned(tmp_path, **options))
    for target in (tmp_path / "file", "null:1GiB"):
        with pytest.raises(TargetError, match="requires a directory"):
            host_plan.check(planned(target))


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
    host_plan.check_space(own, 4)
    with pytest.raises(TargetError, match="1000000 hosts require 61 TiB"):
        host_plan.check_space(own, 1_000_000)
    with pytest.raises(TargetError, match="4 hosts require 4096 PiB"):
        host_plan.check_space(plan.model_copy(update={"layout_bytes": 1 << 60}), 4)


def test_what_is_created_on_a_shared_device_belongs_to_one_machine() -> None:
    device = DeviceTarget(devices={"1:1": Path("/dev/x")}, incarnations={}, hardware={})
    device.check_on_hosts(None)
    with pytest.raises(TargetError, match="only one of them can use it as one device, xfs"):
        device.check_on_hosts(Setup(file_system="xfs"))
    two = replace(device, devices={"1:1": Path("/dev/x"), "1:2": Path("/dev/y")})
    with pytest.raises(TargetError, match="requires a directory, one block device"):
        two.check_on_hosts(None)
    export = NfsTarget(name="nfs:server:/export", source=Path("server:/export"), room_bytes=1 << 30)
    export.check_on_hosts(Setup(parts={"nfs": {"connections": 4}}, file_system="nfs"))


def test_an_arm_may_have_more_hosts_than_the_other(tmp_path: Path) -> None:
    plan = planned(tmp_path, hosts=1, against_settings={"hosts": "2"}).model_copy(update={"hosts": ["north", "south"]})
    south = host_plan.of_host(plan, "south")
    assert {case.arm for case in south.cases} == {"b"}
    [part] = south.by_target()
    Admission.for_plan(part, tmp_path).check_plan()


def test_hosts_are_refused_before_anything_starts() -> None:
    for spec, problem in (
        ("local:0", "requires a number from 1 to 64"),
        ("tls://[::1", "must be `local:N`, `ssh:FILE`, `slurm:N` or the address of a Dask scheduler"),
        ("tls://10.0.0.1:876543", "must be `local:N`, `ssh:FILE`, `slurm:N` or the address of a Dask scheduler"),
        ("tls://", "must be `local:N`, `ssh:FILE`, `slurm:N` or the address of a Dask scheduler"),
        ("tcp://127.0.0.1:8786", "has no authentication: anyone who reaches this scheduler can run any program"),
    ):
        with pytest.raises(TargetError, match=problem), connected(spec):
            pass
    host_plan.check_names(["host0", "rack-2.node_7"])
    for names in (["a", "a"], ["a", "../b"], ["tcp://127.0.0.1:4567"], [""]):
        with pytest.raises(TargetError, match="hosts must have different names"):
            host_plan.check_names(names)


@pytest.mark.parametrize(
    ("status", "errors", "hint"),
    [
        (255, b"Permission denied (publickey).", "connect without a password"),
        (
            1,
            b"ModuleNotFoundError: No module named 'distributed'",
            "/opt/python -m pip install 'iosonde[hosts]'` there",
        ),
        (1, b"Error while finding module: No module named 'iosonde'", "install the same version of iosonde there"),
        (127, b"sh: 1: /opt/python: not found", "install the same version of iosonde there"),
    ],
)
def test_the_hint_for_a_host_names_what_it_lacks(status: int, errors: bytes, hint: str) -> None:
    assert hint in ssh_hosts.SshHost(address="north", python="/opt/python").error(status, errors).hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "`hosts` is missing"),
        ('[[hosts]]\naddress = "-oProxyCommand=id"', "`hosts.0.address` is wrong"),
        ('[[hosts]]\naddress = "a"\nuser = "-oProxyCommand=id"', "`hosts.0.user` is wrong"),
        ('[[hosts]]\naddress = "a"\npassword = "b"', "there is no key `hosts.0.password`"),
        ('[[hosts]]\naddress = "a"\n[[hosts]]\naddress = "a"', "hosts must have different names"),
        ('[[hosts]]\naddress = "a"\nrole = "server"', "at least one host must have the role `client`"),
    ],
)
def test_files_of_hosts_are_checked(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "hosts.toml").write_text(text)
    with pytest.raises(TargetError, match=problem):
        ssh_hosts.read(tmp_path / "hosts.toml")


NAA = "naa.600140550d8a4f4"


def seen(name: str = NAA, *, number: str = "8:16 7", size: int = 1 << 30) -> dict[str, Any]:
    return {"number": number, "size_bytes": size, "unique_name": name}


def check(*found: dict[str, Any], confirmed: str = "", is_one_machine: bool = False) -> None:
    hosts = [f"host{number}" for number in range(len(found))]
    machines = {host: "same" if is_one_machine else host for host in hosts}
    same_device.check("/dev/sdb", machines, dict(zip(hosts, found, strict=True)), [confirmed])


def test_a_unique_name_and_the_size_prove_the_device() -> None:
    check(seen(), seen(number="8:32 9"))
    with pytest.raises(TargetError, match="on `host1` it differs from that of `host0`") as other:
        check(seen(), seen("naa.600140550d8a4f5"))
    assert other.value.where == "its unique name is `naa.600140550d8a4f5` instead of `naa.600140550d8a4f4`"
    with pytest.raises(TargetError, match="differs"):
        check(seen(), seen(size=1 << 31))
    with pytest.raises(TargetError, match="differs"):
        check(seen(), seen(""), confirmed="host0,host1:/dev/sdb")


def test_hosts_of_one_machine_compare_the_number_of_the_device() -> None:
    check(seen(""), seen(""), is_one_machine=True)
    with pytest.raises(TargetError, match="differs"):
        check(seen(""), seen("", number="7:1 4"), is_one_machine=True)


def test_a_device_without_a_unique_name_has_to_be_confirmed_for_these_hosts() -> None:
    with pytest.raises(TargetError, match="cannot prove that `/dev/sdb` is the same device on all hosts") as unproven:
        check(seen(""), seen(""))
    assert unproven.value.hint.endswith("add --confirm host0,host1:/dev/sdb")
    check(seen(""), seen(""), confirmed="host0,host1:/dev/sdb")
    with pytest.raises(TargetError, match="cannot prove"):
        check(seen(""), seen(""), seen(""), confirmed="host0,host1:/dev/sdb")


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("device/wwid", NAA, NAA),
        ("wwid", "eui.0025388b710bf6a1", "eui.0025388b710bf6a1"),
        ("wwid", "eui.0000000000000000", ""),
        ("device/wwid", "t10.ATA QEMU HARDDISK QM00001", ""),
        ("wwid", "nvme.1b36-6469736b31-51454d55204e564d65204374726c-00000001", ""),
        ("dm/uuid", "mpath-3600140550d8a4f4", "mpath-3600140550d8a4f4"),
        ("dm/uuid", "mpath-1ATA_QEMU_HARDDISK_QM00001", ""),
        ("dm/uuid", "LVM-Z0cGxXnfZVdAvxJyYkDKZV8Tg0gJKuJY", ""),
        ("dm/uuid", "CRYPT-LUKS2-0f", ""),
        ("serial", "disk1", ""),
    ],
)
def test_only_names_that_no_other_device_has_are_unique(tmp_path: Path, file: str, text: str, name: str) -> None:
    disk = tmp_path / "dev/block/8:16"
    (disk / file).parent.mkdir(parents=True, exist_ok=True)
    (disk / file).write_text(f"{text}\n")
    assert same_device.unique_name("8:16", tmp_path) == name


def test_a_partition_has_the_name_of_its_disk_and_its_start(tmp_path: Path) -> None:
    disk = tmp_path / "devices/sdb"
    (disk / "sdb1").mkdir(parents=True)
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/8:17").symlink_to(disk / "sdb1")
    for file, text in (("wwid", NAA), ("sdb1/partition", "1"), ("sdb1/start", "2048")):
        (disk / file).write_text(text)
    assert same_device.unique_name("8:17", tmp_path) == f"{NAA} from 2048"
    (tmp_path / "devices/rbd0").mkdir(parents=True)
    (tmp_path / "dev/block/252:0").symlink_to(tmp_path / "devices/rbd0")
    facts = tmp_path / "bus/rbd/devices/0"
    facts.mkdir(parents=True)
    for name, text in (("cluster_fsid", "a1"), ("pool_id", "2"), ("image_id", "10ab"), ("snap_id", "head")):
        (facts / name).write_text(f"{text}\n")
    assert same_device.unique_name("252:0", tmp_path) == "rbd a1 2 10ab head", "an image has that of its cluster"
