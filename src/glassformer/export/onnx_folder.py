"""``glassformer export --to onnx``: a graph, its tokenizer or picture sizes, a script that runs it alone.

The folder is written only if it agrees: the texts (or pictures) go through the exported files alone, and
every label must be the classifier's and no logit may move by more than ``TOLERANCE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from glassformer.checkpoints.files import read_json, write_folder
from glassformer.checkpoints.ngrams import FILE, about_ngrams
from glassformer.config import plain
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import TextPair, cleaned_sides
from glassformer.data.transform import RANGE
from glassformer.data.vocabulary import PAD, Vocabulary
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export.graph import OPSET, Run, draw_graph, need_onnx, quantize, run_graph
from glassformer.export.padded import Chances, PaddedPictures, PaddedText, softmax
from glassformer.export.plain_ngrams import features, numbered
from glassformer.export.samples import judge_in_fp32
from glassformer.export.script import picture_script
from glassformer.finite import json_text

# --- linear models --------------------------------------------------------------------------------
#
# ``model.onnx``, ``ngrams.json``, and a ``run.py`` in plain Python.


HERE = Path(__file__).parent
BATCH = 16
PLAIN = "# --- features ---\n"  # where the script has the text of plain_ngrams.py


class PaddedFeatures(nn.Module):
    """A linear model over ``[B, T]`` features and their values; where there is none the value is 0."""

    table: Tensor
    bias: Tensor

    def __init__(self, model: Any, temperature: Any = 1.0, chances: Chances = softmax):
        super().__init__()
        self.temperature, self.chances = temperature, chances
        self.register_buffer("table", model.head.out.weight.detach().T.contiguous())  # [W, C]
        self.register_buffer("bias", model.head.out.bias.detach())

    def forward(self, ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and probabilities, ``[B, C]`` each."""
        logits = (values[:, None] @ self.table[ids])[:, 0] + self.bias
        return logits, self.chances(logits, self.temperature)


def write_features(clf: Any, folder: Path) -> dict[str, Any]:
    """Graph, n-grams and script into a folder; what ``onnx.json`` says of the inputs."""
    module = PaddedFeatures(clf.model_, clf.temperature_, clf.kind_.chances_of).eval()
    given = {"ids": torch.zeros(2, 3, dtype=torch.long), "values": torch.ones(2, 3)}
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    draw_graph(module, given, ("logits", "probabilities"), dict.fromkeys(given, axes), folder / "model.onnx")
    about = about_ngrams(clf.tokenizer_) | {"idf": clf.tokenizer_.idf.tolist()}
    text = json_text(about, indent=0) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")
    script = (HERE / "scripts" / "run_ngrams.txt").read_text(encoding="utf-8")
    plain = (HERE / "plain_ngrams.py").read_text(encoding="utf-8")
    (folder / "run.py").write_text(script.replace(PLAIN, plain.split('"""\n', 2)[-1]), encoding="utf-8")
    pairs = {"pairs": True} if clf.reads_pairs else {}
    return {"inputs": {name: ["batch", "length"] for name in given}, **pairs, "clean": clf.clean}


def feature_answers(folder: Path, run: Run, samples: Sequence[str]) -> np.ndarray:
    """Logits ``[n, C]`` of texts by the exported files and the script's own features."""
    about = numbered(read_json(folder / FILE))
    given = [text.sides if isinstance(text, TextPair) else text for text in samples]
    parts = []
    for start in range(0, len(given), BATCH):
        rows = [features(text, about) for text in given[start : start + BATCH]]
        ids = np.zeros((len(rows), max([1, *map(len, rows)])), np.int64)
        values = np.zeros(ids.shape, np.float32)
        for i, row in enumerate(rows):
            ids[i, : len(row)], values[i, : len(row)] = list(row), list(row.values())
        parts.append(run({"ids": ids, "values": values})[0])
    return np.concatenate(parts)


# --- networks -------------------------------------------------------------------------------------


TOLERANCE = 1e-4
INT8_TOLERANCE = 0.5  # points of accuracy
SCRIPTS = Path(__file__).parent / "scripts"


