"""Templates whose files were replaced by the user of the server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iosonde.errors import ServerError
from iosonde.servers.template import DATA, Template

pytestmark = pytest.mark.engine


@pytest.fixture
def template(tmp_path: Path) -> Template:
    made = Template(directory=tmp_path / "template")
    (made.directory / DATA / "base").mkdir(parents=True)
    (made.data / "base/1").write_bytes(b"a" * 100)
    (made.data / "base/2").write_bytes(b"b" * 50)
    made.seal({"warehouses": 1})
    return made


def test_a_copy_has_the_files_of_the_template(template: Template, tmp_path: Path) -> None:
    restored = template.restore(tmp_path / "copy")
    assert (restored.files, restored.bytes) == (2, 150)
    assert (tmp_path / "copy/base/1").read_bytes() == b"a" * 100


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_a_file_is_damage_and_is_not_opened(template: Template, tmp_path: Path) -> None:
    (template.data / "base/1").unlink()
    os.mkfifo(template.data / "base/1")
    with pytest.raises(ServerError, match="`base/1` is not what was loaded"):
        template.restore(tmp_path / "copy")


@pytest.mark.timeout(20)
def test_a_fifo_beside_the_files_is_not_opened(template: Template, tmp_path: Path) -> None:
    os.mkfifo(template.data / "base/3")
    assert template.restore(tmp_path / "copy").files == 2


def test_a_link_in_place_of_a_file_is_damage_and_is_not_followed(template: Template, tmp_path: Path) -> None:
    (tmp_path / "same").write_bytes(b"a" * 100)
    (template.data / "base/1").unlink()
    (template.data / "base/1").symlink_to(tmp_path / "same")
    with pytest.raises(ServerError, match="`base/1` is not what was loaded"):
        template.restore(tmp_path / "copy")


def test_a_file_changed_by_one_byte_is_damage(template: Template, tmp_path: Path) -> None:
    (template.data / "base/2").write_bytes(b"b" * 49 + b"c")
    with pytest.raises(ServerError, match="`base/2` is not what was loaded"):
        template.restore(tmp_path / "copy")
