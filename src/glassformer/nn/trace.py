"""Recording of attention weights and hidden states during a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from glassformer.errors import ConfigError


@dataclass(frozen=True)
class Trace:
    """Which attention weights and hidden states to record.

    Args:
        attentions: True for every layer, or a list of layer indices (negative indices count from the end).
        hidden_states: like ``attentions``, but index 0 is the embedding and i the output of the i-th layer.
        rows: ``"all"`` rows of the attention weights, or only the ``"first"`` row (the query [CLS]), which is
            much cheaper.
    """

    attentions: bool | Sequence[int] = False
    hidden_states: bool | Sequence[int] = False
    rows: Literal["all", "first"] = "all"

    def __post_init__(self) -> None:
        if self.rows not in ("all", "first"):
            raise ConfigError(f"unknown rows {self.rows!r}", where="Trace", fix="Use 'all' or 'first'")


@dataclass
class LayerRecord:
    """Attention weights recorded in one layer: one ``[H, T_i, S_i]`` per sequence."""

    rows: Literal["all", "first"] = "all"
    weights: tuple[Tensor, ...] = ()


class Layers(Sequence[Any]):
    """Recorded values by layer; a layer that was not recorded raises ConfigError."""

    def __init__(self, items: dict[int, Tensor | tuple[Tensor, ...]], count: int, what: str):
        self._items, self._count, self._what = items, count, what

    def __getitem__(self, layer: Any) -> Any:
        if isinstance(layer, slice):
            return [self[i] for i in range(*layer.indices(self._count)) if i in self._items]
        number = layer + self._count if layer < 0 else layer
        if not 0 <= number < self._count:
            raise IndexError(f"{self._what}[{layer}] is out of range: there are {self._count}")
        if number not in self._items:
            raise ConfigError(
                f"{self._what} of layer {layer} were not recorded",
                where="trace",
                fix=f"Record them: Trace({self._what}=True) or Trace({self._what}=[{number}])",
            )
        return self._items[number]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator:
        return iter(self._items[i] for i in sorted(self._items))

    @property
    def numbers(self) -> list[int]:
        return sorted(self._items)


@dataclass
class TraceRecord:
    """The recorded values: attention weights ``[H, T_i, T_i]`` and hidden states ``[N, D]`` by layer."""

    request: Trace
    num_layers: int
    _attentions: dict = field(default_factory=dict)
    _hidden: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._attention_layers = _layer_numbers(self.request.attentions, self.num_layers, "attentions")
        self._hidden_layers = _layer_numbers(self.request.hidden_states, self.num_layers + 1, "hidden_states")

    @property
    def attentions(self) -> Layers:
        return Layers(self._attentions, self.num_layers, "attentions")

    @property
    def hidden_states(self) -> Layers:
        return Layers(self._hidden, self.num_layers + 1, "hidden_states")

    def layer(self, number: int) -> LayerRecord | None:
        """An empty record for the attention weights of a layer; None if they were not requested."""
        return LayerRecord(self.request.rows) if number in self._attention_layers else None

    def attention(self, number: int, record: LayerRecord | None) -> None:
        if record is not None:
            self._attentions[number] = record.weights

    def hidden(self, number: int, x: Tensor) -> None:
        if number in self._hidden_layers:
            self._hidden[number] = x

    @property
    def needs_all_rows(self) -> bool:
        """Whether the request needs all tokens of the last layer, not only the first of each sequence."""
        last_map = self.num_layers - 1 in self._attention_layers and self.request.rows == "all"
        return last_map or self.num_layers in self._hidden_layers

    def mapped(
        self, maps: Callable[[tuple[Tensor, ...]], Any], states: Callable[[Tensor], Tensor]
    ) -> TraceRecord:
        """A copy with ``maps`` applied to each layer's weights and ``states`` to each hidden state."""
        out = TraceRecord(self.request, self.num_layers)
        out._attentions = {i: maps(x) for i, x in self._attentions.items()}
        out._hidden = {i: states(x) for i, x in self._hidden.items()}
        return out


def _layer_numbers(layers: bool | Sequence[int], count: int, what: str) -> set[int]:
    if isinstance(layers, bool):
        return set(range(count)) if layers else set()
    if isinstance(layers, int):
        raise ConfigError(
            f"{what}={layers} is not a list of layers", where="Trace", fix=f"Write {what}=[{layers}]"
        )
    numbers = {n + count if n < 0 else n for n in layers}
    if out_of_range := [n for n in numbers if not 0 <= n < count]:
        raise ConfigError(f"there is no layer {out_of_range[0]} for {what}: there are {count}", where="Trace")
    return numbers
