"""The documented path on a machine with nothing installed: a Debian 12 in a directory. Ten minutes: `make fresh`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from command_line import CHECKOUT
from debian import Debian, fresh_debian

pytestmark = [pytest.mark.fresh, pytest.mark.needs("root", "debootstrap"), pytest.mark.timeout(3600)]

SELECTION = "tests/install tests/study/test_units.py tests/execution/test_made_file_systems.py tests/cli/test_doctor.py"
"""Tests that cover setup, pure Python, an external program that setup must have installed, and the engine."""

NOT_IN_DEBIAN_12 = {"go", "ferretdb"}
"""Go is too old there to build the server that tests of the store `mongodb` use: they are skipped, with this reason."""


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    with fresh_debian(tmp_path_factory.mktemp("fresh") / "debian") as made:
        yield made


def test_the_demo_works_on_a_fresh_debian(debian: Debian) -> None:
    assert debian.run("command -v cargo || command -v cc || command -v pip").returncode != 0, "the machine is not fresh"
    done = debian.run("make demo")
    assert done.returncode == 0, done.stdout[-4000:]
    [report] = debian.root.joinpath(debian.checkout.lstrip("/"), "iosonde-results").glob("quick-*/report.html")
    assert "<html" in report.read_text()


def test_the_steps_of_the_container_image_end_in_a_measurement_by_its_user(debian: Debian) -> None:
    """Both stages in one directory, without a container engine."""
    text = (CHECKOUT / "packaging/container/Containerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"docker.io/library/debian:12-slim"}
    [user] = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    [variables] = re.findall(r"^ENV (.+)$", text, re.MULTILINE)
    measure = "cd /data && iosonde run quick --target /data --profile quick --output /tmp/quick"
    steps = [
        f"cp -a {debian.checkout} /opt/iosonde",
        *re.findall(r"^RUN (.+)$", text, re.MULTILINE),
        f"export {variables} && setpriv --reuid {user} --regid 0 --clear-groups bash -c '{measure}'",
    ]
    for step in steps:
        done = debian.run(step)
        assert done.returncode == 0, f"{step}\n{done.stdout[-4000:]}"


def test_the_setup_of_the_tests_works_and_a_selection_of_them_passes(debian: Debian) -> None:
    """None of the selection is skipped for want of a program: setup installs them all."""
    done = debian.run(f"make setup-dev\n.venv/bin/pytest -q -p no:cacheprovider {SELECTION}")
    assert done.returncode == 0, done.stdout[-4000:]
    assert not re.search(r"SKIPPED.*install the package", done.stdout)
    assert set(re.findall(r"warning: `(\S+)` is missing", done.stdout)) == NOT_IN_DEBIAN_12
