"""Served models: loading, a trial prediction, predictions, explanations, and descriptions.

Code for output kinds is in ``kinds.py``. A model that cannot be loaded does not stop the others.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer import outputs
from glassformer.checkpoints.catalog import is_named
from glassformer.errors import (
    CheckpointError,
    ConfigError,
    InputError,
    NotARunError,
    NotForThisModelError,
    with_article,
)
from glassformer.explain.methods import default_method, methods_for, notes_with_interpretation
from glassformer.finite import finite
from glassformer.inputs.inputs import Item
from glassformer.nn.int8 import precision_of
from glassformer.reading import read_regular
from glassformer.runtime import choose_dtype
from glassformer.serve.kinds import KINDS, Table
from glassformer.serve.limits import Limits
from glassformer.serve.problems import Problem, input_problem, printable, too_many
from glassformer.targets import target_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.similarity.estimator import Embedder

log = logging.getLogger("glassformer.serve")

EXAMPLES, EXAMPLE_CHARACTERS = 6, 2_000  # sentences on the page, and characters of each
MAX_METRICS_BYTES, MAX_IMAGE_BYTES = 64 << 20, 1 << 20
# Main metrics; the first that a run has is shown: spans, answers, labels, numbers, similarity
MAIN_METRICS = ("entity_f1", "f1", "accuracy", "r2", "mae", "spearman", "found")


class ServedModel:
    """A named model of the server.

    Args:
        clf: a fitted estimator.
        threads, precision: see ``FitConfig``.
        examples: example texts for the page.

    Raises:
        ConfigError: the estimator cannot be served, or there is no such precision.
    """

    score: dict[str, Any] | None = None  # fields of ``schema.Score``, from the model's run
    image: str | None = None  # example image in base64

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
        choose_dtype(precision, torch.device("cpu"))  # raises for a wrong value before anything is served
        gives = TASKS[clf.RECIPE.task].gives if hasattr(clf, "RECIPE") else None
        if gives is None:
            supported = (
                "only classifiers, regressors, embedders, taggers and question answerers can be served"
            )
            raise NotForThisModelError(f"holds {with_article(type(clf).__name__)}; {supported}", where=name)
        self.name, self.clf, self.limits = name, clf, limits
        self.inputs: Any = clf.INPUTS.served(clf, limits, name)
        self.target: Any = KINDS[gives](clf)
        self.kind, self.pairs, self.gives = self.inputs.kind, self.inputs.pairs, self.target.gives
        # A recipe's sentences are single texts.
        self.examples = list(examples)[:EXAMPLES] if isinstance(self.inputs.neutral, str) else []
        clf.threads, clf.precision = threads, precision

    # --- predictions -----------------------------------------------------------------------------

    def check(self, inputs: Sequence[Any], field: str) -> None:
        """Raise Problem for too many or too long inputs; decodes nothing."""
        if len(inputs) > self.limits.inputs:
            raise too_many(len(inputs), self.limits.inputs, field)
        for i, x in enumerate(inputs):
            if (length := self.inputs.length(x)) > self.limits.characters:
                message = f"{length:,} characters, {self.limits.characters:,} at most"
                raise Problem(413, message, where=f"{field}[{i}]", fix="Cut it")

    def prepare(self, inputs: Sequence[Any], field: str = "inputs") -> list[Item]:
        """Encode inputs for the model; raises Problem for one that cannot be used."""
        try:
            return self.inputs.encode(inputs, field)
        except InputError as error:
            raise input_problem(error) from None

    def compute(self, items: Sequence[Item]) -> list[Any]:
        """One row of outputs per input; see ``Target.compute``."""
        model = self.clf.predictor()
        device = next(model.parameters()).device
        return list(self.target.compute(model, self.inputs.join(items), device))

    def check_answers(self, rows: list[Any]) -> list[Any]:
        """Return outputs of ``compute`` unchanged; raises NotFiniteError for NaN and infinity."""
        for row in rows:
            finite(self.target.numbers(row))
        return rows

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        """The response for these inputs, without the model's name; ``request`` has options."""
        return self.target.response(items, rows, request)

    def smoke_test(self) -> None:
        """Predict one small input, to find broken models.

        Raises:
            CheckpointError: the prediction fails, or is NaN or infinite.
        """
        try:
            item = self.inputs.trial("a")
        except InputError as error:
            raise CheckpointError(f"does not answer: {error.what}", where=self.name) from None
        try:
            self.check_answers(self.compute([item]))
        except (InputError, MemoryError):
            raise
        except Exception as error:  # any error from weights and settings that do not match
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise CheckpointError(f"does not answer: {reason}", where=self.name) from None

    def warm_up(self) -> None:
        """Compute a full batch and a single input, so that the first request is fast, and the memory of the
        largest batch is allocated now.
        """
        item = self.inputs.trial("a word " * min(200, self.inputs.max_length or 200))
        max_tokens = min(self.limits.batch_tokens, self.limits.queue_tokens)
        self.compute([item] * max(1, max_tokens // item.tokens))
        self.compute([self.inputs.trial("a")])

    # --- explanations ----------------------------------------------------------------------------

    def check_explained(self, tokens: int, where: str) -> None:
        """Raise Problem if the number of tokens is too large for an explanation."""
        if tokens > self.limits.explain_tokens:
            message = f"{tokens} tokens, explanations take {self.limits.explain_tokens} at most"
            raise Problem(413, message, where=where, fix=self.inputs.too_long)

    def explain(
        self, sent: Any, method: str | None, target: str | None, options: dict[str, Any], word: Any = None
    ) -> dict[str, Any]:
        """Explain one input; returns the fields of ``schema.ExplainResponse``.

        Args:
            word: for taggers: the word to explain; None: the first one in a span.

        Raises:
            Problem: the input is too long or cannot be read, there is no such label, word, layer or head, or
                the method has no target.
        """
        from glassformer.explain.view import image_data_url

        method = method or default_method(self.clf, options)
        for name in options if method != "attention" else ():
            fix = "Leave it out, or use attention"
            raise Problem(422, f"{method} has no option {name!r}", where=name, fix=fix)
        self.check([sent], self.inputs.field)
        try:
            x, tokens = self.inputs.to_explain(sent)
        except InputError as error:
            raise input_problem(error) from None
        self.check_explained(tokens, self.inputs.long_field)
        if self.target.of_words:
            options = {**options, "word": word}
        if method == "integrated_gradients":
            options = {**options, "max_steps": 128}
        try:
            e = self.clf.explain(x, method=method, target=target, maps=False, **options)
        except InputError as error:
            raise input_problem(error) from None
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
            "scores": e.scores.astype(float).tolist() if e.image is not None or self.target.of_words else [],
            "image": None if e.image is None else image_data_url(e.image),
            "error": e.error,
            "settings": e.settings,
            "notes": notes_with_interpretation(e),
        }

    @property
    def methods(self) -> list[str]:
        """Explanation methods of this model, the default first."""
        return methods_for(self.clf.model_) if self.target.explains else []

    # --- description -----------------------------------------------------------------------------

    def about(self, calibrated: bool) -> dict[str, Any]:
        """Fields of ``schema.Model``."""
        encoder = getattr(self.clf.model_.config, "encoder", None)
        return {
            "name": self.name,
            "kind": self.kind,
            "gives": self.gives,
            "labels": self.target.labels,
            "examples": self.examples,
            "pairs": self.pairs,
            "max_length": self.inputs.max_length,
            "size": None,
            "precision": precision_of(self.clf.predictor()),
            "calibrated": calibrated,
            "temperature": 1.0,
            "threshold": None,
            "layers": getattr(encoder, "num_layers", None),
            "heads": getattr(encoder, "num_heads", None),
            "methods": self.methods,
            "channels": None,
            "example": self.image or (self.examples[0] if self.examples else self.inputs.neutral),
            "multi_label": self.target.multi_label,
            "score": self.score,
            **self.inputs.model_fields(),
            **self.target.about(),
        }


def second_piece(e: Any) -> int | None:
    """Index of the piece where the second text of a pair begins; None for single texts."""
    if e.sides is None:
        return None
    starts = [
        start for (start, _), side, word in zip(e.offsets, e.sides, e.numbers) if side == 1 and word >= 0
    ]
    places = np.cumsum([0, *(len(piece["text"]) for piece in text_pieces(e)[0])])
    return int(np.searchsorted(places, min(starts, default=len(e.text))))


def text_pieces(e: Any) -> tuple[list[dict], list[dict]]:
    """The text split into words with scores and the pieces between them; and the special tokens."""
    from glassformer.explain.result import sum_by_word, word_spans

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
    for (start, stop), score in zip(spans, sum_by_word(e.scores, numbers), strict=True):
        if start > end:
            pieces.append({"text": e.text[end:start], "score": None})
        pieces.append({"text": e.text[start:stop], "score": float(score)})
        end = stop
    if end < len(e.text):
        pieces.append({"text": e.text[end:], "score": None})
    return pieces, special


# --- folders -------------------------------------------------------------------------------------


def load_models(
    runs: Sequence[str | Path],
    limits: Limits,
    *,
    threads: int = 0,
    precision: str = "auto",
    broken: dict[str, str] | None = None,
) -> list[tuple[ServedModel, bool]]:
    """Load models, named after their folders; returns each with whether it is calibrated.

    Args:
        broken: receives name -> error for models that cannot be loaded, if any other can; None: the first
            error is raised.

    Raises:
        InputError: no such folder, two folders with the same name, or no model can be loaded.
    """
    loaded: dict[str, tuple[ServedModel, bool]] = {}
    errors: dict[str, InputError] = {}
    for run in runs:
        path = Path(run).resolve()
        if is_named(run):
            path = Path(run)
        elif not path.is_dir():
            fix = "Name a folder that 'glassformer train' wrote, its --out"
            raise NotARunError("no such run folder", where=str(run), fix=fix)
        name = path.parent.name if path.name == "model" else path.name
        if name in loaded or name in errors:
            raise ConfigError(f"two models are called {name!r}", where=str(run), fix="Rename one folder")
        try:
            loaded[name] = _load_one(name, path, limits, threads, precision)
        except InputError as error:
            if broken is None:
                raise
            errors[name] = error
        except Exception as error:  # one broken model must not stop the others
            if broken is None:
                raise
            text = outputs.printable("".join(traceback.format_exception(error)), allowed="\n")
            log.error("%s could not be loaded\n%s", outputs.printable(name), text)
            errors[name] = CheckpointError(f"could not be loaded ({type(error).__name__})", where=str(run))
    if errors and not loaded:
        raise next(iter(errors.values()))
    if broken is not None:
        broken |= {name: printable(str(error)) for name, error in errors.items()}
    return list(loaded.values())


def search_in(models: Sequence[tuple[ServedModel, bool]], source: Path | Table) -> None:
    """Set the texts to search of the only embedder among the models.

    Raises:
        ConfigError: there is no embedder, or there are two.
        InputError: the texts or the index cannot be used with this model.
    """
    embedders = [served for served, _ in models if served.target.searches]
    if not embedders:
        names = ", ".join(f"{served.name} gives {served.gives}" for served, _ in models)
        fix = "Serve an Embedder, or a checkpoint of vectors such as all-minilm-l6-v2"
        raise NotForThisModelError(f"searching needs embeddings, but {names}", where="--search", fix=fix)
    if len(embedders) > 1:
        what = f"{' and '.join(served.name for served in embedders)} both give vectors"
        raise ConfigError(what, where="--search", fix="Serve one of them, the other on another port")
    embedders[0].target.search_in(source)


def _load_one(
    name: str, path: Path, limits: Limits, threads: int, precision: str
) -> tuple[ServedModel, bool]:
    """Load one model, and try it once."""
    from glassformer.tasks.load import load

    choose_dtype(precision, torch.device("cpu"))  # a wrong value is not the model's fault
    if is_named(path):  # an embedding checkpoint without fine-tuning
        clf: Any = Embedder(str(path))
        clf.max_tokens()
    else:
        clf = load(path)
    calibrated = bool(np.any(clf.temperature_ != 1.0)) if hasattr(clf, "temperature_") else False
    run_folder = path.parent if path.name == "model" else path
    examples = example_sentences(run_folder)
    served = ServedModel(name, clf, limits, threads=threads, precision=precision, examples=examples)
    served.score, served.image = score_of(run_folder), example_image(run_folder, served)
    served.smoke_test()
    return served, calibrated


def example_sentences(run: Path) -> list[str]:
    """The example sentences of a run's recipe (``evaluate.sentences``); its data are never shown."""
    sentences = _metrics(run).get("sentences", [])
    try:
        return [
            printable(str(sentence["text"]), limit=EXAMPLE_CHARACTERS) for sentence in sentences[:EXAMPLES]
        ]
    except (KeyError, TypeError):  # the run has none
        return []


def example_image(run: Path, served: ServedModel) -> str | None:
    """The file ``example.png`` or ``example.jpg`` of a run, in base64; its data are never shown."""
    for name in served.inputs.examples:
        try:
            content = base64.b64encode(read_regular(run / name, MAX_IMAGE_BYTES)).decode()
            served.inputs.opened(content, name)
        except (OSError, InputError) as error:
            if (run / name).exists():
                log.warning("%s", printable(f"{run / name} cannot be shown: {error}"))
        else:
            return content
    return None


def score_of(run: Path) -> dict[str, Any] | None:
    """The main metric of a run, as fields of ``schema.Score``; None: no run, or nothing was evaluated."""
    metrics = _metrics(run)
    evaluated_split = metrics.get("judged", "test")
    similar = metrics.get("similarity")
    for split, scores in (
        (evaluated_split, metrics.get("test")),
        ("validation", metrics.get("validation")),
        (evaluated_split, similar.get(evaluated_split) if isinstance(similar, dict) else None),
    ):
        if not isinstance(scores, dict):
            continue
        for metric in (target_of(scores).measure, *MAIN_METRICS):
            value, n = scores.get(metric), scores.get("n")
            if isinstance(value, int | float) and math.isfinite(value):
                n = n if isinstance(n, int) else None
                return {"metric": metric, "value": value, "split": str(split), "examples": n}
    return None


def _metrics(run: Path) -> dict[str, Any]:
    """A run's metrics.json; empty if it cannot be read."""
    try:
        metrics = json.loads(read_regular(run / "metrics.json", MAX_METRICS_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return metrics if isinstance(metrics, dict) else {}
