"""``glassformer prove``: compare a checkpoint with ``transformers``, and write a certificate."""

from __future__ import annotations

from pathlib import Path

import typer

from glassformer.cli.audit import WORSE
from glassformer.cli.options import argument, option
from glassformer.cli.output import AS_JSON, progress_bar, say, say_json, show_table
from glassformer.finite import json_text
from glassformer.outputs import check_folder_path, check_new_file, write_text

NUMBERS = {"largest_value": "largest value", "largest_difference": "difference", "tolerance": "tolerance"}


def certificate_path(model: str, folder: Path) -> Path:
    """In the model's own folder; for a name and a folder of the Hub's cache, in the current one."""
    cached = any(part.startswith("models--") for part in folder.resolve().parts)
    if Path(model).expanduser().exists() and not cached:
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
        found = prove(model, revision, progress)
    write_text(path, json_text(found, indent=2) + "\n")
    if path == folder / "proof.json":
        add_proof_to_card(folder, found["sentences"])
    if json:
        say_json(found | {"out": path})
    else:
        stored = ", ".join(found["stored_as"])
        say(
            f"{found['model']}: {found['model_type']}, stored in {stored}, computed in {found['computed_in']}"
        )
        rows = [
            (one["way"], one["output"], *(f"{one[key]:.2g}" for key in NUMBERS))
            for one in found.get("outputs", ())
        ]
        if rows:
            show_table("", ("folder", "output", *NUMBERS.values()), rows, right=(*NUMBERS.values(),))
        for line in found["sentences"]:
            say(line)
        say(f"certificate: {path}")
    if found["verdict"] == "different":
        raise typer.Exit(WORSE)
