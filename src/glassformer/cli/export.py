"""``glassformer export`` and ``prove``.

``export`` writes a trained model for other programs, and checks the result. ``prove`` compares a checkpoint
with ``transformers``, and writes a certificate.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from glassformer.cli.audit import WORSE
from glassformer.cli.options import RUN, argument, check_folder, flag, option
from glassformer.cli.output import AS_JSON, print_json, print_message, print_note, progress_bar, show_table
from glassformer.cli.predictions import usage_hint
from glassformer.data.splits import labeled_or_none
from glassformer.errors import BadValueError, DataError, ExistsError, NotForThisModelError, with_article
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path, check_new_file, write_text
from glassformer.tasks.catalog import TASKS

CHECKED_INPUTS = 200  # number of inputs on which model and export are compared
INT8_EXAMPLES = 1_000  # maximum number of validation examples on which int8 is evaluated


class Target(StrEnum):
    hf = "hf"
    onnx = "onnx"


def export(
    run: str | Path,
    to: str,
    out: str | Path | None = None,
    *,
    int8: bool = False,
    check: int = CHECKED_INPUTS,
    int8_tolerance: float = 0.5,
) -> tuple[Path, dict[str, Any]]:
    """Export a model, and compare its predictions with those of the model.

    Args:
        out: None: a sub-folder of the run.
        check: number of inputs to compare.
        int8_tolerance: percentage points of validation accuracy that int8 may lose.

    Returns:
        The folder of the export, and the result of the comparison.

    Raises:
        GlassformerError: the predictions differ (then no files are kept), or the model cannot be exported.
    """
    check_folder(run)
    from glassformer.export.outputs import samples_of
    from glassformer.tasks.load import load

    if int8 and to != "onnx":
        raise NotForThisModelError("int8 weights are for ONNX", where="--int8", fix="Use --to onnx")
    if check < 1:
        raise BadValueError(f"{check} inputs check nothing", where="--check", fix="Use 1 or more")
    if not int8_tolerance >= 0:
        raise BadValueError(f"{int8_tolerance:g} points", where="--int8-tolerance", fix="Use 0 or more")
    clf = load(run)
    write = TASKS[clf.RECIPE.task].export
    if write is None:
        exportable = "classifiers, regressors, taggers, question answerers and embedders"
        what = f"contains {with_article(type(clf).__name__)}; only {exportable} can be exported"
        raise NotForThisModelError(what, where=str(run), fix=usage_hint(TASKS[clf.RECIPE.task]))
    folder = Path(out) if out is not None else Path(run) / to
    if check_folder_path(folder).exists():
        raise ExistsError("the output folder exists", where=str(folder), fix="Choose another --out")
    samples, labels = samples_of(clf, run, check)
    supports_int8 = int8 and clf.export_outputs().NO_INT8 is None
    options: dict[str, Any] = {"int8": int8, "int8_tolerance": int8_tolerance}
    options["validation"] = sample_validation(run) if supports_int8 else None
    result = write(clf, to, folder, samples, run=run, labels=labels, **options)
    return folder, {"long_texts": getattr(clf, "long_texts", "cut")} | result


def sample_validation(run: str | Path) -> tuple[list[Any], list[Any]] | None:
    """Random labeled validation examples of a run, at most ``INT8_EXAMPLES``; None if there are none."""
    import numpy as np

    from glassformer.tasks.run import read_run_recipe
    from glassformer.tasks.task import RunContext

    if not (Path(run) / "config.toml").is_file():
        return None
    recipe = read_run_recipe(Path(run))
    try:
        context = RunContext(TASKS[recipe.task], recipe, Path(run), print_note)
        examples = labeled_or_none(context.reload_data(["validation"]).validation)
    except DataError as error:
        print_note(f"the run's validation data are not used ({error})")
        return None
    if examples is None:
        return None
    indices = np.random.default_rng(0).permutation(len(examples))[:INT8_EXAMPLES].tolist()
    return [examples.examples[i] for i in indices], [examples.labels[i] for i in indices]


def export_command(
    run: Path = RUN,
    to: Target = option(None, "hf for transformers; onnx for ONNX Runtime and others.", "--to", default=...),
    out: Path | None = option("DIR", "Output folder (default: RUN/hf or RUN/onnx)."),
    int8: bool = flag("--int8", "For onnx: also write int8 weights and report the accuracy they lose."),
    int8_tolerance: float = option(
        "POINTS",
        "Max accuracy loss of int8 in percentage points; if the loss is larger, int8 is not kept.",
        default=0.5,
    ),
    check: int = option(
        "N",
        "Number of inputs on which the export must predict the same as the model.",
        default=CHECKED_INPUTS,
    ),
    json: bool = AS_JSON,
) -> None:
    """Export the model to transformers or ONNX; stops if the predictions would differ."""
    folder, result = export(run, to.value, out, int8=int8, check=check, int8_tolerance=int8_tolerance)
    if json:
        print_json({"folder": folder, "to": to.value, **result})
    left_out = result.get("left_out", [])
    compared = "vectors" if "width" in result else "logits" if left_out else "same labels, logits"
    difference = f"{result['largest_difference']:.1e}"  # for example 1.2e-06
    print_message(f"{folder}: {result['inputs']} inputs, {compared} differ by at most {difference}")
    if to is Target.hf:
        _describe_hf(result, left_out)
    else:
        print_message(f"python {folder / 'run.py'} runs it without glassformer")
    if result.get("long_texts", "cut") != "cut":
        print_note(
            "the export truncates long texts and may predict other labels for them: `glassformer predict` "
            f"takes the {result['long_texts']} over the windows of each text"
        )
    if int8:
        check_result = result["int8"]
        logits = f"logits differ by up to {check_result['largest_difference']:.2f}"
        accuracy = "the accuracy was not checked, because the run has no labeled validation examples"
        if "accuracy_int8" in check_result:
            accuracy = f"accuracy {check_result['accuracy_fp32']:.2%} becomes "
            accuracy += (
                f"{check_result['accuracy_int8']:.2%} on {check_result['judged']:,} validation examples"
            )
        print_note(f"int8: {check_result['labels_changed']} labels differ, {logits}; {accuracy}")


def _describe_hf(result: dict[str, Any], left_out: list[str]) -> None:
    """Print how to open an export for transformers, and what it lacks."""
    opens_as = result["opens_as"]
    if "width" in result:
        print_message(f"open it with sentence-transformers, or its encoder with transformers ({opens_as})")
    elif result["whole"]:
        print_message(f"open it with transformers as {opens_as}")
    else:
        print_note(
            f"transformers opens the encoder ({opens_as}); run.py there adds pooling and head. "
            f"A classifier fitted with {result['whole_with']} is loaded with its head"
        )
    if left_out:
        changed = "probabilities" if left_out == ["temperature"] else "probabilities and labels"
        what = f"transformers has no {' and no '.join(left_out)}, so its {changed} differ"
        print_note(f"{what}; an export with --to onnx keeps them")
    if result["clean"] != "none":
        print_note(
            f"texts were cleaned (clean = {result['clean']}) in training; transformers does not do that"
        )


# --- prove ----------------------------------------------------------------------------------------

COLUMNS = {"largest_value": "largest value", "largest_difference": "difference", "tolerance": "tolerance"}


def certificate_path(model: str, folder: Path) -> Path:
    """The default path of a certificate: in the model's folder, or for Hub models the working directory."""
    is_cached = any(part.startswith("models--") for part in folder.resolve().parts)
    if Path(model).expanduser().exists() and not is_cached:
        return folder / "proof.json"
    return Path(f"{Path(model).name.lower()}-proof.json")


