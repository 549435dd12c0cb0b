"""``glassformer similar`` and ``search``: how alike two texts are and why, and a table's nearest texts."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.given import STDIN, TextColumn, read_stdin
from glassformer.cli.output import AsJson, excerpt, note, one_line, say, say_json, show_table
from glassformer.errors import ConfigError
from glassformer.outputs import check_folder_path, check_new_file

DEFAULT = "all-minilm-l6-v2"  # where no model is named
STRONGEST = 5  # pairs of tokens that a terminal shows
PAGES = (".html", ".json")
MOST = 20  # pairs of one page


def open_embedder(model: str) -> Any:
    """The embedder of a run or folder, or the checkpoint of that name as it is.

    Raises:
        ConfigError: a model of another kind.
        CheckpointError: no such checkpoint.
    """
    from glassformer.checkpoints.settings import ABOUT
    from glassformer.checkpoints.unfinished import refuse_unfinished
    from glassformer.cli.translate import load_kind

    folder = Path(model)
    if any((at / ABOUT).is_file() for at in (folder, folder / "model")):
        return load_kind(folder, "similar")
    refuse_unfinished(folder)
    from glassformer.tasks.similarity.estimator import Embedder

    return Embedder(model)


def is_embedder(folder: str | Path) -> bool:
    """Whether a run or saved model is asked by ``similar``."""
    from glassformer.checkpoints.files import read_json
    from glassformer.checkpoints.settings import ABOUT
    from glassformer.tasks.catalog import task_making

    about = next((f for f in (Path(folder) / ABOUT, Path(folder) / "model" / ABOUT) if f.is_file()), None)
    kind = read_json(about).get("kind") if about else None
    task = task_making(kind) if isinstance(kind, str) else None
    return task is not None and task.verb == "similar"


def similar(model: str, a: Sequence[str], b: Sequence[str]) -> list[float]:
    """The cosine of each text of one list with the text of the other list in the same place.

    Raises:
        InputError: no such model, or a text that cannot be used.
    """
    from glassformer.tasks.similarity.pairs import Pairs

    return open_embedder(model).cosines(Pairs(list(a), list(b))).tolist()


def explain_pairs(model: str, pairs: Sequence[tuple[str, str]]) -> list[Any]:
    """What the cosine of each pair is made of; at most 20.

    Raises:
        ConfigError: more pairs, or a model whose vectors are no sums over tokens.
    """
    if len(pairs) > MOST:
        raise ConfigError(f"{len(pairs)} pairs, at most {MOST} go into one page", fix="Give fewer")
    embedder = open_embedder(model)
    return [embedder.explain_similarity(a, b) for a, b in pairs]


def check_page(out: Path) -> Path:
    """Raises ConfigError for another ending than .html or .json, or a file that exists."""
    if out.suffix.lower() not in PAGES:
        raise ConfigError("not .html or .json", where=str(out), fix="End the name with one of them")
    return check_new_file(out)


def show_explained(found: Sequence[Any], out: Path | None) -> None:
    """Explanations on the terminal, or in a file."""
    from glassformer.tasks.similarity.explain import save_similarities

    if out is not None:
        save_similarities(found, out)
        say(f"{len(found)} explained: {out}")
        return
    for one in found:
        say(f"cosine {one.score:.4f}")
        rows = [[a, b, f"{value:+.4f}"] for a, b, value in one.strongest(STRONGEST)]
        show_table("", ("first", "second", "adds"), rows, right=("adds",))
        for line in one.notes:
            note(line)


def read_pairs(path: str, first: str | None, second: str | None) -> tuple[list[str], list[str]]:
    """Both sides of a table's pairs; a column of scores is not read.

    Raises:
        DataError: a file or row that cannot be used.
    """
    from glassformer.data.scored_pairs import load_scored_pairs

    split = next(iter(load_scored_pairs(path, first=first, second=second, score=None).splits.values()))
    return split.first, split.second


def write_cosines(out: Path, first: Sequence[str], second: Sequence[str], cosines: Sequence[float]) -> None:
    """A row a pair, safe to open in a spreadsheet."""
    from glassformer.checkpoints.files import replacing
    from glassformer.evaluate.predictions import csv_safe

    with replacing(out) as fresh, fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["first", "second", "cosine"])
        for a, b, cosine in zip(first, second, cosines, strict=True):
            writer.writerow([csv_safe(a), csv_safe(b), f"{cosine:.6f}"])


Model = Annotated[
    str, typer.Option(metavar="RUN|NAME", help="A run, a saved Embedder, or a checkpoint as it is.")
]


def similar_command(
    given: Annotated[
        list[str],
        typer.Argument(metavar="A B | TABLE", help="Two texts, or a table with two columns of them."),
    ],
    model: Model = DEFAULT,
    first: Annotated[str | None, typer.Option(metavar="NAME", help="The table's first column.")] = None,
    second: Annotated[str | None, typer.Option(metavar="NAME", help="The table's second column.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which pairs of tokens the cosine is made of.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An explanation (.html, .json), or a table's cosines (.csv)."),
    ] = None,
    json: AsJson = False,
) -> None:
    """How alike two texts are, or those of each row of a table: the cosine of their vectors, at most 1."""
    from glassformer.cli.inputs import names_a_file, refuse_folder

    for text in given:
        refuse_folder(text)
    table = len(given) == 1 and names_a_file(given[0])
    if not table and len(given) != 2:
        what = f"{len(given)} {'text' if len(given) == 1 else 'texts'} given"
        raise ConfigError(what, where="similar", fix="Give two texts, or a table with two columns of them")
    if table:
        if explain:
            raise ConfigError("a table is not explained", where="--explain", fix="Give two texts")
        _of_table(given[0], model, first, second, out, json)
        return
    if first or second:
        option = "--first" if first else "--second"
        raise ConfigError("belongs to a table", where=option, fix="Leave it out, or give a table")
    if explain or out is not None:
        if out is not None:
            check_page(out)
        found = explain_pairs(model, [(given[0], given[1])])
        if json and out is None:
            say_json(found[0].as_dict())
        else:
            show_explained(found, out)
        return
    (cosine,) = similar(model, given[:1], given[1:])
    if json:
        say_json({"texts": given, "cosine": cosine})
    else:
        say(f"{cosine:.4f}")


def _of_table(
    path: str, model: str, first: str | None, second: str | None, out: Path | None, json: bool
) -> None:
    if out is not None and (check_new_file(out).suffix.lower() != ".csv" or json):
        fix = "End the name with .csv, and leave --json out"
        raise ConfigError("cosines of a table are written as CSV", where=str(out), fix=fix)
    sides = read_pairs(path, first, second)
    cosines = similar(model, *sides)
    if out is not None:
        write_cosines(out, *sides, cosines)
        say(f"{len(cosines):,} pairs: {out}")
    elif json:
        rows = zip(*sides, cosines, strict=True)
        say_json([{"texts": [a, b], "cosine": cosine} for a, b, cosine in rows])
    else:
        for a, b, cosine in zip(*sides, cosines, strict=True):
            typer.echo(f"{cosine:.4f}\t{one_line(a)}\t{one_line(b)}")


def search(
    model: str,
    table: str | Path,
    queries: Sequence[str],
    count: int = 5,
    *,
    text_column: str | None = None,
    save: Path | None = None,
) -> list[list[dict[str, Any]]]:
    """For each query the nearest texts of a table or of a saved index, with their rows and cosines.

    Args:
        text_column: of the table; None finds it.
        save: a folder for the texts and their vectors, to search in later without computing them again.

    Raises:
        InputError: no such model, table, column or index, or an index of another model.
    """
    from glassformer.cli.inputs import read_texts
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
        embedder.index(*read_texts(path, text_column))
    if save is not None:
        embedder.save_index(save)
    index = embedder.index_
    if not queries:
        return []
    rows, cosines = embedder.search(queries, index.vectors, count)
    return [
        [
            {"row": index.row(int(i)), "cosine": float(c), "text": index.texts[i]}
            for i, c in zip(near, values, strict=True)
        ]
        for near, values in zip(rows, cosines, strict=True)
    ]


def search_command(
    model: Annotated[
        str, typer.Argument(metavar="RUN|NAME", help="A run, a saved Embedder, or a checkpoint as it is.")
    ],
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Where to look: CSV, TSV, JSONL, Parquet, .txt, or an index."),
    ],
    queries: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="Texts to find the nearest of; - is standard input."),
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="How many for each query.")] = 5,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep texts and vectors there: an index, to be given as TABLE."),
    ] = None,
    text_column: TextColumn = None,
    json: AsJson = False,
) -> None:
    """The texts of a table that are nearest in meaning to a query: every row is compared."""
    if not queries and save is None:
        raise ConfigError("nothing to look for", where="search", fix="Give a QUERY, or --save DIR")
    if save is not None and check_folder_path(save, "--save").exists():
        raise ConfigError("the folder exists", where=str(save), fix="Choose another --save")
    asked = [line for word in queries or () for line in (read_stdin()[0] if word == STDIN else [word])]
    found = search(str(model), table, asked, count, text_column=text_column, save=save)
    if save is not None:
        say(f"index: {save}")
    if json:
        say_json([{"query": query, "found": near} for query, near in zip(asked, found, strict=True)])
        return
    for query, near in zip(asked, found, strict=True):
        if len(asked) > 1:
            say(f"{excerpt(query)}:")
        for one in near:
            typer.echo(f"{one['cosine']:.4f}\t{one['row']}\t{one_line(one['text'])}")
