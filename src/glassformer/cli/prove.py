"""``glassformer prove``.

It compares a checkpoint with ``transformers``, and writes a certificate.
"""

from __future__ import annotations

from pathlib import Path

import typer

from glassformer.cli.audit import WORSE
from glassformer.cli.options import argument, option
from glassformer.cli.output import AS_JSON, progress_bar, say, say_json, show_table
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path, check_new_file, write_text

COLUMNS = {"largest_value": "largest value", "largest_difference": "difference", "tolerance": "tolerance"}


def certificate_path(model: str, folder: Path) -> Path:
    """The model's folder; for names and folders in the Hub cache, the working directory."""
    is_cached = any(part.startswith("models--") for part in folder.resolve().parts)
    if Path(model).expanduser().exists() and not is_cached:
        return folder / "proof.json"
    return Path(f"{Path(model).name.lower()}-proof.json")


def prove_command(
    model: str = argument(
        "MODEL", "Checkpoint in the Hub's layout: a folder, a name, a Hub id, or a run.", default=...
    ),
    out: Path | None = option(
        "FILE.json", "Certificate.", show_default="MODEL/proof.json; of a name ./NAME-proof.json"
    ),
    revision: str | None = option(None, "Revision of the model on the Hub.", "--revision"),
    json: bool = AS_JSON,
) -> None:
    """Compare a checkpoint's outputs with those of transformers, and write a certificate.

    Exits with 3 if they differ. If transformers is not installed, only the code of the family is compared,
    with recorded outputs.
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
        say_json(proof | {"out": path})
    else:
        model_type, stored = proof["model_type"], ", ".join(proof["stored_as"])
        say(f"{proof['model']}: {model_type}, stored in {stored}, computed in {proof['computed_in']}")
        rows = [
            (output["way"], output["output"], *(f"{output[key]:.2g}" for key in COLUMNS))
            for output in proof.get("outputs", ())
        ]
        if rows:
            show_table("", ("folder", "output", *COLUMNS.values()), rows, right=(*COLUMNS.values(),))
        for line in proof["sentences"]:
            say(line)
        say(f"certificate: {path}")
    if proof["verdict"] == "different":
        raise typer.Exit(WORSE)
