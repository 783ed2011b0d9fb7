"""Published models: their dimensions, and the sizes that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
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
    "llama2-7b": Transformer(32, 4096, 11008, 32, 32, 128, 32000),
    "llama3.1-8b": Transformer(32, 4096, 14336, 32, 8, 128, 128256),
    "llama3-70b": Transformer(80, 8192, 28672, 64, 8, 128, 128256),
    "llama3.1-405b": Transformer(126, 16384, 53248, 128, 8, 128, 128256),
    "mistral-7b": Transformer(32, 4096, 14336, 32, 8, 128, 32000),
    "qwen2.5-7b": Transformer(28, 3584, 18944, 28, 4, 128, 152064, has_qkv_bias=True),
    "qwen3-8b": Transformer(36, 4096, 12288, 32, 8, 128, 151936, has_qk_norm=True),
    "qwen3-32b": Transformer(64, 5120, 25600, 64, 8, 128, 151936, has_qk_norm=True),
}
"""Models whose weights are generated, by the names that studies use."""
