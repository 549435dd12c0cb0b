"""A translation recipe, from pairs to report, in one run folder.

config.toml  history.jsonl  checkpoints/  model/  metrics.json  translations.csv  alignments.json  report.html
"""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replacing
from glassformer.data.checks import check_texts
from glassformer.data.pairs import PairDataset, PairSplit, fitting_columns, load_pairs
from glassformer.data.subwords import detokenize
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import csv_safe
from glassformer.evaluate.translation import translation_scores
from glassformer.explain.architecture import blocks
from glassformer.report.sequences import write_sequence_report
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import known_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run_folder import (
    Announce,
    Run,
    Say,
    alone,
    begin,
    choose_judged,
    one_writer,
    read_run_recipe,
    write_json,
)
from glassformer.tasks.translation.estimator import Translator
from glassformer.tasks.translation.recipe import TranslationRecipe
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal

SEARCHES = (("greedy", 1), ("beam", 0))  # name, width; 0: as the recipe says


@dataclass(frozen=True)
class Pairs:
    """The pairs of one experiment. ``judged`` is the split that the final figures come from."""

    dataset: PairDataset
    train: PairSplit
    validation: PairSplit | None
    judged: PairSplit | None
    judged_name: str


def load_splits(recipe: TranslationRecipe) -> Pairs:
    """The data of a recipe, split as it says.

    Raises:
        DataError: no such source, a missing side, no training split, or nothing left to train on.
    """
    d = recipe.data
    dataset = load_pairs(
        d.source,
        source_column=d.source_column,
        target_column=d.target_column,
        limit=d.limit,
        seed=d.split_seed,
    )
    splits = dict(dataset.splits)
    if "train" not in splits:
        raise DataError(f"no train split, only {', '.join(splits)}", where=d.source)
    for name, size in (("test", d.test_size), ("validation", d.validation_size)):
        if size is not None and (name == "validation" or name not in splits):
            splits["train"], splits[name] = hold_out(splits["train"], size, d.split_seed)
    if d.train_size is not None and d.train_size < len(splits["train"]):
        chosen = np.random.default_rng(d.split_seed).permutation(len(splits["train"]))[: d.train_size]
        splits["train"] = splits["train"].select(np.sort(chosen).tolist())
    name = choose_judged(recipe.evaluate.split, [*splits])
    return Pairs(dataset, splits["train"], splits.get("validation"), splits.get(name), name)


def hold_out(train: PairSplit, size: float, seed: int) -> tuple[PairSplit, PairSplit]:
    """What is kept and what is held out: a share below 1, or a count.

    Raises:
        DataError: nothing would be left on one side.
    """
    count = round(size * len(train)) if size < 1 else round(size)
    if not 0 < count < len(train):
        raise DataError(f"{size:g} of {len(train)} pairs cannot be held out", where=train.origin)
    order = np.random.default_rng(seed).permutation(len(train))
    held, kept = np.sort(order[:count]).tolist(), np.sort(order[count:]).tolist()
    return train.select(kept), train.select(held)


