"""Parameters of workloads on database servers, and the engine specs they become."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.errors import StudyError
from iosonde.features.database_transactions.spec import load_spec
from iosonde.servers import url
from iosonde.servers.server import SettingValue
from iosonde.workload import named, sql_server

TPCC, COMMIT = named("tpcc"), named("commit")


class Directory:
    """A directory target, without a file system behind it."""

    kind = "directory"
    name = "/mnt"
    own = "iosonde-01234567"

    def backend(self) -> None:
        return None

    def free_bytes(self) -> int:
        return 1 << 40

    def block_devices(self) -> list[str]:
        return ["8:0"]

    def spec_target(self, files: str, size_bytes: int) -> dict[str, Any]:
        return {"kind": "file_per_job", "directory": "/mnt/iosonde-01234567", "size_bytes": size_bytes}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_server, "check_place", lambda *_: None)


def spec_of(workload: Any, **parameters: Any) -> dict[str, Any]:
    streams = {"main": workload.build(parameters)}
    return workload.resolve(streams, Directory(), seed=7, run_id="c0001-r1")["workload"]


def test_a_tpcc_spec_measures_the_restored_database_and_checks_it_afterwards() -> None:
    spec = spec_of(TPCC, warehouses=20, terminals=8, duration="30s", ramp="5s", isolation="serializable")
    assert spec["database"] == {"kind": "existing"}
    assert spec["check"] == {"before": False, "after": True}
    assert (spec["warehouses"], spec["measurement"]["terminals"]) == (20, 8)
    assert spec["measurement"]["isolation"] == "serializable"
    assert spec["server"]["address"]["path"].startswith("/mnt/iosonde-01234567/postgresql-")
    assert spec["measurement"]["acknowledged"] is None


def test_the_load_spec_has_the_same_database_and_measures_nothing() -> None:
    measured = {"run_id": "c0001-r1", "workload": spec_of(TPCC, warehouses=3)}
    loading = load_spec(measured, jobs=6)["workload"]
    assert loading["database"] == {"kind": "loaded", "reload": False, "jobs": 6}
    assert loading["check"] == {"before": True, "after": False}
    assert loading["measurement"] is None
    assert {name: loading[name] for name in ("server", "warehouses", "seed")} == {
        name: measured["workload"][name] for name in ("server", "warehouses", "seed")
    }


def test_settings_that_do_not_shape_the_data_share_a_template() -> None:
    path = [spec_of(TPCC, postgresql={"shared_buffers": size})["server"]["address"]["path"] for size in ("1GB", "2GB")]
    assert path[0] == path[1]
    pages = [
        spec_of(TPCC, server="mariadb", mariadb={"innodb_page_size": size})["server"]["address"]["path"]
        for size in ("8k", "16k")
    ]
    assert pages[0] != pages[1]
    assert spec_of(TPCC, warehouses=1)["server"]["address"] != spec_of(TPCC, warehouses=2)["server"]["address"]


def test_a_run_that_kills_its_server_notes_acknowledged_commits() -> None:
    spec = spec_of(COMMIT, clients=4, duration="20s", kill_server_after="2s")
    assert spec["measurement"]["server_loss"] == "end"
    assert spec["measurement"]["acknowledged"] == {"directory": "/mnt/iosonde-01234567/acknowledged-01234567"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"arrival": "poisson"}, "needs a `rate`"),
        ({"rate": 100}, "`rate` is for an open loop"),
        ({"kill_server_after": "20s", "duration": "10s"}, "beyond the end"),
        ({"server_url": "postgresql://me@db", "memory_limit": "1GiB"}, "cannot be limited"),
        ({"server_url": "postgresql://me@db", "postgresql": {"fsync": "off"}}, "are not changed"),
        ({"server_url": "postgresql://me@db", "kill_server_after": "2s"}, "kills no server"),
        ({"arrival": "constant", "rate": 10, "think": "standard"}, "no think time"),
        ({"postgresql": {"a b": 1}}, "the setting `a b`"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        TPCC.build(parameters)


def test_several_streams_are_refused() -> None:
    with pytest.raises(StudyError, match="one stream, not 2"):
        TPCC.fit({"a": TPCC.build({}), "b": TPCC.build({})}, Directory(), room_bytes=0)


def test_settings_keep_the_units_of_the_server() -> None:
    built = TPCC.build({"postgresql": "shared_buffers=128MB;fsync=off"})
    expected: dict[str, SettingValue] = {"shared_buffers": "128MB", "fsync": "off"}
    assert built.settings == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me@db:5433", ("postgresql", "me", "db", 5433)),
        ("mysql://me@db", ("mariadb", "me", "db", 3306)),
        ("postgres://me@%2Frun%2Fpostgresql", ("postgresql", "me", "/run/postgresql", 5432)),
    ],
)
def test_addresses_of_servers(text: str, expected: tuple[Any, ...]) -> None:
    found = url.parse(text)
    assert (found.kind, found.user, found.host, found.port) == expected
    assert url.parse(found.text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("postgresql://me:secret@db", "contains a password"),
        ("ftp://db", "invalid server address"),
        ("postgresql://me@db/production", "must name a server only"),
        ("postgresql://me@db:x", "no valid port"),
    ],
)
def test_an_address_without_a_meaning_or_with_a_secret_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        url.parse(text)
    assert "secret" not in str(error.value)


def test_a_running_server_gets_a_database_named_by_its_contents() -> None:
    first, second = (spec_of(TPCC, server_url="postgresql://me@db", warehouses=2)["server"] for _ in range(2))
    assert first["database"] == second["database"]
    assert first["database"].startswith("iosonde_")
    assert first["address"] == {"kind": "tcp", "host": "db", "port": 5432}
