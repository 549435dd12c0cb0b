"""A loaded classifier as the server uses it: one thread prepares, another computes, a third explains."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.config import plain
from glassformer.data.image import FORMATS
from glassformer.data.image_bounds import check_file
from glassformer.data.text import TokenTable, Windows, starts_of
from glassformer.data.text_pairs import TextPair
from glassformer.data.transform import PixelTable
from glassformer.errors import CheckpointError, ConfigError, InputError, with_article
from glassformer.explain.methods import methods_for, notes_of
from glassformer.finite import finite
from glassformer.nn.int8 import precision_of
from glassformer.process import without_warnings
from glassformer.runtime import choose_dtype
from glassformer.serve.limits import Limits
from glassformer.serve.problems import Problem, of_input, too_many
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.number_runs import bounds_of

EXAMPLES = 6  # sentences on the page
MOST_OVERLAP = 32  # windows that a token of a long text may stand in
CHARS_PER_TOKEN = 3  # a guess before the tokenizer has seen a text


@dataclass(frozen=True)
class Item:
    """One text (the token ids of its windows) or one picture (``[C, H, W]`` uint8), ready to be batched."""

    rows: tuple[np.ndarray, ...]
    tokens: int
    truncated: bool = False
    segments: np.ndarray | None = None  # of a pair whose model tells its texts apart, one for each token


class Served:
    """A classifier of texts or pictures under a name.

    Args:
        clf: fitted.
        threads, precision: what it computes with; see ``FitConfig``.
        examples: texts that the page offers to begin with.

    Raises:
        ConfigError: no classifier, or no such precision.
    """

    gives = "labels"
    score: dict[str, Any] | None = None  # as ``Score`` has it, of the run that the model comes from
    image: str | None = None  # an example in base64, of a model of images
    neutral: Any = "This is an example. Write a text of your own here."  # where the recipe names no text

    def __init__(
        self,
        name: str,
        clf: Any,
        limits: Limits,
        *,
        threads: int = 0,
        precision: str = "auto",
        examples: Sequence[str] = (),
    ):
        answer = TASKS[clf.RECIPE.task].answer
        if answer is None:
            able = "classifiers, embedders, taggers and answerers are served"
            what = f"holds {with_article(type(clf).__name__)}; {able}"
            raise ConfigError(what, where=name)
        self.name, self.clf, self.limits, self.answer = name, clf, limits, answer
        self.kind = "text" if clf.NOUN == "texts" else "image"
        self.of_tokens = self.kind == "text" and clf.reads_tokens  # else a text counts by its length alone
        self.pairs = bool(getattr(clf, "reads_pairs", False))
        stride = getattr(clf, "window_stride", None)
        if (
            self.kind == "text"
            and clf.long_texts != "cut"
            and stride
            and stride * MOST_OVERLAP < clf.max_length
        ):
            windows = f"its windows of {clf.max_length} tokens begin every {stride}"
            what = f"{windows}: a text is read {MOST_OVERLAP} times"
            raise ConfigError(f"{what} over", where=name, fix="Use a larger window_stride")
        self.neutral = ["A man plays a guitar.", "Somebody makes music."] if self.pairs else self.neutral
        self.labels = list(map(str, clf.classes_.tolist()))
        self.examples = list(examples)[:EXAMPLES] if self.kind == "text" and not self.pairs else []
        clf.threads, clf.precision = threads, precision
        choose_dtype(precision, torch.device("cpu"))  # a wrong word is refused before anything is served

    # --- before the queue ------------------------------------------------------------------------

    def estimate(self, inputs: Sequence[str]) -> int:
        """Tokens that these inputs will have at most, or nearly so; costs nothing."""
        if self.kind == "image":
            return len(inputs) * self.clf.model_.config.embedding.num_tokens
        most = self._most()
        return sum(min(len(text) // CHARS_PER_TOKEN + 2, most) for text in inputs)

    def least(self, size: int) -> int:
        """Tokens that a body of ``size`` bytes has at least, as one ASCII text; fewer than ``estimate``."""
        if self.kind == "image":
            return self.clf.model_.config.embedding.num_tokens
        most = self._most()
        return min(size // (2 * CHARS_PER_TOKEN), most)

    def _most(self) -> int:
        """Tokens that are computed of one text."""
        cut = self.of_tokens and self.clf.long_texts == "cut"
        return self.clf.max_length if cut else self.limits.characters

    def check(self, inputs: Sequence[str], what: str) -> None:
        """Raises Problem where there are too many inputs, or one is too long; decodes nothing."""
        if len(inputs) > self.limits.inputs:
            raise too_many(len(inputs), self.limits.inputs, what)
        if self.kind == "text":
            for i, text in enumerate(inputs):
                if len(text) > self.limits.characters:
                    most = f"{len(text):,} characters, {self.limits.characters:,} at most"
                    raise Problem(413, most, where=f"{what}[{i}]", fix="Cut it")

    def prepare(self, inputs: Sequence[str], what: str = "inputs") -> list[Item]:
        """Texts as token ids; pictures go through ``open_pictures`` and ``decode``.

        Raises:
            Problem: an input that cannot be used; it is named.
        """
        try:
            windows = self.clf.evaluation_table(self.clf.check(inputs, what))
        except InputError as error:
            raise of_input(error) from None
        table, owners = windows.table, windows.owners
        rows: list[list[np.ndarray]] = [[] for _ in inputs]
        for i in range(len(table)):
            rows[i if owners is None else owners[i]].append(table[i])
        kinds: Sequence[np.ndarray | None] = [None] * len(rows)
        if table.segments is not None:  # a pair is never read in windows
            kinds = np.split(table.segments, table.starts[1:-1])
        if not self.of_tokens:  # features, of which an n-gram more or less costs nothing
            return [Item(tuple(each), self.estimate([text])) for each, text in zip(rows, inputs, strict=True)]
        return [
            Item(tuple(each), sum(map(len, each)), bool(owners is None and table.truncated[i]), kind)
            for i, (each, kind) in enumerate(zip(rows, kinds, strict=True))
        ]

    def open_pictures(self, contents: Sequence[str], what: str) -> list[tuple[bytes, int]]:
        """Each picture as ``opened`` gives it.

        Raises:
            Problem: one that cannot be used; it is named. Also, pictures that are too large together.
        """
        opened = [self.opened(content, f"{what}[{i}]") for i, content in enumerate(contents)]
        pixels = sum(pixels for _, pixels in opened)
        if pixels > self.limits.request_pixels:
            most = f"{pixels:,} pixels together, {self.limits.request_pixels:,} at most"
            raise Problem(413, most, where=what, fix="Send several requests, or scale them down")
        return opened

    def decode(self, content: bytes, where: str) -> Item:
        """The bytes of a picture as pixels.

        Raises:
            Problem: damaged.
        """
        try:
            return Item((self.clf.transform_.picture(content, where),), self.estimate([""]))
        except InputError as error:
            raise of_input(error) from None

    def opened(self, content: str, where: str) -> tuple[bytes, int]:
        """Base64 as the bytes of a picture, and the pixels that its header speaks of: few enough."""
        from PIL import Image

        try:
            found = base64.b64decode("".join(content.split()), validate=True)  # in lines, as base64 writes it
        except (binascii.Error, ValueError):
            what = "a URL, which is not opened" if ":" in content[:12] else "not base64"
            raise Problem(
                422, what, where=where, fix="Send the file's bytes in base64, without a prefix"
            ) from None
        try:
            check_file(found, where, self.limits.pixels)
            with (
                without_warnings(r"PIL\."),  # on odd metadata
                Image.open(io.BytesIO(found), formats=FORMATS) as image,
            ):
                width, height = image.size
        except InputError as error:
            raise of_input(error) from None
        except Exception:  # whatever a decoder says of a header that it cannot read
            known = ", ".join(FORMATS[:6])
            raise Problem(422, "not a picture that can be read", where=where, fix=f"Known: {known}") from None
        if width * height > self.limits.pixels:
            most = f"{width:,} x {height:,} pixels, {self.limits.pixels:,} in all at most"
            raise Problem(413, most, where=where, fix="Scale it down")
        return found, width * height

    # --- after the queue -------------------------------------------------------------------------

    def compute(self, items: Sequence[Item]) -> np.ndarray:
        """Probabilities ``[n, C]`` fp64, those of ``predict_proba``."""
        model = self.clf.predictor()
        device = next(model.parameters()).device
        if self.kind == "image":
            table: Any = PixelTable(np.stack([item.rows[0] for item in items]))
        else:
            rows = [row for item in items for row in item.rows]
            lengths = np.array([len(row) for row in rows], np.int64)
            kinds = [item.segments for item in items if item.segments is not None]
            segments = np.concatenate(kinds) if kinds else None
            tokens = TokenTable(np.concatenate(rows), starts_of(lengths), segments, np.zeros(len(rows), bool))
            counts = [len(item.rows) for item in items]
            owners = None if self.clf.long_texts == "cut" else np.repeat(np.arange(len(items)), counts)
            table = Windows(tokens, len(items), owners)
        return self.clf.chances(self.clf.table_rows(model, table, "logits", device))

    def together(self, rows: Sequence[Any]) -> Any:
        """The answers of one request's inputs, as ``compute`` gives those of a batch."""
        return np.stack(rows)

    def numbers(self, answers: Any) -> list[np.ndarray]:
        """The numbers in what ``compute`` gave."""
        return [answers]

    def check_answers(self, answers: Any) -> Any:
        """What ``compute`` gave, unchanged; raises NotFiniteError for NaN and infinity in it."""
        for own in self.numbers(answers):
            finite(own)
        return answers

    def try_out(self) -> None:
        """Answer one small input.

        Raises:
            CheckpointError: it fails on it, or its answer is NaN or infinite.
        """
        try:
            self.check_answers(self.compute([self._small()]))
        except Problem as problem:
            raise CheckpointError(f"does not answer: {problem.what}", where=self.name) from None
        except (InputError, MemoryError):
            raise
        except Exception as error:  # whatever weights and settings that do not fit each other end in
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise CheckpointError(f"does not answer: {reason}", where=self.name) from None

    def _small(self) -> Item:
        if self.kind == "image":
            channels, size = self.clf.transform_.channels, self.clf.transform_.size
            return Item((np.zeros((channels, *size), np.uint8),), self.estimate([""]))
        return self.prepare([self._example("a")])[0]

    def _example(self, text: str) -> str:
        return TextPair(text, text) if self.pairs else text

    def warm_up(self) -> None:
        """A full batch and one input alone, so that the first client does not wait for what is made once,
        and that the memory of the largest batch is asked for now rather than under load.
        """
        alone = one = self._small()
        if self.kind == "text":
            (one,) = self.prepare([self._example("a word " * min(200, self.clf.max_length))])
        most = min(self.limits.batch_tokens, self.limits.queue_tokens)
        self.compute([one] * max(1, most // one.tokens))
        self.compute([alone])

    def response(self, items: Sequence[Item], shares: np.ndarray) -> dict[str, Any]:
        """As ``PredictResponse`` has it, less the model."""
        if self.clf.kind_.labels_given:
            return {"predictions": self.predictions(items, shares)}
        bounds = bounds_of(self.clf, shares[:, 0])
        inside = [{}] * len(items) if bounds is None else [{"interval": ends} for ends in bounds.tolist()]
        numbers = [
            {"number": number, **ends, "truncated": item.truncated}
            for item, number, ends in zip(items, shares[:, 0].tolist(), inside, strict=True)
        ]
        return {"predictions": [], "numbers": numbers}

    def predictions(self, items: Sequence[Item], shares: np.ndarray) -> list[dict[str, Any]]:
        """As ``Prediction`` has it."""
        given, sure = self.answer(self.clf, shares)
        return [
            {
                "label": str(label),
                "probability": share,
                "probabilities": dict(zip(self.labels, row, strict=True)),
                "truncated": item.truncated,
                **({"labels": list(map(str, label))} if self.clf.kind_.binary else {}),
                **({"abstains": True} if said is None else {}),
            }
            for item, label, share, row, said in zip(
                items, self.clf.decide(shares), sure, shares.tolist(), given, strict=True
            )
        ]

    def explain(self, given: str, method: str, target: str | None, options: dict[str, Any]) -> dict[str, Any]:
        """As ``ExplainResponse`` has it.

        Raises:
            Problem: too long, no such label, layer or head, a method without target, an unreadable picture.
        """
        from glassformer.explain.view import picture_url

        what = "image" if self.kind == "image" else "text"
        for name in options if method != "attention" else ():
            raise Problem(
                422, f"{method} has no option {name!r}", where=name, fix="Leave it out, or use attention"
            )
        self.check([given], what)
        if self.kind == "text":
            tokens, fix = self.prepare([given], what)[0].tokens, "Explain a part of it"
        else:
            tokens, fix = self.estimate([given]), "It takes a server with a larger --explain-tokens"
        if (self.of_tokens or self.kind == "image") and tokens > self.limits.explain_tokens:
            most = f"{tokens} tokens, explanations take {self.limits.explain_tokens} at most"
            raise Problem(413, most, where=what, fix=fix)
        x = self.opened(given, what)[0] if self.kind == "image" else given
        steps = {"max_steps": 128} if method == "integrated_gradients" else {}
        try:
            e = self.clf.explain(x, method=method, target=target, maps=False, **options, **steps)
        except InputError as error:
            raise of_input(error) from None
        pieces, special = ([], []) if e.image is not None else text_pieces(e)
        return {
            "model": self.name,
            "label": str(e.label),
            "probability": e.probability,
            "method": method,
            "target": None if e.target is None else str(e.target),
            "pieces": pieces,
            "second": second_piece(e),
            "special": special,
            "scores": [] if e.image is None else e.scores.astype(float).tolist(),
            "image": None if e.image is None else picture_url(e.image),
            "error": e.error,
            "settings": e.settings,
            "notes": notes_of(e),
        }

    @property
    def methods(self) -> list[str]:
        """Of explanation, the one to begin with first."""
        return methods_for(self.clf.model_)

    def about(self, calibrated: bool) -> dict[str, Any]:
        """As ``Model`` has it."""
        clf = self.clf
        encoder = getattr(clf.model_.config, "encoder", None)
        return {
            "name": self.name,
            "kind": self.kind,
            "gives": self.gives,
            "labels": self.labels,
            "examples": self.examples,
            "pairs": self.pairs,
            "max_length": clf.max_length if self.of_tokens else None,
            "size": list(clf.transform_.size) if self.kind == "image" else None,
            "precision": precision_of(clf.predictor()),
            "calibrated": calibrated,
            "temperature": 1.0 if np.ndim(clf.temperature_) else float(clf.temperature_),
            "temperatures": plain(clf.temperature_) if np.ndim(clf.temperature_) else None,
            "threshold": plain(clf.threshold_),
            "abstain_below": getattr(clf, "abstain_below_", None),
            "layers": getattr(encoder, "num_layers", None),
            "heads": getattr(encoder, "num_heads", None),
            "methods": self.methods,
            "channels": clf.transform_.channels if self.kind == "image" else None,
        }

    def opening(self) -> dict[str, Any]:
        """What ``Model`` has in addition to ``about``: what the page opens with, and how good it is."""
        own = self.examples[0] if self.examples else self.neutral
        return {
            "example": self.image if self.kind == "image" else own,
            "multi_label": self.gives == "labels" and bool(self.clf.kind_.binary),
            "score": self.score,
        }


def second_piece(e: Any) -> int | None:
    """The number of the piece that the second text of a pair begins with; None of one text."""
    if e.sides is None:
        return None
    starts = [
        start for (start, _), side, word in zip(e.offsets, e.sides, e.numbers) if side == 1 and word >= 0
    ]
    places = np.cumsum([0, *(len(piece["text"]) for piece in text_pieces(e)[0])])
    return int(np.searchsorted(places, min(starts, default=len(e.text))))


def text_pieces(e: Any) -> tuple[list[dict], list[dict]]:
    """The text in words and what stands between them, each word with its score; and the special tokens."""
    from glassformer.explain.result import per_word, word_spans

    numbers = e.numbers
    special = [
        {"text": name, "score": float(score)}
        for name, score, number in zip(e.tokens, e.scores, numbers, strict=True)
        if number < 0
    ]
    if numbers.max(initial=-1) < 0:
        return [{"text": e.text, "score": None}], special
    pieces, end = [], 0
    spans = word_spans(numbers, e.offsets)
    for (start, stop), score in zip(spans, per_word(e.scores, numbers), strict=True):
        if start > end:
            pieces.append({"text": e.text[end:start], "score": None})
        pieces.append({"text": e.text[start:stop], "score": float(score)})
        end = stop
    if end < len(e.text):
        pieces.append({"text": e.text[end:], "score": None})
    return pieces, special
