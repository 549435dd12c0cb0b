"""``glassformer export --to onnx``: a graph, what makes its inputs, and a script that runs it alone.

The folder is written only if it agrees: samples go through the exported files alone, every answer must be
the model's and no output may move by more than ``TOLERANCE``. ``outputs.py`` has what is particular to
labels, tags, answers from a text and vectors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import write_folder
from glassformer.data import image_range
from glassformer.errors import GlassformerError, NotForThisModelError
from glassformer.export.graph import OPSET, draw_graph, need_onnx, quantize, run_graph
from glassformer.export.outputs import Outputs
from glassformer.finite import json_text

TOLERANCE = 1e-4
INT8_TOLERANCE = 0.5  # points of accuracy
HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
COPIED = "# --- copied into exported scripts ---\n"  # in image_range.py: what follows is copied


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
    """Write an estimator as an ONNX folder: ``model.onnx``, ``onnx.json``, ``tokenizer.json``, ``run.py``.

    A linear model has ``ngrams.json`` in the place of a tokenizer, one of images has neither.

    Args:
        samples: inputs that the agreement is checked on.
        labels: their true labels, for int8's accuracy; None where they are not known.
        int8: also write ``model-int8.onnx``. ``checked`` says what it costs.
        tolerance: how far an output may move.
        int8_tolerance: points of accuracy that int8 may cost where labels are known.
        validation: (examples, labels) that int8's accuracy is judged on; None: the samples.

    Returns:
        ``checked`` of ``onnx.json``: inputs, largest difference, and the same for int8.

    Raises:
        ConfigError: the extra is missing, or this kind of model has no such graph.
        GlassformerError: the graph does not agree, and nothing is written; or int8 costs too much accuracy,
            and all but ``model-int8.onnx`` is kept.
    """
    kind: Outputs = clf.export_outputs()
    kind.check("onnx")
    if int8 and kind.NO_INT8 is not None:
        what, fix = kind.NO_INT8
        raise NotForThisModelError(what, where="--int8", fix=fix)
    need_onnx()
    checked: dict[str, Any] = {}

    def write(folder: Path) -> None:
        graph = kind.graph()
        axes = dict.fromkeys(graph.inputs, graph.axes)
        draw_graph(graph.module, graph.inputs, tuple(graph.outputs), axes, folder / "model.onnx")
        kind.write_files(folder)
        (folder / "run.py").write_text(script_text(kind.SCRIPT, kind.decision("onnx")), encoding="utf-8")
        about = {"format": 1, "opset": OPSET, **graph.about(), **kind.about()}
        ours = kind.outputs(samples)
        theirs = kind.read(folder, about, run_graph(folder / "model.onnx", clf.threads), samples)
        moved, changed = compare(kind, ours, theirs, samples)
        if changed or not moved <= tolerance:
            differ = f"{changed} of {len(ours):,} {kind.ANSWERS} differ and " if kind.ANSWERS else ""
            raise GlassformerError(
                f"the ONNX graph does not agree with the model: on {len(samples):,} inputs {differ}"
                f"{kind.WHAT} move by up to {moved:.1e} ({tolerance:.0e} is allowed). Nothing was written"
            )
        checked.update(inputs=len(samples), **kind.counts(ours), largest_difference=moved)
        if kind.ANSWERS:
            checked["labels_changed"] = 0
        if int8:
            quantize(folder / "model.onnx", folder / "model-int8.onnx")
            checked["int8"] = _judge_int8(kind, folder, about, samples, ours, labels, validation)
            if _fall(checked["int8"]) > int8_tolerance:
                (folder / "model-int8.onnx").unlink()
                checked["int8"]["removed"] = True
        text = json_text({**about, "checked": checked}, indent=2) + "\n"
        (folder / "onnx.json").write_text(text, encoding="utf-8")

    write_folder(path, write)
    if int8 and checked["int8"].get("removed"):
        found = checked["int8"]
        noun = "words" if "words" in checked else clf.NOUN
        raise GlassformerError(
            f"int8 weights cost {_fall(found):.2f} points of accuracy on {found['judged']:,} labeled "
            f"{noun} ({found['accuracy_fp32']:.2%} becomes {found['accuracy_int8']:.2%}; "
            f"{int8_tolerance:g} points are allowed). {path} was written without model-int8.onnx"
        )
    return checked


def compare(kind: Outputs, ours: np.ndarray, theirs: np.ndarray, samples: Sequence[Any]) -> tuple[float, int]:
    """The largest difference of two outputs, and the number of answers that change."""
    moved = float(np.abs(ours - theirs).max()) if np.isfinite(theirs).all() else float("inf")
    before, after = (kind.answers(rows, samples) for rows in (ours, theirs))
    if before is None or after is None:
        return moved, 0
    return moved, sum(bool(a != b) for a, b in zip(before, after, strict=True))


def _judge_int8(
    kind: Outputs, folder: Path, about: Any, samples: Any, ours: np.ndarray, labels: Any, validation: Any
) -> dict[str, Any]:
    run = run_graph(folder / "model-int8.onnx", kind.clf.threads)
    theirs = kind.read(folder, about, run, samples)
    moved, changed = compare(kind, ours, theirs, samples)
    out: dict[str, Any] = {"largest_difference": moved, "labels_changed": changed}
    if validation is not None:
        samples, labels = validation
        ours, theirs = kind.outputs(samples), kind.read(folder, about, run, samples)
    if labels is not None and not kind.numbers:
        before, after = (kind.right(rows, samples, labels) for rows in (ours, theirs))
        shares = {"accuracy_fp32": float(before.mean()), "accuracy_int8": float(after.mean())}
        out |= {"judged": len(before), **shares}
    return out


def _fall(int8: dict[str, Any]) -> float:
    """Points of accuracy that int8 costs; 0 without known labels. Rounded: 0.5 points are not above 0.5."""
    return round(100 * (int8.get("accuracy_fp32", 0.0) - int8.get("accuracy_int8", 0.0)), 6)


def script_text(name: str, decision: str = "") -> str:
    """A script of ``scripts/`` as an exported folder has it.

    A line ``# --- FILE: NAME, ... ---`` becomes these functions of another script, ``# --- FILE ---`` what
    ``image_range.py`` and ``plain_ngrams.py`` have for scripts: each is written once.
    ``# --- the target ---`` becomes ``decision``.
    """

    def copied(line: re.Match[str]) -> str:
        if line["file"] == "the target":
            return decision
        if line["file"] == "image_range.py":
            return Path(image_range.__file__).read_text(encoding="utf-8").partition(COPIED)[2]
        if line["file"] == "plain_ngrams.py":
            return (HERE / line["file"]).read_text(encoding="utf-8").split('"""\n', 2)[-1]
        blocks = script_text(line["file"]).split("\n\n\n")
        wanted = line["names"].split(", ")
        starts = {name: (f"def {name}(", f"{name} = ") for name in wanted}
        found = [next(block for block in blocks if block.startswith(starts[name])) for name in wanted]
        return "\n\n\n".join(block.rstrip("\n") for block in found) + "\n"

    text = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub(r"# --- (?P<file>the target|[\w.]+)(?:: (?P<names>[\w, ]+))? ---\n", copied, text)
