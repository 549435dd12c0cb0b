"""Output kinds of served models, such as labels or tags, and their routes.

    request ──▶ ServedInputs.encode ──▶ ServedInputs.join ──▶ Output.compute ──▶ Output.response
                one Item per input      one batch             one row per input  fields of the response

``ServedInputs`` in ``inputs/`` defines the inputs of a model. ``schema.py`` defines and checks the fields of
requests. ``KINDS`` lists the output kinds.
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

from glassformer.config import to_json_types
from glassformer.data.batching import pack_texts
from glassformer.data.tags import tag_kind
from glassformer.errors import InputError
from glassformer.inputs.inputs import Item
from glassformer.runtime import isolated_torch
from glassformer.serve import schema
from glassformer.serve.problems import Problem, input_problem
from glassformer.targets.regression import bounds_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.similarity.pairs import embed_batch
from glassformer.tasks.similarity.search import at_least, nearest

Table = tuple[Sequence[str], Sequence[int], Sequence[Mapping[str, Any]]]  # texts, row numbers, other columns


# --- output kinds ---------------------------------------------------------------------------------


class Output(ABC):
    """Computes the outputs of a fitted estimator, and creates responses from them."""

    output_kind: ClassVar[str]  # value of ``gives`` in ``schema.Model``
    estimator_name: ClassVar[str | None] = None  # estimator for this kind, for messages
    can_explain, is_per_word, multi_label, can_search = True, False, False, False

    def __init__(self, clf: Any):
        self.clf = clf
        self.labels = list(map(str, clf.classes_.tolist()))

    @abstractmethod
    def compute(self, model: Any, batch: Any, device: Any) -> Sequence[Any]:
        """Compute the outputs of a batch, one row per input."""

    def values(self, row: Any) -> np.ndarray:
        """The numbers in a row, which must be finite."""
        return row

    @abstractmethod
    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        """Fields of the response; ``request`` has options such as ``top`` (None: the defaults)."""

    def model_fields(self) -> dict[str, Any]:
        """Additional fields of ``schema.Model``."""
        return {}


class Labels(Output):
    """Labels of classifiers. A row has the probabilities ``[C]`` of ``predict_proba``."""

    output_kind = "labels"

    def __init__(self, clf: Any):
        super().__init__(clf)
        self.multi_label = bool(clf.kind_.is_multilabel)
        self.predict: Any = TASKS[clf.RECIPE.task].answer

    def compute(self, model: Any, batch: Any, device: Any) -> np.ndarray:
        return self.clf.to_probabilities(self.clf.table_outputs(model, batch, "logits", device))

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        probabilities, top = np.stack(rows), getattr(request, "top", None)
        predicted, confidences = self.predict(self.clf, probabilities)
        fields = zip(
            items, self.clf.decide(probabilities), confidences, probabilities.tolist(), predicted, strict=True
        )
        return {"predictions": [self._prediction(*values, top) for values in fields]}

    def _prediction(self, item: Item, label: Any, p: float, row: list, predicted: Any, top: Any) -> dict:
        """Fields of ``schema.Prediction``; ``predicted`` is None if the model abstains."""
        probabilities = dict(zip(self.labels, row, strict=True))
        if top is not None:
            probabilities = dict(sorted(probabilities.items(), key=lambda pair: -pair[1])[:top])
        return {
            "label": str(label),
            "probability": p,
            "probabilities": probabilities,
            "truncated": item.truncated,
            **({"labels": list(map(str, label))} if self.multi_label else {}),
            **({"abstains": True} if predicted is None else {}),
        }

    def model_fields(self) -> dict[str, Any]:
        clf, per_label = self.clf, bool(np.ndim(self.clf.temperature_))
        return {
            "temperature": 1.0 if per_label else float(clf.temperature_),
            "temperatures": to_json_types(clf.temperature_) if per_label else None,
            "threshold": to_json_types(clf.threshold_),
            "abstain_below": getattr(clf, "abstain_below_", None),
        }


class Numbers(Labels):
    """Numbers of regressors, with prediction intervals if the model has them."""

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        numbers = np.stack(rows)[:, 0]
        bounds = bounds_of(self.clf, numbers)
        intervals = [{}] * len(items) if bounds is None else [{"interval": ends} for ends in bounds.tolist()]
        predictions = [
            {"number": number, **interval, "truncated": item.truncated}
            for item, number, interval in zip(items, numbers.tolist(), intervals, strict=True)
        ]
        return {"predictions": [], "numbers": predictions}


class Tags(Output):
    """Tags of words, and spans. A row has the probabilities ``[W, C]`` in fp64."""

    output_kind, estimator_name, is_per_word = "tags", "a TokenTagger", True

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

    def model_fields(self) -> dict[str, Any]:
        spans = sorted({kind for tag in self.labels if (kind := tag_kind(tag, self.clf.scheme_))})
        return {"spans": spans, "temperature": float(self.clf.temperature_)}


class QuestionAnswers(Output):
    """Answers to questions, as spans of contexts. A row has the candidate spans of one question."""

    output_kind, estimator_name = "answers", "a QuestionAnswerer"

    def __init__(self, clf: Any):
        self.clf, self.labels = clf, ["answer", "no answer"]

    def compute(self, model: Any, batch: Any, device: Any) -> Any:
        return self.clf.span_candidates(self.clf.token_logits(model, batch, device), batch)

    def values(self, row: Any) -> np.ndarray:
        return np.array([row.null, *(score for score, _, _ in row.spans)])

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        out = []
        answers = self.clf.answers([item.original for item in items], getattr(request, "n_best", 1), rows)
        for item, ranked in zip(items, answers, strict=True):
            best, *others = (
                {"answer": a.text, "start": a.start, "end": a.end, "probability": a.probability}
                for a in ranked
            )
            out.append({**best, "others": others, "truncated": item.truncated})
        return {"answers": out}

    def model_fields(self) -> dict[str, Any]:
        return {"no_answer_threshold": self.clf.threshold_}


class Vectors(Output):
    """Normalized embeddings of texts. A row is an embedding ``[E]`` in fp32."""

    output_kind, estimator_name, can_explain, can_search = "vectors", "an Embedder", False, True

    def __init__(self, clf: Any):
        self.clf, self.labels = clf, []

    def compute(self, model: Any, batch: Any, device: Any) -> np.ndarray:
        with isolated_torch():
            packed = pack_texts(batch.table, np.arange(batch.num_texts), device)
            return embed_batch(model, packed, self.clf.num_prompt_tokens()).float().cpu().numpy()

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        return {"vectors": np.stack(rows).tolist(), "truncated": [item.truncated for item in items]}

    def model_fields(self) -> dict[str, Any]:
        return {"calibrated": False, "searched": self.num_searched}

    def explain_pair(self, a: str, b: str) -> dict[str, Any]:
        """Fields of ``schema.PairExplanation``; raises Problem if embeddings are not sums over tokens."""
        try:
            explanation = self.clf.explain_similarity(a, b)
        except InputError as error:
            raise input_problem(error) from None
        return {
            "cosine": explanation.score,
            "tokens": [explanation.tokens_a, explanation.tokens_b],
            "table": explanation.table.tolist(),
            "notes": list(explanation.notes),
        }

    def set_search_texts(self, source: Path | Table) -> None:
        """Set the texts to search, as a saved index or as a table.

        Raises:
            InputError: the index is damaged or was made with other weights, or a text cannot be used.
        """
        if isinstance(source, Path):
            self.clf.load_index(source)
        else:
            self.clf.index(*source)

    @property
    def num_searched(self) -> int | None:
        """Number of texts to search; None if there are none."""
        index = getattr(self.clf, "index_", None)
        return None if index is None else len(index)

    def search(self, vectors: np.ndarray, count: int, least: float | None) -> list[dict[str, Any]]:
        """Fields of ``schema.SearchAnswer`` for queries with embeddings ``[n, E]``.

        Args:
            least: minimum cosine of a result; None: no minimum.
        """
        index, out = self.clf.index_, []
        for indices, cosines in zip(*nearest(vectors, index.vectors, count), strict=True):
            results = [
                {
                    "row": index.row(int(i)),
                    "cosine": float(cosine),
                    "text": index.texts[i],
                    "columns": {
                        name: None if isinstance(value, float) and not math.isfinite(value) else value
                        for name, value in index.columns(int(i)).get("columns", {}).items()
                    },
                }
                for i, cosine in zip(indices, cosines, strict=True)
                if at_least(cosine, least)
            ]
            out.append({"found": results, "nearest": float(cosines[0])})
        return out


# ``output_kind`` of a task -> its class. A request for an explanation without a model uses the first kind
# that has a model.
KINDS: dict[str, type[Output]] = {
    "labels": Labels,
    "numbers": Numbers,
    "answers": QuestionAnswers,
    "tags": Tags,
    "vectors": Vectors,
}


# --- routes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """A path for POST requests, and the function that creates the response."""

    path: str
    output_kind: str  # key of ``KINDS``
    summary: str
    request: type[schema.Request]
    response: type[schema.Strict]
    # called with server, served, request, items, rows; None: ``Output.response`` creates the response
    respond: Callable[..., Awaitable[dict]] | None = None
    find_missing: Callable[[Any], Problem | None] = lambda output: None  # see ``Server.select_model``


async def _similar(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    vectors, explanation = np.stack(rows), None
    if request.explain:
        served.check_explained(sum(item.tokens for item in items), "pairs[0]")
        explain, fix = served.output.explain_pair, "Explain a shorter text"
        explanation = await server.explain(explain, *request.pairs[0], fix=fix)
    return {
        "cosines": (vectors[::2] * vectors[1::2]).sum(1).tolist(),
        "truncated": [a.truncated or b.truncated for a, b in zip(items[::2], items[1::2], strict=True)],
        "explanation": explanation,
    }


async def _search(server: Any, served: Any, request: Any, items: list[Item], rows: list[Any]) -> dict:
    search = partial(served.output.search, np.stack(rows), request.count, request.least)
    try:  # not in the event loop, because searching many texts takes a while
        async with asyncio.timeout(server.limits.seconds):
            answers = await asyncio.get_running_loop().run_in_executor(server.computing, search)
    except TimeoutError:
        what = f"the search took longer than {server.limits.seconds:g} s"
        raise Problem(503, what, fix="Try again in a moment", retry_after=2) from None
    return {"answers": answers, "truncated": [item.truncated for item in items]}


def _no_search_texts(output: Any) -> Problem | None:
    what, fix = "this model has no texts to search", "Start the server with --search TABLE or INDEX"
    return Problem(422, what, where="model", fix=fix) if output.num_searched is None else None


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


def route_paths(output_kind: str) -> list[str]:
    """The paths for models of this output kind."""
    return [route.path for route in ROUTES.values() if route.output_kind == output_kind]
