"""The workloads of this feature."""

from __future__ import annotations

from iosonde.features.ai.checkpoint import AiCheckpoint
from iosonde.features.ai.ingest import AiIngest
from iosonde.features.ai.kv_cache import AiKvCache
from iosonde.features.ai.vector import AiVector
from iosonde.features.ai.weights import AiWeights

WORKLOADS = (AiWeights(), AiVector(), AiKvCache(), AiCheckpoint(), AiIngest())
