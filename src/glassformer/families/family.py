"""Model families: conversion between ``config.json``, tensors and our models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.errors import InputError
from glassformer.models.text import TextEncoder, TextEncoderConfig

POOLINGS_WITH_CLASS = ("tokens", "first-two")  # classifiers with these poolings have their own classes


@dataclass(frozen=True)
class HubLayout:
    """The Hugging Face format of a family.

    Args:
        read: contents and path of ``config.json`` -> our config without pooling and head; raises
            CheckpointError.
        write: our config -> contents of ``config.json``, without labels and class.
        names: tensor names in both directions.
        from_hub: the Hub's tensors, their path, our config -> our tensors; raises CheckpointError.
        to_hub: our tensors, whether encoder names get the prefix, our config -> the Hub's tensors.
        classes: head (None: no head; "tokens": token classification; "spans": question answering;
            "first-two": classification by two tokens) -> the class of the whole model in ``transformers``.
        pooling: pooling of the classifier in ``transformers``, such as "pooler" or "first".
        head_type: head of that classifier: "linear", or "mlp" as wide as the encoder.
        head_activation: activation of the mlp's hidden layer.
        head_settings: ``config.json`` -> further settings of that classifier. Token classification then uses
            the same head.
    """

    read: Callable[[dict[str, Any], str], Any]
    write: Callable[[Any], dict[str, Any]]
    names: NameTable
    from_hub: Callable[[dict[str, Tensor], str, Any], dict[str, Tensor]]
    to_hub: Callable[[dict[str, Tensor], bool, Any], dict[str, Tensor]]
    classes: Mapping[str | None, str]
    pooling: str = "pooler"
    head_type: str = "linear"
    head_activation: str = "relu"
    head_settings: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def hub_head(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Pooling and head of the classifier in ``transformers`` for this ``config.json``."""
        default = {
            "pooling": self.pooling,
            "head_type": self.head_type,
            "head_activation": self.head_activation,
        }
        return default if self.head_settings is None else default | self.head_settings(settings)

    def can_save(self, config: Any) -> bool:
        """Whether ``config.json`` can represent embeddings and encoder of a model with this config."""
        if config.head not in self.classes:
            return False
        try:
            restored = self.read(self.write(config), "config.json")
        except InputError:
            return False
        return _computation_settings(restored, config.head) == _computation_settings(config, config.head)

    def loadable_head(self) -> str:
        """Python arguments, as text, of a classifier with a head that ``transformers`` can also load."""
        head = f", head={self.head_type!r}" if self.head_type != "linear" else ""
        head += f", head_activation={self.head_activation!r}" if self.head_activation != "relu" else ""
        return f"pooling={self.pooling!r}{head}"

    def class_of(self, config: Any) -> str:
        """The class of the whole model in ``transformers``; requires ``has_class``."""
        return self.classes[config.pooling if config.pooling in POOLINGS_WITH_CLASS else config.head]

    def has_class(self, config: Any) -> bool:
        """Whether a class of ``transformers`` has the pooling and head of this config."""
        if self.head_settings is not None and config.head in ("classification", "spans"):
            expected = self.hub_head(self.write(config))
            has_width = config.head_hidden in (None, config.encoder.d_model)
            if config.pooling == "tokens" or config.head == "spans":
                expected["pooling"] = config.pooling
            if config.head == "spans":
                del expected["head_type"]
            return has_width and all(getattr(config, key) == value for key, value in expected.items())
        if config.head == "spans":
            return "spans" in self.classes
        if config.pooling in POOLINGS_WITH_CLASS:
            return config.pooling in self.classes and config.head_type == "linear"
        if getattr(config, "sides", None) is not None or getattr(config, "projection", None) is not None:
            return False
        if config.head == "classification":
            has_width = config.head_hidden in (None, config.encoder.d_model) or self.head_type == "linear"
            has_activation = config.head_activation == self.head_activation or config.head_type == "linear"
            has_head = (config.pooling, config.head_type) == (self.pooling, self.head_type)
            return has_head and has_width and has_activation
        names = {*self.names.encoder, *self.names.full_names}
        return config.pooling is None or POOLING_TENSORS.get(config.pooling) in names


