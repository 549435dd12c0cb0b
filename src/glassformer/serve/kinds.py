"""What is particular to a kind of served model: what it reads, computes and responds. ``KINDS`` lists them.

    request ──▶ Inputs.prepare ──▶ Inputs.join ──▶ Target.compute ──▶ Target.response ──▶ response
                an Item per        one batch       a row per          what the response
                input                              input              holds

Fields of requests and their checks are in ``schema.py``; all else is the same for all kinds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.config import plain
from glassformer.data.batching import pack_texts
from glassformer.data.image import FORMATS
from glassformer.data.image_bounds import check_file
from glassformer.data.questions import check_questions
from glassformer.data.tags import kind_of_tag
from glassformer.data.text import TokenTable, Windows
from glassformer.data.text_pairs import TextPair
from glassformer.data.transform import PixelTable
from glassformer.data.windows import joined_questions, joined_rows
from glassformer.errors import ConfigError, InputError
from glassformer.process import without_warnings
from glassformer.runtime import computing
from glassformer.serve import schema
from glassformer.serve.limits import Limits
from glassformer.serve.problems import Problem, of_input
from glassformer.targets.regression import bounds_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.similarity.answers import at_least, nearest
from glassformer.tasks.similarity.pairs import vectors_of

CHARS_PER_TOKEN = 3  # a guess before the tokenizer has seen a text
MOST_OVERLAP = 32  # windows that a token of a long text may stand in
Table = tuple[Sequence[str], Sequence[int], Sequence[Mapping[str, Any]]]  # texts, their rows, other columns


@dataclass(frozen=True)
class Item:
    """One input, ready to be batched."""

    encoded: Any  # what ``Inputs.join`` makes a batch of
    tokens: int
    truncated: bool = False
    given: Any = None  # the input itself, where a response needs it


# --- what a model reads ---------------------------------------------------------------------------


class Inputs:
    """Texts; each other kind of input replaces what it has otherwise.

    Raises:
        ConfigError: a model that cannot be served, where one is made.
    """

    kind: ClassVar[str] = "text"
    field: ClassVar[str] = "text"  # that an input to explain stands in, and the one that makes it long
    long_field: ClassVar[str] = "text"
    pair: Callable[..., Any] = staticmethod(TextPair)  # two texts as one input
    pairs = False
    neutral: Any = "This is an example. Write a text of your own here."  # where the recipe names no text
    too_long = "Explain a part of it"

    def __init__(self, clf: Any, limits: Limits, name: str):
        self.clf, self.limits = clf, limits
        self.max_length: int | None = clf.length_  # tokens that are read of a text; None: all
        self.most = limits.characters  # tokens that are computed of one text

    # Before the queue.

    def guess(self, x: Any) -> int:
        """Tokens that an input will have at most, or nearly so; costs nothing."""
        return min(len(x) // CHARS_PER_TOKEN + 2, self.most)

    def least(self, size: int) -> int:
        """Tokens that a body of ``size`` bytes has at least, as one ASCII text; fewer than ``guess``."""
        return min(size // (2 * CHARS_PER_TOKEN), self.most)

    def length(self, x: Any) -> int:
        """Characters of an input."""
        return len(x)

    def prepare(self, inputs: Sequence[Any], what: str = "inputs") -> list[Item]:
        """Raises Problem for an input that cannot be used; it is named."""
        try:
            return self.encode(inputs, what)
        except InputError as error:
            raise of_input(error) from None

    def encode(self, inputs: Sequence[Any], what: str) -> list[Item]:
        """``prepare`` as the library does it; raises InputError."""
        raise NotImplementedError

    async def prepared(self, threads: Any, inputs: Sequence[Any], what: str) -> list[Item]:
        """``prepare`` in one of the threads for it."""
        return await asyncio.get_running_loop().run_in_executor(threads, self.prepare, inputs, what)

    def trial(self, text: str) -> Item:
        """An input to try a model with, made of this text."""
        return self.prepare([self.pair(text, text) if self.pairs else text])[0]

    def to_explain(self, x: Any) -> tuple[Any, int]:
        """An input as ``explain`` of the estimator takes it, and its tokens."""
        return x, self.prepare([x], self.field)[0].tokens

    # After it.

    def join(self, items: Sequence[Item]) -> Any:
        """A batch, as ``Target.compute`` takes it."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """Fields of ``Model``."""
        return {}


class Texts(Inputs):
    """Texts or pairs of texts, cut or in windows."""

    def __init__(self, clf: Any, limits: Limits, name: str):
        self.clf, self.limits, self.pairs = clf, limits, bool(getattr(clf, "reads_pairs", False))
        self.of_tokens = clf.reads_tokens  # else a text counts by its length alone
        cut, stride = clf.long_texts == "cut", getattr(clf, "window_stride", None)
        self.max_length = clf.max_length if self.of_tokens else None
        self.most = clf.max_length if self.of_tokens and cut else limits.characters
        if self.pairs:
            self.neutral = ["A man plays a guitar.", "Somebody makes music."]
        if not cut and stride and stride * MOST_OVERLAP < clf.max_length:
            windows = f"its windows of {clf.max_length} tokens begin every {stride}"
            what = f"{windows}: a text is read {MOST_OVERLAP} times over"
            raise ConfigError(what, where=name, fix="Use a larger window_stride")

    def table(self, texts: list[str]) -> Windows:
        return self.clf.evaluation_table(texts)

    def encode(self, inputs: Sequence[str], what: str) -> list[Item]:
        windows = self.table(self.clf.check(inputs, what))
        table, owners, items = windows.table, windows.owners, []
        for i, text in enumerate(inputs):
            own = table.select([i] if owners is None else owners == i)
            # Features of a linear model: an n-gram more or less costs nothing.
            tokens = len(own.ids) if self.of_tokens else self.guess(text)
            items.append(Item(own, tokens, self.of_tokens and owners is None and bool(own.truncated[0])))
        return items

    def to_explain(self, x: str) -> tuple[str, int]:
        x, tokens = super().to_explain(x)
        return x, tokens if self.of_tokens else 0

    def join(self, items: Sequence[Item]) -> Windows:
        tables = [item.encoded for item in items]
        table = TokenTable.joined(tables)
        table = replace(table, truncated=np.zeros(len(table), bool))
        cut = getattr(self.clf, "long_texts", "cut") == "cut"
        owners = None if cut else np.repeat(np.arange(len(items)), list(map(len, tables)))
        return Windows(table, len(items), owners)


class TextsForVectors(Texts):
    """Texts one by one, each cut where the model ends to read."""

    of_tokens = True

    def __init__(self, clf: Any, limits: Limits, name: str):
        self.clf, self.limits = clf, limits
        self.max_length = self.most = clf.longest()  # opens a checkpoint as it is
        clf._how.check_cosine(name)

    def table(self, texts: list[str]) -> Windows:
        return Windows(self.clf.table(texts), len(texts))


class Sentences(Inputs):
    """Texts, which are split into words, or words."""

    neutral = "Ann left Rome on Monday ."

    def guess(self, x: str | Sequence[str]) -> int:
        return super().guess(x) if isinstance(x, str) else sum(len(word) // CHARS_PER_TOKEN + 1 for word in x)

    def length(self, x: str | Sequence[str]) -> int:
        return len(x) if isinstance(x, str) else sum(map(len, x)) + len(x) - 1

    def encode(self, inputs: Sequence[str | Sequence[str]], what: str) -> list[Item]:
        parts = [self.clf.encode([words]) for words in self.clf.words_of(list(inputs), what)]
        return [Item(rows, len(rows.table.ids), given=x) for x, rows in zip(inputs, parts, strict=True)]

    def join(self, items: Sequence[Item]) -> Any:
        return joined_rows([item.encoded for item in items])


class Questions(Inputs):
    """Questions with their contexts, (question, context) each."""

    pair = staticmethod(lambda question, context: (question, context))
    pairs, long_field = True, "text_pair"
    neutral = ("Where was Ada born?", "Ada was born in Hanoi in 1923.")

    def guess(self, x: Sequence[str]) -> int:
        return 2 * self.length(x) // CHARS_PER_TOKEN + 4

    def length(self, x: Sequence[str]) -> int:
        return sum(map(len, x))

    def encode(self, inputs: Sequence[Sequence[str]], what: str = "questions") -> list[Item]:
        questions = check_questions(list(map(tuple, inputs)), what)
        parts = [self.clf.encode([question]) for question in questions]
        return [
            Item(rows, len(rows.table.ids), bool(rows.table.truncated.any()), question)
            for question, rows in zip(questions, parts, strict=True)
        ]

    def join(self, items: Sequence[Item]) -> Any:
        return joined_questions([item.encoded for item in items])


class Images(Inputs):
    """Images in base64; each is opened, then decoded, in the threads of ``Decoding``."""

    kind, field, long_field, neutral = "image", "image", "image", None
    too_long = "It takes a server with a larger --explain-tokens"

    def __init__(self, clf: Any, limits: Limits, name: str):
        self.clf, self.limits, self.max_length = clf, limits, None
        self.most = clf.model_.config.embedding.num_tokens

    def guess(self, x: Any) -> int:
        return self.most

    def least(self, size: int) -> int:
        return self.most

    def length(self, x: Any) -> int:
        return 0

    async def prepared(self, threads: Any, inputs: Sequence[str], what: str) -> list[Item]:
        return await threads.items(self, inputs, what)

    def open_all(self, contents: Sequence[str], what: str) -> list[tuple[bytes, int]]:
        """Each image as ``opened`` gives it.

        Raises:
            Problem: one that cannot be used; it is named. Also, images that are too large together.
        """
        opened = [self.opened(content, f"{what}[{i}]") for i, content in enumerate(contents)]
        pixels = sum(pixels for _, pixels in opened)
        if pixels > self.limits.request_pixels:
            most = f"{pixels:,} pixels together, {self.limits.request_pixels:,} at most"
            raise Problem(413, most, where=what, fix="Send several requests, or scale them down")
        return opened

    def opened(self, content: str, where: str) -> tuple[bytes, int]:
        """Base64 as the bytes of an image, and the pixels that its header speaks of: few enough."""
        from PIL import Image

        try:
            found = base64.b64decode("".join(content.split()), validate=True)  # in lines, as base64 writes it
        except (binascii.Error, ValueError):
            what = "a URL, which is not opened" if ":" in content[:12] else "not base64"
            fix = "Send the file's bytes in base64, without a prefix"
            raise Problem(422, what, where=where, fix=fix) from None
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

    def decode(self, content: bytes, where: str) -> Item:
        """The bytes of an image as pixels ``[C, H, W]`` uint8; raises Problem for a damaged one."""
        try:
            return Item(self.clf.transform_.picture(content, where), self.most)
        except InputError as error:
            raise of_input(error) from None

    def trial(self, text: str) -> Item:
        shape = self.clf.transform_.channels, *self.clf.transform_.size
        return Item(np.zeros(shape, np.uint8), self.most)

    def to_explain(self, x: str) -> tuple[bytes, int]:
        return self.opened(x, self.field)[0], self.most

    def join(self, items: Sequence[Item]) -> PixelTable:
        return PixelTable(np.stack([item.encoded for item in items]))

    def about(self) -> dict[str, Any]:
        return {"size": list(self.clf.transform_.size), "channels": self.clf.transform_.channels}


# --- what a model gives ---------------------------------------------------------------------------


class Target:
    """What a fitted estimator gives for its inputs."""

    gives: ClassVar[str]  # as ``Model`` has it
    reads: ClassVar[Mapping[str, type[Inputs]]]  # by what the estimator calls its examples
    made_by: ClassVar[str | None] = None
    explains, of_words, multi_label, searches = True, False, False, False

    def __init__(self, clf: Any):
        self.clf = clf
        self.labels = list(map(str, clf.classes_.tolist()))

    def compute(self, model: Any, batch: Any, device: Any) -> Sequence[Any]:
        """A row for each input of a batch."""
        raise NotImplementedError

    def numbers(self, row: Any) -> np.ndarray:
        """The numbers of a row, which must be finite."""
        return row

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        """What is told of inputs; without a request as its defaults are."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """Fields of ``Model``."""
        return {}


class Labels(Target):
    """One class for each input, or several; rows are the probabilities ``[C]`` of ``predict_proba``."""

    gives = "labels"
    reads: ClassVar = {"texts": Texts, "pictures": Images}

    def __init__(self, clf: Any):
        super().__init__(clf)
        self.multi_label = bool(clf.kind_.binary)
        self.answer: Any = TASKS[clf.RECIPE.task].answer

    def compute(self, model: Any, batch: Any, device: Any) -> np.ndarray:
        return self.clf.chances(self.clf.table_rows(model, batch, "logits", device))

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        shares, top = np.stack(rows), getattr(request, "top", None)
        given, sure = self.answer(self.clf, shares)
        found = zip(items, self.clf.decide(shares), sure, shares.tolist(), given, strict=True)
        return {"predictions": [self._prediction(*one, top) for one in found]}

    def _prediction(self, item: Item, label: Any, share: float, row: list, said: Any, top: Any) -> dict:
        shares = dict(zip(self.labels, row, strict=True))
        if top is not None:
            shares = dict(sorted(shares.items(), key=lambda pair: -pair[1])[:top])
        return {
            "label": str(label),
            "probability": share,
            "probabilities": shares,
            "truncated": item.truncated,
            **({"labels": list(map(str, label))} if self.multi_label else {}),
            **({"abstains": True} if said is None else {}),
        }

    def about(self) -> dict[str, Any]:
        clf, each = self.clf, bool(np.ndim(self.clf.temperature_))
        return {
            "temperature": 1.0 if each else float(clf.temperature_),
            "temperatures": plain(clf.temperature_) if each else None,
            "threshold": plain(clf.threshold_),
            "abstain_below": getattr(clf, "abstain_below_", None),
        }


class Numbers(Labels):
    """A number for each input, with its interval where that is known."""

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        numbers = np.stack(rows)[:, 0]
        bounds = bounds_of(self.clf, numbers)
        inside = [{}] * len(items) if bounds is None else [{"interval": ends} for ends in bounds.tolist()]
        found = [
            {"number": number, **ends, "truncated": item.truncated}
            for item, number, ends in zip(items, numbers.tolist(), inside, strict=True)
        ]
        return {"predictions": [], "numbers": found}


class Tags(Target):
    """A tag for each word, and the spans that they mark; rows are probabilities ``[W, C]`` fp64."""

    gives, made_by, of_words = "tags", "a TokenTagger", True
    reads: ClassVar = {"sentences": Sentences}

    def compute(self, model: Any, batch: Any, device: Any) -> list[np.ndarray]:
        return [self.clf.chances(own) for own in batch.split(self.clf.word_logits(model, batch, device))]

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        given, out = [item.given for item in items], []
        for x, tags, spans in zip(given, self.clf.decide(rows), self.clf.spans(given, rows), strict=True):
            marked = [span.to_dict() for span in spans]
            for span in marked:
                span["label"] = span.pop("kind")
            text = x if isinstance(x, str) else " ".join(x)
            out.append({"text": text, "words": self.clf.words_of([x])[0], "tags": tags, "spans": marked})
        return {"sentences": out}

    def about(self) -> dict[str, Any]:
        spans = sorted({kind for tag in self.labels if (kind := kind_of_tag(tag, self.clf.scheme_))})
        return {"spans": spans, "temperature": float(self.clf.temperature_)}


class QuestionAnswers(Target):
    """Spans of contexts that answer questions; rows are the candidates of each."""

    gives, made_by = "answers", "a QuestionAnswerer"
    reads: ClassVar = {"questions": Questions}

    def __init__(self, clf: Any):
        self.clf, self.labels = clf, ["answer", "no answer"]

    def compute(self, model: Any, batch: Any, device: Any) -> Any:
        return self.clf.best(self.clf.token_logits(model, batch, device), batch)

    def numbers(self, row: Any) -> np.ndarray:
        return np.array([row.null, *(score for score, _, _ in row.spans)])

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        out, count = [], getattr(request, "n_best", 1)
        for item, ranked in zip(items, self.clf.answers([i.given for i in items], count, rows), strict=True):
            best, *others = (
                {"answer": own.text, "start": own.start, "end": own.end, "probability": own.probability}
                for own in ranked
            )
            out.append({**best, "others": others, "truncated": item.truncated})
        return {"answers": out}

    def about(self) -> dict[str, Any]:
        return {"no_answer_threshold": self.clf.threshold_}


class Vectors(Target):
    """A vector for each text, of length 1; rows are ``[E]`` fp32."""

    gives, made_by, explains, searches = "vectors", "an Embedder", False, True
    reads: ClassVar = {"texts": TextsForVectors}

    def __init__(self, clf: Any):
        self.clf, self.labels = clf, []

    def compute(self, model: Any, batch: Any, device: Any) -> np.ndarray:
        with computing():
            packed = pack_texts(batch.table, np.arange(batch.texts), device)
            return vectors_of(model, packed, self.clf.skipped()).float().cpu().numpy()

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        return {"vectors": np.stack(rows).tolist(), "truncated": [item.truncated for item in items]}

    def about(self) -> dict[str, Any]:
        return {"calibrated": False, "searched": self.searched}

    def explain_pair(self, a: str, b: str) -> dict[str, Any]:
        """As ``PairExplanation`` has it; raises Problem where vectors are no sums over tokens."""
        try:
            found = self.clf.explain_similarity(a, b)
        except InputError as error:
            raise of_input(error) from None
        tokens, notes = [found.tokens_a, found.tokens_b], list(found.notes)
        return {"cosine": found.score, "tokens": tokens, "table": found.table.tolist(), "notes": notes}

    def search_in(self, given: Path | Table) -> None:
        """Search in this list from now on: a saved index, or texts with their rows and other columns.

        Raises:
            InputError: an index of other weights or a damaged one, or a text that cannot be used.
        """
        if isinstance(given, Path):
            self.clf.load_index(given)
        else:
            self.clf.index(*given)

    @property
    def searched(self) -> int | None:
        """How many texts the list has; None: there is none."""
        index = getattr(self.clf, "index_", None)
        return None if index is None else len(index)

    def look_up(self, vectors: np.ndarray, count: int, least: float | None) -> list[dict[str, Any]]:
        """As ``SearchAnswer`` has it, of texts with these vectors ``[n, E]``."""
        index, out = self.clf.index_, []
        for places, cosines in zip(*nearest(vectors, index.vectors, count), strict=True):
            found = [
                {
                    "row": index.row(int(i)),
                    "cosine": float(c),
                    "text": index.texts[i],
                    "columns": {
                        name: None if isinstance(value, float) and not math.isfinite(value) else value
                        for name, value in index.columns(int(i)).get("columns", {}).items()
                    },
                }
                for i, c in zip(places, cosines, strict=True)
                if at_least(c, least)
            ]
            out.append({"found": found, "nearest": float(cosines[0])})
        return out


# What a task gives, as its record says it. A request without a model's name goes to the first that fits.
KINDS: dict[str, type[Target]] = {
    "labels": Labels,
    "numbers": Numbers,
    "answers": QuestionAnswers,
    "tags": Tags,
    "vectors": Vectors,
}


# --- where a model is asked ------------------------------------------------------------------------


async def _response(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    return served.response(items, rows, request)


@dataclass(frozen=True)
class Route:
    """A path that is posted to, and how a response is made of what a model gave for the inputs."""

    path: str
    gives: str  # the kind of model that is asked here, of ``KINDS``
    summary: str
    request: type[schema.Request]
    response: type[schema.Strict]
    respond: Callable[..., Awaitable[dict]] = _response  # (server, served, request, items, rows)
    lacks: Callable[[Any], Problem | None] = lambda target: None  # what a model of that kind has not


async def _similar(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    vectors, found = np.stack(rows), None
    if request.explain:
        served.check_explained(sum(item.tokens for item in items), "pairs[0]")
        call, fix = served.target.explain_pair, "Explain a shorter text"
        found = await server.explain(call, *request.pairs[0], fix=fix)
    return {
        "cosines": (vectors[::2] * vectors[1::2]).sum(1).tolist(),
        "truncated": [a.truncated or b.truncated for a, b in zip(items[::2], items[1::2], strict=True)],
        "explanation": found,
    }


async def _search(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    look_up = partial(served.target.look_up, np.stack(rows), request.count, request.least)
    try:  # a long list takes a while: in the thread that computes
        async with asyncio.timeout(server.limits.seconds):
            answers = await asyncio.get_running_loop().run_in_executor(server.computing, look_up)
    except TimeoutError:
        what = f"not searched within {server.limits.seconds:g} s"
        raise Problem(503, what, fix="Try again in a moment", again=2) from None
    return {"answers": answers, "truncated": [item.truncated for item in items]}


def _lacks_list(target: Any) -> Problem | None:
    what, fix = "this model has no list to search in", "Start the server with --search TABLE or INDEX"
    return Problem(422, what, where="model", fix=fix) if target.searched is None else None


ROUTES: dict[str, Route] = {
    route.path: route
    for route in (
        Route("/v1/predict", "labels", "Labels", schema.PredictRequest, schema.PredictResponse),
        Route("/v1/tag", "tags", "Tags of words, and spans", schema.TagRequest, schema.TagResponse),
        Route("/v1/answer", "answers", "Answers from a text", schema.AnswerRequest, schema.AnswerResponse),
        Route("/v1/embed", "vectors", "Vectors of texts", schema.EmbedRequest, schema.EmbedResponse),
        Route(
            "/v1/similar",
            "vectors",
            "How alike two texts are",
            schema.SimilarRequest,
            schema.SimilarResponse,
            _similar,
        ),
        Route(
            "/v1/search",
            "vectors",
            "The nearest texts of a list",
            schema.SearchRequest,
            schema.SearchResponse,
            _search,
            _lacks_list,
        ),
    )
}


def paths_of(gives: str) -> list[str]:
    """Where models are asked that give this."""
    return [route.path for route in ROUTES.values() if route.gives == gives]
