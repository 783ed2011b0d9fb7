"""Where the data that comes with iosonde lies: studies, published figures, models of drives, the lab's scripts.

In a checkout they are at the top of the repository; in an installation the wheel carries them beside the package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped() -> dict[str, Path]:
    """The studies that come with iosonde, by name; `quick`, which newcomers want, first."""
    files = data_folder("studies").glob("*.toml")
    return {file.stem: file for file in sorted(files, key=lambda file: (file.stem != "quick", file.stem))}


def reference_file(name: str) -> Path:
    """A CSV with published figures, by its file name."""
    return data_folder("reference") / name


def data_folder(name: str) -> Path:
    """A folder of data: `studies`, `reference`, `models`, `lab`."""
    checkout = _PACKAGE.parents[1]
    return (checkout if (checkout / "pyproject.toml").exists() else _PACKAGE.parent) / name
