"""``glassformer similar``, ``search``, ``embed`` and ``vectors``.

``similar`` computes the semantic similarity of texts. ``search`` is a semantic search in a table. ``embed``
writes embeddings of texts and images. ``vectors`` shows word vectors.

The option ``--doubles`` finds near-duplicates, and ``--least`` is the minimum cosine of a pair or a result.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer import errors
from glassformer.checkpoints.files import missing_run_hint
from glassformer.cli import options as cli
from glassformer.cli.options import TEXT_COLUMN, argument, flag, is_run, option, print_library_note
from glassformer.cli.output import (
    AS_JSON,
    excerpt,
    one_line,
    print_json,
    print_message,
    print_note,
    print_text,
    show_table,
)
from glassformer.cli.predictions import usage_hint, write_table
from glassformer.cli.translate import load_for_command
from glassformer.data.files import check_file, missing_file_fix
from glassformer.data.folders import name_file_fix, tables_in
from glassformer.data.pairs import find_scored_columns, load_scored_pairs
from glassformer.data.tables import READERS, read_table
from glassformer.inputs.rows import (
    DEFAULT_REQUEST,
    STDIN,
    InputRequest,
    check_not_a_folder,
    gather_rows,
    is_file_name,
    read_rows,
    read_stdin,
    read_with_columns,
    unusable_message,
    usable_inputs,
)
from glassformer.outputs import atomic_write, check_folder_path, check_new_file
from glassformer.tasks.catalog import TASKS

# --- near-duplicates in a table ---------------------------------------------------------------------

Pair = tuple[int, int, float]  # indices of two texts, and their cosine
OtherColumns = Sequence[Mapping[str, Any]]  # for each text, the other columns of its row
MAX_ID_LENGTH = 40  # maximum number of characters of an id


def show_duplicates(
    pairs: Sequence[Pair], texts: Sequence[str], rows: Sequence[int], other_columns: OtherColumns
) -> None:
    """Print one line per pair: cosine, row numbers, ids if the table has them, and texts."""
    name = _id_column(other_columns)
    for i, j, cosine in pairs:
        ids = [
            f"{rows[k]}"
            if name is None
            else f"{rows[k]} ({one_line(other_columns[k][name])[:MAX_ID_LENGTH]})"
            for k in (i, j)
        ]
        print_text("\t".join([f"{cosine:.4f}", *ids, one_line(texts[i]), one_line(texts[j])]))


def _id_column(other_columns: OtherColumns) -> str | None:
    """The name of the first other column if its values are unique, as those of ids; otherwise None."""
    name = next(iter(other_columns[0]), None) if other_columns else None
    values = {str(row[name]) for row in other_columns if name is not None}
    return name if len(values) == len(other_columns) else None


def write_duplicates(
    out: Path, pairs: Sequence[Pair], texts: Sequence[str], rows: Sequence[int], other_columns: OtherColumns
) -> None:
    """Write a CSV file with one row per pair; the last columns are the other columns of both rows."""
    names = list(other_columns[0]) if other_columns else []
    other_names = [f"{position}_{name}" for name in names for position in ("first", "second")]
    lines = []
    for i, j, cosine in pairs:
        cells = [other_columns[k][name] for name in names for k in (i, j)]
        lines.append([f"{cosine:.6f}", rows[i], rows[j], texts[i], texts[j], *cells])
    write_table(out, ["cosine", "first_row", "second_row", "first", "second", *other_names], lines)


# --- similar ----------------------------------------------------------------------------------------


DEFAULT_MODEL = "all-minilm-l6-v2"
MAX_TOKEN_PAIRS = 5  # maximum number of token pairs to print
MIN_COSINE = 0.8  # default of --least for near-duplicates


def open_embedder(model: str) -> Any:
    """Load the embedder in a folder, or a checkpoint by its name."""
    from glassformer.checkpoints.native import check_finished
    from glassformer.checkpoints.settings import find_metadata

    folder = Path(model)
    _, metadata = find_metadata(folder)
    if metadata:  # a model saved by glassformer
        return load_for_command(folder, "similar")
    check_finished(folder)
    from glassformer.tasks.similarity.estimator import Embedder

    return Embedder(model)


def is_embedder(folder: str | Path) -> bool:
    """Whether a folder contains an ``Embedder`` or a sentence-transformers model."""
    from glassformer.tasks.load import describe

    task = describe(folder).task
    return task is not None and task.verb == "similar"


def similar(model: str, a: Sequence[str], b: Sequence[str]) -> list[float]:
    """The cosine of each text in ``a`` with the text at the same position in ``b``."""
    from glassformer.tasks.similarity.pairs import Pairs

    return open_embedder(model).cosines(Pairs(list(a), list(b))).tolist()


def explain_pair(model: str, a: str, b: str, out: Path | None) -> Any:
    """Explain the cosine of two texts by pairs of tokens; also writes the explanation to ``out``."""
    from glassformer.explain.similarity import save_similarities

    explanation = open_embedder(model).explain_similarity(a, b)
    if out is not None:
        save_similarities([explanation], out)
    return explanation


def check_html_or_json(out: Path) -> Path:
    """Return ``out``; raise ConfigError if it does not end in .html or .json, or exists."""
    if out.suffix.lower() not in (".html", ".json"):
        what, fix = "the output is written as HTML or JSON", "End the name with .html or .json"
        raise errors.BadValueError(what, where=str(out), fix=fix)
    return check_new_file(out)


def show_explained(explanation: Any, out: Path | None) -> None:
    """Print the explanation of a cosine, or the name of the file that has it."""
    if out is not None:
        print_message(f"explanation written to {out}")
        return
    print_message(f"cosine {explanation.score:.4f}")
    rows = [[a, b, f"{value:+.4f}"] for a, b, value in explanation.strongest(MAX_TOKEN_PAIRS)]
    show_table("", ("first", "second", "contribution"), rows, right=("contribution",))
    print_note(*explanation.notes)


def read_pairs(path: str, first: str | None, second: str | None) -> tuple[list[str], list[str]]:
    """Read the first and the second texts of a table of pairs; a score column is ignored."""
    if (first is None or second is None) and Path(path).suffix.lower() in READERS and Path(path).is_file():
        try:
            first, second, _ = find_scored_columns(read_table(path), first, second, None)
        except errors.UnclearColumnError as error:
            fix = f"{error.fix}; to find similar rows in one column: --doubles"
            raise error.replace(fix=fix) from None
        print_note(
            f"{first!r} is compared with {second!r} in each row (set --first and --second to override); "
            "--doubles compares the rows of one column with each other"
        )
    split = next(iter(load_scored_pairs(path, first=first, second=second, score=None).splits.values()))
    return split.first, split.second


def write_cosines(out: Path, first: Sequence[str], second: Sequence[str], cosines: Sequence[float]) -> None:
    """Write a CSV file with one row per pair."""
    rows = zip(first, second, (f"{cosine:.6f}" for cosine in cosines), strict=True)
    write_table(out, ["first", "second", "cosine"], rows)


MODEL_NAME: Any = option("RUN|NAME", "Run, saved Embedder or checkpoint name.", default=DEFAULT_MODEL)


def similar_command(
    given: list[str] = argument("A B | TABLE", "Two texts, or a table with two text columns.", default=...),
    model: str = MODEL_NAME,
    first: str | None = option("NAME", "For tables: column of the first texts."),
    second: str | None = option("NAME", "For tables: column of the second texts."),
    explain: bool = flag("--explain", "Show the pairs of tokens that contribute most to the cosine."),
    doubles: bool = flag("--doubles", "Find near-duplicates: rows of one table that are similar in meaning."),
    least: float | None = option(
        "COSINE",
        f"With --doubles: minimum cosine similarity of a pair (default {MIN_COSINE}).",
        min=-1,
        max=1,
    ),
    text_column: str | None = option("NAME", "With --doubles: text column; detected by default."),
    out: Path | None = option(
        "FILE", "Output file: .csv for a table, .html or .json for an explanation of two texts."
    ),
    json: bool = AS_JSON,
) -> None:
    """Semantic similarity of two texts, or of each row of a table: the cosine of their embeddings."""
    is_table = _check_arguments(given, first, second, explain, doubles, least, text_column)
    if doubles:
        _find_duplicates(given, model, MIN_COSINE if least is None else least, text_column, out, json)
    elif is_table:
        _compare_pairs(given[0], model, first, second, out, json)
    elif explain or out is not None:
        if out is not None:
            check_html_or_json(out)
        explanation = explain_pair(model, given[0], given[1], out)
        if json:
            print_json(explanation.as_dict() if out is None else {"explained": 1, "out": out})
        else:
            show_explained(explanation, out)
    else:
        (cosine,) = similar(model, given[:1], given[1:])
        if json:
            print_json({"texts": given, "cosine": cosine})
        else:
            print_message(f"{cosine:.4f}")


def _check_arguments(
    inputs: Sequence[str],
    first: str | None,
    second: str | None,
    explain: bool,
    doubles: bool,
    least: float | None,
    text_column: str | None,
) -> bool:
    """Check the arguments of ``similar``; returns whether they are the name of a table."""
    from glassformer.checkpoints.settings import METADATA_FILE

    for text in inputs:
        if cli.is_run(text) or any((Path(text) / name).is_file() for name in (METADATA_FILE, "config.json")):
            command = f'glassformer similar "ONE TEXT" "ANOTHER" --model {shlex.quote(text)}'
            fix = f"Name it with --model: {command}"
            raise errors.WrongArgumentError(f"{text} is a model, not a text", where="similar", fix=fix)
        check_not_a_folder(text)
    is_table = len(inputs) == 1 and is_file_name(inputs[0])
    if doubles:
        for option, value in (("--first", first), ("--second", second), ("--explain", explain)):
            if value:
                fix = "Name the column with --text-column" if option != "--explain" else "Leave it out"
                raise errors.ConflictError("has no effect with --doubles", where=option, fix=fix)
        return is_table
    if least is not None or text_column is not None:
        option = "--least" if least is not None else "--text-column"
        fix = "Leave it out, or add --doubles"
        raise errors.ConflictError("has an effect only with --doubles", where=option, fix=fix)
    if not is_table and len(inputs) != 2:
        what = f"{'1 text is' if len(inputs) == 1 else f'{len(inputs)} texts are'} given"
        fix = "Give two texts, or a table with two text columns"
        raise errors.NothingGivenError(what, where="similar", fix=fix)
    if is_table and explain:
        raise errors.ConfigError("does not accept a table", where="--explain", fix="Give two texts")
    if not is_table and (first or second):
        option, fix = "--first" if first else "--second", "Leave it out, or give a table"
        raise errors.ConflictError("has an effect only for a table", where=option, fix=fix)
    return is_table


def _find_duplicates(
    files: Sequence[str], model: str, threshold: float, column: str | None, out: Path | None, json: bool
) -> None:
    """Find near-duplicate rows of a table, and print them or write them to a file."""
    if len(files) != 1:
        what = f"needs one table, but {len(files)} files are given"
        raise errors.ConflictError(what, where="--doubles", fix="Give one file")
    check_file(Path(files[0]))
    _check_csv_output(out, json)
    texts, rows, other_columns = read_with_columns(Path(files[0]), column, print_library_note)
    pairs = open_embedder(model).doubles(texts, threshold)
    if out is not None:
        write_duplicates(out, pairs, texts, rows, other_columns)
        print_message(f"{len(pairs):,} pairs among {len(texts):,} rows at {threshold:g} or above: {out}")
    elif json:
        fields = {"rows": rows, "texts": texts, "columns": other_columns}
        print_json(
            [{k: [part[i], part[j]] for k, part in fields.items()} | {"cosine": c} for i, j, c in pairs]
        )
    else:
        show_duplicates(pairs, texts, rows, other_columns)
        print_note(
            f"{len(pairs):,} pairs among {len(texts):,} rows have a cosine of {threshold:g} or more; "
            "--least COSINE shows more or fewer"
        )


def _check_csv_output(out: Path | None, json: bool, content: str = "cosines of a table") -> None:
    """Raise ConfigError if ``out`` is not a new CSV file, or is combined with ``--json``."""
    if out is not None and (check_new_file(out).suffix.lower() != ".csv" or json):
        fix = "End the name with .csv, and leave --json out"
        raise errors.BadValueError(f"{content} are written as CSV", where=str(out), fix=fix)


def _compare_pairs(
    path: str, model: str, first: str | None, second: str | None, out: Path | None, json: bool
) -> None:
    """Compute the cosine of each row of a table of pairs, and print the cosines or write them to a file."""
    _check_csv_output(out, json)
    texts = read_pairs(path, first, second)  # the first texts, and the second texts
    cosines = similar(model, *texts)
    if out is not None:
        write_cosines(out, *texts, cosines)
        print_message(f"{errors.counted(len(cosines), 'pair')}: {out}")
    elif json:
        rows = zip(*texts, cosines, strict=True)
        print_json([{"texts": [a, b], "cosine": cosine} for a, b, cosine in rows])
    else:
        for a, b, cosine in zip(*texts, cosines, strict=True):
            print_text(f"{cosine:.4f}\t{one_line(a)}\t{one_line(b)}")


# --- semantic search --------------------------------------------------------------------------------

HEADER = ("query", "rank", "cosine", "row", "text")


def check_index_source(path: Path) -> None:
    """Raise ConfigError unless ``path`` is a file; call it only for paths that are not an index."""
    if path.is_file():
        return
    fix = "Name a table, a .txt file with one text per line, or a folder written by 'search --save'"
    if not path.exists():
        hint = missing_file_fix(path)
        has_suggestion = hint.endswith("?")  # "Did you mean ...?"
        fix = hint if has_suggestion else f"{hint}. {fix}"
        raise errors.ConfigError("no such table or index", where=str(path), fix=fix)
    if is_run(path):
        what = "is a run folder, not a table or an index"
        raise errors.ConfigError(what, where=str(path), fix="Name the model first, and then the table")
    tables = tables_in(path) if path.is_dir() else []
    if tables:
        what = "is a folder, but not an index"
        raise errors.ConfigError(what, where=str(path), fix=name_file_fix(tables))
    what = "is a folder without an index or a table" if path.is_dir() else "is not a file"
    raise errors.ConfigError(what, where=str(path), fix=fix)


def search(
    model: str,
    table: str | Path,
    queries: Sequence[str],
    count: int = 5,
    *,
    text_column: str | None = None,
    save: Path | None = None,
) -> list[list[dict[str, Any]]]:
    """The texts of a table or a saved index that are nearest to each query.

    Args:
        save: folder in which the index is saved.

    Returns:
        For each query, at most ``count`` results ``{"row", "cosine", "text", "columns"}``, the nearest first;
        ``columns`` has the other columns of the row.
    """
    from glassformer.tasks.similarity.search import is_index

    embedder = open_embedder(model)
    if is_index(table):
        if save is not None or text_column is not None:
            option = "--save" if save is not None else "--text-column"
            what = "has an effect only for tables, but an index is given"
            raise errors.ConflictError(what, where=option, fix="Leave it out")
        embedder.load_index(table)
    else:
        path = Path(table)
        check_index_source(path)
        embedder.index(*read_with_columns(path, text_column, print_library_note))
    if save is not None:
        embedder.save_index(save)
    index = embedder.index_
    if not queries:
        return []

    def result(i: int, cosine: float) -> dict[str, Any]:
        columns = dict(index.other_columns[i]) if index.other_columns else {}
        return {"row": index.row(i), "cosine": cosine, "text": index.texts[i], "columns": columns}

    indices_and_cosines = zip(*embedder.search(queries, index.vectors, count), strict=True)
    return [
        [result(int(i), float(cosine)) for i, cosine in zip(indices, cosines, strict=True)]
        for indices, cosines in indices_and_cosines
    ]


def write_results(out: Path, queries: Sequence[str], results: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Write a CSV file with one row per result, or an empty row for a query without results."""
    names = list(dict.fromkeys(name for matches in results for match in matches for name in match["columns"]))
    rows: list[list[Any]] = []
    for query, matches in zip(queries, results, strict=True):
        if not matches:
            rows.append([query, *[""] * (len(HEADER) - 1 + len(names))])
        for rank, match in enumerate(matches, 1):
            cells = [match["columns"].get(name) for name in names]
            rows.append([query, rank, f"{match['cosine']:.6f}", match["row"], match["text"], *cells])
    column_names = [f"table_{name}" if name in HEADER else name for name in names]
    write_table(out, [*HEADER, *column_names], rows)


