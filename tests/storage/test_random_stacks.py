from __future__ import annotations

import random

import pytest
import random_stacks
from needs import BTRFS

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices"), BTRFS]


def test_only_the_named_device_is_written_on_any_stack() -> None:
    """For longer: `python tests/storage/random_stacks.py --seconds 600`."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcomes = random_stacks.explore(seconds=12, seed=seed)
    assert outcomes["refused"] + outcomes["written"] > 0


@pytest.mark.parametrize(("seed", "outcome"), [(4, "written"), (1, "refused")])
def test_stacks_of_every_outcome_are_among_them(seed: int, outcome: str) -> None:
    """Otherwise the test above could pass without writing anything."""
    assert random_stacks.explore_one(seed) == outcome
