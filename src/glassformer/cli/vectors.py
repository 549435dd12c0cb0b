"""``glassformer embed`` and ``vectors``.

``embed`` writes embeddings of texts and images. ``vectors`` shows word vectors.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import missing_run_hint
from glassformer.cli.options import (
    DATA_FILE,
    TEXT_COLUMN,
    argument,
    collect_inputs,
    note_columns,
    option,
    run_argument,
)
from glassformer.cli.output import AS_JSON, emit, note, say, say_json
from glassformer.cli.predictions import usage_hint
from glassformer.errors import (
    BadValueError,
    ConflictError,
    NoSuchModelError,
    NotForThisModelError,
    NothingGivenError,
    WrongArgumentError,
    counted,
    with_article,
)
from glassformer.inputs.rows import InputRequest, gather_rows, unusable_message, usable_inputs
from glassformer.outputs import atomic_write, check_new_file
from glassformer.tasks.catalog import TASKS

SUFFIX = ".npy"


def embed(
    model: str, arguments: Sequence[str], text_column: str | None = None, prompt_name: str | None = None
) -> Any:
    """Embeddings ``[n, D]`` (fp32) of texts, of the texts in files, or of images."""
    from glassformer.families.pretrained import load_pretrained
    from glassformer.tasks.load import describe, load
    from glassformer.tasks.run import trained_columns

    folder, options = Path(model), {} if prompt_name is None else {"prompt_name": prompt_name}
    saved = describe(folder)
    if not saved.about and saved.task is None:  # the name of a checkpoint, or an encoder without a head
        encoder = load_pretrained(model)
        if encoder.reads != "texts" or not encoder.has_attention:
            fix = "Name an encoder of texts, or a run"
            raise NotForThisModelError("cannot embed texts", where=model, fix=fix)
        return encoder.embed(_read_texts(arguments, text_column), **options)
    clf = load(folder)
    if not hasattr(clf, "embed"):
        what = f"holds {with_article(type(clf).__name__)}, which cannot embed texts"
        task, fix = TASKS[clf.RECIPE.task], "Name a run of a classifier or of an Embedder"
        fix = fix if task.verb == "predict" else usage_hint(task)
        raise NotForThisModelError(what, where=model, fix=fix)
    if getattr(clf, "reads_pairs", False):
        fix = "In Python: glassformer.load(RUN).embed([(first, second)])"
        what = "reads pairs of texts, and this command takes single ones"
        raise WrongArgumentError(what, where=model, fix=fix)
    if hasattr(clf, "transform_"):
        if options:
            raise NotForThisModelError("images have no prompts", where="--prompt-name", fix="Leave it out")
        return clf.embed(clf.inputs.examples_to_explain(InputRequest(arguments), ()))
    return clf.embed(_read_texts(arguments, text_column, trained_columns(folder)), **options)


def _read_texts(
    arguments: Sequence[str], text_column: str | None, training_columns: Sequence[str | None] = ()
) -> list[str]:
    """The texts of the arguments and of files; prints a note if unusable rows are skipped."""
    request = InputRequest(arguments, text_column, training_columns=training_columns, log=note_columns)
    rows = gather_rows(request)
    if message := unusable_message(rows):
        note(f"{message}; row n of the output belongs to the n-th text, not to line n")
    return usable_inputs(rows)


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
    inputs = collect_inputs(given, data, "embed")
    check_new_file(out)
    if out.suffix.lower() != SUFFIX:
        fix = f"Give --out a name that ends in {SUFFIX}"
        raise BadValueError("vectors are written as a NumPy array", where=str(out), fix=fix)
    import numpy as np

    vectors = embed(model, inputs, text_column, prompt_name)
    content = io.BytesIO()  # np.save does not report a full disk when it writes to a file
    np.save(content, vectors, allow_pickle=False)
    with atomic_write(out) as draft:
        draft.write_bytes(content.getbuffer())
    say(f"{counted(len(vectors), 'vector')} of {vectors.shape[1]:,} numbers: {out}")
    if json:
        say_json({"vectors": len(vectors), "numbers": vectors.shape[1], "out": out})


# --- word vectors -----------------------------------------------------------------------------------


def look_up(source: str | Path, words: Sequence[str], count: int = 10) -> list[tuple[str, float]]:
    """The words nearest to one word, the cosine of two words, or the words nearest to ``a - b + c``."""
    if len(words) not in (1, 2, 3):
        what = f"{len(words)} words" if words else "no word is given"
        fix = "Give one word, two for their cosine, or three: king man woman is king - man + woman"
        raise NothingGivenError(what, where="vectors", fix=fix)
    _check_source(source)
    from glassformer.tasks.word2vec.estimator import Word2Vec

    vectors = Word2Vec.load(source)
    if len(words) == 1:
        return vectors.most_similar(words[0], count)
    if len(words) == 2:
        return [(words[1], vectors.similarity(words[0], words[1]))]
    return vectors.analogy(words[0], words[1], words[2], count)


def convert(source: str | Path, out: Path) -> None:
    """Write the vectors of a run or a file in word2vec's format; binary if ``out`` ends in ``.bin``."""
    check_new_file(out)
    _check_source(source)
    from glassformer.tasks.word2vec.estimator import Word2Vec

    Word2Vec.load(source).save_word2vec_format(out)


def _check_source(source: str | Path) -> None:
    """Raise CheckpointError if there is no file or folder."""
    if not Path(source).exists():
        raise NoSuchModelError("no such file", where=str(source), fix=missing_run_hint(Path(source)))


def vectors_command(
    source: Path = run_argument("Run folder or word2vec file, text or binary.", "RUN|FILE", default=...),
    words: list[str] | None = argument(
        "WORD",
        "One word (its neighbors), two (their cosine), or three: king man woman asks for king - man + woman.",
    ),
    count: int = option("N", "Number of words to show.", min=1, default=10),
    out: Path | None = option("FILE", "Write all vectors to this file; .bin is binary."),
    json: bool = AS_JSON,
) -> None:
    """Word vectors: nearest words, cosines, analogies, and conversion of word2vec files."""
    if out is not None and words:
        raise ConflictError("words and --out at once", where="vectors", fix="Give one of them")
    if out is not None:
        convert(source, out)
        say(f"vectors: {out}")
        if json:
            say_json({"out": out})
        return
    neighbors = look_up(source, words or [], count)
    if json:
        say_json([{"word": word, "cosine": cosine} for word, cosine in neighbors])
        return
    for word, cosine in neighbors:
        emit(f"{word}\t{cosine:.4f}")