def _read_queries(arguments: Sequence[str]) -> list[str]:
    """The queries; a dash is replaced by the lines of standard input, a file by its texts."""
    texts: list[str] = []
    for word in arguments:
        if word == STDIN:
            texts += read_stdin()[0]
        elif is_file_name(word) and Path(word).is_file():
            texts += usable_inputs(read_rows(Path(word), replace(DEFAULT_REQUEST, log=print_library_note)))
        else:
            texts.append(word)
    return texts


def search_command(
    model: str = argument("RUN|NAME", "Run, saved Embedder or checkpoint name.", default=...),
    table: Path = argument(
        "TABLE", "Texts to search: CSV, TSV, JSONL, Parquet, .txt, or an index made by --save.", default=...
    ),
    queries: list[str] | None = argument("QUERY", "Queries, or a file of them; - is standard input."),
    count: int = option("N", "Number of results per query.", min=1, default=5),
    least: float | None = option("COSINE", "Minimum cosine similarity of a result.", min=-1, max=1),
    save: Path | None = option(
        "DIR", "Save texts and embeddings as an index in this folder; later pass it as TABLE."
    ),
    out: Path | None = option(
        "FILE.csv", "Output file: one row per result, with the other columns of the table."
    ),
    text_column: str | None = TEXT_COLUMN,
    json: bool = AS_JSON,
) -> None:
    """Semantic search: the texts of a table that are nearest in meaning to a query."""
    if not queries and save is None:
        fix = "Give a QUERY, or --save DIR"
        raise errors.NothingGivenError("there is nothing to search for", where="search", fix=fix)
    if save is not None and check_folder_path(save, "--save").exists():
        raise errors.ExistsError("the folder exists", where=str(save), fix="Choose another --save")
    _check_csv_output(out, json, "results")
    from glassformer.tasks.similarity.search import at_least

    texts = _read_queries(queries or ())
    nearest = search(str(model), table, texts, count, text_column=text_column, save=save)
    results = [[match for match in matches if at_least(match["cosine"], least)] for matches in nearest]
    best_cosines = [matches[0]["cosine"] for matches in nearest]
    if save is not None:
        print_message(f"index: {save}")
    if out is not None:
        write_results(out, texts, results)
        num_empty = sum(not matches for matches in results)
        without = f", {num_empty:,} without a result" if num_empty else ""
        print_message(f"{len(texts):,} queries{without}: {out}")
        return
    if json:
        values = zip(texts, results, best_cosines, strict=True)
        keys = ("query", "found", "nearest")
        print_json([dict(zip(keys, value, strict=True)) for value in values])
        return
    for query, matches, best in zip(texts, results, best_cosines, strict=True):
        if len(texts) > 1:
            print_message(f"{excerpt(query)}:")
        for match in matches:
            print_text(f"{match['cosine']:.4f}\t{match['row']}\t{one_line(match['text'])}")
        if not matches:
            print_message(f"no result: the nearest text has cosine {best:.4f}, less than {least:g}")


