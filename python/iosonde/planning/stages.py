"""What cases run on: the target with each setup that a study asks for, or nothing yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from iosonde.plan import Capacity, Purge, Setup

if TYPE_CHECKING:
    from iosonde.storage import Target


Place = TypeVar("Place", "Target", "Nowhere")


class Stages(Generic[Place]):
    """The target as the workload sees it, with each setup that a study asks for."""

    def __init__(self, target: Place) -> None:
        self.base: Place = target
        self._made: dict[Setup | None, Place] = {None: target}

    def on(self, setup: Setup | None) -> Place:
        """With that setup; `TargetError` where the target cannot have it."""
        # How often it is made anew changes nothing about it.
        key = setup and setup.model_copy(update={"fresh": "study"})
        if key not in self._made:
            assert key, "the target itself is there from the beginning"
            self._made[key] = self.base.with_setup(key)
        return self._made[key]


class Nowhere:
    """Stands for a target with all the room there could be, where none is named yet."""

    def backend(self) -> None:
        """The workload chooses."""

    def free_bytes(self) -> int:
        """An exbibyte."""
        return 1 << 60

    def direct_unit(self) -> None:
        """Nobody knows yet."""

    def capacity(self) -> Capacity:
        """All of it."""
        return Capacity(bytes=self.free_bytes())

    def purges(self) -> list[Purge]:
        """Every means."""
        return ["format", "sanitize", "trim", "overwrite"]

    def device_count(self) -> int:
        """As many as any case may ask for."""
        return 256

    def with_setup(self, setup: Setup) -> Nowhere:
        """There is room for everything."""
        return self
