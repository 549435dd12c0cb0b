"""Map tensor names between glassformer and the Hugging Face Hub.

Each model family has a table for both directions. The table also lists the keys to ignore. Any key that is
not in the table raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.errors import CheckpointError

OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}  # parameters of layer norms in old checkpoints
FUSED_PARTS = {3: ("query", "key", "value"), 2: ("gate", "up")}  # parts of a fused layer, by their number
_OUR_LAYER = re.compile(r"(?<=encoder\.layers\.)\d+")


@dataclass(frozen=True)
class NameTable:
    """The tensor names of one model family.

    Names are those of modules, without ``.weight`` or ``.bias``; ``{i}`` is the number of the layer. "Our
    name" is the name in glassformer. Hub names have no prefix.

    Args:
        prefix: prefix of the encoder's Hub names in models with a head (``bert.``).
        encoder: our name -> Hub name.
        fused: our name of a fused layer -> Hub names of its parts (``FUSED_PARTS``).
        heads: our name -> Hub name.
        full_names: our name -> Hub name, for parameters whose names do not end with ``.weight`` or ``.bias``.
        ignored: full name of a parameter on the Hub, or a prefix that ends with a dot -> reason to ignore it.
        head_parameters: keys of ``full_names`` that belong to heads, to which no prefix is added.
        new_names: our name -> name of the module in later releases of ``transformers``, if it differs from
            the name in files; only for modules that adapters change.
        tied: full name of a parameter on the Hub -> the parameter that it must equal if both exist.
    """

    prefix: str
    encoder: Mapping[str, str]
    fused: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, str]
    full_names: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    head_parameters: tuple[str, ...] = ()
    new_names: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)

    def without_prefix(self, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """Hub name without prefix -> the key in ``tensors``."""
        return {key.removeprefix(self.prefix): key for key in tensors}

    def from_hub(self, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Rename tensors from the Hub's names to ours, and fuse layers.

        Raises:
            CheckpointError: there are unexpected keys; a part of a fused layer is missing; or a tensor
                differs from the tensor to which it is tied.
        """
        self._check_tied(tensors, where)
        our_names = {hub_name: ours for ours, hub_name in (*self.encoder.items(), *self.heads.items())}
        our_full_names = {hub_name: ours for ours, hub_name in self.full_names.items()}
        part_names = {name: (ours, n) for ours, names in self.fused.items() for n, name in enumerate(names)}
        out: dict[str, Tensor] = {}
        fused: dict[str, dict[int, Tensor]] = {}
        unexpected = []
        ignored_prefixes = tuple(name for name in self.ignored if name.endswith("."))
        for key, full in self.without_prefix(tensors).items():
            if key in self.ignored or key.startswith(ignored_prefixes):
                continue
            if key in our_full_names:
                out[our_full_names[key]] = tensors[full]
                continue
            stem, _, ending = key.rpartition(".")
            ending = OLD_ENDINGS.get(ending, ending)
            matches = ((p, layer) for p, layer in layer_patterns(stem) if p in our_names or p in part_names)
            pattern, layer = next(matches, (stem, ""))
            if ending not in ("weight", "bias"):
                unexpected.append(full)
            elif pattern in our_names:
                out[f"{our_names[pattern].format(i=layer)}.{ending}"] = tensors[full]
            elif pattern in part_names:
                ours, n = part_names[pattern]
                fused.setdefault(f"{ours.format(i=layer)}.{ending}", {})[n] = tensors[full]
            else:
                unexpected.append(full)
        if unexpected:
            raise CheckpointError(list_names("unexpected tensors", unexpected), where=where)
        counts = {ours: len(names) for ours, names in self.fused.items()}
        for name, tensor_of_part in fused.items():
            parts = FUSED_PARTS[counts[_OUR_LAYER.sub("{i}", name.rpartition(".")[0])]]
            if missing := {*range(len(parts))} - {*tensor_of_part}:
                raise CheckpointError(f"missing tensor: the {parts[min(missing)]} of {name}", where=where)
            try:
                out[name] = torch.cat([tensor_of_part[n] for n in range(len(parts))])
            except RuntimeError:  # different shapes
                what = f"{', '.join(parts[:-1])} and {parts[-1]} of {name} have different shapes"
                raise CheckpointError(what, where=where) from None
        return out

    def _check_tied(self, tensors: Mapping[str, Tensor], where: str) -> None:
        full = self.without_prefix(tensors)
        for key, other in self.tied.items():
            if key in full and other in full and not torch.equal(tensors[full[key]], tensors[full[other]]):
                what = f"{full[key]} differs from {full[other]}: untied heads are not supported"
                raise CheckpointError(what, where=where)

    def to_hub(self, tensors: Mapping[str, Tensor], with_prefix: bool) -> dict[str, Tensor]:
        """Rename tensors from our names to the Hub's, and split fused layers."""
        out: dict[str, Tensor] = {}
        prefix = self.prefix if with_prefix else ""
        for key, tensor in tensors.items():
            if key in self.full_names:
                out[("" if key in self.head_parameters else prefix) + self.full_names[key]] = tensor
                continue
            stem, _, ending = key.rpartition(".")
            layer = (_OUR_LAYER.findall(stem) or [""])[0]
            pattern = _OUR_LAYER.sub("{i}", stem)
            if (names := self.fused.get(pattern)) is not None:
                for name, part in zip(names, tensor.chunk(len(names)), strict=True):
                    out[f"{prefix}{name.format(i=layer)}.{ending}"] = part
            elif pattern in self.encoder:
                out[f"{prefix}{self.encoder[pattern].format(i=layer)}.{ending}"] = tensor
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


def list_names(what: str, names: list[str]) -> str:
    """``what``, followed by the first six names, for an error message."""
    rest = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{what}: {', '.join(sorted(names)[:6])}{rest}"
