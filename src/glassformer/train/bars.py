"""A bar in a notebook: one cell output that is replaced in place, without widgets to install."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, Self

AT_MOST = 0.25  # seconds between two drawings: a notebook keeps up with four a second


def in_notebook() -> bool:
    """Whether this process answers a notebook, which shows HTML; IPython on a terminal is a terminal."""
    found = sys.modules.get("IPython")
    shell: Any = found.get_ipython() if found is not None and hasattr(found, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """As much of ``rich.progress.Progress`` as a training needs.

    Args:
        passing: the bar goes away at its end.
    """

    def __init__(self, passing: bool = False):
        self.passing = passing
        self.done, self.total, self.what = 0, 0, ""
        self.figures: dict[str, float] = {}
        self._began = self._drawn = 0.0
        self._shown: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def add_task(self, what: str, total: int, completed: int = 0) -> int:
        """Begin; there is one task."""
        self.what, self.total, self.done = what, total, completed
        self._began = time.monotonic()
        self._draw(always=True)
        return 0

    def update(self, task: int, completed: int, **figures: float) -> None:
        """So much is done now; ``figures`` stand beside it."""
        self.done, self.figures = completed, figures
        self._draw(always=completed >= self.total)

    def advance(self, task: int, done: int) -> None:
        """So much more is done."""
        self.update(task, self.done + done, **self.figures)

    def stop(self) -> None:
        """The last drawing, or none is left."""
        if self._shown is not None and self.passing:
            from IPython.display import HTML  # type: ignore[import-not-found]  # there, in a notebook

            self._shown.update(HTML(""))
        elif self._shown is not None:
            self._draw(always=True)

    def html(self) -> str:
        """The bar as it stands."""
        spent = time.monotonic() - self._began
        said = [f"{self.done:,} of {self.total:,}"]
        if "epoch" in self.figures:
            said.append(f"epoch {self.figures['epoch']:.0f}")
        if "loss" in self.figures:
            said.append(f"loss {self.figures['loss']:.3f}")
        if "speed" in self.figures:
            said.append(f"{self.figures['speed']:,.0f} tokens/s")
        said.append(f"{spent:,.0f} s")
        words = escape(f"{self.what}: {', '.join(said)}")
        bar = f'<progress max="{self.total}" value="{self.done}" aria-label="{escape(self.what)}"></progress>'
        return f"<div>{bar} <span>{words}</span></div>"

    def _draw(self, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self._drawn < AT_MOST:
            return
        from IPython.display import HTML, display  # type: ignore[import-not-found]  # there, in a notebook

        self._drawn = now
        if self._shown is None:
            self._shown = display(HTML(self.html()), display_id=True)
        else:
            self._shown.update(HTML(self.html()))
