"""Texts, or pairs of them: how a run reads and examines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor import DoctorReport, examine
from glassformer.data.pairs import SCORED_SOURCES, load_scored_pairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.text_pairs import TextPair
from glassformer.inputs.inputs import Inputs, options

COLUMNS = ("text_column", "label_column", "label_separator", "pair_column", "number_format")


class Texts(Inputs):
    """One text an example, or two."""

    packages = ("tokenizers", "safetensors", "scikit-learn")
    fixture_settings: ClassVar = {"model": "encoder-mini", "max_length": 16, "min_count": 1}

    def read(self, recipe: Any, source: str, numbers: bool, **part: Any) -> TextDataset:
        d = recipe.data
        if numbers and source in SCORED_SOURCES:
            part.pop("trained", None)
            return _scored(load_scored_pairs(source, on_bad_row=d.on_bad_row, **part))
        known = options(d, *COLUMNS) | {"on_bad_row": d.on_bad_row, "numbers": numbers}
        return load_text_dataset(source, need_labels=True, **known, **part)

    def skips(self, d: Any) -> bool:
        return d.on_bad_row == "skip"

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        tokenizer = est.tokenizer_ if est.reads_tokens else None
        about = {"max_length": est.max_length, "clean": recipe.text.clean, "held_out": held_out}
        return examine(dataset, tokenizer=tokenizer, **about)

    def facts(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        """How many texts of each split were cut, of how many."""
        if not est.reads_tokens:
            return {}
        others = {"validation": splits.validation, splits.judged_name: splits.judged}
        cut = {"train": [est.truncated_, len(splits.train)]} | {
            name: [int(est.truncated(split.texts).sum()), len(split)]
            for name, split in others.items()
            if split is not None
        }
        fewer = {"max_length": est.max_length} if est.max_length != recipe.text.max_length else {}
        return {"truncated": cut, **fewer}

    def example_fixture(self) -> Sequence[Any]:
        return TINY_TEXTS


def _scored(pairs: Any) -> TextDataset:
    """A named source of pairs with a score each."""
    splits = {
        name: TextSplit(
            [TextPair(a, b) for a, b in zip(split.first, split.second, strict=True)],
            split.scores,
            split.origin,
            split.rows,
        )
        for name, split in pairs.splits.items()
    }
    return TextDataset(pairs.name, splits, rejected=tuple(pairs.rejected))


TINY_TEXTS = (
    "the dog runs",
    "a small cat",
    "the cat sees a dog",
    "a dog",
    "the small dog runs",
    "a cat runs",
    "the cat",
)
