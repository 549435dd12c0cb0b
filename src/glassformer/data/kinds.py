"""Detection of the kind of a data set by its name or content.

The kinds are texts, images, pairs for translation, pairs with similarity scores, tagged words, and questions
with answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from glassformer.data import pairs
from glassformer.data.answered import QA_SOURCES, has_answers, is_squad
from glassformer.data.columns import COMPARED_COLUMNS, LABEL_COLUMNS, TEXT_COLUMNS, usual_pair_columns
from glassformer.data.dataset import SPLIT_OF
from glassformer.data.files import is_system_file
from glassformer.data.folders import check_not_model, split_files
from glassformer.data.image import image_files
from glassformer.data.image_sources import IMAGE_COLUMNS, NAMED_IMAGES
from glassformer.data.sources import NAMED_SOURCES
from glassformer.data.tables import NO_ROWS, READERS, Table, ignore_error, is_tab_separated, read_table
from glassformer.data.tagged import CONLL, TAG_COLUMNS, WORD_COLUMNS, looks_tagged
from glassformer.data.tags import has_character_spans
from glassformer.errors import DataError

Kind = Literal["texts", "images", "pairs", "scored pairs", "tags", "answers"]
# Kind -> built-in data sets that are not texts.
OTHER_SOURCES: dict[Kind, Any] = {"answers": QA_SOURCES, "images": NAMED_IMAGES}
OTHER_SOURCES |= {"pairs": pairs.PAIR_SOURCES, "scored pairs": pairs.SCORED_SOURCES}
SCORE_NAMES = pairs.SCORE_COLUMNS[:4]  # without "label" and similar names, which name classes
TAGGED_EXTENSIONS = [extension for extension in CONLL if extension != ".txt"]


def is_builtin(source: str | Path) -> bool:
    """Whether ``source`` is the name of a built-in data set, which has priority over a file of that name."""
    return str(source) in NAMED_SOURCES or any(str(source) in names for names in OTHER_SOURCES.values())


def detect_kind(source: str | Path) -> Kind:
    """The kind of a data set; texts if no other kind is recognized."""
    if (known := NAMED_SOURCES.get(str(source))) is not None:
        return "tags" if known.tagged else "texts"
    for kind, names in OTHER_SOURCES.items():
        if str(source) in names:
            return kind
    path = Path(source).expanduser()
    if path.is_dir():
        check_not_model(path)
        files = split_files(path)
        if files:
            return _kind_of_file(next(iter(files.values()))[0])
        texts = (p for p in path.rglob("*.txt") if not any(map(is_system_file, p.relative_to(path).parents)))
        files = [p for p in sorted(path.glob("*.txt")) if SPLIT_OF.get(p.stem.lower())]
        if files and looks_tagged(files[0]):
            return "tags"
        if len(image_files(path)) > sum(not is_system_file(p) for p in texts):  # a README does not count
            return "images"
        if any(
            SPLIT_OF.get(p.stem.lower()) and p.suffix.lower() in TAGGED_EXTENSIONS for p in path.iterdir()
        ):
            return "tags"
    elif path.suffix.lower() in TAGGED_EXTENSIONS:
        return "tags"
    elif path.is_file():
        if looks_tagged(path):
            return "tags"
        return _kind_of_file(path) if path.suffix.lower() in READERS or is_tab_separated(path) else "texts"
    return "pairs" if str(source) and pairs.find_parallel_files(path) else "texts"


def _kind_of_file(path: Path) -> Kind:
    if is_squad(path):
        return "answers"
    try:
        return _kind_of_table(read_table(path, ignore_error))  # bad rows raise errors when data are loaded
    except DataError as error:
        if error.what != NO_ROWS:
            raise
        return "texts"  # loading the texts raises the error


def _kind_of_table(table: Table) -> Kind:
    """The kind of a table by its column names; ``target`` is a label unless a source column exists, too."""
    names = {name.lower() for name in table.names}
    if has_answers(table):
        return "answers"
    if names & {*SCORE_NAMES} and usual_pair_columns([*names], COMPARED_COLUMNS):
        return "scored pairs"
    words = next((name for name in table.names if name.lower() in WORD_COLUMNS), None)
    tags = [name for name in table.names if name.lower() in TAG_COLUMNS and name != words]
    if table.typed and words and _is_list(table, words) and any(_is_list(table, name) for name in tags):
        return "tags"
    if table.typed and words and any(has_character_spans(table.read(name)) for name in tags):
        return "tags"
    if names & {*pairs.SOURCE_COLUMNS} and names & {*pairs.TARGET_COLUMNS}:
        return "pairs"
    if names & {*TEXT_COLUMNS} or usual_pair_columns(table.names):  # one text per row, or two
        return "texts"
    if names & {*IMAGE_COLUMNS}:
        return "images"
    if names & {*LABEL_COLUMNS}:
        return "texts"
    try:
        columns = pairs.find_translation_columns(table, None, None)
    except DataError:
        return "texts"
    # Most values in a column of sentences have several words; most labels have one word.
    counts = (sum(len(str(x).split()) > 1 for x in table.read(column)) for column in columns)
    return "pairs" if min(counts) > len(table.rows) / 2 else "texts"


def _is_list(table: Table, column: str) -> bool:
    return isinstance(next(iter(table.read(column)), None), list)
