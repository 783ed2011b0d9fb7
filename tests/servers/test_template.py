"""Templates whose files were replaced by the user of the server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounted import LoopFileSystem
from stores import small_file_system

from iosonde.errors import ServerError
from iosonde.servers import template as templates
from iosonde.servers.account import account_for
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


@pytest.mark.timeout(300)
def test_a_copy_has_the_files_of_the_template_and_opens_no_fifo(template: Template, tmp_path: Path) -> None:
    os.mkfifo(template.data / "base/3")
    restored = template.restore(tmp_path / "copy")
    assert (restored.files, restored.bytes) == (2, 150)
    assert (tmp_path / "copy/base/1").read_bytes() == b"a" * 100


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["a fifo", "a link", "one byte"])
def test_a_replaced_or_changed_file_is_damage_and_is_not_followed(
    kind: str, template: Template, tmp_path: Path
) -> None:
    file = template.data / "base/1"
    file.unlink()
    if kind == "a fifo":
        os.mkfifo(file)
    elif kind == "a link":
        (tmp_path / "same").write_bytes(b"a" * 100)
        file.symlink_to(tmp_path / "same")
    else:
        file.write_bytes(b"a" * 99 + b"c")
    with pytest.raises(ServerError, match="`base/1` is not what was loaded"):
        template.restore(tmp_path / "copy")


@pytest.fixture
def other_file_system() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        yield Path(place)


@pytest.mark.needs("root")
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_log_is_moved_as_the_user_of_the_server(tmp_path: Path, other_file_system: Path, elsewhere: bool) -> None:
    """Links in the data directory lead root nowhere: what they name keeps its owner and is not copied."""
    account = account_for([])
    data, parent = tmp_path / "data", other_file_system if elsewhere else tmp_path
    victim = tmp_path / "victim"
    victim.write_text("years of work")
    victim.chmod(0o600)
    (data / "wal/inner").mkdir(parents=True)
    (data / "wal/1").write_bytes(b"a" * 5000)
    (data / "wal/inner/link").symlink_to(victim)
    for path in [data, *data.rglob("*")]:
        account.own(path)
    for path in [*tmp_path.parents, tmp_path, other_file_system]:
        if path.stat().st_mode & 0o711 != 0o711:
            path.chmod(0o711)
    (parent / "place").mkdir()
    account.own(parent / "place")
    templates.move(data / "wal", parent / "place/log", account)
    moved = parent / "place/log"
    assert (moved / "1").read_bytes() == b"a" * 5000
    assert (moved / "inner/link").is_symlink()
    assert {each.lstat().st_uid for each in [moved, *moved.rglob("*")]} == {account.uid}
    assert (victim.stat().st_uid, victim.read_text()) == (0, "years of work")
    assert list(data.iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 64) as directory:
        yield directory


@pytest.mark.needs("root")
def test_files_that_cannot_be_written_back_are_no_template(
    small: Path, loop_file_system: Callable[..., LoopFileSystem]
) -> None:
    """The device of the file system is full, which only syncfs(2) reports: the files are in the page cache."""
    unwritten = Template(directory=loop_file_system(size="256M", image_on=small).directory / "template")
    unwritten.data.mkdir(parents=True)
    (unwritten.data / "1").write_bytes(os.urandom(96 << 20))
    with pytest.raises(ServerError, match="cannot write the database back to its device: "):
        unwritten.seal({"warehouses": 1})
    assert not unwritten.is_complete
