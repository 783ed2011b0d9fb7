"""The command line as tests call it; the fixture `iosonde` is one of these."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

Iosonde = Callable[..., "subprocess.CompletedProcess[str]"]
