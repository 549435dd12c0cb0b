"""Few-shot training of an embedder on texts with labels, by a contrastive loss.

For every text, SetFit (Tunstall et al., 2022) samples 20 pairs of the same class and 20 of different classes,
and encodes both texts of each. Here each text of a batch is encoded once and compared with all others of the
batch. Positive and negative pairs have the same total weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.data.batching import TextBatch, grouped, pack_texts
from glassformer.data.splits import grouped_split, random_split
from glassformer.data.text import TokenTable
from glassformer.errors import ConfigError, DataError, OneClassError, TooFewExamplesError
from glassformer.tasks.similarity.pairs import Pairs

DRAWS = 20  # attempts to draw a validation split with two classes
JUDGED = 5  # positive and negative pairs for each validation text


@dataclass(frozen=True)
class Labelled:
    """Texts and their class indices."""

    texts: list[str]
    targets: np.ndarray  # [n]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | np.ndarray) -> Labelled:
        """The texts of these rows."""
        rows = np.asarray(rows, np.int64)
        return Labelled([self.texts[i] for i in rows], self.targets[rows])


def check_classes(targets: np.ndarray) -> None:
    """Raise DataError if there is only one class, or only one text per class."""
    counts = np.unique(targets, return_counts=True)[1]
    if len(counts) < 2:
        raise OneClassError(
            "all texts have one label", where="labels", fix="Give texts of two classes or more"
        )
    if counts.max() < 2:
        what = "each text has a label of its own"
        raise TooFewExamplesError(what, where="labels", fix="Give two texts or more of a class")


def split_of_labels(
    targets: np.ndarray, groups: Sequence[str], share: float, seed: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Indices of training and of validation texts: all classes are in training, at least two in validation.
    Stratified if the classes are large enough, otherwise at random.

    Args:
        groups: one key per text; texts with the same key go to the same split.

    Raises:
        DataError: an impossible share, or too few texts of a class.
    """
    with suppress(DataError):
        kept, out = grouped_split(targets.tolist(), groups, share, seed)
        return kept.tolist(), out.tolist()
    for draw in range(DRAWS):
        (rest,), (taken,) = random_split([list(range(len(targets)))], share, seed + draw, groups)
        for missing in sorted({*targets[taken].tolist()} - {*targets[rest].tolist()}):
            group = groups[next(i for i in taken if targets[i] == missing)]
            taken = [i for i in taken if groups[i] != group]
        if len(np.unique(targets[taken])) > 1:
            return sorted({*range(len(targets))} - {*taken}), taken
    what = "too few texts: two classes must be held out, and each needs a text to be learned from"
    raise TooFewExamplesError(
        what, where="validation_fraction", fix="Give more texts of each class, or a larger share"
    )


def pairs_of_labels(texts: Sequence[str], targets: np.ndarray, per_text: int, seed: int) -> Pairs:
    """For each text, ``per_text`` pairs with texts of its class (score 1) and as many with others (score 0).

    Raises:
        DataError: only one class.
    """
    if len(np.unique(targets)) < 2:
        raise OneClassError(
            "all texts have one label", where="labels", fix="Give texts of two classes or more"
        )
    rng, first, second, scores = np.random.default_rng(seed), [], [], []
    for i, target in enumerate(targets.tolist()):
        same = np.flatnonzero((targets == target) & (np.arange(len(targets)) != i))
        for rows, score in ((same, 1.0), (np.flatnonzero(targets != target), 0.0)):
            if len(rows):  # empty for the only text of a class
                chosen = rng.choice(rows, per_text).tolist()
                first += [texts[i]] * per_text
                second += [texts[j] for j in chosen]
                scores += [score] * per_text
    return Pairs(first, second, np.array(scores, np.float32))


@dataclass(frozen=True)
class LabelStream:
    """Batches of every epoch: ``passes`` times over the texts, with several texts per class in each batch."""

    table: TokenTable
    targets: np.ndarray  # [n]
    batch_size: int
    passes: int
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table) * self.passes

    def steps(self, epoch: int) -> list:
        batches = [batch for turn in range(self.passes) for batch in self._pass(epoch, turn)]
        return list(grouped(batches, self.accumulate))

    def _pass(self, epoch: int, turn: int) -> list[np.ndarray]:
        """Batches of nearly equal size, made of groups of texts of one class; classes take turns."""
        rng = np.random.default_rng([self.seed, epoch, turn])
        classes = np.unique(self.targets)
        size = max(2, self.batch_size // len(classes))
        groups = []
        for target in classes:
            rows = rng.permutation(np.flatnonzero(self.targets == target))
            parts = np.array_split(rows, math.ceil(len(rows) / size))
            groups += [(place, rng.random(), part) for place, part in enumerate(parts)]
        groups.sort(key=lambda group: group[:2])
        order = np.concatenate([part for *_, part in groups])
        return np.array_split(order, math.ceil(len(order) / self.batch_size))

    def pack(self, index: np.ndarray) -> TextBatch:
        batch = pack_texts(self.table, index, self.device)
        return TextBatch(batch.ids, batch.segments, batch.packing, index)

    def cut(self, index: np.ndarray, rank: int, size: int) -> np.ndarray | None:
        raise ConfigError("the texts of a batch are compared in one process", where="torchrun")
