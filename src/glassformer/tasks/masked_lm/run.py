"""Runs of masked language modeling.

Fine-tune the result with ``glassformer train imdb-minilm --model RUN/model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.data.duplicates import comparison_key
from glassformer.data.masking import (
    NEXT_SENTENCE_SHARE,
    MaskSettings,
    chunk_texts,
    mask_tokens,
    multi_sentence_share,
)
from glassformer.data.rejected import skipped_rows_message
from glassformer.data.sources import load_text_dataset
from glassformer.data.vocabulary import MASK
from glassformer.errors import ConfigError, counted
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.tasks.masked_lm.estimator import MaskedLM
from glassformer.tasks.masked_lm.recipe import PretrainRecipe
from glassformer.tasks.run_steps import named_splits, reload_data, sample_items, split_rows
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, report_renderer

MASK_SAMPLE = 2000  # number of texts for the statistics of masks in the report


@dataclass(frozen=True)
class Corpus:
    """Training and validation texts, and the numbers of texts that were left out."""

    name: str
    train: list[str]
    validation: list[str]
    counts: dict[str, int]  # split -> number of texts used
    excluded: dict[str, int] = field(default_factory=dict)  # excluded split -> texts that it has too
    repeated: int = 0  # number of duplicates
    rejected: tuple[Any, ...] = ()  # rows that cannot be used


def load_corpus(recipe: PretrainRecipe) -> Corpus:
    """Load the texts of a recipe without duplicates, and without texts of excluded splits."""
    d = recipe.data
    dataset = load_text_dataset(
        d.source, text_column=d.text_column, seed=d.split_seed, on_bad_row=d.on_bad_row, labels=False
    )
    texts_by_split = {name: split.texts for name, split in named_splits(dataset, d, d.source).items()}
    hidden = {n: set(dataset.splits[n].texts) for n in d.exclude if n in dataset.splits and n not in d.splits}
    all_texts = [text for split in texts_by_split.values() for text in split]
    unique_texts = {*all_texts}
    excluded = {name: len(unique_texts & known) for name, known in hidden.items()}
    all_hidden = set().union(*hidden.values())
    seen: set[str] = set()
    texts, counts = [], {}
    for name, split in texts_by_split.items():
        new_texts = [t for t in dict.fromkeys(split) if t not in all_hidden and t not in seen]
        seen.update(new_texts)
        sample = sample_items(new_texts, d)
        counts[name] = len(sample)
        texts += sample
    keys = list(map(comparison_key, texts)) if d.copies == "together" else None
    train_rows, validation_rows = split_rows(len(texts), "texts", d, keys)
    return Corpus(
        dataset.name,
        [texts[i] for i in train_rows],
        [texts[i] for i in validation_rows],
        counts,
        excluded,
        len(all_texts) - len(unique_texts),
        dataset.rejected,
    )


def load(recipe: PretrainRecipe) -> Corpus:
    """Check the recipe's example sentences, and load its corpus."""
    for sentence in recipe.evaluate.sentences:
        if MASK not in sentence:
            raise ConfigError(f"no {MASK} in {sentence!r}", where="evaluate.sentences")
    return load_corpus(recipe)


def preview_data(context: RunContext) -> DataPreview:
    """Log lines about the texts."""
    corpus = context.data
    counts = ", ".join(f"{n:,} {split}" for split, n in corpus.counts.items())
    lines = [f"{corpus.name}: {counts} texts, {len(corpus.validation):,} of them held out"]
    for split, n in corpus.excluded.items():
        lines.append(f"texts that are also in {split}, left out: {n:,}")
    if corpus.repeated:
        lines.append(f"texts that repeat an earlier one, left out: {corpus.repeated:,}")
    if (
        context.recipe.text.next_sentence
        and (share := multi_sentence_share(corpus.train)) < NEXT_SENTENCE_SHARE
    ):
        what = f"{1 - share:.0%} of the texts have one sentence, which next_sentence cuts in the middle"
        lines.append(f"{what}; --set next_sentence=false learns from whole ones")
    return DataPreview(lines, corpus.rejected)


def fit(context: RunContext, **options: Any) -> None:
    """Train on the texts that are not held out."""
    context.estimator.fit(context.data.train, validation=context.data.validation, **options)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics on validation texts, statistics of masks, and predictions for the recipe's sentences."""
    learner, corpus, sentences = context.estimator, context.data, context.recipe.evaluate.sentences
    out: dict[str, Any] = {
        "masked": learner.judge(corpus.validation),
        "masks": count_masks(learner, corpus.train[:MASK_SAMPLE]),
        "texts": corpus.counts | {"validation": len(corpus.validation)},
        "excluded": corpus.excluded,
        "repeated": corpus.repeated,
        "chunks": learner.chunks_,
    }
    if sentences:
        out["sentences"] = [{"text": s, "fills": fills(learner, s, context.recipe)} for s in sentences]
    return out


def fills(learner: MaskedLM, sentence: str, recipe: PretrainRecipe) -> list[list[dict[str, Any]]]:
    """The best words for each [MASK] of a sentence."""
    masks = learner.fill_each(sentence, recipe.evaluate.top)
    return [[{"token": token, "probability": p} for token, p in words] for words in masks]


def count_masks(learner: MaskedLM, texts: Sequence[str]) -> dict[str, int]:
    """Numbers of tokens that masking chooses, masks, replaces at random and leaves unchanged."""
    masks = MaskSettings.of(learner.tokenizer_, learner.mask_share, learner.whole_words)
    ids = chunk_texts(learner.tokenizer_, texts, learner.max_length, learner.clean).ids.astype(np.int64)
    masked_ids, rows = mask_tokens(ids, masks, np.random.default_rng(learner.seed))
    after, before = masked_ids[rows], ids[rows]
    return {
        "tokens": len(ids),
        "chosen": len(rows),
        "masked": int((after == masks.mask_id).sum()),
        "random": int(((after != masks.mask_id) & (after != before)).sum()),
        "kept": int((after == before).sum()),
    }


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its validation texts or on other texts."""
    d = context.recipe.data
    if source is None:
        texts, origin = reload_data(context, ["validation"]).validation, f"{d.source}, held out"
    else:
        dataset = load_text_dataset(source, text_column=d.text_column, on_bad_row=d.on_bad_row, labels=False)
        splits = dataset.splits
        if dataset.rejected:
            context.log(skipped_rows_message(dataset.rejected, is_listed=False))
        split = splits.get("test") or next(iter(splits.values()))
        texts, origin = split.texts, split.origin
    context.log(f"{counted(len(texts), 'text')} of {origin}")
    return {"masked": context.estimator.judge(texts)}


def example_fixture() -> tuple[MaskedLM, tuple]:
    """A minimal estimator and a few texts."""
    sizes = {"max_length": 16, "min_count": 1, "vocab_size": 60, "tokenizer": "word", "max_positions": 17}
    settings: dict[str, Any] = {**TINY, **sizes}
    return MaskedLM(**settings), (TINY_TEXTS,)


TASK = Task(
    estimator=MaskedLM,
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("masked words"),
    example_fixture=example_fixture,
    opens=("mlm", "pretraining"),
    verb="fill",
)
