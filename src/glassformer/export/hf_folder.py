"""Export of folders that ``transformers`` can open.

If ``transformers`` has a class for the whole model, this class gives the same outputs. If it lacks the
pooling or the head, ``transformers`` only opens the encoder, and ``run.py`` adds the rest from
``head.safetensors``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoints.files import README, add_card_checksum, read_json, write_folder
from glassformer.errors import ConfigError, GlassformerError, NotForThisModelError
from glassformer.export.onnx_folder import script_text
from glassformer.export.outputs import Outputs
from glassformer.families import FAMILIES, IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoderConfig

TOLERANCE = 1e-5  # maximum difference of an output
NUMBER_TOLERANCE = 1e-3  # the same for regressors, in standard deviations of the training targets


def representable(model: Any, name: str) -> Any:
    """The model, or a model with the same outputs that a layout of the Hub can represent.

    A text encoder without token types gets embeddings of zeros for them.

    Args:
        name: name of the model, for the error message.

    Raises:
        ConfigError: no layout can represent the model.
    """
    config = model.config
    if family_of(config).hub is not None:
        return model
    reason = "it is not a Transformer"
    if model.has_attention:
        candidate = _with_segments(config)
        if family_of(candidate).hub is not None:
            return _with_zero_segments(model, candidate)
        reason = f"no layout of the Hub has {' and '.join(_obstacles(config)) or 'its layers'}"
    families = [kind for kind, family in FAMILIES.items() if family.hub and family.model.reads == model.reads]
    architectures = ", ".join(_representable_architectures(model.reads))
    fix = "Use --to onnx, which supports every classifier; --to hf supports "
    fix += f"{architectures} and checkpoints of {', '.join(families)}"
    what = f"transformers has no class for {name!r}: {reason}"
    raise NotForThisModelError(what, where="--to hf", fix=fix)


def _with_segments(config: Any) -> Any:
    """The config of a text encoder, with embeddings of token types; other configs unchanged."""
    if not isinstance(config, TextEncoderConfig) or config.embedding.segments:
        return config
    return replace(config, embedding=replace(config.embedding, segments=1))


def _with_zero_segments(model: Any, config: TextEncoderConfig) -> Any:
    """A copy of the model, with embeddings of zeros for token types."""
    copy = type(model)(config)
    table = torch.zeros_like(copy.embeddings.segments.weight)
    copy.load_state_dict(dict(model.state_dict()) | {"embeddings.segments.weight": table})
    return copy.eval()


def _obstacles(config: Any) -> list[str]:
    """Descriptions of the parts of an encoder that no layout of the Hub can represent."""
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
    return [description for description, applies in obstacles.items() if applies]


def _representable_architectures(reads: str) -> list[str]:
    """The architectures for ``"texts"`` or ``"images"`` that a layout of the Hub can represent."""
    texts = reads == "texts"
    presets = TEXT_ARCHITECTURES if texts else IMAGE_ARCHITECTURES
    configs = {name: preset(31) if texts else preset() for name, preset in presets.items()}
    return [name for name, config in configs.items() if family_of(_with_segments(config)).hub is not None]


def export_hf(
    clf: Any, path: str | Path, samples: Sequence[Any], card: Callable[..., str] | None = None
) -> dict[str, Any]:
    """Write an estimator in the Hub's layout, load the folder, and compare the outputs.

    Embedders are written in the layout of sentence-transformers.

    Args:
        card: function that returns the text of ``README.md``; None: no card.

    Returns:
        A dict with ``opens_as`` (the class that opens the folder), ``whole`` (whether this class has the
        head, too), ``inputs``, ``largest_difference`` and ``clean`` (text cleaning before the tokenizer). It
        may also have ``left_out`` (parts of the decision that transformers lacks, such as a threshold),
        ``whole_with`` (settings with which ``whole`` would be True) and ``width`` (of embeddings).

    Raises:
        ConfigError: the Hub has no layout for this model, or the model was fitted without the special tokens
            that its tokenizer adds in transformers.
        GlassformerError: the folder gives other outputs; then nothing is written.
    """
    kind: Outputs = clf.export_outputs()
    kind.check("hf")
    result: dict[str, Any] = {}

    def write(folder: Path) -> None:
        model = representable(kind.network(), clf.model)
        save_pretrained(model, folder, **kind.names())
        config = read_json(folder / "config.json")
        kind.write_parts(folder)
        script = kind.hub_script() if "glassformer" in config else None
        whole = script is None
        if script is not None:
            text = script_text(script[0], kind.decision_code("hf"))
            for old, new in script[1].items():
                text = text.replace(old, new)
            (folder / "run.py").write_text(text, encoding="utf-8")
        expected = kind.outputs(samples)
        largest = kind.max_difference(expected, kind.read_back(folder, samples))
        if kind.are_numbers and not largest <= NUMBER_TOLERANCE:
            what = f"numbers differ by up to {largest:.2g} standard deviations of the training targets: "
            what += "transformers computes in fp32, which is too imprecise for numbers far from 0"
            fix = "Use --to onnx, or train on the numbers minus a constant"
            raise ConfigError(what, where="--to hf", fix=fix)
        if not kind.are_numbers and not largest <= TOLERANCE:
            what = f"the {kind.NOUN} of the exported folder differ from the model's by up to {largest:.1e}"
            raise GlassformerError(f"{what}. Nothing was written")
        opens_as = config["architectures"][0]
        result.update(opens_as=opens_as, whole=whole, inputs=len(samples), largest_difference=largest)
        result["clean"] = getattr(clf, "clean", "none")
        if not kind.PREDICTIONS:  # an embedder
            result.update(kind.sizes(expected))
        if left_out := kind.left_out():
            result["left_out"] = left_out
        hub = family_of(model.config).hub
        if not whole and hub is not None:
            result["whole_with"] = hub.loadable_head()
        if card is not None:
            opener = "SentenceTransformer" if kind.LIBRARY == "sentence-transformers" else opens_as
            text = card(library=kind.LIBRARY, opens_as=opener, includes_head=whole)
            (folder / README).write_text(add_card_checksum(text), encoding="utf-8")

    write_folder(path, write)
    return result
