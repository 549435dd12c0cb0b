"""Loading, prediction and explanation of served models.

``kinds.py`` has the code of the output kinds. The server starts if at least one model can be loaded.
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
from glassformer.checkpoints.catalog import is_catalog_name
from glassformer.data.files import missing_file_fix
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
from glassformer.serve.problems import Problem, input_problem, make_printable, too_many_inputs
from glassformer.targets import target_of
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.similarity.estimator import Embedder

log = logging.getLogger("glassformer.serve")

MAX_EXAMPLES = 6  # maximum number of example texts on the page
MAX_EXAMPLE_LENGTH = 2_000  # characters
MAX_METRICS_BYTES = 64 << 20  # of metrics.json
MAX_IMAGE_BYTES = 1 << 20  # of the example image
# The page shows the first of these metrics that a run has
MAIN_METRICS = ("entity_f1", "f1", "accuracy", "r2", "mae", "spearman", "found")


class ServedModel:
    """A named model of the server.

    Args:
        clf: a fitted estimator.
        threads, precision: see ``FitConfig``.
        examples: example texts for the page.

    Raises:
        ConfigError: the estimator cannot be served, or the precision is unknown.
    """

    score: dict[str, Any] | None = None  # fields of ``schema.Score``, from the model's run
    image: str | None = None  # an example in base64

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
        choose_dtype(precision, torch.device("cpu"))  # raises an error for an unknown precision
        output_kind = TASKS[clf.RECIPE.task].output_kind if hasattr(clf, "RECIPE") else None
        if output_kind is None:
            what = f"contains {with_article(type(clf).__name__)}; "
            what += "only classifiers, regressors, embedders, taggers and question answerers can be served"
            raise NotForThisModelError(what, where=name)
        self.name, self.clf, self.limits = name, clf, limits
        self.inputs: Any = clf.INPUTS.served(clf, limits, name)
        self.output: Any = KINDS[output_kind](clf)
        self.kind, self.pairs, self.output_kind = self.inputs.kind, self.inputs.pairs, self.output.output_kind
        # The examples are single texts, which models for other inputs cannot read.
        self.examples = list(examples)[:MAX_EXAMPLES] if isinstance(self.inputs.default_example, str) else []
        clf.threads, clf.precision = threads, precision

    # --- predictions -----------------------------------------------------------------------------

    def check(self, inputs: Sequence[Any], field: str) -> None:
        """Raise Problem for too many or too long inputs, before they are encoded."""
        if len(inputs) > self.limits.inputs:
            raise too_many_inputs(len(inputs), self.limits.inputs, field)
        for i, x in enumerate(inputs):
            if (length := self.inputs.length(x)) > self.limits.characters:
                message = f"{length:,} characters, {self.limits.characters:,} at most"
                fix = "Shorten it, or start the server with a larger --characters"
                where = field if field == self.inputs.field else f"{field}[{i}]"  # "text" has one input
                raise Problem(413, message, where=where, fix=fix)

    def prepare(self, inputs: Sequence[Any], field: str = "inputs") -> list[Item]:
        """Encode inputs for the model; raises Problem for an input that cannot be used."""
        try:
            return self.inputs.encode(inputs, field)
        except InputError as error:
            raise input_problem(error) from None

    def compute(self, items: Sequence[Item]) -> list[Any]:
        """Compute the outputs of encoded inputs, one row per input; see ``Output.compute``."""
        model = self.clf.predictor()
        device = next(model.parameters()).device
        return list(self.output.compute(model, self.inputs.join(items), device))

    def check_outputs(self, rows: list[Any]) -> list[Any]:
        """Return the outputs of ``compute``; raises NotFiniteError for NaN and infinity."""
        for row in rows:
            finite(self.output.values(row))
        return rows

    def response(self, items: list[Item], rows: Sequence[Any], request: Any = None) -> dict[str, Any]:
        """Fields of the response for these inputs, except the model's name; ``request`` has the options."""
        return self.output.response(items, rows, request)

    def smoke_test(self) -> None:
        """Predict a small input to find out whether the model is broken.

        Raises:
            CheckpointError: the prediction fails, or is NaN or infinite.
        """
        try:
            item = self.inputs.dummy_input("a")
        except InputError as error:
            raise CheckpointError(f"does not answer: {error.what}", where=self.name) from None
        try:
            self.check_outputs(self.compute([item]))
        except (InputError, MemoryError):
            raise
        except Exception as error:  # settings and weights that do not match can cause any error
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise CheckpointError(f"does not answer: {reason}", where=self.name) from None

    def warm_up(self) -> None:
        """Compute a full batch and a single input, to allocate memory and make the first request fast."""
        item = self.inputs.dummy_input("a word " * min(200, self.inputs.max_length or 200))
        max_tokens = min(self.limits.batch_tokens, self.limits.queue_tokens)
        self.compute([item] * max(1, max_tokens // item.tokens))
        self.compute([self.inputs.dummy_input("a")])

    # --- explanations ----------------------------------------------------------------------------

    def check_explained(self, tokens: int, where: str) -> None:
        """Raise Problem if the number of tokens is too large for an explanation."""
        if tokens > self.limits.explain_tokens:
            message = f"{tokens} tokens, but explanations accept {self.limits.explain_tokens} at most"
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
            field = self.inputs.field
            raise input_problem(error, field if error.where == f"{field}[0]" else None) from None
        self.check_explained(tokens, self.inputs.length_field)
        if self.output.is_per_word:
            options = {**options, "word": word}
        if method == "integrated_gradients":
            options = {**options, "max_steps": 128}
        try:
            e = self.clf.explain(x, method=method, target=target, maps=False, **options)
        except InputError as error:
            raise input_problem(error) from None
        pieces, special = ([], []) if e.image is not None else split_into_pieces(e)
        has_table = e.image is not None or self.output.is_per_word
        return {
            "model": self.name,
            "label": str(e.label),
            "probability": e.probability,
            "method": method,
            "target": None if e.target is None else str(e.target),
            "pieces": pieces,
            "second": find_second_text(e),
            "special": special,
            "scores": e.scores.astype(float).tolist() if has_table else [],
            "image": None if e.image is None else image_data_url(e.image),
            "error": e.error,
            "settings": e.settings,
            "notes": notes_with_interpretation(e),
        }

    # --- description -----------------------------------------------------------------------------

    def describe(self, calibrated: bool) -> dict[str, Any]:
        """Fields of ``schema.Model``."""
        encoder = getattr(self.clf.model_.config, "encoder", None)
        return {
            "name": self.name,
            "kind": self.kind,
            "gives": self.output_kind,
            "labels": self.output.labels,
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
            "methods": methods_for(self.clf.model_) if self.output.can_explain else [],
            "channels": None,
            "example": self.image or (self.examples[0] if self.examples else self.inputs.default_example),
            "multi_label": self.output.multi_label,
            "score": self.score,
            **self.inputs.model_fields(),
            **self.output.model_fields(),
        }


def find_second_text(e: Any) -> int | None:
    """Index of the piece where the second text of a pair begins; None for single texts."""
    if e.sides is None:
        return None
    tokens = zip(e.offsets, e.sides, e.numbers)
    start = min((start for (start, _), side, word in tokens if side == 1 and word >= 0), default=len(e.text))
    piece_starts = np.cumsum([0, *(len(piece["text"]) for piece in split_into_pieces(e)[0])])
    return int(np.searchsorted(piece_starts, start))


def split_into_pieces(e: Any) -> tuple[list[dict], list[dict]]:
    """Split an explained text into words with scores and the texts between them.

    Returns:
        The pieces, and the special tokens; both as fields of ``schema.Piece``.
    """
    from glassformer.explain.result import sum_by_word, word_spans

    words = e.numbers  # index of each token's word; negative for special tokens
    special = [
        {"text": token, "score": float(score)}
        for token, score, word in zip(e.tokens, e.scores, words, strict=True)
        if word < 0
    ]
    if words.max(initial=-1) < 0:
        return [{"text": e.text, "score": None}], special
    pieces, last_end = [], 0
    spans = word_spans(words, e.offsets)
    for (start, end), score in zip(spans, sum_by_word(e.scores, words), strict=True):
        if start > last_end:
            pieces.append({"text": e.text[last_end:start], "score": None})
        pieces.append({"text": e.text[start:end], "score": float(score)})
        last_end = end
    if last_end < len(e.text):
        pieces.append({"text": e.text[last_end:], "score": None})
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
    """Load models, which get the names of their folders.

    Args:
        broken: receives name -> error for models that cannot be loaded, unless all fail; None: the first
            error is raised.

    Returns:
        Pairs of a model, and whether it is calibrated.

    Raises:
        InputError: a folder is missing, two folders have the same name, or no model can be loaded.
    """
    loaded: dict[str, tuple[ServedModel, bool]] = {}
    errors: dict[str, InputError] = {}
    paths: set[Path] = set()
    for run in runs:
        path = Path(run).resolve()
        if is_catalog_name(run):
            path = Path(run)
        elif not path.is_dir():
            fix = missing_file_fix(Path(run))
            fix = fix if fix.endswith("?") else "Name a folder that 'glassformer train' wrote, its --out"
            raise NotARunError("no such run folder", where=str(run), fix=fix)
        name = path.parent.name if path.name == "model" else path.name
        if name in loaded or name in errors:
            if path in paths:
                raise ConfigError("the model is named twice", where=str(run), fix="Name it once")
            raise ConfigError(f"two models are called {name!r}", where=str(run), fix="Rename one folder")
        paths.add(path)
        try:
            loaded[name] = _load_one(name, path, limits, threads, precision)
        except Exception as error:  # a broken model must not stop the server of other models
            if broken is None:
                raise
            if isinstance(error, InputError):
                errors[name] = error
                continue
            text = outputs.make_printable("".join(traceback.format_exception(error)), allowed="\n")
            log.error("%s could not be loaded\n%s", outputs.make_printable(name), text)
            errors[name] = CheckpointError(f"could not be loaded ({type(error).__name__})", where=str(run))
    if errors and not loaded:
        raise next(iter(errors.values()))
    if broken is not None:
        broken |= {name: make_printable(str(error)) for name, error in errors.items()}
    return list(loaded.values())


def set_search_texts(models: Sequence[tuple[ServedModel, bool]], source: Path | Table) -> None:
    """Set the texts to search, for the only embedder among the models.

    Raises:
        ConfigError: there is no embedder, or more than one.
        InputError: the texts or the index cannot be used with this model.
    """
    embedders = [served for served, _ in models if served.output.can_search]
    if not embedders:
        names = ", ".join(f"{served.name} gives {served.output_kind}" for served, _ in models)
        fix = "Serve an Embedder, or a checkpoint of vectors such as all-minilm-l6-v2"
        raise NotForThisModelError(f"searching needs embeddings, but {names}", where="--search", fix=fix)
    if len(embedders) > 1:
        what = f"{' and '.join(served.name for served in embedders)} both give vectors"
        raise ConfigError(what, where="--search", fix="Serve one of them, the other on another port")
    embedders[0].output.set_search_texts(source)


def _load_one(
    name: str, path: Path, limits: Limits, threads: int, precision: str
) -> tuple[ServedModel, bool]:
    """Load one model and test it on a small input; returns the model, and whether it is calibrated."""
    from glassformer.tasks.load import load

    choose_dtype(precision, torch.device("cpu"))  # raises an error for an unknown precision before loading
    if is_catalog_name(path):  # an embedding checkpoint without fine-tuning
        clf: Any = Embedder(str(path))
        clf.max_tokens()
    else:
        clf = load(path)
    is_calibrated = bool(np.any(clf.temperature_ != 1.0)) if hasattr(clf, "temperature_") else False
    run_folder = path.parent if path.name == "model" else path
    examples = example_sentences(run_folder)
    served = ServedModel(name, clf, limits, threads=threads, precision=precision, examples=examples)
    served.score, served.image = read_score(run_folder), example_image(run_folder, served)
    served.smoke_test()
    return served, is_calibrated


def example_sentences(run: Path) -> list[str]:
    """The example sentences in a run's recipe (``evaluate.sentences``). Texts from the data are not shown."""
    sentences = _read_metrics(run).get("sentences", [])
    try:
        texts = [str(sentence["text"]) for sentence in sentences[:MAX_EXAMPLES]]
    except (KeyError, TypeError):  # the run has no sentences
        return []
    return [make_printable(text, limit=MAX_EXAMPLE_LENGTH) for text in texts]


def example_image(run: Path, served: ServedModel) -> str | None:
    """The file ``example.png`` or ``example.jpg`` of a run, in base64. Images from the data are not shown."""
    for name in served.inputs.examples:
        try:
            content = base64.b64encode(read_regular(run / name, MAX_IMAGE_BYTES)).decode()
            served.inputs.open_base64(content, name)
        except (OSError, InputError) as error:
            if (run / name).exists():
                log.warning("%s", make_printable(f"{run / name} cannot be shown: {error}"))
        else:
            return content
    return None


def read_score(run: Path) -> dict[str, Any] | None:
    """The main metric of a run, as fields of ``schema.Score``; None if there is no run or no metric."""
    metrics = _read_metrics(run)
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


def _read_metrics(run: Path) -> dict[str, Any]:
    """The content of a run's metrics.json; empty if it cannot be read."""
    try:
        metrics = json.loads(read_regular(run / "metrics.json", MAX_METRICS_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return metrics if isinstance(metrics, dict) else {}
