"""What an explanation is: scores shaped like the input, and what is needed to read them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Explanation:
    """Scores for the tokens of one text.

    ``text`` is what the tokenizer saw (after cleaning); ``offsets`` are places in it, (0, 0) for special tokens.
    """

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    scores: np.ndarray  # [T], non-negative for attention methods
    label: Any  # what was predicted
    probability: float  # of that label
    method: str
    target: Any = None  # the label explained; attention methods have none
    maps: np.ndarray | None = None  # [L, H, T, T]
    error: float | None = None  # the method's own error, where it has one
    settings: dict[str, Any] = field(default_factory=dict)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The tokens with the highest scores."""
        order = np.argsort(-self.scores, kind="stable")[:count]  # of equals, the earlier one
        return [(self.tokens[i], float(self.scores[i])) for i in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the maps are left out."""
        return {
            "text": self.text, "tokens": self.tokens, "offsets": [list(o) for o in self.offsets],
            "scores": [round(float(s), 6) for s in self.scores], "label": str(self.label),
            "probability": self.probability, "method": self.method,
            "target": None if self.target is None else str(self.target), "error": self.error,
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write ``.json`` (scores) or ``.html`` (words coloured by score)."""
        path = Path(path)
        text = json.dumps(self.to_dict(), indent=2) if path.suffix == ".json" else self._repr_html_()
        path.write_text(text, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        from glassformer.explain.render import text_html

        return text_html(self)