def prove_command(
    model: str = argument(
        "MODEL",
        "Checkpoint in the Hub's layout: a folder, a name, a Hub id, or a run fine-tuned from one.",
        default=...,
    ),
    out: Path | None = option(
        "FILE.json",
        "File for the certificate.",
        show_default="MODEL/proof.json; for a name ./NAME-proof.json",
    ),
    revision: str | None = option(None, "Revision of the model on the Hub.", "--revision"),
    json: bool = AS_JSON,
) -> None:
    """Compare a checkpoint's outputs with those of transformers, and write a certificate.

    Exits with code 3 if they differ. Without transformers, the command only compares the code of the model
    family, on a small recorded model.
    """
    if out is not None:
        check_new_file(out)
    from glassformer.checkpoints.hub import resolve_checkpoint
    from glassformer.export.proof import STEPS, prove
    from glassformer.tasks.card import add_proof_to_card

    folder = resolve_checkpoint(model, revision).path
    path = out or certificate_path(model, folder)
    check_folder_path(path.parent)
    with progress_bar("comparing", STEPS) as progress:
        proof = prove(model, revision, progress)
    write_text(path, json_text(proof, indent=2) + "\n")
    if path == folder / "proof.json":
        add_proof_to_card(folder, proof["sentences"])
    if json:
        print_json(proof | {"out": path})
    else:
        model_type, stored = proof["model_type"], ", ".join(proof["stored_as"])
        print_message(
            f"{proof['model']}: {model_type}, stored in {stored}, computed in {proof['computed_in']}"
        )
        rows = [
            (output["way"], output["output"], *(f"{output[key]:.2g}" for key in COLUMNS))
            for output in proof.get("outputs", ())
        ]
        if rows:
            show_table("", ("folder", "output", *COLUMNS.values()), rows, right=(*COLUMNS.values(),))
        print_message(*proof["sentences"])
        print_message(f"certificate: {path}")
    if proof["verdict"] == "different":
        raise typer.Exit(WORSE)
