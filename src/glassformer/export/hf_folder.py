"""``glassformer export --to hf``: a folder that ``transformers`` opens, and nothing in it that only we read.

Where the Hub has a class for the whole model, that class gives the same outputs. A BERT or ViT under a
pooling or head of ours opens as the encoder alone; ``run.py`` then adds the rest from ``head.safetensors``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoints.files import README, read_json, signed, write_folder
from glassformer.errors import ConfigError, GlassformerError, NotForThisModelError
from glassformer.export.onnx_folder import script_text
from glassformer.export.outputs import Outputs
from glassformer.families import FAMILIES, IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoderConfig

TOLERANCE = 1e-5
NUMBER_TOLERANCE = 1e-3  # of a regressor, in standard deviations of its training targets


def as_hub_has_it(model: Any, name: str) -> Any:
    """The model in a form that a layout of the Hub can express: itself, or one with the same answers.

    A text encoder without kinds of segments gets a table of them that adds nothing.

    Args:
        name: what the model is called, for the message.

    Raises:
        ConfigError: no layout can; the message says why, and which models have one.
    """
    config = model.config
    if family_of(config).hub is not None:
        return model
    why = "it is not a Transformer"
    if model.has_attention:
        other = config
        if isinstance(config, TextEncoderConfig) and not config.embedding.segments:
            other = replace(config, embedding=replace(config.embedding, segments=1))
        if family_of(other).hub is not None:
            return _with_segments(model, other)
        why = f"no layout of the Hub has {' and '.join(_unusual(config)) or 'its layers'}"
    able = [kind for kind, family in FAMILIES.items() if family.hub and family.model.reads == model.reads]
    raise NotForThisModelError(
        f"transformers has no class for {name!r}: {why}",
        where="--to hf",
        fix=f"Use --to onnx, which takes every classifier; a folder for transformers comes from "
        f"{', '.join(_expressible(model.reads))} and from checkpoints of {', '.join(able)}",
    )


def _with_segments(model: Any, config: TextEncoderConfig) -> Any:
    other = type(model)(config)
    table = torch.zeros_like(other.embeddings.segments.weight)
    other.load_state_dict(dict(model.state_dict()) | {"embeddings.segments.weight": table})
    return other.eval()


def _unusual(config: Any) -> list[str]:
    """What of an encoder keeps it from the Hub's layouts, in words."""
    embedding, encoder = config.embedding, config.encoder
    texts = isinstance(config, TextEncoderConfig)
    found = {
        "norms before the sub-layers": texts and encoder.norm == "pre",
        "norms after the sub-layers": not texts and encoder.norm == "post",
        "embeddings without a norm": texts and not embedding.norm,
        "sinusoidal positions": embedding.positions == "sinusoidal",
        "a mean over patches without a class token": not texts and not embedding.class_token,
        "a stem of convolutions": not texts and bool(getattr(embedding, "stem", None)),
        "word vectors of another width": texts and embedding.token_width is not None,
        "damped repeats": texts and bool(embedding.damp_repeats),
    }
    return [what for what, so in found.items() if so]


def _expressible(reads: str) -> list[str]:
    """The presets of random weights that ``as_hub_has_it`` takes."""
    presets = TEXT_ARCHITECTURES if reads == "texts" else IMAGE_ARCHITECTURES
    names = []
    for name, preset in presets.items():
        config = preset(31) if reads == "texts" else preset()
        if isinstance(config, TextEncoderConfig) and not config.embedding.segments:
            config = replace(config, embedding=replace(config.embedding, segments=1))
        if family_of(config).hub is not None:
            names.append(name)
    return names


def export_hf(
    clf: Any, path: str | Path, samples: Sequence[Any], card: Callable[..., str] | None = None
) -> dict[str, Any]:
    """Write an estimator in the Hub's layout (an embedder in sentence-transformers') and read it back.

    Args:
        card: gives the text of ``README.md``, from how the folder is opened; None: there is none.

    Returns:
        ``opens_as`` (the class), ``whole`` (whether that class gives answers), ``inputs``,
        ``largest_difference``, and
        ``clean``: what was done to texts before the tokenizer; ``left_out``, if anything: what answers are
        made with here, and not in transformers; where it is not whole, ``whole_with``: the
        settings of a fit whose classifier is; for vectors ``width``.

    Raises:
        ConfigError: the Hub's layout has no class for this kind of model, or it was fitted without the
            special tokens that its tokenizer adds for others.
        GlassformerError: what was read back gives other outputs; nothing is written.
    """
    kind: Outputs = clf.export_outputs()
    kind.check("hf")
    found: dict[str, Any] = {}

    def write(folder: Path) -> None:
        given = as_hub_has_it(kind.network(), clf.model)
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
        before = kind.outputs(samples)
        moved = kind.moved(before, kind.read_back(folder, samples))
        if kind.numbers and not moved <= NUMBER_TOLERANCE:
            what = f"numbers move by up to {moved:.2g} standard deviations of the training targets"
            raise ConfigError(
                f"{what}: transformers computes them in fp32, which has too few digits so far from 0",
                where="--to hf",
                fix="Use --to onnx, or train on the numbers minus a constant",
            )
        if not kind.numbers and not moved <= TOLERANCE:
            what = f"the folder reads back with {kind.WHAT} that move by up to {moved:.1e}"
            raise GlassformerError(f"{what}. Nothing was written")
        opens_as = config["architectures"][0]
        found.update(opens_as=opens_as, whole=whole, inputs=len(samples), largest_difference=moved)
        found["clean"] = getattr(clf, "clean", "none")
        if not kind.ANSWERS:  # of vectors their width
            found.update(kind.counts(before))
        if left_out := kind.left_out():
            found["left_out"] = left_out
        hub = family_of(given.config).hub
        if not whole and hub is not None:
            found["whole_with"] = hub.opens_whole()
        if card is not None:
            of_sentences = kind.LIBRARY == "sentence-transformers"
            opener = "SentenceTransformer" if of_sentences else opens_as
            text = card(library=kind.LIBRARY, opens_as=opener, whole=whole)
            (folder / README).write_text(signed(text), encoding="utf-8")

    write_folder(path, write)
    return found
