"""Maps tensor names between our models and the Hub, in both directions, by a table per family.

A key that is not in the table raises an error with its name; keys that are ignored on purpose are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.errors import CheckpointError

OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}  # layer norms in the first checkpoints
_OUR_LAYER = re.compile(r"(?<=encoder\.layers\.)\d+")


@dataclass(frozen=True)
class NameTable:
    """The tensor names of one family; ``{i}`` is the layer, names have no ``.weight`` or ``.bias``.

    Args:
        prefix: prefix of the encoder's names in models with a head (``bert.``).
        encoder: our names -> the Hub's.
        fused: our fused name -> the Hub's query, key and value.
        heads: our names -> the Hub's, without prefix.
        full_names: full names of tensors without ``.weight`` or ``.bias``, ours -> the Hub's.
        ignored: full Hub names to ignore, or their beginning, which ends in a dot -> the reason.
        head_parameters: keys of ``full_names`` that belong to heads, which have no prefix.
        new_names: our names -> module names in memory in later releases of ``transformers``, if they differ
            from the names in files; only for modules that adapters change.
        tied: full Hub names -> the tensor that each must equal, if both exist; without prefix.
    """

    prefix: str
    encoder: Mapping[str, str]
    fused: Mapping[str, tuple[str, str, str]]
    heads: Mapping[str, str]
    full_names: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    head_parameters: tuple[str, ...] = ()
    new_names: Mapping[str, str | tuple[str, str, str]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)

    def without_prefix(self, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """Hub names without prefix -> full Hub names."""
        return {key.removeprefix(self.prefix): key for key in tensors}

    def from_hub(self, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Rename tensors from the Hub's names to ours.

        Raises:
            CheckpointError: unexpected keys, a missing query, key or value, or a tensor that differs from the
                one that it is tied to.
        """
        self._check_tied(tensors, where)
        to_ours = {theirs: ours for ours, theirs in (*self.encoder.items(), *self.heads.items())}
        to_full_name = {theirs: ours for ours, theirs in self.full_names.items()}
        parts = {name: (ours, n) for ours, names in self.fused.items() for n, name in enumerate(names)}
        out: dict[str, Tensor] = {}
        thirds: dict[str, dict[int, Tensor]] = {}
        unexpected = []
        beginnings = tuple(name for name in self.ignored if name.endswith("."))
        for key, full in self.without_prefix(tensors).items():
            if key in self.ignored or key.startswith(beginnings):
                continue
            if key in to_full_name:
                out[to_full_name[key]] = tensors[full]
                continue
            stem, _, ending = key.rpartition(".")
            ending = OLD_ENDINGS.get(ending, ending)
            known = (match for match in layer_patterns(stem) if match[0] in to_ours or match[0] in parts)
            pattern, number = next(known, (stem, ""))
            if ending not in ("weight", "bias"):
                unexpected.append(full)
            elif pattern in to_ours:
                out[f"{to_ours[pattern].format(i=number)}.{ending}"] = tensors[full]
            elif pattern in parts:
                ours, n = parts[pattern]
                thirds.setdefault(f"{ours.format(i=number)}.{ending}", {})[n] = tensors[full]
            else:
                unexpected.append(full)
        if unexpected:
            raise CheckpointError(listing("unexpected tensors", unexpected), where=where)
        for name, qkv in thirds.items():
            if len(qkv) < 3:
                part = ("query", "key", "value")[min({0, 1, 2} - set(qkv))]
                raise CheckpointError(f"missing tensor: the {part} of {name}", where=where)
            try:
                out[name] = torch.cat([qkv[n] for n in range(3)])
            except RuntimeError:  # different shapes
                what = f"query, key and value of {name} have different shapes"
                raise CheckpointError(what, where=where) from None
        return out

    def _check_tied(self, tensors: Mapping[str, Tensor], where: str) -> None:
        full = self.without_prefix(tensors)
        for key, twin in self.tied.items():
            if key in full and twin in full and not torch.equal(tensors[full[key]], tensors[full[twin]]):
                what = f"{full[key]} differs from {full[twin]}: untied heads are not supported"
                raise CheckpointError(what, where=where)

    def to_hub(self, tensors: Mapping[str, Tensor], with_prefix: bool) -> dict[str, Tensor]:
        """Rename tensors from our names to the Hub's."""
        out: dict[str, Tensor] = {}
        prefix = self.prefix if with_prefix else ""
        for key, tensor in tensors.items():
            if key in self.full_names:
                out[("" if key in self.head_parameters else prefix) + self.full_names[key]] = tensor
                continue
            stem, _, ending = key.rpartition(".")
            number = (_OUR_LAYER.findall(stem) or [""])[0]
            pattern = _OUR_LAYER.sub("{i}", stem)
            if pattern in self.fused:
                for name, third in zip(self.fused[pattern], tensor.chunk(3), strict=True):
                    out[f"{prefix}{name.format(i=number)}.{ending}"] = third
            elif pattern in self.encoder:
                out[f"{prefix}{self.encoder[pattern].format(i=number)}.{ending}"] = tensor
            else:
                out[f"{self.heads[pattern]}.{ending}"] = tensor
        return out


def layer_patterns(stem: str) -> Iterator[tuple[str, str]]:
    """Yield (pattern, layer) for a name: the name itself, then with each number replaced by ``{i}``."""
    yield stem, ""
    words = stem.split(".")
    for i, word in enumerate(words):
        if word.isascii() and word.isdigit():
            yield ".".join([*words[:i], "{i}", *words[i + 1 :]]), word


def listing(what: str, names: list[str]) -> str:
    """``what``, followed by the first names."""
    rest = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{what}: {', '.join(sorted(names)[:6])}{rest}"
