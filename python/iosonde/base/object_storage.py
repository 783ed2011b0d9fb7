"""Files in object storage, at addresses of fsspec such as `s3://BUCKET/PREFIX`.

Credentials are those of the client library's environment variables (`AWS_ACCESS_KEY_ID`, ...): iosonde reads and stores
none. `s3://` requires the package `s3fs`, other addresses another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import IosondeError, ResultsError

_PATTERN = frozenset("*?[]#")


def is_address(place: Path | str) -> bool:
    """Return True for an address, False for a path."""
    return isinstance(place, str) and "://" in place


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Objects below an address."""

    address: str
    system: Any
    """fsspec's file system."""
    root: str

    def find(self, folder: str) -> list[str]:
        """Return the paths of all objects in a folder, at any depth, in order."""
        with self._reported("read"):
            return sorted(self.system.find(f"{self.root}/{folder}"))

    def read(self, paths: Sequence[str]) -> list[bytes]:
        """Return the contents of objects."""
        with self._reported("read"):
            found: dict[str, bytes] = self.system.cat(list(paths)) if paths else {}
            return [found[path] for path in paths]

    def download(self, path: str, target: Path) -> None:
        """Copy an object to a file."""
        with self._reported("read"):
            self.system.get_file(path, str(target))

    def upload(self, source: Path, name: str) -> None:
        """Copy a file to an object, unless it is there; objects are never changed, so one of that size is complete."""
        path = f"{self.root}/{name}"
        with self._reported("write to"):
            if not (self.system.exists(path) and self.system.size(path) == source.stat().st_size):
                self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
                self.system.put_file(str(source), path)

    def url(self, path: str) -> str:
        """Return the address of an object."""
        return str(self.system.unstrip_protocol(path))

    @contextmanager
    def _reported(self, does: str) -> Iterator[None]:
        try:
            yield
        except IosondeError:
            raise
        except Exception as error:  # Each client library has exceptions of its own.
            raise ResultsError(
                f"cannot {does} `{self.address}`: {error or type(error).__name__}",
                hint="check the address, the bucket, and the credentials in the environment (docs/library.md)",
            ) from error


def opened(address: str) -> Storage:
    """Return the storage at an address; `ResultsError` if there is no client for it."""
    try:
        import fsspec

        system, root = fsspec.url_to_fs(address, skip_instance_cache=True, use_listings_cache=False)
    except ImportError as error:
        package = getattr(error.__cause__ or error, "name", None) or "fsspec"
        raise ResultsError(
            f"`{address}` requires the package `{package}`",
            hint=f"install it: `{sys.executable} -m pip install {package}`",
        ) from error
    except (ValueError, TypeError) as error:
        raise ResultsError(
            f"`{address}` is not an address of object storage: {error}", hint="name it as `s3://BUCKET/PREFIX`"
        ) from error
    if not root.strip("/") or _PATTERN & set(root):
        raise ResultsError(
            f"the address must have a bucket or directory, without `*`, `?`, `[`, `]` and `#`; got `{address}`",
            hint="name it as `s3://BUCKET/PREFIX`",
        )
    return Storage(address=address, system=system, root=root.rstrip("/"))
