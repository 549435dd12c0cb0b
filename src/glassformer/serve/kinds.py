"""Output kinds of served models (labels, numbers, tags, ...): what they compute and respond.

    request ──▶ Served.encode ──▶ Served.join ──▶ Target.compute ──▶ Target.response ──▶ response
                an Item per       one batch       a row per          what the response
                input                             input              holds

``ServedInputs`` of ``inputs/`` defines what a model reads. Fields of requests and their checks are in
``schema.py``; everything else is the same for all kinds. ``KINDS`` lists the kinds.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.config import plain
from glassformer.data.batching import pack_texts
from glassformer.data.tags import tag_kind
from glassformer.errors import InputError
from glassformer.inputs.inputs import Item
from glassformer.runtime import computing
from glassformer.serve import schema
from glassformer.serve.problems import Problem, input_problem
from glassformer.targets.regression import bounds_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.similarity.estimator import at_least, nearest
from glassformer.tasks.similarity.pairs import vectors_of

Table = tuple[Sequence[str], Sequence[int], Sequence[Mapping[str, Any]]]  # texts, their rows, other columns


# --- output kinds ---------------------------------------------------------------------------------


class Target(ABC):
    """Computes the outputs of a fitted estimator, and the response made from them."""

    gives: ClassVar[str]  # value of ``gives`` in ``schema.Model``
    made_by: ClassVar[str | None] = None
    explains, of_words, multi_label, searches = True, False, False, False

    def __init__(self, clf: Any):
        self.clf = clf
        self.labels = list(map(str, clf.classes_.tolist()))

    @abstractmethod
    def compute(self, model: Any, batch: Any, device: Any) -> Sequence[Any]:
        """One row of outputs for each input of a batch."""

    def numbers(self, row: Any) -> np.ndarray:
        """The numbers of a row, which must be finite."""
        return row

    @abstractmethod
    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        """The response for some inputs; without a request, with the default options."""

    def about(self) -> dict[str, Any]:
        """Additional fields of ``schema.Model``."""
        return {}


class Labels(Target):
    """Labels, also multi-label; rows are the probabilities ``[C]`` of ``predict_proba``."""

    gives = "labels"

    def __init__(self, clf: Any):
        super().__init__(clf)
        self.multi_label = bool(clf.kind_.is_multilabel)
        self.answer: Any = TASKS[clf.RECIPE.task].answer

    def compute(self, model: Any, batch: Any, device: Any) -> np.ndarray:
        return self.clf.to_probabilities(self.clf.table_outputs(model, batch, "logits", device))

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        shares, top = np.stack(rows), getattr(request, "top", None)
        returned, confidences = self.answer(self.clf, shares)
        fields = zip(items, self.clf.decide(shares), confidences, shares.tolist(), returned, strict=True)
        return {"predictions": [self._prediction(*values, top) for values in fields]}

    def _prediction(
        self, item: Item, label: Any, probability: float, row: list, returned: Any, top: Any
    ) -> dict:
        probabilities = dict(zip(self.labels, row, strict=True))
        if top is not None:
            probabilities = dict(sorted(probabilities.items(), key=lambda pair: -pair[1])[:top])
        return {
            "label": str(label),
            "probability": probability,
            "probabilities": probabilities,
            "truncated": item.truncated,
            **({"labels": list(map(str, label))} if self.multi_label else {}),
            **({"abstains": True} if returned is None else {}),
        }

    def about(self) -> dict[str, Any]:
        clf, per_label = self.clf, bool(np.ndim(self.clf.temperature_))
        return {
            "temperature": 1.0 if per_label else float(clf.temperature_),
            "temperatures": plain(clf.temperature_) if per_label else None,
            "threshold": plain(clf.threshold_),
            "abstain_below": getattr(clf, "abstain_below_", None),
        }


class Numbers(Labels):
    """Numbers with prediction intervals, if known."""

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        numbers = np.stack(rows)[:, 0]
        bounds = bounds_of(self.clf, numbers)
        inside = [{}] * len(items) if bounds is None else [{"interval": ends} for ends in bounds.tolist()]
        predictions = [
            {"number": number, **ends, "truncated": item.truncated}
            for item, number, ends in zip(items, numbers.tolist(), inside, strict=True)
        ]
        return {"predictions": [], "numbers": predictions}


class Tags(Target):
    """Tags of words, and spans; rows are probabilities ``[W, C]`` in fp64."""

    gives, made_by, of_words = "tags", "a TokenTagger", True

    def compute(self, model: Any, batch: Any, device: Any) -> list[np.ndarray]:
        return [
            self.clf.to_probabilities(logits)
            for logits in batch.split(self.clf.word_logits(model, batch, device))
        ]

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        inputs, out = [item.original for item in items], []
        for x, tags, spans in zip(inputs, self.clf.decide(rows), self.clf.spans(inputs, rows), strict=True):
            span_fields = [span.to_dict() for span in spans]
            for span in span_fields:
                span["label"] = span.pop("kind")
            text = x if isinstance(x, str) else " ".join(x)
            out.append({"text": text, "words": self.clf.words_of([x])[0], "tags": tags, "spans": span_fields})
        return {"sentences": out}

    def about(self) -> dict[str, Any]:
        spans = sorted({kind for tag in self.labels if (kind := tag_kind(tag, self.clf.scheme_))})
        return {"spans": spans, "temperature": float(self.clf.temperature_)}


class QuestionAnswers(Target):
    """Answers to questions, as spans of contexts; rows are the candidate spans of each question."""

    gives, made_by = "answers", "a QuestionAnswerer"

    def __init__(self, clf: Any):
        self.clf, self.labels = clf, ["answer", "no answer"]

    def compute(self, model: Any, batch: Any, device: Any) -> Any:
        return self.clf.best(self.clf.token_logits(model, batch, device), batch)

    def numbers(self, row: Any) -> np.ndarray:
        return np.array([row.null, *(score for score, _, _ in row.spans)])

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        out, count = [], getattr(request, "n_best", 1)
        for item, ranked in zip(
            items, self.clf.answers([i.original for i in items], count, rows), strict=True
        ):
            best, *others = (
                {
                    "answer": answer.text,
                    "start": answer.start,
                    "end": answer.end,
                    "probability": answer.probability,
                }
                for answer in ranked
            )
            out.append({**best, "others": others, "truncated": item.truncated})
        return {"answers": out}

    def about(self) -> dict[str, Any]:
        return {"no_answer_threshold": self.clf.threshold_}


class Vectors(Target):
    """Normalized embeddings of texts; rows are ``[E]`` fp32."""

    gives, made_by, explains, searches = "vectors", "an Embedder", False, True

    def __init__(self, clf: Any):
        self.clf, self.labels = clf, []

    def compute(self, model: Any, batch: Any, device: Any) -> np.ndarray:
        with computing():
            packed = pack_texts(batch.table, np.arange(batch.texts), device)
            return vectors_of(model, packed, self.clf.num_prompt_tokens()).float().cpu().numpy()

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        return {"vectors": np.stack(rows).tolist(), "truncated": [item.truncated for item in items]}

    def about(self) -> dict[str, Any]:
        return {"calibrated": False, "searched": self.searched}

    def explain_pair(self, a: str, b: str) -> dict[str, Any]:
        """Fields of ``schema.PairExplanation``; raises Problem if embeddings are not sums over tokens."""
        try:
            explanation = self.clf.explain_similarity(a, b)
        except InputError as error:
            raise input_problem(error) from None
        tokens, notes = [explanation.tokens_a, explanation.tokens_b], list(explanation.notes)
        return {
            "cosine": explanation.score,
            "tokens": tokens,
            "table": explanation.table.tolist(),
            "notes": notes,
        }

    def search_in(self, source: Path | Table) -> None:
        """Set the texts to search: a saved index, or texts with their rows and other columns.

        Raises:
            InputError: an index made with other weights, a damaged index, or a text that cannot be used.
        """
        if isinstance(source, Path):
            self.clf.load_index(source)
        else:
            self.clf.index(*source)

    @property
    def searched(self) -> int | None:
        """Number of texts to search; None: there are none."""
        index = getattr(self.clf, "index_", None)
        return None if index is None else len(index)

    def look_up(self, vectors: np.ndarray, count: int, least: float | None) -> list[dict[str, Any]]:
        """Fields of ``schema.SearchAnswer`` for queries with embeddings ``[n, E]``."""
        index, out = self.clf.index_, []
        for places, cosines in zip(*nearest(vectors, index.vectors, count), strict=True):
            results = [
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
            out.append({"found": results, "nearest": float(cosines[0])})
        return out


# ``gives`` of a task -> its output kind. A request without a model name goes to the first model that fits.
KINDS: dict[str, type[Target]] = {
    "labels": Labels,
    "numbers": Numbers,
    "answers": QuestionAnswers,
    "tags": Tags,
    "vectors": Vectors,
}


# --- routes ----------------------------------------------------------------------------------------


async def _response(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    return served.response(items, rows, request)


@dataclass(frozen=True)
class Route:
    """A path for POST requests, and the function that makes the response."""

    path: str
    gives: str  # output kind, a key of ``KINDS``
    summary: str
    request: type[schema.Request]
    response: type[schema.Strict]
    respond: Callable[..., Awaitable[dict]] = _response  # (server, served, request, items, rows)
    lacks: Callable[[Any], Problem | None] = lambda target: None  # the error if a model lacks something


async def _similar(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    vectors, explanation = np.stack(rows), None
    if request.explain:
        served.check_explained(sum(item.tokens for item in items), "pairs[0]")
        call, fix = served.target.explain_pair, "Explain a shorter text"
        explanation = await server.explain(call, *request.pairs[0], fix=fix)
    return {
        "cosines": (vectors[::2] * vectors[1::2]).sum(1).tolist(),
        "truncated": [a.truncated or b.truncated for a, b in zip(items[::2], items[1::2], strict=True)],
        "explanation": explanation,
    }


async def _search(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    look_up = partial(served.target.look_up, np.stack(rows), request.count, request.least)
    try:  # in the computing thread, because a long list takes a while
        async with asyncio.timeout(server.limits.seconds):
            answers = await asyncio.get_running_loop().run_in_executor(server.computing, look_up)
    except TimeoutError:
        what = f"the search took longer than {server.limits.seconds:g} s"
        raise Problem(503, what, fix="Try again in a moment", retry_after=2) from None
    return {"answers": answers, "truncated": [item.truncated for item in items]}


def _no_search_texts(target: Any) -> Problem | None:
    what, fix = "this model has no texts to search", "Start the server with --search TABLE or INDEX"
    return Problem(422, what, where="model", fix=fix) if target.searched is None else None


ROUTES: dict[str, Route] = {
    route.path: route
    for route in (
        Route("/v1/predict", "labels", "Labels", schema.PredictRequest, schema.PredictResponse),
        Route("/v1/tag", "tags", "Tags of words, and spans", schema.TagRequest, schema.TagResponse),
        Route("/v1/answer", "answers", "Answers from a text", schema.AnswerRequest, schema.AnswerResponse),
        Route("/v1/embed", "vectors", "Embeddings of texts", schema.EmbedRequest, schema.EmbedResponse),
        Route(
            "/v1/similar",
            "vectors",
            "Similarity of two texts",
            schema.SimilarRequest,
            schema.SimilarResponse,
            _similar,
        ),
        Route(
            "/v1/search",
            "vectors",
            "Semantic search in a list of texts",
            schema.SearchRequest,
            schema.SearchResponse,
            _search,
            _no_search_texts,
        ),
    )
}


def paths_of(gives: str) -> list[str]:
    """Paths for models with this output kind."""
    return [route.path for route in ROUTES.values() if route.gives == gives]