def export_onnx(
    clf: Any,
    path: str | Path,
    samples: Sequence[Any],
    *,
    labels: Sequence[Any] | None = None,
    int8: bool = False,
    tolerance: float = TOLERANCE,
    int8_tolerance: float = INT8_TOLERANCE,
    validation: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """Write a classifier as an ONNX folder: ``model.onnx``, ``onnx.json``, ``tokenizer.json``, ``run.py``.

    A linear model has ``ngrams.json`` in the place of a tokenizer.

    The graph takes any batch, texts of any length up to ``max_length``, and gives ``logits`` and
    ``probabilities`` (temperature included).

    Args:
        samples: texts or pictures that the agreement is checked on.
        labels: their true labels, for int8's accuracy; None where they are not known.
        int8: also write ``model-int8.onnx``. ``checked`` says what it costs.
        tolerance: how far a logit may move.
        int8_tolerance: points of accuracy that int8 may cost where labels are known.
        validation: (examples, labels) that int8's accuracy is judged on; None: the samples.

    Returns:
        ``checked`` of ``onnx.json``: inputs, largest difference, and the same for int8.

    Raises:
        ConfigError: the extra is missing.
        GlassformerError: the graph does not agree, and nothing is written; or int8 costs too much accuracy,
            and all but ``model-int8.onnx`` is kept.
    """
    if int8 and not getattr(clf, "reads_tokens", True):
        what = "a linear model is looked up, not multiplied: int8 would make it no faster"
        raise ConfigError(
            what, where="int8", fix="Leave int8 out, or name an encoder: model=all-minilm-l6-v2"
        )
    need_onnx()
    checked: dict[str, Any] = {}

    def write(folder: Path) -> None:
        about = _write_text(clf, folder) if clf.NOUN == "texts" else _write_pictures(clf, folder)
        logits = judge_in_fp32(clf, samples)
        checked.update(_check(clf, folder, about, samples, logits, tolerance))
        if int8:
            quantize(folder / "model.onnx", folder / "model-int8.onnx")
            checked["int8"] = _judge_int8(clf, folder, about, samples, logits, labels, validation)
            if _fall(checked["int8"]) > int8_tolerance:
                (folder / "model-int8.onnx").unlink()
                checked["int8"]["removed"] = True
        text = json_text({**about, "checked": checked}, indent=2) + "\n"
        (folder / "onnx.json").write_text(text, encoding="utf-8")

    write_folder(path, write)
    if int8 and checked["int8"].get("removed"):
        found = checked["int8"]
        raise GlassformerError(
            f"int8 weights cost {_fall(found):.2f} points of accuracy on {found['judged']:,} labelled "
            f"{clf.NOUN} ({found['accuracy_fp32']:.2%} becomes {found['accuracy_int8']:.2%}; "
            f"{int8_tolerance:g} points are allowed). {path} was written without model-int8.onnx"
        )
    return checked


def _fall(int8: dict[str, Any]) -> float:
    """Points of accuracy that int8 costs; 0 without known labels. Rounded: 0.5 points are not above 0.5."""
    return round(100 * (int8.get("accuracy_fp32", 0.0) - int8.get("accuracy_int8", 0.0)), 6)


def _write_text(clf: Any, folder: Path) -> dict[str, Any]:
    if not clf.reads_tokens:
        return _about(clf) | write_features(clf, folder)
    longest = clf.max_length
    module = PaddedText(clf.model_.eval(), longest, clf.temperature_, clf.kind_.chances_of)
    if longest < 3:
        raise ConfigError(f"max_length {longest} leaves no room for a text", where="export")
    ids = torch.ones(2, 3, dtype=torch.long)
    mask = ids.clone()
    mask[1, 2:] = 0  # with a mask of ones the exporter may leave the mask out
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest)}
    pairs = clf.reads_pairs
    given = {"input_ids": ids, "attention_mask": mask}
    if pairs and tells_segments(clf):
        given["token_type_ids"] = torch.tensor([[0, 1, 1], [0, 1, 0]])
    draw_graph(module, given, ("logits", "probabilities"), dict.fromkeys(given, axes), folder / "model.onnx")
    tokenizer = Tokenizer.from_str(clf.tokenizer_.to_str())
    tokenizer.enable_truncation(longest)
    pad = Vocabulary.of(tokenizer).pad or 0
    tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad) or PAD)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "run.py").write_text((SCRIPTS / "run_text.txt").read_text(encoding="utf-8"), encoding="utf-8")
    return {
        **_about(clf),
        "inputs": {name: ["batch", "length"] for name in given},
        **({"pairs": True} if pairs else {}),
        "max_length": longest,
        "clean": clf.clean,
        "long_texts": clf.long_texts,  # what ``predict`` does with longer ones; here they are cut
        "add_special_tokens": clf.add_special_tokens,
    }


def tells_segments(clf: Any) -> bool:
    """Whether a classifier's model tells the texts of a pair apart."""
    return getattr(clf.model_.config.embedding, "segments", 0) > 1