# --- embeddings -------------------------------------------------------------------------------------

SUFFIX = ".npy"


def embed(
    model: str, arguments: Sequence[str], text_column: str | None = None, prompt_name: str | None = None
) -> Any:
    """Embeddings ``[n, D]`` (fp32) of texts, of the texts in files, or of images."""
    from glassformer.families.pretrained import load_pretrained
    from glassformer.tasks.load import describe, load_for_predictions
    from glassformer.tasks.run import training_columns

    folder, options = Path(model), {} if prompt_name is None else {"prompt_name": prompt_name}
    saved = describe(folder)
    if not saved.metadata and saved.task is None:  # the name of a checkpoint, or an encoder without a head
        encoder = load_pretrained(model)
        if encoder.reads != "texts" or not encoder.has_attention:
            fix = "Name a text encoder, or a run"
            raise errors.NotForThisModelError("cannot embed texts", where=model, fix=fix)
        return encoder.embed(_read_texts(arguments, text_column), **options)
    clf = load_for_predictions(folder)
    if not hasattr(clf, "embed"):
        what = f"contains {errors.with_article(type(clf).__name__)}, which cannot embed texts"
        task, fix = TASKS[clf.RECIPE.task], "Name a run of a classifier or of an Embedder"
        fix = fix if task.verb == "predict" else usage_hint(task)
        raise errors.NotForThisModelError(what, where=model, fix=fix)
    if getattr(clf, "reads_pairs", False):
        fix = "In Python: glassformer.load(RUN).embed([(first, second)])"
        what = "reads pairs of texts, but this command accepts only single texts"
        raise errors.WrongArgumentError(what, where=model, fix=fix)
    if hasattr(clf, "transform_"):
        if options:
            raise errors.NotForThisModelError(
                "images have no prompts", where="--prompt-name", fix="Leave it out"
            )
        return clf.embed(clf.inputs.examples_of_arguments(InputRequest(arguments), ()))
    return clf.embed(_read_texts(arguments, text_column, training_columns(folder)), **options)


