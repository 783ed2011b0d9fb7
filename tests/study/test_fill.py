"""Fill levels: their sizes, and errors about impossible ones before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.errors import StudyError
from iosonde.plan import Capacity, Purge
from iosonde.planning import expand
from iosonde.storage import open_target
from iosonde.study.model import Study
from iosonde.workload.block import BLOCK
from iosonde.workload.block.parameters import BlockParameters

GIB = 1 << 30


class FileSystem:
    """A file system of 100 GiB: so much is used by others, so much kept back."""

    def __init__(self, *, used: int = 0, reserved: int = 0, purges: list[Purge] | None = None) -> None:
        self._used, self._reserved = used * GIB, reserved * GIB
        self._purges: list[Purge] = ["trim", "overwrite"] if purges is None else purges

    def backend(self) -> None:
        """The workload chooses."""

    def free_bytes(self) -> int:
        return 100 * GIB - self._used - self._reserved

    def capacity(self) -> Capacity:
        return Capacity(bytes=100 * GIB, used=self._used, reserved=self._reserved)

    def purges(self) -> list[Purge]:
        return self._purges


def fitted(target: FileSystem, **parameters: Any) -> BlockParameters:
    built = BLOCK.build({"purge": "strongest", **parameters})
    return BLOCK.fit({"main": built}, target, room_bytes=target.free_bytes())["main"]


def test_a_level_is_that_of_the_whole_file_system_with_what_others_store() -> None:
    assert fitted(FileSystem(), fill=30).span == 30 * GIB
    assert fitted(FileSystem(used=20), fill=30).span == 10 * GIB
    assert fitted(FileSystem(used=20, reserved=5), fill=95).span == 75 * GIB
    assert fitted(FileSystem(used=99), fill=50, capacity="1GiB").span == GIB // 2


def test_the_means_of_the_purge_is_named_and_lays_out_what_is_prepared() -> None:
    assert fitted(FileSystem(), fill=30).layout == "never"
    assert fitted(FileSystem(), fill=30).purge == "trim"
    assert fitted(FileSystem(purges=["overwrite"])).purge == "overwrite"
    assert fitted(FileSystem(), purge="overwrite").purge == "overwrite"
    assert fitted(FileSystem(purges=[])).purge == "unneeded"


@pytest.mark.parametrize(
    ("target", "parameters", "message", "hint"),
    [
        (FileSystem(used=10, reserved=5), {"fill": 98}, "that takes 88 GiB, and 85 GiB can be written", "lower levels"),
        (FileSystem(used=40), {"fill": 30}, "30 % of 100 GiB cannot be filled: 40 GiB are in use already", "make room"),
        (FileSystem(purges=["overwrite"]), {"purge": "trim"}, "no purge by `trim`", "one of `strongest`, `overwrite`"),
    ],
)
def test_what_cannot_be_prepared_is_refused(
    target: FileSystem, parameters: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(StudyError) as raised:
        fitted(target, **parameters)
    assert message in raised.value.what
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"fill": 30, "purge": "none"}, "`fill` needs a `purge`"),
        ({"fill": 30, "offset": "1MiB"}, "leave out `offset`"),
        ({"fill": 101}, "`fill` cannot be `101`"),
        ({"capacity": "1GiB"}, "`capacity` applies to `fill` only"),
        ({"round_length": "1500ms"}, "`round_length` must be a multiple of `interval`"),
        ({"precondition": "100B"}, "it has 512 B to 64 MiB"),
    ],
)
def test_what_does_not_fit_together_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as raised:
        BLOCK.build({"purge": "strongest", **parameters})
    assert message in f"{raised.value.what} {raised.value.hint}"


def test_preparation_is_for_parts_with_rounds() -> None:
    study = Study.model_validate(
        {"name": "unprepared", "title": "Unprepared", "question": "?", "parts": [{"name": "main"}]}
        | {"measurement": {"purge": "strongest", "span": "1MiB"}, "profiles": {"quick": {}}}
    )
    with pytest.raises(StudyError, match="require a part with `rounds`") as raised:
        expand(study, open_target("null:1GiB"), profile="quick")
    assert "case `main`" in raised.value.where