def _write_pictures(clf: Any, folder: Path) -> dict[str, Any]:
    t = clf.transform_
    module = PaddedPictures(clf.model_.eval(), t.mean, t.std, clf.temperature_, clf.kind_.chances_of)
    pixels = torch.zeros(2, t.channels, *t.size, dtype=torch.uint8)
    batch = {0: torch.export.Dim("batch")}
    outputs = ("logits", "probabilities")
    draw_graph(module, {"pixels": pixels}, outputs, {"pixels": batch}, folder / "model.onnx")
    (folder / "run.py").write_text(picture_script("run_pictures"), encoding="utf-8")
    scale = {"fit": t.fit, "shorter": t.shorter or max(t.size), "resample": t.to_hub()["resample"]}
    return {
        **_about(clf),
        "inputs": {"pixels": ["batch", t.channels, *t.size]},
        "size": list(t.size),
        **scale,
        RANGE: t.image_range,
    }


def _about(clf: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "opset": OPSET,
        "outputs": {"logits": ["batch", "label"], "probabilities": ["batch", "label"]},
        "labels": list(map(str, clf.classes_.tolist())),
        "threshold": plain(clf.threshold_),
        **clf.kind_.about_export(clf),
    }


# --- the gate -------------------------------------------------------------------------------------


def answers(folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any], clf: Any) -> np.ndarray:
    """Logits ``[n, C]`` of raw inputs through the exported files: tokenizer, lengths and graph."""
    if "values" in about["inputs"]:
        return feature_answers(folder, run, clf.check(samples))
    if "input_ids" not in about["inputs"]:
        pixels = np.stack([clf.transform_.picture(x) for x in samples])
        parts = [pixels[i : i + BATCH] for i in range(0, len(pixels), BATCH)]
        return np.concatenate([_logits(run({"pixels": part}), about, clf) for part in parts])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [_cleaned(text, about["clean"]) for text in clf.check(samples)]
    order = sorted(
        range(len(texts)), key=lambda i: -len("".join(texts[i]))
    )  # texts of like length share a batch
    logits = np.empty((len(texts), len(about["labels"])), np.float32)
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        rows = tokenizer.encode_batch(
            [texts[i] for i in part], add_special_tokens=about["add_special_tokens"]
        )
        batch = {
            name: np.array([getattr(row, KEYS[name]) for row in rows], np.int64) for name in about["inputs"]
        }
        logits[part] = _logits(run(batch), about, clf)
    return logits


def _logits(outputs: Sequence[np.ndarray], about: dict[str, Any], clf: Any) -> np.ndarray:
    """The logits of a graph's outputs; for regressors its numbers, standardized.

    A graph may have the logits right and round the numbers, so the check compares the numbers.
    """
    return clf.kind_.standardized(outputs[1]) if about.get("number") else outputs[0]


KEYS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def _cleaned(text: str, clean: Any) -> Any:
    """A text as the tokenizer takes it; a pair as two."""
    return cleaned_sides(text, clean) if isinstance(text, TextPair) else clean_text(text, clean)


def _check(clf: Any, folder: Path, about: dict[str, Any], samples: Any, logits: np.ndarray, tolerance: float):
    found = answers(folder, about, run_graph(folder / "model.onnx", clf.threads), samples, clf)
    moved, flipped = compare(clf, logits, found)
    if flipped or not moved <= tolerance:
        raise GlassformerError(
            f"the ONNX graph does not agree with the model: on {len(samples)} inputs {flipped} labels differ "
            f"and logits move by up to {moved:.1e} ({tolerance:.0e} is allowed). Nothing was written"
        )
    return {"inputs": len(samples), "largest_difference": moved, "labels_changed": 0}


def _judge_int8(
    clf: Any, folder: Path, about: Any, samples: Any, logits: np.ndarray, labels: Any, validation: Any
) -> dict[str, Any]:
    run = run_graph(folder / "model-int8.onnx", clf.threads)
    found = answers(folder, about, run, samples, clf)
    moved, flipped = compare(clf, logits, found)
    out: dict[str, Any] = {"largest_difference": moved, "labels_changed": flipped}
    if validation is not None:
        examples, labels = validation
        logits, found = judge_in_fp32(clf, examples), answers(folder, about, run, examples, clf)
    if labels is not None and clf.kind_.labels_given:
        out["judged"] = len(labels)
        truth = np.array(list(map(str, labels)))
        for name, rows in (("accuracy_fp32", logits), ("accuracy_int8", found)):
            out[name] = float((_labels(clf, rows) == truth).mean())
    return out


def _labels(clf: Any, logits: np.ndarray) -> np.ndarray:
    return np.array([str(label) for label in clf.decide(clf.chances(logits))])


def compare(clf: Any, ours: np.ndarray, theirs: np.ndarray) -> tuple[float, int]:
    """The largest difference of two logits, and the number of inputs whose label changes."""
    moved = float(np.abs(ours - theirs).max()) if np.isfinite(theirs).all() else float("inf")
    if not clf.kind_.labels_given:
        return moved, 0
    return moved, int((_labels(clf, ours) != _labels(clf, theirs)).sum())
