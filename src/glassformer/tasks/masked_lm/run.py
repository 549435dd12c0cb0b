"""A pre-training recipe, from raw texts to report, in one run folder.

    config.toml  history.jsonl  checkpoints/  model/  metrics.json  report.html

``model/`` is what fine-tuning goes on from: ``glassformer train imdb-minilm --model RUN/model``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.masking import MaskSettings, chunk_texts, mask_tokens
from glassformer.data.sources import load_text_dataset
from glassformer.data.vocabulary import MASK
from glassformer.errors import ConfigError, DataError
from glassformer.explain.architecture import blocks
from glassformer.report.sequences import write_sequence_report
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import known_recipe
from glassformer.tasks.load import load
from glassformer.tasks.masked_lm.estimator import MaskedLM
from glassformer.tasks.masked_lm.recipe import PretrainRecipe
from glassformer.tasks.run_folder import (
    Announce,
    Run,
    Say,
    alone,
    begin,
    one_writer,
    read_run_recipe,
    write_json,
)
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal

COUNTED = 2000  # texts whose masks are counted for the report


@dataclass(frozen=True)
class Corpus:
    """Texts to learn from, texts to judge on, and what was left out."""

    name: str
    train: list[str]
    validation: list[str]
    counts: dict[str, int]  # split -> texts taken
    excluded: dict[str, int] = field(
        default_factory=dict
    )  # split -> texts of it found in what is learnt from
    repeated: int = 0  # texts that stand more than once


def load_corpus(recipe: PretrainRecipe) -> Corpus:
    """The texts of a recipe, each once, without those that stand in an excluded split.

    Raises:
        DataError: no such source, none of the splits, or too few texts.
    """
    d = recipe.data
    dataset = load_text_dataset(d.source, text_column=d.text_column, seed=d.split_seed)
    taken = {name: dataset.splits[name].texts for name in d.splits if name in dataset.splits}
    if not taken:
        raise DataError(
            f"none of the splits {', '.join(d.splits)}",
            where=d.source,
            fix=f"There are: {', '.join(dataset.splits)}",
        )
    never = {n: set(dataset.splits[n].texts) for n in d.exclude if n in dataset.splits and n not in d.splits}
    excluded = {
        name: len({text for texts in taken.values() for text in texts} & hidden)
        for name, hidden in never.items()
    }
    hidden = set().union(*never.values()) if never else set()
    seen: set[str] = set()
    texts, counts = [], {}
    for name, split in taken.items():
        fresh = [t for t in dict.fromkeys(split) if t not in hidden and t not in seen]
        seen.update(fresh)
        if d.limit is not None and d.limit < len(fresh):
            chosen = np.random.default_rng(d.split_seed).choice(len(fresh), d.limit, replace=False)
            fresh = [fresh[i] for i in np.sort(chosen).tolist()]
        counts[name] = len(fresh)
        texts += fresh
    repeated = sum(map(len, taken.values())) - len({t for split in taken.values() for t in split})
    size = d.validation_size
    held = round(size * len(texts)) if size < 1 else min(round(size), len(texts) // 5)
    if not 0 < held < len(texts):
        raise DataError(
            f"{size:g} of {len(texts)} texts cannot be held out", where=d.source, fix="Change validation_size"
        )
    order = np.random.default_rng(d.split_seed).permutation(len(texts))
    return Corpus(
        dataset.name, [texts[i] for i in np.sort(order[held:]).tolist()],
        [texts[i] for i in np.sort(order[:held]).tolist()], counts, excluded, repeated,
    )  # fmt: skip


@alone
def run_pretraining(
    recipe: PretrainRecipe,
    folder: str | Path,
    *,
    resume: bool = False,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a recipe in ``folder``; arguments and errors as in ``experiment.run_recipe``."""
    folder, started = Path(folder), time.perf_counter()
    for sentence in recipe.evaluate.sentences:  # found before the training, not after it
        if MASK not in sentence:
            raise ConfigError(f"no {MASK} in {sentence!r}", where="evaluate.sentences")
    corpus = load_corpus(recipe)
    learner = MaskedLM.from_recipe(recipe)
    begin(folder, recipe)
    counts = ", ".join(f"{n:,} {split}" for split, n in corpus.counts.items())
    say(f"{corpus.name}: {counts} texts, {len(corpus.validation):,} of them held out")
    for split, n in corpus.excluded.items():
        say(f"{n:,} texts also stand in {split} and were left out")
    checkpoints = folder / "checkpoints"
    learner.fit(
        corpus.train,
        validation=corpus.validation,
        checkpoints=checkpoints,
        resume=resume,
        callbacks=[
            HistoryFile(folder / "history.jsonl"), Announce(say, learner), *callbacks, StopOnSignal(checkpoints)
        ],
    )  # fmt: skip
    one_writer()
    learner.save(folder / "model", overwrite=True)
    metrics = figures(learner, recipe, corpus)
    metrics["seconds"] = {"train": learner.train_seconds_, "total": time.perf_counter() - started}
    write_json(folder / "metrics.json", metrics)
    return Run(folder, metrics, write_sequence_report(folder, known_recipe(folder)))


