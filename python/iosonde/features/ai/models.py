"""Published models: their dimensions, and the sizes that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A dense decoder of the Llama family; source: `config.json` of the model on Hugging Face."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    has_qkv_bias: bool = False
    has_qk_norm: bool = False

    def tensors(self) -> Iterator[int]:
        """Numbers of elements of its tensors, layer by layer."""
        query, key_value = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield self.vocabulary * self.hidden
        for _ in range(self.layers):
            yield from (self.hidden * query, self.hidden * key_value, self.hidden * key_value, query * self.hidden)
            yield from (query, key_value, key_value) if self.has_qkv_bias else ()
            yield from (self.head_dim, self.head_dim) if self.has_qk_norm else ()
            yield from 3 * [self.hidden * self.feed_forward]
            yield from (self.hidden, self.hidden)
        yield from (self.hidden, self.vocabulary * self.hidden)


DENSE = {
    "llama2-7b": Transformer(
        layers=32, hidden=4096, feed_forward=11008, heads=32, kv_heads=32, head_dim=128, vocabulary=32000
    ),
    "llama3.1-8b": Transformer(
        layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, head_dim=128, vocabulary=128256
    ),
    "llama3-70b": Transformer(
        layers=80, hidden=8192, feed_forward=28672, heads=64, kv_heads=8, head_dim=128, vocabulary=128256
    ),
    "llama3.1-405b": Transformer(
        layers=126, hidden=16384, feed_forward=53248, heads=128, kv_heads=8, head_dim=128, vocabulary=128256
    ),
    "mistral-7b": Transformer(
        layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, head_dim=128, vocabulary=32000
    ),
    "qwen2.5-7b": Transformer(
        layers=28,
        hidden=3584,
        feed_forward=18944,
        heads=28,
        kv_heads=4,
        head_dim=128,
        vocabulary=152064,
        has_qkv_bias=True,
    ),
    "qwen3-8b": Transformer(
        layers=36,
        hidden=4096,
        feed_forward=12288,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocabulary=151936,
        has_qk_norm=True,
    ),
    "qwen3-32b": Transformer(
        layers=64,
        hidden=5120,
        feed_forward=25600,
        heads=64,
        kv_heads=8,
        head_dim=128,
        vocabulary=151936,
        has_qk_norm=True,
    ),
}
"""Models whose weights are generated, by the names that studies use."""
