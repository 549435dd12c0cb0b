"""Write model cards of fitted estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import (
    README,
    add_card_checksum,
    card_path,
    is_unedited_card,
    read_json,
    replace_text,
)
from glassformer.config import read_toml
from glassformer.errors import InputError
from glassformer.runtime import versions

MAX_COUNT = 2**53  # upper bound for a number of examples in a saved file


def count_examples(fit: Any) -> dict[str, int]:
    """Numbers of training and validation examples of a fit; empty for pairs of an Embedder."""
    if (targets := getattr(fit.examples, "targets", None)) is None:
        return {}
    validation = {"validation": len(fit.validation[1])} if isinstance(fit.validation, tuple) else {}
    return {"train": len(targets), **validation}


def saved_example_counts(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of examples in ``glassformer.json``, without invalid values."""
    examples = metadata.get("examples")
    examples = examples if isinstance(examples, dict) else {}
    return {k: n for k, n in examples.items() if type(n) is int and 0 <= n < MAX_COUNT}


def build_card(estimator: Any, run: str | Path | None = None, **loading: Any) -> str:
    """The model card of a fitted estimator, with facts about its run; ``loading`` is for ``LoadingInfo``."""
    from glassformer.report.card import LoadingInfo, Model, model_card

    tag, use = getattr(estimator.RECIPE, "CARD", ("", ""))
    idle = getattr(estimator, "idle_settings", ())
    settings = {k: v for k, v in estimator.get_params(deep=False).items() if k not in idle}
    model = getattr(estimator, "model_", None)
    classes = getattr(estimator, "classes_", None)  # None: for example an Embedder trained on pairs
    kind = getattr(estimator, "kind_", None)
    classes = classes if kind is None or kind.predicts_labels else None
    facts = Model(
        kind=type(estimator).__name__,
        task=estimator.RECIPE.task,
        tag=tag,
        use=use,
        labels=() if classes is None else tuple(map(str, classes.tolist())),
        parameters=sum(p.numel() for p in model.parameters()) if model is not None else 0,
        source=str(getattr(estimator, "weights_source_", "")),
        settings=settings,
        chosen=dict(estimator.chosen_),
        seconds=float(getattr(estimator, "train_seconds_", 0.0)),
        versions=versions(),
        examples=getattr(estimator, "examples_", {}),
        validation=_validation_metrics(estimator),
        is_multilabel=kind is not None and kind.is_multilabel,
        limits=tuple(_limits(estimator, settings, run is not None)),
    )
    return model_card(facts, *_run_facts(run), loading=LoadingInfo(**loading) if loading else None)


def write_card(folder: Path, estimator: Any, run: str | Path | None = None, **loading: Any) -> Path:
    """Write the card into a folder. If README.md was edited, the card gets another name."""
    from glassformer.export.proof import valid_sentences
    from glassformer.report.card import with_proof

    path, text = card_path(folder), build_card(estimator, run, **loading)
    replace_text(path, add_card_checksum(with_proof(text, valid_sentences(folder))))
    return path


def add_proof_to_card(folder: Path, sentences: Sequence[str]) -> None:
    """Add the result of ``glassformer prove`` to the card of a folder, unless the card was edited."""
    from glassformer.report.card import with_proof

    path = folder / README
    if is_unedited_card(path):
        text = path.read_text(encoding="utf-8")
        replace_text(path, add_card_checksum(with_proof(text[: text.rindex("\n<!-- card ")], sentences)))


def find_run_folder(path: str | Path) -> Path | None:
    """The run folder of ``path``, which is a run or its ``model`` folder; None if it is neither."""
    path = Path(path)
    for folder in (path, path.parent if path.name == "model" else path):
        if (folder / "config.toml").is_file() and (folder / "metrics.json").is_file():
            return folder
    return None


def _run_facts(run: str | Path | None) -> list[Any]:
    """Contents of ``config.toml``, ``metrics.json`` and ``doctor.json``; None if missing or damaged."""
    facts: list[Any] = []
    for name, read in (("config.toml", read_toml), ("metrics.json", read_json), ("doctor.json", read_json)):
        try:
            path = Path(run) / name if run is not None else None
            facts.append(read(path) if path is not None and path.is_file() else None)
        except InputError:
            facts.append(None)
    return facts


def _validation_metrics(estimator: Any) -> dict[str, float]:
    """Validation metrics of the best weights; empty if training had no evaluation."""
    history = getattr(estimator, "history_", [])
    evaluated = [r for r in history if r.get("kind") not in ("step", None) and {"accuracy", "r2"} & r.keys()]
    best = [r for r in evaluated if r.get("step") == getattr(estimator, "best_step_", None)] or evaluated[-1:]
    keys = ("accuracy", "macro_f1", "micro_f1", "r2", "mae", "pearson", "spearman", "loss")
    return {k: best[-1][k] for k in keys if best and k in best[-1]}


def _limits(estimator: Any, settings: Mapping[str, Any], from_run: bool) -> list[str]:
    """Sentences about the limits of the model."""
    out = []
    reads_tokens = getattr(estimator, "reads_tokens", hasattr(estimator, "tokenizer_"))
    if reads_tokens and settings.get("max_length") and settings.get("long_texts", "cut") == "cut":
        out.append(f"It reads only the first {settings['max_length']:,} tokens of a text.")
    if settings.get("clean", "none") not in ("none", None):
        out.append(f"Texts are cleaned before it reads them (clean = {settings['clean']}).")
    multilabel = getattr(getattr(estimator, "kind_", None), "is_multilabel", False)
    if (errors := getattr(estimator, "errors_", None)) is not None:
        log = estimator.kind_.scale == "log"
        width = "the prediction divided and multiplied by one factor" if log else "one width for every input"
        intervals = f"Its intervals were computed from {len(errors):,} held-out examples, with {width}."
        if log:
            what = "It learned logarithms: it predicts numbers above 0, and its errors are ratios"
            out.append(f"{what}. In transformers, its head returns the natural logarithm of the number.")
        missing = "No examples were held out, so it predicts numbers without intervals."
        out.append(intervals if len(errors) else missing)
    elif getattr(estimator, "classes_", None) is not None and not multilabel:
        below = getattr(estimator, "abstain_below_", None)
        out.append(
            "It predicts one of its labels for any input, even if none is right."
            if below is None
            else f"It predicts no label if the probability of the label is below {below:g}."
        )
    temperature, threshold = getattr(estimator, "temperature_", 1.0), getattr(estimator, "threshold_", None)
    is_calibrated = bool(np.any(np.asarray(temperature) != 1.0))
    if multilabel and threshold is not None:  # ``fit`` chooses thresholds, and so does ``calibrate``
        out.append(
            f"Each label has its own threshold ({_format_range(threshold)}), chosen on validation examples."
        )
    if is_calibrated or (threshold is not None and not multilabel):
        per_class = threshold is not None and np.ndim(threshold)
        word = "thresholds of its classes" if per_class else "threshold"
        limit = "" if threshold is None or multilabel else f", {word} {_format_range(threshold)}"
        when = "; the metrics above were measured before" if from_run else ""
        out.append(f"It was calibrated afterwards (temperature {_format_range(temperature)}{limit}){when}.")
    return out


def _format_range(value: Any) -> str:
    """Format a number, or the smallest and the largest of several numbers."""
    low, high = float(np.min(value)), float(np.max(value))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
