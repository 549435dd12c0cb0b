"""One's own table with the answers behind: ``predict --keep-table``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.cli.rows import MOST_COLUMNS, Layout, Row
from glassformer.errors import ConfigError

OPTION = "--keep-table"
ENDS = (".csv", ".tsv")


@dataclass(frozen=True)
class KeptTable:
    """How a table of delimited text is written, so that it can be written again."""

    names: tuple[str, ...]  # of its columns, in their order
    delimiter: str
    mark: bool  # whether it begins with a byte order mark
    encoding: str = "utf-8"
    line_end: str = "\n"
    pair: tuple[str, str] | None = None  # the columns of the first and second texts, of pairs

    @contextmanager
    def written(self, out: Path, texts: Sequence[str], ours: Sequence[str]) -> Iterator[Callable[..., None]]:
        """What takes rows and a value for each of ``ours``; the file appears whole at the end.

        The table's own names and cells are written as they are, with no apostrophe before ``=`` or ``@``;
        those of ``ours`` are guarded as in every CSV file of ours.

        Args:
            texts: the columns of the texts, of pairs both.
            ours: the columns behind; one whose name is taken is called ``model:NAME``.
        """
        from glassformer.data.spreadsheet import csv_safe, guard_under
        from glassformer.evaluate.predictions import table_file

        heads = list(ours)
        while any(taken := [head in self.names for head in heads]):
            heads = [f"model:{head}" if own else head for head, own in zip(heads, taken, strict=True)]
        guard = guard_under(self.names)
        how: dict[str, Any] = {"encoding": self.encoding, "line_end": self.line_end, "mark": self.mark}
        with table_file(out, delimiter=self.delimiter, **how) as writer:
            writer.writerow([*self.names, *map(csv_safe, heads)])

            def write(rows: Sequence[Row], values: Sequence[Sequence[Any]]) -> None:
                for row, found in zip(rows, values, strict=True):
                    own = row.given | dict(zip(texts, _sides(row.text), strict=False))
                    cells = [guard(own.get(name, "")) for name in self.names]
                    writer.writerow([*cells, *map(csv_safe, found)])

            yield write

    def texts(self, layout: Layout) -> list[str]:
        """The columns of the texts: those of the pair, else what is none of the user's other columns."""
        return list(self.pair or (name for name in self.names if name not in layout.columns))


def kept_table(given: Sequence[str], out: Path | None) -> KeptTable:
    """The one table that is given.

    Raises:
        ConfigError: it is no single CSV or TSV file, has too many columns, or there is no ``--out``.
        DataError: it cannot be read.
    """
    path = Path(given[0])
    if out is None or len(given) != 1 or path.suffix.lower() not in ENDS or not path.is_file():
        what, fix = "is about one CSV or TSV file", f"Give --data FILE.csv --out FILE.csv {OPTION}"
        raise ConfigError(what, where=OPTION, fix=fix)
    from glassformer.data.csv_format import delimiter_of
    from glassformer.data.files import ESCAPE, UTF8, encoding_of, text_lines
    from glassformer.data.tables import whole_records

    delimiter = delimiter_of(path, ESCAPE)
    _, names = next(whole_records(path, delimiter, lambda error, row: None, ESCAPE), (0, []))
    if len(names) > MOST_COLUMNS:
        what = f"{len(names)} columns, at most {MOST_COLUMNS} are kept"
        raise ConfigError(what, where=OPTION, fix="Leave it out, or cut the table to the columns you need")
    with path.open("rb") as file:
        marked = file.read(3) == b"\xef\xbb\xbf"
    first = next(text_lines(path, newline="", errors=ESCAPE), "\n")
    line_end = first[len(first.rstrip("\r\n")) :] or "\n"
    encoding = encoding_of(path)
    return KeptTable(tuple(names), delimiter, marked, "utf-8" if encoding == UTF8 else encoding, line_end)


def _sides(text: Any) -> tuple[str, ...]:
    return getattr(text, "sides", None) or (text,)