def _read_texts(
    arguments: Sequence[str], text_column: str | None, training_columns: Sequence[str | None] = ()
) -> list[str]:
    """The texts of the arguments and files; prints a note if unusable rows are left out."""
    request = InputRequest(arguments, text_column, training_columns=training_columns, log=print_library_note)
    rows = gather_rows(request)
    if message := unusable_message(rows):
        print_note(f"{message}; row n of the output is for the n-th remaining text, not for line n")
    return usable_inputs(rows)


def embed_command(
    model: str = argument("MODEL", "Run, saved classifier or sentence-transformers checkpoint.", default=...),
    out: Path = option("FILE.npy", "Output file, one row per input.", default=...),
    given: list[str] | None = argument(
        "TEXT|FILE",
        "Texts or files (CSV, TSV, JSONL, Parquet, .txt: one text per line), or images; - is standard input.",
    ),
    data: str | None = cli.DATA_FILE,
    text_column: str | None = TEXT_COLUMN,
    prompt_name: str | None = option(
        "NAME", "Name of one of the checkpoint's prompts, which is put before each text."
    ),
    json: bool = AS_JSON,
) -> None:
    """Write embeddings of texts or images, one row for each, to a NumPy file (.npy)."""
    inputs = cli.collect_inputs(given, data, "embed")
    check_new_file(out)
    if out.suffix.lower() != SUFFIX:
        fix = f"Give --out a name that ends in {SUFFIX}"
        raise errors.BadValueError("vectors are written as a NumPy array", where=str(out), fix=fix)
    import numpy as np

    vectors = embed(model, inputs, text_column, prompt_name)
    content = io.BytesIO()  # not np.save(file), which does not report a full disk
    np.save(content, vectors, allow_pickle=False)
    with atomic_write(out) as draft:
        draft.write_bytes(content.getbuffer())
    count, dimension = errors.counted(len(vectors), "embedding"), vectors.shape[1]
    print_message(f"{count} of dimension {dimension:,}: {out}")
    if json:
        print_json({"vectors": len(vectors), "numbers": dimension, "out": out})


