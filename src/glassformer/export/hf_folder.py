"""``glassformer export --to hf``: write a folder that ``transformers`` opens.

If ``transformers`` has a class for the whole model, it gives the same outputs. If pooling or head are ours,
``transformers`` opens the encoder only; ``run.py`` then adds the rest from ``head.safetensors``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoints.files import README, read_json, with_checksum, write_folder
from glassformer.errors import ConfigError, GlassformerError, NotForThisModelError
from glassformer.export.onnx_folder import script_text
from glassformer.export.outputs import Outputs
from glassformer.families import FAMILIES, IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoderConfig

TOLERANCE = 1e-5
NUMBER_TOLERANCE = 1e-3  # for regressors, in standard deviations of the training targets


def representable(model: Any, name: str) -> Any:
    """The model, or one with the same outputs, in a form that a Hub layout can represent.

    A text encoder without token types gets a table of zeros for them.

    Args:
        name: name of the model, for the message.

    Raises:
        ConfigError: no layout fits; the message says why, and which models have one.
    """
    config = model.config
    if family_of(config).hub is not None:
        return model
    reason = "it is not a Transformer"
    if model.has_attention:
        candidate = _with_segments(config)
        if family_of(candidate).hub is not None:
            return _in_place_of(model, candidate)
        reason = f"no layout of the Hub has {' and '.join(_obstacles(config)) or 'its layers'}"
    supported = [
        kind for kind, family in FAMILIES.items() if family.hub and family.model.reads == model.reads
    ]
    raise NotForThisModelError(
        f"transformers has no class for {name!r}: {reason}",
        where="--to hf",
        fix=f"Use --to onnx, which takes every classifier; a folder for transformers comes from "
        f"{', '.join(_expressible(model.reads))} and from checkpoints of {', '.join(supported)}",
    )


def _with_segments(config: Any) -> Any:
    """The config of a text encoder with a table for token types."""
    if not isinstance(config, TextEncoderConfig) or config.embedding.segments:
        return config
    return replace(config, embedding=replace(config.embedding, segments=1))


def _in_place_of(model: Any, config: TextEncoderConfig) -> Any:
    replacement = type(model)(config)
    table = torch.zeros_like(replacement.embeddings.segments.weight)
    replacement.load_state_dict(dict(model.state_dict()) | {"embeddings.segments.weight": table})
    return replacement.eval()


def _obstacles(config: Any) -> list[str]:
    """Descriptions of the parts of an encoder that no Hub layout can represent."""
    embedding, encoder = config.embedding, config.encoder
    texts = isinstance(config, TextEncoderConfig)
    obstacles = {
        "pre-norm layers": texts and encoder.norm == "pre",
        "post-norm layers": not texts and encoder.norm == "post",
        "embeddings without a norm": texts and not embedding.norm,
        "sinusoidal positions": embedding.positions == "sinusoidal",
        "a mean over patches without a class token": not texts and not embedding.class_token,
        "a convolutional stem": not texts and bool(getattr(embedding, "stem", None)),
        "word vectors of another width": texts and embedding.token_width is not None,
        "damp_repeats": texts and bool(embedding.damp_repeats),
    }
    return [what for what, applies in obstacles.items() if applies]


def _expressible(reads: str) -> list[str]:
    """The architectures that a Hub layout can represent."""
    texts = reads == "texts"
    presets = TEXT_ARCHITECTURES if texts else IMAGE_ARCHITECTURES
    configs = {name: preset(31) if texts else preset() for name, preset in presets.items()}
    return [name for name, config in configs.items() if family_of(_with_segments(config)).hub is not None]


def export_hf(
    clf: Any, path: str | Path, samples: Sequence[Any], card: Callable[..., str] | None = None
) -> dict[str, Any]:
    """Write an estimator in the Hub's layout (embedders in that of sentence-transformers) and read it back.

    Args:
        card: returns the text of ``README.md``, given how the folder is opened; None: no card.

    Returns:
        ``opens_as`` (the class), ``whole`` (whether that class predicts), ``inputs``, ``largest_difference``,
        ``clean`` (text cleaning before the tokenizer). If transformers lacks parts of the decision, such as a
        threshold, ``left_out`` has them. If not ``whole``, ``whole_with`` has settings of a fit that would
        be. For embedders, ``width``.

    Raises:
        ConfigError: the Hub's layout has no class for this kind of model, or it was fitted without the
            special tokens that its tokenizer adds in transformers.
        GlassformerError: the folder gives other outputs; nothing is written.
    """
    kind: Outputs = clf.export_outputs()
    kind.check("hf")
    result: dict[str, Any] = {}

    def write(folder: Path) -> None:
        given = representable(kind.network(), clf.model)
        save_pretrained(given, folder, **kind.names())
        config = read_json(folder / "config.json")
        kind.write_parts(folder)
        script = kind.hub_script() if "glassformer" in config else None
        whole = script is None
        if script is not None:
            text = script_text(script[0], kind.decision("hf"))
            for old, new in script[1].items():
                text = text.replace(old, new)
            (folder / "run.py").write_text(text, encoding="utf-8")
        expected = kind.outputs(samples)
        largest = kind.moved(expected, kind.read_back(folder, samples))
        if kind.numbers and not largest <= NUMBER_TOLERANCE:
            message = f"numbers move by up to {largest:.2g} standard deviations of the training targets"
            raise ConfigError(
                f"{message}: transformers computes in fp32, which is too imprecise for numbers far from 0",
                where="--to hf",
                fix="Use --to onnx, or train on the numbers minus a constant",
            )
        if not kind.numbers and not largest <= TOLERANCE:
            message = f"the {kind.WHAT} of the folder differ from the model's by up to {largest:.1e}"
            raise GlassformerError(f"{message}. Nothing was written")
        opens_as = config["architectures"][0]
        result.update(opens_as=opens_as, whole=whole, inputs=len(samples), largest_difference=largest)
        result["clean"] = getattr(clf, "clean", "none")
        if not kind.ANSWERS:  # embedders: the width
            result.update(kind.counts(expected))
        if left_out := kind.left_out():
            result["left_out"] = left_out
        hub = family_of(given.config).hub
        if not whole and hub is not None:
            result["whole_with"] = hub.loadable_head()
        if card is not None:
            of_sentences = kind.LIBRARY == "sentence-transformers"
            opener = "SentenceTransformer" if of_sentences else opens_as
            text = card(library=kind.LIBRARY, opens_as=opener, includes_head=whole)
            (folder / README).write_text(with_checksum(text), encoding="utf-8")

    write_folder(path, write)
    return result
