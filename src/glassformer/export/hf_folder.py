"""``glassformer export --to hf``: a folder that ``transformers`` opens, and nothing in it that only we read.

Where the Hub has a class for the whole classifier, that class gives the same logits. A BERT or ViT under a
pooling or head of ours opens as the encoder alone; ``run.py`` then adds the rest from ``head.safetensors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import read_json, write_folder
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export.samples import judge_in_fp32
from glassformer.families import family_of
from glassformer.families.pretrained import load_pretrained, save_pretrained

SCRIPTS = Path(__file__).parent / "scripts"
TOLERANCE = 1e-5


def export_hf(clf: Any, path: str | Path, samples: Sequence[Any]) -> dict[str, Any]:
    """Write a classifier in the Hub's layout and read it back.

    Returns:
        ``opens_as`` (the class), ``whole`` (whether that class gives labels), ``inputs``,
        ``largest_difference``, and
        ``clean``: what was done to texts before the tokenizer; where it is not whole, ``whole_with``: the
        settings of a fit whose classifier is.

    Raises:
        ConfigError: the Hub's layout has no class for this kind of model.
        GlassformerError: what was read back gives other logits; nothing is written.
    """
    found: dict[str, Any] = {}

    def write(folder: Path) -> None:
        save_pretrained(clf.model_, folder, label_names=tuple(map(str, clf.classes_.tolist())))
        config = read_json(folder / "config.json")
        if config["model_type"].startswith("glassformer-"):
            raise ConfigError(
                "transformers has no class for this kind of model", where="export", fix="Use --to onnx"
            )
        clf.write_parts(folder)
        whole = "glassformer" not in config
        script = ("run_hf_text" if clf.NOUN == "texts" else "run_hf_pictures") + ".txt"
        if not whole:
            (folder / "run.py").write_text((SCRIPTS / script).read_text(encoding="utf-8"), encoding="utf-8")
        before, model = judge_in_fp32(clf, samples), clf.model_
        try:
            clf.model_ = load_pretrained(folder)
            moved = float(np.abs(judge_in_fp32(clf, samples) - before).max())
        finally:
            clf.model_ = model
        if not moved <= TOLERANCE:
            raise GlassformerError(
                f"the folder reads back with logits that move by up to {moved:.1e}. Nothing was written"
            )
        found.update(
            opens_as=config["architectures"][0],
            whole=whole,
            inputs=len(samples),
            largest_difference=moved,
            clean=getattr(clf, "clean", "none"),
        )
        hub = family_of(clf.model_.config).hub
        if not whole and hub is not None:
            found["whole_with"] = hub.opens_whole()

    write_folder(path, write)
    return found
