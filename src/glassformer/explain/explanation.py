"""An explanation that shows itself: as a page, as JSON, in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import InputError
from glassformer.explain.render import fragment, page
from glassformer.explain.result import Result
from glassformer.finite import json_text
from glassformer.outputs import write_text_whole


@dataclass
class Explanation(Result):
    """What every method of explanation gives; its fields are those of ``Result``."""

    def save(self, path: str | Path) -> Path:
        """Write ``.json`` (scores) or ``.html`` (a page that opens anywhere, with maps if there are any).

        Raises:
            InputError: another ending, or no such folder.
        """
        path = Path(path)
        if path.suffix.lower() not in (".json", ".html"):
            raise InputError("not .json or .html", where=str(path), fix="End the name with one of them")
        if not path.parent.is_dir():
            raise InputError("no such folder", where=str(path.parent), fix="Make it first")
        if path.suffix.lower() == ".json":
            text = json_text(self.to_dict(), indent=2, ascii=True) + "\n"
        else:
            text = page([self])
        write_text_whole(path, text)
        return path

    def _repr_html_(self) -> str:
        return fragment(self)
