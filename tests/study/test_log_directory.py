"""The directory on a second device that takes a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.errors import ServerError, TargetError
from iosonde.storage import open_target
from iosonde.workload.log_directory import check_reachable, open_directory


def test_it_is_a_directory() -> None:
    with pytest.raises(TargetError, match="is not a directory"):
        open_directory("null:1GiB")


@pytest.mark.needs("root")
def test_it_must_be_reachable_by_the_user_of_the_server(reachable: Path) -> None:
    data, private = reachable / "data", reachable / "private"
    data.mkdir(mode=0o755)
    private.mkdir(mode=0o700)
    check_reachable(("nobody",), open_target(str(data)))
    with pytest.raises(ServerError, match=f"`nobody` cannot enter `{private}`"):
        check_reachable(("nobody",), open_target(str(data)), str(private))
