"""What a family is: one record that says how a folder with its ``model_type`` becomes a model, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glassformer.checkpoints.names import NameTable


@dataclass(frozen=True)
class HubLayout:
    """How the Hub writes a family down.

    Args:
        read: ``config.json`` and its place -> our config, without pooling and head; raises CheckpointError.
        write: our config -> ``config.json`` (``model_type``, sizes), without labels and class.
        expresses: whether embeddings and encoder of a config can be written so.
        names: the two-way table of names.
        from_hub: the Hub's tensors, their place, our config -> our tensors; raises CheckpointError.
        to_hub: our tensors, whether the encoder's get the prefix, our config -> the Hub's tensors.
        classes: kind of head (None: none; "tokens": of classes of each token; "spans": of where an answer
            begins and ends) -> the class of ``transformers`` that holds the whole model.
        pooling: what the Hub's own classifier reads: "pooler", the "first" row as it is, or "first-mean".
        head_type: the Hub's own classifier: "linear", or "mlp" as wide as the encoder.
        head_activation: of the hidden layer of that mlp.
        own_head: settings of ``config.json`` -> what else of the Hub's own classifier they say, over the
            three above; it is then also the classifier of tokens.
    """

    read: Callable[[dict[str, Any], str], Any]
    write: Callable[[Any], dict[str, Any]]
    expresses: Callable[[Any], bool]
    names: NameTable
    from_hub: Callable[[dict[str, Tensor], str, Any], dict[str, Tensor]]
    to_hub: Callable[[dict[str, Tensor], bool, Any], dict[str, Tensor]]
    classes: Mapping[str | None, str]
    pooling: str = "pooler"
    head_type: str = "linear"
    head_activation: str = "relu"
    own_head: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def head_in(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Pooling and head of the Hub's own classifier of texts or images, as ``config.json`` has them."""
        usual = {
            "pooling": self.pooling,
            "head_type": self.head_type,
            "head_activation": self.head_activation,
        }
        return usual if self.own_head is None else usual | self.own_head(settings)

    def opens_whole(self) -> str:
        """The settings of a classifier that the Hub's class has too."""
        head = f", head={self.head_type!r}" if self.head_type != "linear" else ""
        head += f", head_activation={self.head_activation!r}" if self.head_activation != "relu" else ""
        return f"pooling={self.pooling!r}{head}"

    def class_of(self, config: Any) -> str:
        """The class of ``transformers`` for the whole model, where ``is_own_head`` says that there is one."""
        return self.classes["tokens" if config.pooling == "tokens" else config.head]

    def is_own_head(self, config: Any) -> bool:
        """Whether what stands on the states is what one of ``classes`` has."""
        if self.own_head is not None and config.head in ("classification", "spans"):
            wanted = self.head_in(self.write(config))
            wide = config.head_hidden in (None, config.encoder.d_model)
            if config.pooling == "tokens" or config.head == "spans":
                wanted["pooling"] = config.pooling
            if config.head == "spans":
                del wanted["head_type"]
            return wide and all(getattr(config, key) == value for key, value in wanted.items())
        if config.head == "spans":
            return "spans" in self.classes
        if config.pooling == "tokens":
            return "tokens" in self.classes and config.head_type == "linear"
        if getattr(config, "sides", None) is not None:
            return False
        if config.head == "classification":
            wide = config.head_hidden in (None, config.encoder.d_model) or self.head_type == "linear"
            as_theirs = config.head_activation == self.head_activation or config.head_type == "linear"
            return (config.pooling, config.head_type) == (self.pooling, self.head_type) and wide and as_theirs
        return config.pooling is None or (
            config.pooling == "pooler" and "pooling.dense" in self.names.encoder
        )


@dataclass(frozen=True)
class Family:
    """All that is particular to a ``model_type``.

    Args:
        model, config: the class of ``models/`` and of its config.
        tiny: a config of a few thousand weights with a head of three classes: the suite over all families
            runs on it. Texts have 31 tokens, images 8 pixels a side.
        hub: how the Hub writes it; None: a layout of ours, the config as it is under ``architecture``.
        presets: names that ``model=`` takes for random weights -> a plain function with every number in
            sight, of the size of the vocabulary (text) or of ``image_size`` and ``patch_size`` (images).
        pretraining: names that a masked-word model may begin from, likewise -> the function.
        examples: well-known checkpoints of it, as the Hub calls them.
        configure: a preset's config, a recipe's model section, labels -> the config with the section laid
            over it;
            None: as every Transformer's.
    """

    model_type: str
    model: type[Any]  # with has_attention and reads ("texts" or "images")
    config: type
    tiny: Callable[[], Any]
    hub: HubLayout | None = None
    presets: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    pretraining: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    configure: Callable[[Any, Any, int], Any] | None = None
    examples: tuple[str, ...] = ()
