"""Export of folders with an ONNX graph.

A folder also has the tokenizer and a script that runs the graph. It is only kept if the graph agrees with the
model on some samples: all predictions must be equal, and no output may differ by more than ``TOLERANCE``.
``outputs.py`` has the code for each kind of prediction.
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
from glassformer.export.graph import OPSET, check_onnx, export_graph, open_graph, quantize
from glassformer.export.outputs import Outputs
from glassformer.finite import json_text

TOLERANCE = 1e-4  # maximum difference of an output
INT8_TOLERANCE = 0.5  # percentage points of accuracy
HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
COPY_MARKER = "# --- copied into exported scripts ---\n"  # line in image_range.py before the code to copy


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

    A linear model has ``ngrams.json`` instead of a tokenizer. An image model has no such file.

    Args:
        samples: inputs on which model and export are compared.
        labels: true labels of the samples, for the accuracy of int8; None: unknown.
        int8: also write ``model-int8.onnx``.
        tolerance: maximum difference of an output.
        int8_tolerance: percentage points of accuracy that int8 may lose, if labels are known.
        validation: (examples, labels) for the accuracy of int8; None: the samples.

    Returns:
        The entry ``checked`` of ``onnx.json``, with the result of the comparison.

    Raises:
        ConfigError: the extra is missing, or this kind of model has no graph.
        GlassformerError: the graph gives other outputs (then nothing is written), or int8 loses too much
            accuracy (then the folder is written without ``model-int8.onnx``).
    """
    kind: Outputs = clf.export_outputs()
    kind.check("onnx")
    if int8 and kind.NO_INT8 is not None:
        what, fix = kind.NO_INT8
        raise NotForThisModelError(what, where="--int8", fix=fix)
    check_onnx()
    checked: dict[str, Any] = {}

    def write(folder: Path) -> None:
        graph = kind.graph()
        axes = dict.fromkeys(graph.inputs, graph.axes)
        export_graph(graph.module, graph.inputs, tuple(graph.outputs), axes, folder / "model.onnx")
        kind.write_files(folder)
        (folder / "run.py").write_text(script_text(kind.SCRIPT, kind.decision_code("onnx")), encoding="utf-8")
        metadata = {"format": 1, "opset": OPSET, **graph.metadata(), **kind.metadata()}
        expected = kind.outputs(samples)
        run = open_graph(folder / "model.onnx", clf.threads)
        exported = kind.run_files(folder, metadata, run, samples)
        largest, num_changed = compare(kind, expected, exported, samples)
        if num_changed or not largest <= tolerance:
            changes = f"{num_changed} of {len(expected):,} {kind.PREDICTIONS} differ and "
            raise GlassformerError(
                f"the ONNX graph does not agree with the model: on {len(samples):,} inputs "
                f"{changes if kind.PREDICTIONS else ''}{kind.NOUN} differ by up to {largest:.1e} "
                f"({tolerance:.0e} is allowed). Nothing was written"
            )
        checked.update(inputs=len(samples), **kind.sizes(expected), largest_difference=largest)
        if kind.PREDICTIONS:
            checked["labels_changed"] = 0
        if int8:
            quantize(folder / "model.onnx", folder / "model-int8.onnx")
            checked["int8"] = _evaluate_int8(kind, folder, metadata, samples, expected, labels, validation)
            if _lost_points(checked["int8"]) > int8_tolerance:
                (folder / "model-int8.onnx").unlink()
                checked["int8"]["removed"] = True
        text = json_text({**metadata, "checked": checked}, indent=2) + "\n"
        (folder / "onnx.json").write_text(text, encoding="utf-8")

    write_folder(path, write)
    if int8 and checked["int8"].get("removed"):
        loss = checked["int8"]
        noun = "words" if "words" in checked else clf.NOUN
        raise GlassformerError(
            f"int8 weights cost {_lost_points(loss):.2f} points of accuracy on {loss['judged']:,} labeled "
            f"{noun} ({loss['accuracy_fp32']:.2%} becomes {loss['accuracy_int8']:.2%}; "
            f"{int8_tolerance:g} points are allowed). {path} was written without model-int8.onnx"
        )
    return checked


def compare(
    kind: Outputs, expected: np.ndarray, exported: np.ndarray, samples: Sequence[Any]
) -> tuple[float, int]:
    """The largest difference between two outputs, and the number of predictions that differ."""
    largest = float(np.abs(expected - exported).max()) if np.isfinite(exported).all() else float("inf")
    before, after = (kind.predictions(rows, samples) for rows in (expected, exported))
    if before is None or after is None:
        return largest, 0
    return largest, sum(bool(a != b) for a, b in zip(before, after, strict=True))


def _evaluate_int8(
    kind: Outputs,
    folder: Path,
    metadata: Any,
    samples: Any,
    expected: np.ndarray,
    labels: Any,
    validation: Any,
) -> dict[str, Any]:
    """The entry ``int8`` of ``checked``: the differences, and the accuracies if labels are known."""
    run = open_graph(folder / "model-int8.onnx", kind.clf.threads)
    exported = kind.run_files(folder, metadata, run, samples)
    largest, num_changed = compare(kind, expected, exported, samples)
    out: dict[str, Any] = {"largest_difference": largest, "labels_changed": num_changed}
    if validation is not None:
        samples, labels = validation
        expected, exported = kind.outputs(samples), kind.run_files(folder, metadata, run, samples)
    if labels is not None and not kind.are_numbers:
        fp32, int8 = (kind.is_correct(rows, samples, labels) for rows in (expected, exported))
        out["judged"] = len(fp32)
        out |= {"accuracy_fp32": float(fp32.mean()), "accuracy_int8": float(int8.mean())}
    return out


def _lost_points(int8: dict[str, Any]) -> float:
    """The percentage points of accuracy that int8 loses, rounded; 0 without labels."""
    return round(100 * (int8.get("accuracy_fp32", 0.0) - int8.get("accuracy_int8", 0.0)), 6)


def script_text(name: str, decision: str = "") -> str:
    """The text of a script in ``scripts/`` for an exported folder.

    Some lines of the script are replaced by other code: ``# --- FILE: NAME, ... ---`` by these functions of
    another script, ``# --- FILE ---`` by the code of ``image_range.py`` or ``plain_ngrams.py``, and
    ``# --- the target ---`` by ``decision``.
    """

    def replacement(line: re.Match[str]) -> str:
        if line["file"] == "the target":
            return decision
        if line["file"] == "image_range.py":
            return Path(image_range.__file__).read_text(encoding="utf-8").partition(COPY_MARKER)[2]
        if line["file"] == "plain_ngrams.py":
            return (HERE / line["file"]).read_text(encoding="utf-8").split('"""\n', 2)[-1]
        blocks = script_text(line["file"]).split("\n\n\n")
        starts = [(f"def {name}(", f"{name} = ") for name in line["names"].split(", ")]
        copied = [next(block for block in blocks if block.startswith(start)) for start in starts]
        return "\n\n\n".join(block.rstrip("\n") for block in copied) + "\n"

    text = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub(r"# --- (?P<file>the target|[\w.]+)(?:: (?P<names>[\w, ]+))? ---\n", replacement, text)
