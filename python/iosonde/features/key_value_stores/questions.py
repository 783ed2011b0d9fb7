"""Findings about key-value stores: answers to questions of studies, and observations."""

from __future__ import annotations

from iosonde.features.key_value_stores import cache_tiers, durability, memory_extension, observations

KINDS = (*cache_tiers.KINDS, *memory_extension.KINDS)
OBSERVATIONS = (observations.find,)
NOT_RANKED = (durability.difference,)
