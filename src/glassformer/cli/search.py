"""``glassformer search``: the texts of a table that are nearest in meaning to a query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from glassformer.cli.inputs import names_a_file, read_with_columns
from glassformer.cli.options import STDIN, TextColumn, argument, option, read_stdin
from glassformer.cli.output import AsJson, emit, excerpt, one_line, say, say_json
from glassformer.cli.predictions import write_table
from glassformer.cli.rows import read_rows, usable
from glassformer.cli.similar import open_embedder
from glassformer.errors import ConfigError
from glassformer.outputs import check_folder_path, check_new_file

HEADER = ("query", "rank", "cosine", "row", "text")
NOTHING = "nothing fits"


def search(
    model: str,
    table: str | Path,
    queries: Sequence[str],
    count: int = 5,
    *,
    text_column: str | None = None,
    save: Path | None = None,
) -> list[list[dict[str, Any]]]:
    """For each query the nearest texts of a table or of a saved index, with their rows, cosines and columns.

    Args:
        text_column: of the table; None finds it.
        save: a folder for the texts and their vectors, to search in later without computing them again.

    Returns:
        For each query up to ``count`` of ``{"row", "cosine", "text", "columns"}``, the nearest first;
        ``columns`` has what stands beside the text in its row, by column.

    Raises:
        InputError: no such model, table, column or index, or an index of another model.
    """
    from glassformer.tasks.similarity.index import is_index

    embedder = open_embedder(model)
    if is_index(table):
        if save is not None or text_column is not None:
            option = "--save" if save is not None else "--text-column"
            raise ConfigError("belongs to a table, and an index is given", where=option, fix="Leave it out")
        embedder.load_index(table)
    else:
        path = Path(table)
        if not path.is_file():
            fix = "Name a table, a .txt file with a text a line, or a folder that --save made"
            raise ConfigError("no such table or index", where=str(table), fix=fix)
        embedder.index(*read_with_columns(path, text_column))
    if save is not None:
        embedder.save_index(save)
    index = embedder.index_
    if not queries:
        return []
    rows, cosines = embedder.search(queries, index.vectors, count)
    return [
        [
            {
                "row": index.row(int(i)),
                "cosine": float(c),
                "text": index.texts[i],
                "columns": dict(index.beside[i]) if index.beside else {},
            }
            for i, c in zip(near, values, strict=True)
        ]
        for near, values in zip(rows, cosines, strict=True)
    ]


def write_found(out: Path, queries: Sequence[str], found: Sequence[Sequence[dict[str, Any]]]) -> None:
    """A row an answer, with its row's own columns behind; a query without an answer has one empty row."""
    names = list(dict.fromkeys(name for near in found for one in near for name in one["columns"]))
    rows: list[list[Any]] = []
    for query, near in zip(queries, found, strict=True):
        if not near:
            rows.append([query, *[""] * (len(HEADER) - 1 + len(names))])
        for rank, one in enumerate(near, 1):
            cells = [one["columns"].get(name) for name in names]
            rows.append([query, rank, f"{one['cosine']:.6f}", one["row"], one["text"], *cells])
    own = [f"table_{name}" if name in HEADER else name for name in names]
    write_table(out, [*HEADER, *own], rows)


def _queries(words: Sequence[str]) -> list[str]:
    """The texts of the arguments; a dash stands for the lines of standard input, a file for its texts."""
    asked: list[str] = []
    for word in words:
        if word == STDIN:
            asked += read_stdin()[0]
        elif names_a_file(word) and Path(word).is_file():
            asked += usable(read_rows(Path(word)))
        else:
            asked.append(word)
    return asked


def search_command(
    model: Annotated[str, argument("RUN|NAME", "Run, saved Embedder or checkpoint name.")],
    table: Annotated[
        Path,
        argument("TABLE", "Texts to search: CSV, TSV, JSONL, Parquet, .txt, or an index made by --save."),
    ],
    queries: Annotated[
        list[str] | None, argument("QUERY", "Queries, or a file of them; - is standard input.")
    ] = None,
    count: Annotated[int, option("N", "Number of results per query.", min=1)] = 5,
    least: Annotated[float | None, option("COSINE", "Lowest cosine of a result.", min=-1, max=1)] = None,
    save: Annotated[
        Path | None, option("DIR", "Save texts and embeddings to this folder, an index to pass as TABLE.")
    ] = None,
    out: Annotated[
        Path | None,
        option("FILE.csv", "Output file, one row per result, with the other columns of its row."),
    ] = None,
    text_column: TextColumn = None,
    json: AsJson = False,
) -> None:
    """Semantic search: the texts of a table that are nearest in meaning to a query."""
    if not queries and save is None:
        raise ConfigError("nothing to look for", where="search", fix="Give a QUERY, or --save DIR")
    if save is not None and check_folder_path(save, "--save").exists():
        raise ConfigError("the folder exists", where=str(save), fix="Choose another --save")
    if out is not None and (check_new_file(out).suffix.lower() != ".csv" or json):
        fix = "End the name with .csv, and leave --json out"
        raise ConfigError("answers are written as CSV", where=str(out), fix=fix)
    from glassformer.tasks.similarity.answers import at_least

    asked = _queries(queries or ())
    nearest = search(str(model), table, asked, count, text_column=text_column, save=save)
    found = [[one for one in near if at_least(one["cosine"], least)] for near in nearest]
    if save is not None:
        say(f"index: {save}")
    if out is not None:
        write_found(out, asked, found)
        empty = sum(not near for near in found)
        said = f", {NOTHING} {empty:,} of them" if empty else ""
        say(f"{len(asked):,} queries{said}: {out}")
        return
    if json:
        told = zip(asked, found, nearest, strict=True)
        say_json([{"query": q, "found": near, "nearest": best[0]["cosine"]} for q, near, best in told])
        return
    for query, near, best in zip(asked, found, nearest, strict=True):
        if len(asked) > 1:
            say(f"{excerpt(query)}:")
        for one in near:
            emit(f"{one['cosine']:.4f}\t{one['row']}\t{one_line(one['text'])}")
        if not near:
            say(f"{NOTHING}: the nearest has {best[0]['cosine']:.4f}, less than {least:g}")