@alone
def run_translation(
    recipe: TranslationRecipe,
    folder: str | Path,
    *,
    resume: bool = False,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a recipe in ``folder``; arguments and errors as in ``experiment.run_recipe``."""
    folder, started = Path(folder), time.perf_counter()
    need_sacrebleu()
    if recipe.evaluate.sentences:  # found before the training, not after it
        check_texts(recipe.evaluate.sentences, "evaluate.sentences")
    pairs = load_splits(recipe)
    translator = Translator.from_recipe(recipe)
    begin(folder, recipe)
    parts = {"train": pairs.train, "validation": pairs.validation, pairs.judged_name: pairs.judged}
    counts = ", ".join(f"{len(v):,} {k}" for k, v in parts.items() if v is not None)
    say(f"{pairs.dataset.name}: {counts} pairs, {' to '.join(pairs.dataset.columns)}")
    if pairs.validation is None and pairs.judged is None:
        say("no held-out pairs: nothing will judge the translations; --set test_size=0.1 holds out a tenth")
    checkpoints = folder / "checkpoints"
    translator.fit(
        pairs.train.source,
        pairs.train.target,
        validation=(pairs.validation.source, pairs.validation.target) if pairs.validation else None,
        checkpoints=checkpoints,
        resume=resume,
        callbacks=[
            HistoryFile(folder / "history.jsonl"), Announce(say, translator), *callbacks, StopOnSignal(checkpoints)
        ],
    )  # fmt: skip
    one_writer()
    translator.save(folder / "model", overwrite=True)
    say("translating")
    metrics = judge(translator, recipe, pairs, folder)
    for name, (cut, total) in metrics["truncated"].items():
        tell_cut(translator, name, cut, total, say)
    metrics["seconds"] |= {"train": translator.train_seconds_, "total": time.perf_counter() - started}
    write_json(folder / "metrics.json", metrics)
    write_json(folder / "alignments.json", {"examples": alignments(translator, recipe, pairs)})
    return Run(folder, metrics, write_sequence_report(folder, known_recipe(folder)))


def need_sacrebleu() -> None:
    """Found missing before hours of training, not after them.

    Raises:
        GlassformerError: it is not installed.
    """
    translation_scores(["a"], ["a"])


def judge(translator: Translator, recipe: TranslationRecipe, pairs: Pairs, folder: Path) -> dict[str, Any]:
    """Greedy and beam search on the judged split (looked at once) and on validation, and ``translations.csv``."""
    steps = [r for r in translator.history_ if r["kind"] == "step"]
    out: dict[str, Any] = {
        "task": recipe.task,
        "judged": pairs.judged_name,
        "columns": list(pairs.dataset.columns),
        "scores": {},
        "weights_source": translator.weights_source_,
        "parameters": sum(p.numel() for p in translator.model_.parameters()),
        "architecture": [block.to_dict() for block in blocks(translator.model_)],
        "tokens_per_second": sum(r["tokens"] for r in steps) / max(steps[-1]["seconds"], 1e-9)
        if steps
        else None,
        "truncated": {"train": [translator.truncated_, len(pairs.train)]},
        "machine": machine_facts(),
        "versions": versions("tokenizers", "safetensors", "sacrebleu"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": recipe.train.seed,
        "best_step": translator.best_step_,
        "seconds": {},
    }
    splits = {"validation": pairs.validation, pairs.judged_name: pairs.judged}
    for name, split in splits.items():
        if split is not None:
            out["scores"][name], translations = search(translator, recipe, split, out["seconds"])
            if name == pairs.judged_name:
                write_translations(folder / "translations.csv", split, translations)
            out["truncated"][name] = [cut_sources(translator, split), len(split)]
    if recipe.evaluate.sentences:
        sentences = list(recipe.evaluate.sentences)
        said = translate_cut(translator, sentences, recipe.evaluate.beam, recipe.evaluate.length_penalty)
        out["sentences"] = [{"text": t, "translation": s} for t, s in zip(sentences, said, strict=True)]
    out["peak_memory_mb"] = peak_memory_mb()
    return out


def search(
    translator: Translator,
    recipe: TranslationRecipe,
    split: PairSplit,
    seconds: dict[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Scores and translations of both searches."""
    e = recipe.evaluate
    scores, translations = {}, {}
    for name, width in SEARCHES:
        started = time.perf_counter()
        translations[name] = translate_cut(translator, split.source, width or e.beam, e.length_penalty)
        spent = time.perf_counter() - started
        scores[name] = translation_scores(translations[name], split.target) | {
            "width": width or e.beam, "length_penalty": e.length_penalty, "seconds": spent,
            "sentences_per_second": len(split) / max(spent, 1e-9),
        }  # fmt: skip
        if seconds is not None:
            seconds["translate"] = seconds.get("translate", 0.0) + spent
    return scores, translations


def translate_cut(
    translator: Translator, texts: Sequence[str], beam: int, length_penalty: float
) -> list[str]:
    """As ``Translator.translate``, but a text of more than ``max_length`` tokens is cut there, as in training: one long
    sentence must not cost a run its figures.
    """
    found = translator.search(translator.encode(texts, True), beam, length_penalty)
    return [detokenize(translator.target_tokenizer_, best[0].tokens) for best in found]


def cut_sources(translator: Translator, split: PairSplit) -> int:
    """How many source texts of a split are cut."""
    return int(translator.encode(split.source, True).truncated.sum())


def tell_cut(translator: Translator, name: str, cut: int, total: int, say: Say) -> None:
    """Say how many texts of a split were cut, where any were."""
    if cut:
        say(
            f"{cut:,} of {total:,} {name} texts are longer than {translator.max_length} tokens and were cut there"
        )


def write_translations(path: Path, split: PairSplit, translations: dict[str, list[str]]) -> None:
    """One row a pair, safe to open in a spreadsheet."""
    with replacing(path) as fresh, fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "reference", *map(csv_safe, translations)])
        for row in zip(split.source, split.target, *translations.values(), strict=True):
            writer.writerow([csv_safe(cell) for cell in row])


def alignments(translator: Translator, recipe: TranslationRecipe, pairs: Pairs) -> list[dict[str, Any]]:
    """A few judged sentences of readable length with their cross-attention; none for a thought vector."""
    if recipe.model.model == "rnn" and recipe.model.attention == "none":
        return []
    split = pairs.judged or pairs.train
    table = translator.encode(split.source[:2000], True)
    order = np.argsort(np.abs(table.lengths - 14), kind="stable")
    chosen = order[~table.truncated[order]][: recipe.evaluate.maps].tolist()
    examples = []
    for i in chosen:
        found = translator.align(split.source[i], recipe.evaluate.beam, recipe.evaluate.length_penalty)
        examples.append(
            {
                "text": split.source[i], "reference": split.target[i], "translation": found.translation,
                "source": found.source, "target": found.target, "weights": np.round(found.weights, 4).tolist(),
            }
        )  # fmt: skip
    return examples


def evaluate_translation(
    folder: str | Path, data: str | None = None, say: Say = lambda line: None
) -> dict[str, Any]:
    """Judge the saved model of a run again, on its own split or on other pairs."""
    folder = Path(folder)
    recipe: TranslationRecipe = read_run_recipe(folder)
    translator = load(folder)
    if not isinstance(translator, Translator):
        raise ConfigError("holds no translator", where=str(folder))
    if data is None:
        pairs = load_splits(recipe)
        split, columns = pairs.judged, pairs.dataset.columns
    else:
        d = recipe.data
        left, right = fitting_columns(data, (d.source_column, d.target_column))
        other = load_pairs(data, source_column=left, target_column=right)
        split, columns = other.splits.get("test") or next(iter(other.splits.values())), other.columns
    if split is None:
        raise DataError("nothing to judge: no validation and no test split", where=recipe.data.source)
    say(f"{len(split):,} pairs of {split.origin}, {' to '.join(columns)}")
    tell_cut(translator, "source", cut_sources(translator, split), len(split), say)
    return search(translator, recipe, split)[0]
