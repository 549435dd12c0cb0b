"""Runs of translation.

In addition to the files of every run, they write ``translations.csv`` and ``alignments.json``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.checks import check_texts
from glassformer.data.pairs import PairSplit, columns_of_other_data, load_pairs
from glassformer.data.splits import Splits, evaluation_splits, make_splits
from glassformer.data.spreadsheet import csv_safe
from glassformer.data.text import detokenize
from glassformer.evaluate.predictions import table_file
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.targets.target_text import TargetText, translation_scores
from glassformer.tasks.run_steps import read_source, split_to_evaluate, warn_if_nothing_held_out
from glassformer.tasks.task import TINY, DataPreview, Log, RunContext, Task, report_renderer
from glassformer.tasks.translation.estimator import Translator
from glassformer.tasks.translation.recipe import TranslationRecipe

SEARCHES = (("greedy", 1), ("beam", 0))  # name and beam width; 0: the recipe's


def load(recipe: TranslationRecipe) -> Splits:
    """Check the requirements of the evaluation, and load and split the pairs of a recipe."""
    check_sacrebleu()
    if recipe.evaluate.sentences:
        check_texts(recipe.evaluate.sentences, "evaluate.sentences")
    dataset = read_source(load_pairs, recipe, None, "source_column", "target_column")
    return make_splits(dataset, recipe.data, recipe.evaluate.split)


def check_sacrebleu() -> None:
    """Raise an error before training if sacrebleu is not installed."""
    translation_scores(["a"], ["a"])


def preview_data(context: RunContext) -> DataPreview:
    """Log lines about the pairs."""
    pairs = context.data
    lines = [f"{pairs.dataset.name}: {pairs.sizes()} pairs, {' to '.join(pairs.dataset.columns)}"]
    lines += warn_if_nothing_held_out(pairs, "pairs", "translations")
    return DataPreview(lines, pairs.dataset.rejected)


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training pairs and select the best epoch on the validation pairs."""
    train, val = context.data.train, context.data.validation
    validation = (val.source, val.target) if val else None
    context.estimator.fit(train.source, train.target, validation=validation, **options)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of greedy and beam search on the splits; also write ``translations.csv``."""
    context.log("translating")
    translator, recipe, pairs = context.estimator, context.recipe, context.data
    scores, truncated = {}, {"train": [translator.truncated_, len(pairs.train)]}
    out: dict[str, Any] = {
        "judged": pairs.evaluated_split,
        "columns": list(pairs.dataset.columns),
        "scores": scores,
        "truncated": truncated,
        "seconds": {},
    }
    for name, split in {"validation": pairs.validation, pairs.evaluated_split: pairs.evaluated}.items():
        if split is not None:
            scores[name], translations = search(translator, recipe, split, out["seconds"])
            if name == pairs.evaluated_split:
                write_translations(context.folder / "translations.csv", split, translations)
            truncated[name] = [count_truncated(translator, split), len(split)]
    if recipe.evaluate.sentences:
        sentences = list(recipe.evaluate.sentences)
        outputs = translate_truncated(
            translator, sentences, recipe.evaluate.beam, recipe.evaluate.length_penalty
        )
        out["sentences"] = [{"text": t, "translation": s} for t, s in zip(sentences, outputs, strict=True)]
    for name, (count, total) in truncated.items():
        log_truncated(translator, name, count, total, context.log)
    return out


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``alignments.json``: attention of a few translations."""
    return {"alignments.json": {"examples": alignments(context.estimator, context.recipe, context.data)}}


def search(
    translator: Translator,
    recipe: TranslationRecipe,
    split: PairSplit,
    seconds: dict[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Metrics and translations of greedy and beam search."""
    e = recipe.evaluate
    scores, translations = {}, {}
    for name, width in SEARCHES:
        started = time.perf_counter()
        translations[name] = translate_truncated(translator, split.source, width or e.beam, e.length_penalty)
        spent = time.perf_counter() - started
        scores[name] = translation_scores(translations[name], split.target) | {
            "width": width or e.beam,
            "length_penalty": e.length_penalty,
            "seconds": spent,
            "sentences_per_second": len(split) / max(spent, 1e-9),
        }
        if seconds is not None:
            seconds["translate"] = seconds.get("translate", 0.0) + spent
    return scores, translations


def translate_truncated(
    translator: Translator, texts: Sequence[str], beam: int, length_penalty: float
) -> list[str]:
    """Like ``Translator.translate``, but truncate long texts, so that they do not stop the evaluation."""
    hypotheses = translator.search(translator.encode(texts, True), beam, length_penalty)
    return [detokenize(translator.target_tokenizer_, best[0].tokens) for best in hypotheses]


def count_truncated(translator: Translator, split: PairSplit) -> int:
    """Number of truncated source texts of a split."""
    return int(translator.encode(split.source, True).truncated.sum())


def log_truncated(translator: Translator, name: str, count: int, total: int, log: Log) -> None:
    """Log the number of truncated texts of a split, if there are any."""
    if count:
        what = f"{count:,} of {total:,} {name} texts are longer than {translator.max_length} tokens"
        log(f"{what} and were cut there")


def write_translations(path: Path, split: PairSplit, translations: dict[str, list[str]]) -> None:
    """Write one row per pair; cells are safe to open in a spreadsheet."""
    with table_file(path) as writer:
        writer.writerow(["source", "reference", *map(csv_safe, translations)])
        for row in zip(split.source, split.target, *translations.values(), strict=True):
            writer.writerow([csv_safe(cell) for cell in row])


def alignments(translator: Translator, recipe: TranslationRecipe, pairs: Splits) -> list[dict[str, Any]]:
    """A few evaluated sentences of readable length with cross-attention, if the decoder has it."""
    if recipe.model.model == "rnn" and recipe.model.attention == "none":
        return []
    split = pairs.evaluated or pairs.train
    table = translator.encode(split.source[:2000], True)
    order = np.argsort(np.abs(table.lengths - 14), kind="stable")
    numbers = order[~table.truncated[order]][: recipe.evaluate.maps].tolist()
    examples = []
    for i in numbers:
        alignment = translator.align(split.source[i], recipe.evaluate.beam, recipe.evaluate.length_penalty)
        examples.append(
            {
                "text": split.source[i],
                "reference": split.target[i],
                "translation": alignment.translation,
                "source": alignment.source,
                "target": alignment.target,
                "weights": np.round(alignment.weights, 4).tolist(),
            }
        )
    return examples


def _load_other(recipe: TranslationRecipe, source: str) -> Splits:
    left, right = columns_of_other_data(source, (recipe.data.source_column, recipe.data.target_column))
    bad = recipe.data.on_bad_row
    return evaluation_splits(load_pairs(source, source_column=left, target_column=right, on_bad_row=bad))


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved translator for both searches, on its own test split or on other pairs."""
    translator, recipe = context.estimator, context.recipe
    split = split_to_evaluate(
        context, source, _load_other, "pairs", note=lambda d: f", {' to '.join(d.columns)}"
    )
    log_truncated(translator, "source", count_truncated(translator, split), len(split), context.log)
    return search(translator, recipe, split)[0]


def example_fixture() -> tuple[Translator, tuple]:
    """A minimal estimator and pairs of texts."""
    settings: dict[str, Any] = {**TINY, "max_length": 16, "min_count": 1, "vocab_size": 300}
    return Translator(**settings), (TINY_TEXTS, TINY_TEXTS[::-1])


TASK = Task(
    estimator=Translator,
    target=TargetText(),
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("translation"),
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    verb="translate",
    packages=("tokenizers", "safetensors", "sacrebleu"),
)
