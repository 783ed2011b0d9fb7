"""The target with each setup of a study, also before a target is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from iosonde.plan import Capacity, Purge, Setup

if TYPE_CHECKING:
    from iosonde.storage import Target


AnyTarget = TypeVar("AnyTarget", "Target", "UnknownTarget")


class SetupTargets(Generic[AnyTarget]):
    """The target as the workload sees it, with each setup of a study."""

    def __init__(self, target: AnyTarget) -> None:
        self.base: AnyTarget = target
        self._made: dict[Setup | None, AnyTarget] = {None: target}

    def on(self, setup: Setup | None) -> AnyTarget:
        """With that setup; `TargetError` where the target cannot have it."""
        # The frequency of its recreation does not change it.
        key = setup and setup.model_copy(update={"fresh": "study"})
        if key not in self._made:
            assert key, "the target without a setup is known"
            self._made[key] = self.base.with_setup(key)
        return self._made[key]


class UnknownTarget:
    """A target with unlimited room, for a study without a target."""

    kind = "directory"

    def backend(self) -> None:
        """None: the workload chooses."""

    def free_bytes(self) -> int:
        return 1 << 60

    def direct_unit(self) -> None:
        """None: unknown."""

    def osd_bytes(self) -> None:
        """None: unknown."""

    def capacity(self) -> Capacity:
        return Capacity(bytes=self.free_bytes())

    def purges(self) -> list[Purge]:
        return ["format", "sanitize", "trim", "overwrite"]

    def device_count(self) -> int:
        return 256

    def with_setup(self, setup: Setup) -> UnknownTarget:
        return self
