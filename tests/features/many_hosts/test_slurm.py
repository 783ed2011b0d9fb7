"""Hosts in a job of Slurm: the job's script, and a private Slurm of two nodes on this machine."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command_line import Iosonde
from engines import real_engine
from hosts_in_namespaces import await_
from many_hosts_plans import IOSONDE, STUDY
from strangers import CLOSED, answers_of_dask, listening

from iosonde.engine.supervisor.watch import free_port
from iosonde.errors import TargetError
from iosonde.features.many_hosts.record import Hosts
from iosonde.features.many_hosts.workers import job, read_job
from iosonde.results import ResultSet

NODES = ("north", "south")
WORKER = [b"iosonde.features.many_hosts.worker", b"--carrier", b"slurm"]
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge
CryptoType=crypto/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdTimeout=0
MessageTimeout=100
TCPTimeout=100
BatchStartTimeout=600
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/%n.log
NodeName=north NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=south NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=batch Nodes=north,south Default=YES State=UP
"""


@pytest.mark.unit
def test_the_job_has_one_worker_on_each_node_with_the_settings_of_iosonde(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        'nodes = 3\npartition = "fast"\naccount = "lab"\nwalltime = "02:00:00"\npython = "/opt/py"\n'
        'directives = ["--constraint=nvme"]\nprologue = ["module load x"]\n'
    )
    order = {"scheduler": "tls://10.0.0.1:8786", "certificate": "c", "key": "k"}
    at_ctrl_c = signal.getsignal(signal.SIGINT)
    lines = job(read_job(str(tmp_path / "job.toml")), order).job_script().splitlines()
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert directives == [
        *("-J iosonde", "-p fast", "-A lab", "-t 02:00:00"),
        *("--nodes=3", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--no-requeue", "--no-kill", "-o /dev/null"),
        "--constraint=nvme",
    ]
    assert lines[-4:-3] == ["module load x"]
    command, given, end = lines[-3:]
    assert command.endswith("/opt/py -P -m iosonde.features.many_hosts.worker --carrier slurm <<'ORDER'")
    assert command.startswith("exec srun --ntasks-per-node=1 ") and json.loads(given) == order and end == "ORDER"
    plain = job(read_job("2"), order).job_script()
    assert "#SBATCH -t" not in plain and "#SBATCH -n 1" not in plain and "cpus-per-task" not in plain
    assert signal.getsignal(signal.SIGINT) is at_ctrl_c, "dask-jobqueue would exit with 0"


@pytest.mark.unit
def test_a_job_with_further_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('nodes = 1\ndirectives = ["--x\\ny"]')
    with pytest.raises(TargetError, match=r"`directives\.0` is wrong"):
        read_job(str(tmp_path / "job.toml"))


@contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a controller and two nodes in the foreground, all of them processes of this test."""
    with ExitStack() as stack:
        # A short path: Slurm adds up to 40 characters to it for a socket, whose path has at most 107.
        place = Path(stack.enter_context(TemporaryDirectory(prefix="slurm", dir="/tmp")))
        (place / "state").mkdir()
        (place / "key").write_bytes(secrets.token_bytes(128))
        (place / "key").chmod(0o600)
        ports: set[int] = set()
        while len(ports) < 3:
            ports.add(free_port())
        file = place / "slurm.conf"
        file.write_text(CONFIGURATION.format(host=socket.gethostname().partition(".")[0], ports=[*ports], place=place))
        monkeypatch.setenv("SLURM_CONF", str(file))
        monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
        files = [f"--{name}-file={place}/munge.{name}" for name in ("pid", "log", "seed")]
        commands = [
            ["munged", "--foreground", "--force", f"--socket={place}/munge", f"--key-file={place}/key", *files],
            ["slurmctld", "-D", "-f", file],
            *(["slurmd", "-D", "-f", file, "-N", node] for node in NODES),
        ]
        started = [stack.enter_context(running(*command)) for command in commands]
        await_(lambda: output("sinfo", "--noheader", "--format=%T %D") == "idle 2\n")
        yield place
        assert output("squeue", "--noheader") == "", "no job remains"
        assert all(each.poll() is None for each in started)


def workers() -> list[int]:
    """Process numbers of the workers of all jobs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if words[0] == sys.executable.encode() and words[-4:-1] == WORKER:
                found.append(int(entry.parent.name))
    return found


@pytest.mark.system
@pytest.mark.needs("root", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "munged")
def test_a_study_on_the_nodes_of_a_job(iosonde: Iosonde, cluster: Path, tmp_path: Path) -> None:
    """The second study is killed: its job ends, and its nodes are free again."""
    (tmp_path / "study.toml").write_text(STUDY.format(duration="1s", repeats=1))
    (tmp_path / "data").mkdir()
    words = [sys.executable, "-c", IOSONDE, "run", str(tmp_path / "study.toml"), "--profile", "quick"]
    words += ["--target", str(tmp_path / "data"), "--hosts", "slurm:2", "--output"]
    done = subprocess.run([*words, str(tmp_path / "set")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + "".join(log.read_text() for log in cluster.glob("*.log"))
    [record] = ResultSet.open(tmp_path / "set").records()
    part = record.of(Hosts)
    assert record.outcome == "complete" and part and [share.host for share in part.shares] == list(NODES)
    await_(lambda: output("squeue", "--noheader") == "")
    (tmp_path / "study.toml").write_text(STUDY.format(duration="1h", repeats=1))
    with subprocess.Popen([*words, str(tmp_path / "killed")], stderr=subprocess.DEVNULL) as process:
        await_(lambda: process.poll() is not None or len(list((tmp_path / "data").iterdir())) == len(NODES))
        assert process.poll() is None and output("squeue", "--noheader", "--format=%T %D") == "RUNNING 2\n"
        listen = [listening([pid]) for pid in (process.pid, *workers())]
        assert [len(each) for each in listen] == [1, 1, 1], "scheduler and workers"
        addresses = [f"{each.address}:{each.port}" for [each] in listen]
        assert not any(address.startswith(("0.0.0.0:", ":::")) for address in addresses)
        assert answers_of_dask(addresses) == dict.fromkeys(addresses, CLOSED)
        process.send_signal(signal.SIGKILL)
    await_(lambda: output("squeue", "--noheader") == "")
    assert list((tmp_path / "data").iterdir()) == []
    (tmp_path / "job.toml").write_text('nodes = 2\npartition = "none"\n')
    refused = iosonde("run", "quick", "--target", tmp_path / "data", "--hosts", f"slurm:{tmp_path}/job.toml")
    assert refused.returncode == 1 and "did not accept the job" in refused.stderr, refused.stderr
    assert "Invalid partition name specified" in refused.stderr