# --- word vectors -----------------------------------------------------------------------------------


def look_up(source: str | Path, words: Sequence[str], count: int = 10) -> list[tuple[str, float]]:
    """The nearest words of one word, the cosine of two words, or the nearest words of ``a - b + c``."""
    if len(words) not in (1, 2, 3):
        what = f"{len(words)} words" if words else "no word is given"
        fix = "Give one word, two for their cosine, or three: king man woman is king - man + woman"
        raise errors.NothingGivenError(what, where="vectors", fix=fix)
    _check_source(source)
    from glassformer.tasks.word2vec.estimator import Word2Vec

    vectors = Word2Vec.load(source)
    if len(words) == 1:
        return vectors.most_similar(words[0], count)
    if len(words) == 2:
        return [(words[1], vectors.similarity(words[0], words[1]))]
    return vectors.analogy(words[0], words[1], words[2], count)


def convert(source: str | Path, out: Path) -> None:
    """Write word vectors in word2vec's format, which is binary if ``out`` ends in ``.bin``."""
    check_new_file(out)
    _check_source(source)
    from glassformer.tasks.word2vec.estimator import Word2Vec

    Word2Vec.load(source).save_word2vec_format(out)


def _check_source(source: str | Path) -> None:
    """Raise CheckpointError if there is no such file or folder."""
    if not Path(source).exists():
        raise errors.NoSuchModelError("no such file", where=str(source), fix=missing_run_hint(Path(source)))


def vectors_command(
    source: Path = cli.run_argument("Run folder or word2vec file, text or binary.", "RUN|FILE", default=...),
    words: list[str] | None = argument(
        "WORD",
        "One word (its nearest words), two (their cosine), or three: king man woman is king - man + woman.",
    ),
    count: int = option("N", "Number of words to show.", min=1, default=10),
    out: Path | None = option("FILE", "Write all vectors to this file; in binary format if it ends in .bin."),
    json: bool = AS_JSON,
) -> None:
    """Word vectors: nearest words, cosines, analogies, and conversion of word2vec files."""
    if out is not None and words:
        raise errors.ConflictError("words and --out at once", where="vectors", fix="Give one of them")
    if out is not None:
        convert(source, out)
        print_message(f"vectors: {out}")
        if json:
            print_json({"out": out})
        return
    neighbors = look_up(source, words or [], count)
    if json:
        print_json([{"word": word, "cosine": cosine} for word, cosine in neighbors])
        return
    for word, cosine in neighbors:
        print_text(f"{word}\t{cosine:.4f}")
