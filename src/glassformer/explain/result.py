"""What an explanation says: scores shaped like the input, and what is needed to read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.data.vocabulary import word_numbers
from glassformer.explain.tokens import per_word, word_spans

# Method -> what its scores say.
ABOUT = {
    "attention": "How much of each token the head's rows read in one layer. It shows where information was "
    "read, not why the answer is what it is.",
    "rollout": "Attention followed through all layers. It shows where information could have come from, not "
    "why the answer is what it is.",
    "gradient_x_input": "The first-order part of what each token gives to the logit of the label explained.",
    "integrated_gradients": "What each token gives to the logit, against the baseline: the scores add up to "
    "the difference between the two logits, up to the error stated.",
    "attention_gradient": "Attention followed through all layers, where it raises the logit of the label "
    "explained.",
    "weights": "The weights of the words and n-grams of characters that stand in the text, each shared out "
    "among the characters that it stands on: the scores of all tokens and the bias add up to the logit.",
    "occlusion": "How far the logit of the label explained falls when the token is hidden.",
}


@dataclass
class Scores:
    """What a method gives back, before it is joined with the input's tokens or image."""

    scores: np.ndarray  # [T]
    maps: np.ndarray | None = None  # [L, H, T, T]
    reads: np.ndarray | None = None  # [T], how much of each output row the head reads
    error: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Result:
    """Scores for the tokens of one text, or for the patches of one image.

    ``text`` is what the tokenizer saw (after cleaning); of a picture it is empty. ``offsets`` are places in
    the text, (0, 0) for special tokens. Attention methods score how much was read, from 0 up. The others
    score what speaks for the target: negative ones speak against it, in its logit's units for ``occlusion``,
    ``gradient_x_input``, ``integrated_gradients`` and ``weights``.
    """

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    scores: np.ndarray  # [T], or [gh, gw] on the patch grid
    label: Any  # what was predicted
    probability: float  # of that label
    method: str
    target: Any = None  # the label explained; attention and rollout have none
    maps: np.ndarray | None = None  # [L, H, T, T]
    error: float | None = None  # integrated gradients: relative error of completeness
    settings: dict[str, Any] = field(default_factory=dict)
    image: np.ndarray | None = None  # [height, width, 3] uint8, as the model saw it
    reads: np.ndarray | None = None  # [T], how much of each output row the head reads
    notes: list[str] = field(default_factory=list)  # how far it can be trusted, in words
    name: str = ""  # of the file that the input came from
    trust: dict[str, Any] | None = (
        None  # curves and figures of ``faithfulness.trust``, where they were asked for
    )

    word_ids: np.ndarray | None = None  # [T], the word of each token, -1 for special ones
    sides: np.ndarray | None = None  # [T] of a pair: 0 its first text, 1 its second, -1 special tokens
    target_probability: float | None = None  # of ``target``
    number: bool = False  # whether ``label`` is a predicted number, and ``probability`` the same one
    cross: dict[str, Any] | None = None  # the words of a pair against each other, where that was asked for

    @property
    def of_target(self) -> float | None:
        """The probability of a target that is another label than the answer."""
        other = self.target is not None and str(self.target) != str(self.label) and not self.number
        return self.target_probability if other else None

    @property
    def numbers(self) -> np.ndarray:
        """The word of each token ``[T]``; where it is not known, as the tokens' names and places say."""
        return word_numbers(self.tokens, self.offsets) if self.word_ids is None else self.word_ids

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The tokens with the highest scores; patches are named by row and column."""
        flat = self.scores.ravel()
        names = (
            self.tokens
            if self.scores.ndim == 1
            else [f"({i}, {j})" for i, j in np.ndindex(self.scores.shape)]
        )
        return [(names[i], float(flat[i])) for i in np.argsort(-flat, kind="stable")[:count]]

    def words(self) -> list[tuple[str, float]]:
        """The text's words in order, each with the sum of its pieces' scores; without special tokens."""
        numbers = self.numbers
        if numbers.max(initial=-1) < 0:
            return []
        spans = word_spans(numbers, self.offsets)
        scores = per_word(self.scores, numbers)
        return [(self.text[a:b], float(s)) for (a, b), s in zip(spans, scores, strict=True)]

    def words_of(self, side: int) -> list[tuple[str, float]]:
        """As ``words``, of one text of a pair: 0 the first, 1 the second."""
        if self.sides is None:
            return self.words() if side == 0 else []
        numbers = self.numbers
        own = {int(w) for w, s in zip(numbers, self.sides, strict=True) if s == side and w >= 0}
        return [word for number, word in enumerate(self.words()) if number in own]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; maps and image are left out."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "offsets": [list(o) for o in self.offsets],
            "scores": np.round(self.scores.astype(np.float64), 6).tolist(),
            "label": str(self.label),
            "probability": self.probability,
            "method": self.method,
            "target": None if self.target is None else str(self.target),
            "target_probability": self.target_probability,
            "error": self.error,
            "settings": self.settings,
            "notes": self.notes,
            "name": self.name,
            "trust": self.trust,
        } | self._of_pairs()

    def _of_pairs(self) -> dict[str, Any]:
        """What a pair's explanation says beside."""
        found = {} if self.sides is None else {"sides": self.sides.tolist()}
        return found | ({} if self.cross is None else {"cross": self.cross})
