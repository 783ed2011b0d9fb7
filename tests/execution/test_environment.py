from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import psutil
from engines import FAKE

from iosonde import memory
from iosonde.execution import environment


def test_facts_agree_with_another_source() -> None:
    facts = environment.capture(FAKE)
    assert facts["cpu"]["threads"] == psutil.cpu_count()
    assert facts["cpu"]["cores"] == psutil.cpu_count(logical=False)
    assert facts["memory"]["total_bytes"] == psutil.virtual_memory().total
    assert abs(memory.available_bytes() - psutil.virtual_memory().available) < facts["memory"]["total_bytes"] // 4
    assert facts["memory"]["swap_bytes"] == psutil.swap_memory().total
    assert facts["kernel"]["release"] == os.uname().release
    assert facts["kernel"]["clocksource"] in facts["kernel"]["clocksources"]


def test_the_same_machine_gives_the_same_facts() -> None:
    one, other = environment.capture(FAKE), environment.capture(FAKE)
    for facts in (one, other):
        assert facts["memory"].pop("swap_bytes") >= 0, "other tests add swap areas and remove them"
    assert one == other


def test_hosts_are_distinguished_and_not_named() -> None:
    text = json.dumps(environment.capture(FAKE))
    assert len(json.loads(text)["machine"]["host_hash"]) == 12
    assert json.dumps(socket.gethostname()) not in text


def test_what_cannot_be_read_is_null(tmp_path: Path) -> None:
    software = environment.capture(tmp_path / "no-engine")["software"]
    assert (software["engine"], software["engine_sha256"]) == (None, None)
