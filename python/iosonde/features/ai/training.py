"""Published models in training: how they are divided among ranks, and the files of a checkpoint.

Layers, names of files and numbers of elements follow DLIO (argonne-lcf/dlio_benchmark@e1919d7,
`dlio_benchmark/checkpointing/base_checkpointing.py`: `get_num_parameters`, `get_layer_parameters`,
`get_optimization_groups`, `get_layer_index`, `save_checkpoint`); dimensions and parallelism are those of
mlcommons/storage, `configs/dlio/workload/llama3_*.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

WEIGHT_BYTES = 2
"""fp16."""
STATE_BYTES = 4
"""fp32: master weights and two moments of the optimizer."""


File = tuple[str, tuple[int, ...]]
"""Name of a file of a checkpoint, and the bytes of each of its tensors."""


@dataclass(frozen=True)
class Training:
    """A model, and its division by tensor, pipeline and data parallelism and a stage of ZeRO (1 or 3)."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    data: int
    zero: int
    tensor: int = 1
    pipeline: int = 1
    vocabulary: int = 128256

    @property
    def ranks(self) -> int:
        """Processes of the training job."""
        return self.tensor * self.pipeline * self.data

    @property
    def parameters(self) -> int:
        """Number of parameters, with embedding and output layer."""
        return 2 * self.vocabulary * self.hidden + self.layers * sum(self._block) + self.hidden

    @property
    def _block(self) -> tuple[int, ...]:
        """Elements of a transformer layer: norm, query with key and value, output, norm, feed-forward up and down."""
        query_key_value = self.hidden * (self.hidden + 2 * (self.hidden // self.heads) * self.kv_heads)
        up_and_down = (2 * self.hidden * self.feed_forward, self.hidden * self.feed_forward)
        return (self.hidden, query_key_value, self.hidden**2, self.hidden, *up_and_down)

    def files(self, rank: int) -> Iterator[File]:
        """The files of a rank, in the order in which it writes them: model first, then optimizer."""
        model_ranks = self.tensor * self.pipeline
        data, model = divmod(rank, model_ranks)
        place = f"zero_pp_rank_{data}_mp_rank_{model}"
        layers = {number: self._layer(number) for number in self._layers(model // self.tensor)}
        if self.zero == 3:
            yield f"{place}_model_states.pt", tuple(size for sizes in layers.values() for size in sizes)
        elif data == 0:
            yield from ((f"layer_{number}-model_{model}_model_states.pt", sizes) for number, sizes in layers.items())
        states = STATE_BYTES * (self.parameters // self.ranks), STATE_BYTES * 5 * self.hidden
        yield f"{place}_optim_states.pt", 3 * states

    def _layers(self, stage: int) -> range:
        """Numbers of the layers of a pipeline stage: 0 is the embedding, the last two are output layer and norm."""
        each, more = divmod(self.layers, self.pipeline)
        begin = stage * each + min(stage, more) + 1
        end = begin + each + (stage < more)
        return range(0 if stage == 0 else begin, self.layers + 3 if stage == self.pipeline - 1 else end)

    def _layer(self, number: int) -> tuple[int, ...]:
        """Bytes of the tensors of a layer in the file of a rank: norms are on each tensor-parallel rank."""
        shards = self.data if self.zero == 3 else 1
        if number in (0, self.layers + 1):
            elements: tuple[int, ...] = (self.vocabulary * self.hidden // self.tensor,)
        elif number == self.layers + 2:
            elements = (self.hidden,)
        else:
            elements = tuple(each if each == self.hidden else each // self.tensor for each in self._block)
        return tuple(WEIGHT_BYTES * (each // shards) for each in elements)


MODELS = {
    "8b": Training(32, 4096, 14336, 32, 8, data=8, zero=3),
    "70b": Training(80, 8192, 28672, 128, 8, data=8, zero=3, tensor=8),
    "405b": Training(126, 16384, 53248, 128, 8, data=2, zero=1, tensor=8, pipeline=32),
    "1t": Training(128, 25872, 98304, 192, 32, data=2, zero=1, tensor=8, pipeline=64),
}
"""Training jobs by the names that studies use."""
