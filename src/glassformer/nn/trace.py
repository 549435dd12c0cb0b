"""What happens inside a forward pass, recorded only where it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from glassformer.errors import ConfigError


@dataclass(frozen=True)
class Trace:
    """A request: which layers' attention weights and which hidden states to keep.

    Args:
        attentions: True for every layer, or the numbers of the layers (negative ones count from the end).
        hidden_states: likewise; 0 is the embedding, i the output of the i-th layer, so there are L + 1.
        rows: ``"all"`` rows of each map, or only the ``"first"`` ([CLS]), which costs next to nothing.
    """

    attentions: bool | Sequence[int] = False
    hidden_states: bool | Sequence[int] = False
    rows: Literal["all", "first"] = "all"

    def __post_init__(self) -> None:
        if self.rows not in ("all", "first"):
            raise ConfigError(f"{self.rows!r} is not a choice of rows", where="Trace", fix="Use all or first")


@dataclass
class LayerRecord:
    """The slot into which one attention puts its weights: one ``[H, T_i, S_i]`` per sequence."""

    rows: Literal["all", "first"] = "all"
    weights: tuple[Tensor, ...] = ()


class Layers(Sequence[Any]):
    """Layer number -> what was recorded; asking for a layer that was not recorded is an error, never None."""

    def __init__(self, items: dict[int, Tensor | tuple[Tensor, ...]], count: int, what: str):
        self._items, self._count, self._what = items, count, what

    def __getitem__(self, layer: Any) -> Any:
        if isinstance(layer, slice):
            return [self[i] for i in range(*layer.indices(self._count)) if i in self._items]
        number = layer + self._count if layer < 0 else layer
        if not 0 <= number < self._count:
            raise IndexError(f"{self._what}[{layer}]: there are {self._count}")
        if number not in self._items:
            raise ConfigError(
                f"{self._what} of layer {layer} were not recorded",
                where="trace",
                fix=f"Ask for them: Trace({self._what}=True) or Trace({self._what}=[{number}])",
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
    """The answer to a ``Trace``. Packed: per layer a tuple of ``[H, T_i, T_i]`` and a matrix ``[N, D]``."""

    request: Trace
    num_layers: int
    _attentions: dict = field(default_factory=dict)
    _hidden: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._want_attention = _numbers(self.request.attentions, self.num_layers, "attentions")
        self._want_hidden = _numbers(self.request.hidden_states, self.num_layers + 1, "hidden_states")

    @property
    def attentions(self) -> Layers:
        return Layers(self._attentions, self.num_layers, "attentions")

    @property
    def hidden_states(self) -> Layers:
        return Layers(self._hidden, self.num_layers + 1, "hidden_states")

    def layer(self, number: int) -> LayerRecord | None:
        """The slot for the attention of this layer, or None when it was not asked for."""
        return LayerRecord(self.request.rows) if number in self._want_attention else None

    def attention(self, number: int, record: LayerRecord | None) -> None:
        if record is not None:
            self._attentions[number] = record.weights

    def hidden(self, number: int, x: Tensor) -> None:
        if number in self._want_hidden:
            self._hidden[number] = x

    @property
    def needs_all_rows(self) -> bool:
        """Whether something was asked of the last layer that its first rows alone cannot give."""
        last_map = self.num_layers - 1 in self._want_attention and self.request.rows == "all"
        return last_map or self.num_layers in self._want_hidden

    def mapped(
        self, maps: Callable[[tuple[Tensor, ...]], Any], states: Callable[[Tensor], Tensor]
    ) -> TraceRecord:
        """The same record with ``maps`` applied to every layer's weights and ``states`` to every state."""
        out = TraceRecord(self.request, self.num_layers)
        out._attentions = {i: maps(x) for i, x in self._attentions.items()}
        out._hidden = {i: states(x) for i, x in self._hidden.items()}
        return out


def _numbers(wanted: bool | Sequence[int], count: int, what: str) -> set[int]:
    if isinstance(wanted, bool):
        return set(range(count)) if wanted else set()
    if isinstance(wanted, int):
        raise ConfigError(f"{what}={wanted} is one number", where="Trace", fix=f"Write {what}=[{wanted}]")
    numbers = {n + count if n < 0 else n for n in wanted}
    if bad := [n for n in numbers if not 0 <= n < count]:
        raise ConfigError(f"no layer {bad[0]} for {what}: there are {count}", where="Trace")
    return numbers