def figures(learner: MaskedLM, recipe: PretrainRecipe, corpus: Corpus) -> dict[str, Any]:
    """What ``metrics.json`` says."""
    steps = [r for r in learner.history_ if r["kind"] == "step"]
    out: dict[str, Any] = {
        "task": recipe.task,
        "masked": learner.judge(corpus.validation),
        "masks": count_masks(learner, corpus.train[:COUNTED]),
        "texts": corpus.counts | {"validation": len(corpus.validation)},
        "excluded": corpus.excluded,
        "repeated": corpus.repeated,
        "chunks": learner.chunks_,
        "weights_source": learner.weights_source_,
        "parameters": sum(p.numel() for p in learner.model_.parameters()),
        "architecture": [block.to_dict() for block in blocks(learner.model_)],
        "tokens_per_second": sum(r["tokens"] for r in steps) / max(steps[-1]["seconds"], 1e-9)
        if steps
        else None,
        "machine": machine_facts(),
        "versions": versions("tokenizers", "safetensors"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": recipe.train.seed,
        "best_step": learner.best_step_,
        "peak_memory_mb": peak_memory_mb(),
    }
    if recipe.evaluate.sentences:
        out["sentences"] = [
            {"text": s, "fills": fills(learner, s, recipe)} for s in recipe.evaluate.sentences
        ]
    return out


def fills(learner: MaskedLM, sentence: str, recipe: PretrainRecipe) -> list[list[dict[str, Any]]]:
    """The best words for each [MASK] of a sentence."""
    found = learner.fill(sentence, recipe.evaluate.top)
    masks = found if sentence.count(MASK) > 1 else [found]
    return [[{"token": token, "probability": p} for token, p in words] for words in masks]


def count_masks(learner: MaskedLM, texts: Sequence[str]) -> dict[str, int]:
    """How many tokens of some texts are chosen, and what becomes of them, counted after the fact."""
    masks = MaskSettings.of(learner.tokenizer_, learner.mask_share, learner.whole_words)
    ids = chunk_texts(learner.tokenizer_, texts, learner.max_length, learner.clean).ids.astype(np.int64)
    read, rows = mask_tokens(ids, masks, np.random.default_rng(learner.seed))
    changed, stood = read[rows], ids[rows]
    return {
        "tokens": len(ids),
        "chosen": len(rows),
        "masked": int((changed == masks.mask_id).sum()),
        "random": int(((changed != masks.mask_id) & (changed != stood)).sum()),
        "kept": int((changed == stood).sum()),
    }


def evaluate_pretraining(
    folder: str | Path, data: str | None = None, say: Say = lambda line: None
) -> dict[str, Any]:
    """Judge the saved model of a run again, on its held-out texts or on other ones."""
    folder = Path(folder)
    recipe: PretrainRecipe = read_run_recipe(folder)
    learner = load(folder)
    if not isinstance(learner, MaskedLM):
        raise ConfigError("holds no masked language model", where=str(folder))
    if data is None:
        texts, origin = load_corpus(recipe).validation, f"{recipe.data.source}, held out"
    else:
        splits = load_text_dataset(data, text_column=recipe.data.text_column).splits
        split = splits.get("test") or next(iter(splits.values()))
        texts, origin = split.texts, split.origin
    say(f"{len(texts):,} texts of {origin}")
    return {"masked": learner.judge(texts)}