# Pooling of an encoder without a head -> the tensor by which it is recognized, without ``.weight``.
POOLING_TENSORS = {"pooler": "pooling.dense", "multihead": "pooling.query", "first-norm": "pooling.norm"}
# Settings of training and initialization, which ``config.json`` may lack.
TRAINING_KEYS = {"dropout", "attention_dropout", "feed_forward_dropout", "patch_dropout", "stochastic_depth"}
TRAINING_KEYS |= {"zero_init", "position_std"}


def _computation_settings(config: Any, head: str | None) -> tuple[Any, ...]:
    """The settings that determine the outputs of embeddings and encoder, and the model type."""
    parts = [
        {f.name: getattr(part, f.name) for f in fields(part) if f.name not in TRAINING_KEYS}
        for part in (config.embedding, config.encoder)
    ]
    encoder = parts[1]
    # None means that layers with local attention have the base of all layers.
    encoder["rotary_base_local"] = encoder["rotary_base"] and (
        encoder["rotary_base_local"] or encoder["rotary_base"]
    )
    if encoder["attention"] == "full":  # window and full_layers have no effect
        encoder |= {"attention_window": None, "full_layers": None}
    mlm_activation = head in ("mlm", "pretraining") and (config.words_activation or encoder["activation"])
    return *parts, mlm_activation, getattr(config, "model_type", None)


@dataclass(frozen=True)
class Family:
    """Everything that is specific to a ``model_type``.

    Args:
        model, config: the model class and its config class, from ``models/``.
        tiny: a config with a few thousand weights and three classes, for tests. The vocabulary has 31 tokens,
            images have 8 x 8 pixels.
        hub: the Hugging Face format; None: our own format, with the config under ``architecture``.
        presets: values of ``model=`` for random weights -> function that returns the config, given the
            vocabulary size (texts) or ``image_size`` and ``patch_size`` (images).
        pretraining: like ``presets``, for masked language modeling from scratch.
        examples: well-known checkpoints on the Hub.
        aliases: further values of ``model_type`` in files of this family.
        configure: preset config, model section of a recipe, number of labels -> config; None: the function
            for Transformers.
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
    aliases: tuple[str, ...] = ()


TEXT_CLASSES = {  # head -> suffix of the name of its class in ``transformers``
    None: "Model",
    "classification": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "mlm": "ForMaskedLM",
    "spans": "ForQuestionAnswering",
}


def text_family(
    model_type: str,
    class_prefix: str,
    preset: Callable[..., TextEncoderConfig],
    read: Callable[[dict[str, Any], str], TextEncoderConfig],
    write: Callable[[TextEncoderConfig], dict[str, Any]],
    names: NameTable,
    *,
    from_hub: Callable[..., dict[str, Tensor]] | None = None,
    to_hub: Callable[..., dict[str, Tensor]] | None = None,
    class_suffixes: Mapping[str | None, str] = TEXT_CLASSES,
    more_classes: Mapping[str | None, str] | None = None,
    tiny_options: Mapping[str, Any] | None = None,
    pretraining: Mapping[str, Callable[..., Any]] | None = None,
    examples: tuple[str, ...] = (),
    **classifier: Any,
) -> Family:
    """The ``Family`` of a text Transformer.

    Args:
        class_prefix: prefix of the class names in ``transformers``, such as ``Bert``.
        preset: returns the config for a vocabulary size, width, layers, heads, d_ff, positions and options.
        from_hub, to_hub: as in ``HubLayout``; None: only names are converted.
        class_suffixes: head -> suffix of the name of its class.
        more_classes: head -> name of a further class.
        tiny_options: further options of ``preset`` for ``Family.tiny``.
        classifier: ``pooling``, ``head_type``, ``head_activation`` and ``head_settings`` of ``HubLayout``.
    """
    head = {key: value for key, value in classifier.items() if key != "head_settings"}
    options = {"head": "classification", "num_labels": 3, **head, **(tiny_options or {})}
    layout = HubLayout(
        read,
        write,
        names,
        from_hub or (lambda tensors, where, config: names.from_hub(tensors, where)),
        to_hub or (lambda tensors, with_prefix, config: names.to_hub(tensors, with_prefix)),
        {head: f"{class_prefix}{end}" for head, end in class_suffixes.items()} | dict(more_classes or {}),
        **classifier,
    )
    return Family(
        model_type,
        TextEncoder,
        TextEncoderConfig,
        lambda: preset(
            vocab_size=31, d_model=12, num_layers=2, num_heads=3, d_ff=17, max_positions=19, **options
        ),
        layout,
        pretraining=pretraining or {},
        examples=examples,
    )
