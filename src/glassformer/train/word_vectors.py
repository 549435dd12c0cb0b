"""Training of word vectors.

``optimizer = "sgd"`` uses compiled loops in threads, ``"adam"`` the PyTorch model of ``models/skipgram.py``.
Both can be interrupted and resumed. With one thread or with Adam, resuming is bit-identical.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.checkpoints.native import check_fingerprint, load_state, save_state
from glassformer.data.sentences import Corpus
from glassformer.errors import DivergedError, FewStepsWarning, GlassformerError
from glassformer.models.skipgram import (
    NONE,
    SkipGram,
    SkipGramBatch,
    count_contexts,
    draw_contexts,
    draw_negatives,
    draw_positives,
    keep_probability,
    noise_distribution,
)
from glassformer.train.callbacks import RESUME_HINT, Interrupted, Signals
from glassformer.train.config import FitConfig, VectorsConfig, user_stacklevel
from glassformer.train.objectives import StepLoss
from glassformer.train.state import warn_if_not_reproducible

ROUND = 500_000  # words per round, which takes less than a second; threads synchronize after each round
FINAL_LR = 1e-4  # final learning rate of SGD


def draw_initial_vectors(size: int, dim: int, seed: int, optimizer: str = "sgd") -> np.ndarray:
    """Initial center vectors ``[V, D]``; context vectors start at 0.

    They are drawn from U(-1/dim, 1/dim) as in gensim; for Adam from a range half as wide, as in word2vec
    (Mikolov et al., 2013).
    """
    bound = (1.0 if optimizer == "sgd" else 0.5) / dim
    return np.random.default_rng(seed).uniform(-bound, bound, (size, dim)).astype(np.float32)


def initial_vectors_of(size: int, dim: int, seed: int, saved: dict[str, dict[str, float]]) -> np.ndarray:
    """The initial vectors of a saved training, recognized by their mean norm.

    Older versions drew them from a range half as wide.
    """
    candidates = [draw_initial_vectors(size, dim, seed, optimizer) for optimizer in ("sgd", "adam")]
    mean = saved["before"]["mean"]
    return min(candidates, key=lambda vectors: abs(norms(vectors)["mean"] - mean))


def norms(vectors: np.ndarray) -> dict[str, float]:
    """Mean, minimum and maximum norm of the vectors."""
    lengths = np.linalg.norm(vectors, axis=1)
    return {"mean": float(lengths.mean()), "min": float(lengths.min()), "max": float(lengths.max())}


@dataclass
class CompiledTraining:
    """The state of word-vector training with the compiled loops."""

    corpus: Corpus
    config: VectorsConfig
    fingerprint: dict[str, Any]
    old_defaults: dict[str, Any]  # see ``Training``
    round: int = 0  # number of completed rounds in all epochs
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    computed: list[dict[str, Any]] = field(default_factory=list)  # see ``Training``

    def __post_init__(self) -> None:
        from glassformer.train.negative_sampling import empty_table, loops, make_sampler, padded_width

        c, size = self.config, len(self.corpus.words)
        self.centres, self.contexts = empty_table(size, c.dim), empty_table(size, c.dim)
        self.centres[:, : c.dim] = draw_initial_vectors(size, c.dim, c.seed)
        keep = keep_probability(self.corpus.counts, c.subsample)
        self.sampler = make_sampler(keep, noise_distribution(self.corpus.counts, c.exponent))
        self.train_sentences = loops(padded_width(c.dim))
        self.threads = c.threads or os.cpu_count() or 1
        words = len(self.corpus.ids)
        self.rounds = max(1, round(words / ROUND))  # number of rounds per epoch
        first_words = np.linspace(0, words, self.rounds + 1)
        self.bounds = np.searchsorted(self.corpus.starts, first_words)  # first sentence of each round
        self.bounds[-1] = len(self.corpus)

    @property
    def total_rounds(self) -> int:
        return self.rounds * self.config.epochs

    @property
    def vectors(self) -> np.ndarray:
        """A copy of the word vectors ``[V, D]``."""
        return self.centres[:, : self.config.dim].copy()

    def compile_loops(self) -> None:
        """Compile the loops if the package has no compiled kernels."""
        no_sentences = (0, 0, *self.sampler, self.config.window, self.config.negative, 0.0, 0.0, np.uint64(1))
        self.train_sentences(self.centres, self.contexts, self.corpus.ids, self.corpus.starts, *no_sentences)

    def run(self) -> Iterator[dict[str, Any]]:
        """Train, and yield one history record per round."""
        self.compile_loops()
        with ThreadPoolExecutor(self.threads) as pool:
            while self.round < self.total_rounds:
                started = time.perf_counter()
                record = self._train_round(pool)
                self.round += 1
                self.seconds += time.perf_counter() - started
                record["seconds"] = round(self.seconds, 3)
                self.history.append(record)
                if self.round == self.total_rounds:
                    self._check_finite()
                yield record

    def _train_round(self, pool: ThreadPoolExecutor) -> dict[str, Any]:
        from glassformer.train.negative_sampling import random_state

        c, starts = self.config, self.corpus.starts
        epoch, number = divmod(self.round, self.rounds)
        first, last = self.bounds[number], self.bounds[number + 1]
        initial_lr = 0.025 if c.lr is None else c.lr
        total = len(self.corpus.ids) * c.epochs
        lr_step = (initial_lr - min(FINAL_LR, initial_lr)) / total  # decrease per word
        lr = initial_lr - lr_step * (len(self.corpus.ids) * epoch + int(starts[first]))
        thread_bounds = np.searchsorted(starts, np.linspace(starts[first], starts[last], self.threads + 1))
        thread_bounds[0], thread_bounds[-1] = first, last
        futures = [
            pool.submit(
                self.train_sentences,
                self.centres,
                self.contexts,
                self.corpus.ids,
                starts,
                int(a),
                int(b),
                *self.sampler,
                c.window,
                c.negative,
                lr,
                lr_step * self.threads,
                random_state(c.seed, self.round, i),
            )
            for i, (a, b) in enumerate(pairwise(thread_bounds))
            if b > a
        ]
        results = [future.result() for future in futures]
        pairs, loss, scored_pairs = (sum(column) for column in zip(*results)) if results else (0, 0.0, 0)
        if not np.isfinite(loss):
            raise self._diverged(f"the loss is {loss} in round {self.round + 1}")
        return {
            "kind": "step",
            "step": self.round + 1,
            "of": self.total_rounds,
            "epoch": epoch,
            "loss": loss / scored_pairs if scored_pairs else 0.0,
            "lr": lr,
            "tokens": int(starts[last] - starts[first]),
            "pairs": int(pairs),
        }

    def _diverged(self, what: str) -> GlassformerError:
        lr = 0.025 if self.config.lr is None else self.config.lr
        return DivergedError(f"{what}: lower lr (now {lr})")

    def _check_finite(self) -> None:
        """Raise an error if a vector is not finite; the loss, of only a few windows, may not show this."""
        if not all(np.isfinite(table).all() for _, table in self._tables()):
            raise self._diverged(f"vectors are no longer finite after round {self.round}")

    def save(self, folder: Path) -> Path:
        """Write a checkpoint; if the process is killed, the previous checkpoint stays complete."""
        self._check_finite()
        dim = self.config.dim
        tensors = {k: torch.from_numpy(t[:, :dim].copy()) for k, t in self._tables()}
        state = {"fingerprint": self.fingerprint, "seconds": self.seconds, "history": self.history}
        numerics_now = self._numerics()
        state["computed"] = self.computed if numerics_now in self.computed else [*self.computed, numerics_now]
        return save_state(folder, self.round, tensors, state)

    def load(self, folder: Path) -> None:
        """Continue from the newest complete checkpoint."""
        loaded = load_state(folder)
        check_fingerprint(loaded, self.fingerprint, self.old_defaults)
        self.skipped = [f"{path.name}: {reason}" for path, reason in loaded.skipped]
        for name, table in self._tables():
            table[:, : self.config.dim] = loaded.tensors[name].numpy()
        self.round, self.seconds = loaded.step, loaded.state["seconds"]
        self.history = loaded.state["history"]
        self.computed = loaded.state.get("computed", [])
        if all(record["threads"] == 1 for record in self.computed):  # several threads are never reproducible
            warn_if_not_reproducible(self.computed, self._numerics(), f"round {self.round}")

    def _numerics(self) -> dict[str, Any]:
        from glassformer.train.negative_sampling import loops_origin

        return {"loops": loops_origin(), "threads": self.threads}

    def _tables(self) -> list[tuple[str, np.ndarray]]:
        return [("centres", self.centres), ("contexts", self.contexts)]


def run_compiled(
    training: CompiledTraining,
    folder: Path | None,
    log: Callable[[dict[str, Any]], None] = lambda record: None,
) -> None:
    """Train to the end.

    Checkpoints are written every ``checkpoint_every`` rounds (0: after each epoch), at the end, and on
    Ctrl-C, SIGTERM or SIGHUP after the current round.

    Args:
        folder: the folder of the checkpoints; None: no checkpoints.
        log: called with each history record.
    """
    every, signals = training.config.checkpoint_every or training.rounds, Signals()
    if folder is not None:
        signals.listen()
    try:
        for record in training.run():
            is_finished = training.round == training.total_rounds
            is_stopped = signals.received is not None and not is_finished
            if folder is not None and (training.round % every == 0 or is_finished or is_stopped):
                path = training.save(folder)
            log(record)
            if is_stopped:
                signals.handled = True
                what = f"stopped at round {training.round} of {training.total_rounds}"
                raise Interrupted(f"{what}, saved in {path}; {RESUME_HINT}")
    finally:
        signals.release()
    if not any(record["pairs"] for record in training.history):
        what = "subsampling removed all pairs of words, so nothing was learned"
        fix = "set subsample = 0, or give more text"
        warnings.warn(f"{what}; {fix}", FewStepsWarning, stacklevel=user_stacklevel())


# --- the PyTorch model in the ordinary training loop ------------------------------------------


@dataclass
class SkipGramStream:
    """Batches in which every position of the subsampled corpus is a center once per epoch."""

    corpus: Corpus
    config: VectorsConfig

    def __post_init__(self) -> None:
        counts = self.corpus.counts
        self.keep = keep_probability(counts, self.config.subsample)
        self.cumulative = np.cumsum(noise_distribution(counts, self.config.exponent))
        self._cached: tuple[int, tuple[np.ndarray, ...]] = (-1, ())

    @property
    def examples(self) -> int:
        return len(self._epoch(0)[3])

    def steps(self, epoch: int) -> list:
        """Steps of one batch, which is (epoch, number, positions of centers)."""
        order, size = self._epoch(epoch)[3], self.config.batch_size
        return [[(epoch, i, order[i * size : (i + 1) * size])] for i in range(-(-len(order) // size))]

    def pack(self, index: tuple[int, int, np.ndarray]) -> SkipGramBatch:
        epoch, number, positions = index
        ids, first, last, _ = self._epoch(epoch)
        rng = np.random.default_rng((self.config.seed, 1, epoch, number))
        c = self.config
        positives = draw_positives(ids, first, last, positions, c.window, c.positives, rng)
        negatives = draw_negatives(self.cumulative, positives, c.negative, rng)
        arrays = (ids[positions], positives, negatives)
        return SkipGramBatch(*(torch.from_numpy(np.asarray(a, np.int64)) for a in arrays))

    def _epoch(self, epoch: int) -> tuple[np.ndarray, ...]:
        """The subsampled words of an epoch, the bounds of their sentences, and the order of the centers."""
        if self._cached[0] != epoch:
            rng = np.random.default_rng((self.config.seed, 0, epoch))
            ids, starts = self.corpus.ids, self.corpus.starts
            keep = rng.random(len(ids)) < self.keep[ids]
            ends = np.concatenate([[0], np.cumsum(keep)])[starts]  # sentence bounds in the subsampled corpus
            lengths = np.diff(ends)
            first, last = np.repeat(ends[:-1], lengths), np.repeat(ends[1:], lengths)
            order = rng.permutation(np.flatnonzero(last - first > 1))  # a single word has no context
            self._cached = epoch, (np.asarray(ids)[keep], first, last, order)
        return self._cached[1]


@dataclass
class WordStream:
    """Batches in which every word is a center once per epoch, with positives drawn from all its contexts."""

    corpus: Corpus
    config: VectorsConfig

    def __post_init__(self) -> None:
        self.size = len(self.corpus.words)
        ids, starts = np.asarray(self.corpus.ids), np.asarray(self.corpus.starts)
        self.pairs, self.counts = count_contexts(ids, starts, self.size, self.config.window)
        self.cumulative = np.cumsum(noise_distribution(self.corpus.counts, self.config.exponent))
        self.words = np.unique(self.pairs // self.size)  # words that have a context

    @property
    def examples(self) -> int:
        return len(self.words)

    def steps(self, epoch: int) -> list:
        """Steps of one batch, which is (epoch, number, center words)."""
        order = np.random.default_rng((self.config.seed, 0, epoch)).permutation(self.words)
        size = self.config.batch_size
        return [[(epoch, i, order[i * size : (i + 1) * size])] for i in range(-(-len(order) // size))]

    def pack(self, index: tuple[int, int, np.ndarray]) -> SkipGramBatch:
        epoch, number, centres = index
        rng, c = np.random.default_rng((self.config.seed, 1, epoch, number)), self.config
        positives = draw_contexts(self.pairs, self.counts, self.size, centres, c.positives, rng)
        negatives = draw_negatives(self.cumulative, positives, c.negative, rng)
        return SkipGramBatch(
            *(torch.from_numpy(np.asarray(a, np.int64)) for a in (centres, positives, negatives))
        )


def adam_config(config: VectorsConfig) -> FitConfig:
    """Settings of the training loop for Adam: constant learning rate, no weight decay, no clipping, fp32."""
    return FitConfig(
        epochs=config.epochs,
        lr=1e-3 if config.lr is None else config.lr,
        optimizer="adam",
        weight_decay=0.0,
        schedule="constant",
        warmup=0.0,
        clip=0.0,
        batch_size=config.batch_size,
        keep_best=False,
        checkpoint_every=config.checkpoint_every,
        seed=config.seed,
        precision="fp32",
        threads=config.threads,
    )


def skipgram_loss(model: SkipGram, batch: SkipGramBatch) -> StepLoss:
    """The loss summed over centers; ``correct`` counts centers whose first positive beats all negatives."""
    losses: Tensor = model(batch)
    with torch.no_grad():
        noise = model.scores(batch.centres, batch.negatives).masked_fill(batch.negatives == NONE, -torch.inf)
        best = model.scores(batch.centres, batch.positives[:, :1])[:, 0] > noise.amax(1)
    return StepLoss(losses.sum(), best.sum(), len(losses))
