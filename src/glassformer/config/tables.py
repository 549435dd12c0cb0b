"""The keys of every recipe that say how its files are read."""

from __future__ import annotations

from typing import Literal

from glassformer.config import Section, section, setting


@section
class TableKeys(Section):
    """A source, and what its tables do not say of themselves."""

    source: str = setting("", "a path to a file or folder")
    encoding: str | None = setting(
        None, "of tables that are not UTF-8, such as cp1252; None: as --encoding says"
    )
    quoting: Literal["csv", "none"] | None = setting(
        None,
        "of CSV and TSV. csv: a quoted cell may have line breaks; none: quotes are plain characters, each "
        "line is a row; None: csv, and a cell that looks like several rows is an error",
    )
    header: Literal["yes", "no"] | None = setting(
        None,
        "whether the first row of CSV and TSV has the names of the columns; no: they are called column1, "
        "column2 ...; None: yes, and a first row that looks like data is an error",
    )
