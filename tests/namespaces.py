"""Commands in a mount namespace of their own."""

from __future__ import annotations

from pathlib import Path

from iosonde.lab.bound_process import DETACH_OWN_MOUNTS


def private_mounts(script: str, *arguments: str | Path) -> list[str]:
    """The command that runs a shell script in a new mount namespace; its arguments are `$1` and on.

    File systems that studies of other tests have mounted are detached first: its copies would keep their devices in use.
    """
    return ["unshare", "--mount", "sh", "-c", f"{DETACH_OWN_MOUNTS}\n{script}", "sh", *map(str, arguments)]
