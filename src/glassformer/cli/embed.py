"""``glassformer embed``: write one embedding for each text or image as a NumPy file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli.options import DATA_FILE, TEXT_COLUMN, argument, note_columns, option, with_data
from glassformer.cli.output import AS_JSON, note, say, say_json
from glassformer.cli.predictions import asked_by
from glassformer.errors import (
    BadValueError,
    NotForThisModelError,
    WrongArgumentError,
    counted,
    with_article,
)
from glassformer.inputs.rows import Given, gather_rows, usable, without_answer
from glassformer.outputs import check_new_file, written_whole
from glassformer.tasks.catalog import TASKS

SUFFIX = ".npy"


def embed(
    model: str, given: Sequence[str], text_column: str | None = None, prompt_name: str | None = None
) -> Any:
    """Embeddings ``[n, D]`` (fp32) of texts, of the texts in files, or of images."""
    from glassformer.families.pretrained import load_pretrained
    from glassformer.tasks.load import describe, load
    from glassformer.tasks.run_folder import trained_columns

    folder, options = Path(model), {} if prompt_name is None else {"prompt_name": prompt_name}
    saved = describe(folder)
    if not saved.about and saved.task is None:  # the name of a checkpoint, or an encoder without a head
        found = load_pretrained(model)
        if found.reads != "texts" or not found.has_attention:
            fix = "Name an encoder of texts, or a run"
            raise NotForThisModelError("gives no vectors of texts", where=model, fix=fix)
        return found.embed(_texts(given, text_column), **options)
    clf = load(folder)
    if not hasattr(clf, "embed"):
        what = f"holds {with_article(type(clf).__name__)}, which gives no vectors of texts"
        task = TASKS[clf.RECIPE.task]
        other = "Name a run of a classifier or of an Embedder"
        raise NotForThisModelError(what, where=model, fix=other if task.verb == "predict" else asked_by(task))
    if getattr(clf, "reads_pairs", False):
        fix = "In Python: glassformer.load(RUN).embed([(first, second)])"
        what = "reads pairs of texts, and this command takes single ones"
        raise WrongArgumentError(what, where=model, fix=fix)
    if hasattr(clf, "transform_"):
        if options:
            raise NotForThisModelError("images have no prompts", where="--prompt-name", fix="Leave it out")
        return clf.embed(clf.inputs.explained(Given(given), ()))
    return clf.embed(_texts(given, text_column, trained_columns(folder)), **options)


def _texts(given: Sequence[str], text_column: str | None, trained: Sequence[str | None] = ()) -> list[str]:
    """The texts of the arguments; prints a note if lines are skipped because they are empty."""
    rows = gather_rows(Given(given, text_column, trained=trained, say=note_columns))
    if missing := without_answer(rows):
        note(f"{missing}; vector n is that of the n-th text, not of line n")
    return usable(rows)


def embed_command(
    model: str = argument("MODEL", "Run, saved classifier or sentence-transformers checkpoint.", default=...),
    out: Path = option("FILE.npy", "Output file, one row per input.", default=...),
    given: list[str] | None = argument(
        "TEXT|FILE",
        "Texts or files (CSV, TSV, JSONL, Parquet, .txt: one text per line), or images; - is standard input.",
    ),
    data: str | None = DATA_FILE,
    text_column: str | None = TEXT_COLUMN,
    prompt_name: str | None = option("NAME", "Prompt of the checkpoint to prepend to each text."),
    json: bool = AS_JSON,
) -> None:
    """Write one embedding for each text or image, in order, as NumPy's .npy."""
    words = with_data(given, data, "embed")
    check_new_file(out)
    if out.suffix.lower() != SUFFIX:
        fix = f"Give --out a name that ends in {SUFFIX}"
        raise BadValueError("vectors are written as a NumPy array", where=str(out), fix=fix)
    import numpy as np

    vectors = embed(model, words, text_column, prompt_name)
    content = io.BytesIO()  # np.save to a real file bypasses Python and does not report a full disk
    np.save(content, vectors, allow_pickle=False)
    with written_whole(out) as draft:
        draft.write_bytes(content.getbuffer())
    say(f"{counted(len(vectors), 'vector')} of {vectors.shape[1]:,} numbers: {out}")
    if json:
        say_json({"vectors": len(vectors), "numbers": vectors.shape[1], "out": out})
