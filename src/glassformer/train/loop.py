"""The training loop, a generator of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch

from glassformer.data.batching import (
    BatchSettings,
    ResidentTable,
    TextBatch,
    accumulation_groups,
    pack_texts,
    split_evenly,
    training_batches,
)
from glassformer.errors import DivergedError
from glassformer.finite import finite
from glassformer.runtime import fits_on_gpu
from glassformer.train.graphs import make_graphs
from glassformer.train.objectives import with_gradients
from glassformer.train.optim import learning_rate
from glassformer.train.state import Training

# Key of an evaluation: a score that selects weights instead of the monitored metric; not saved in the
# history.
SELECTION_SCORE = "instead of the monitor"


@dataclass(frozen=True)
class StepInfo:
    """One optimizer step; ``evaluation`` is set if the model was evaluated after it."""

    step: int
    epoch: int
    loss: float  # mean over the step's sequences
    lr: float
    tokens: int
    gradient_norm: float
    evaluation: dict[str, Any] | None = None
    is_best: bool = False


class Steps(Protocol):
    """Batches whose number is known in advance."""

    def steps(self, epoch: int) -> list[list]:
        """The optimizer steps of an epoch, each a list of micro-batches (indices of examples)."""
        ...


class Stream(Steps, Protocol):
    """The batches of every epoch; they depend only on the epoch, not on the state of random generators."""

    @property
    def examples(self) -> int:
        """Number of examples per epoch."""
        ...

    def pack(self, index: Any) -> Any:
        """One packed batch with an attribute ``packing``."""
        ...

    def shard(self, index: Any, rank: int, size: int) -> Any:
        """The examples of a batch that process ``rank`` of ``size`` computes; None: no examples."""
        ...


def count_steps(stream: Steps, epochs: int) -> int:
    """Number of optimizer steps in ``epochs`` epochs."""
    return sum(len(stream.steps(epoch)) for epoch in range(epochs))


@dataclass(frozen=True)
class TextStream:
    """The batches of every epoch, from a ``TokenTable``."""

    table: Any
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table)

    def steps(self, epoch: int) -> list:
        batches = training_batches(self.table.lengths, self.settings, self.seed, epoch)
        return list(accumulation_groups(batches, self.accumulate))

    def pack(self, index: np.ndarray) -> TextBatch:
        if self.resident is not None:
            return self.resident.pack(index)
        return pack_texts(self.table, index, self.device)

    @cached_property
    def resident(self) -> ResidentTable | None:
        """The tokens in GPU memory; None if they do not fit."""
        return (
            ResidentTable.of(self.table, self.device)
            if fits_on_gpu(self.device, self.table.ids.nbytes)
            else None
        )

    def shard(self, index: np.ndarray, rank: int, size: int) -> np.ndarray | None:
        rows = split_evenly(self.table.lengths[index], size)[rank]
        return index[rows] if len(rows) else None


@dataclass(frozen=True)
class WordStream(TextStream):
    """A ``TextStream`` whose examples are words: the loss is the mean over all words of an epoch."""

    words: int = 0  # number of words with a target per epoch

    @property
    def examples(self) -> int:
        return self.words


START_SHARES = (0.0, 0.25, 0.5, 0.75)  # candidates for the weight of the initial checkpoint (WiSE-FT)


def run(
    training: Training,
    stream: Stream,
    objective: Callable,
    evaluate: Callable[[], dict[str, float]] | None = None,
) -> Iterator[StepInfo]:
    """Train from the current state of ``training`` to the end.

    When a step is yielded, ``training`` includes its evaluation. Resuming from a checkpoint that is saved at
    this point is bit-identical.

    Raises:
        GlassformerError: the loss is not finite.
    """
    config, model, optimizer, ranks = training.config, training.model, training.optimizer, training.ranks
    examples = stream.examples
    compute = make_graphs(training, stream, objective)
    stream, objective = ranks.divide(stream, objective)
    compute = compute or partial(with_gradients, objective)
    if training.evaluate_start and evaluate is not None and training.step == 0:
        _evaluate_start(training, evaluate)
    while not training.finished:
        steps = stream.steps(training.epoch)
        if not steps:  # subsampling may remove all words of an epoch
            training.epoch, training.cursor, training.epoch_sums = training.epoch + 1, 0, {}
            continue
        # Batches may differ in size; dividing by the mean size gives every sequence the same weight.
        # Processes average their gradients; dividing ``per_step`` by their number turns the mean into a sum.
        per_step = examples / len(steps) / ranks.size
        for micro_batches in steps[training.cursor :]:
            started = time.perf_counter()
            model.train()
            sums_to_read, count, tokens = [], 0, 0
            for i, index in enumerate(micro_batches, 1):
                batch = stream.pack(index)
                with ranks.gradient_sync(enabled=i == len(micro_batches)):
                    out = compute(model, batch, per_step)
                sums_to_read += [out.loss.detach(), out.correct]
                count += out.count
                tokens += batch.packing.total if out.count else 0
            gradient_norm = optimizer.gradient_norm()
            # The only synchronization with a GPU per step.
            *parts, norm = torch.stack(
                [x.to(sums_to_read[0].device).double() for x in (*sums_to_read, gradient_norm)]
            ).tolist()
            sums = ranks.sum(loss=sum(parts[::2]), correct=sum(parts[1::2]), count=count, tokens=tokens)
            loss_sum, count, tokens = sums["loss"], sums["count"], sums.pop("tokens")
            training.epoch_sums = {k: training.epoch_sums.get(k, 0.0) + v for k, v in sums.items()}
            if not np.isfinite(loss_sum):
                clip = "" if config.clip else " or set clip=1"
                raise DivergedError(
                    f"the loss is {loss_sum} at step {training.step + 1}: lower lr (now {config.lr}){clip}"
                )
            lr = learning_rate(training.step, training.total_steps, config)
            optimizer.update(lr, gradient_norm)
            training.step += 1
            training.cursor += 1
            training.seconds += time.perf_counter() - started
            epoch, ends_epoch = training.epoch, training.cursor == len(steps)
            info = {
                "step": training.step,
                "epoch": epoch,
                "loss": loss_sum / max(count, 1),  # a batch may have no masked words
                "lr": lr,
                "tokens": tokens,
            }
            training.history.append({"kind": "step", **info, "seconds": round(training.seconds, 3)})
            evaluation, is_best = None, False
            evaluate_now = training.step % config.evaluate_every == 0 if config.evaluate_every else ends_epoch
            if evaluate_now or training.step == training.total_steps:  # the last weights may be the best
                evaluation, is_best = _evaluate(training, evaluate, epoch)
            if ends_epoch:
                training.epoch, training.cursor, training.epoch_sums = training.epoch + 1, 0, {}
            yield StepInfo(**info, gradient_norm=norm, evaluation=evaluation, is_best=is_best)
            if training.stopped_early:
                return


def _evaluate_start(training: Training, evaluate: Callable) -> None:
    """Evaluate the initial weights, which stay the best weights unless a later evaluation is better."""
    config = training.config
    training.model.eval()
    with training.evaluation_weights():
        record = evaluate()
    score = _score(training, record)
    training.best_score, training.best_loss, training.best_step = score, record["loss"], 0
    if config.keep_best:
        training.best_weights = training.optimizer.weights()
    training.history.append({"kind": "start", "step": 0, "epoch": 0, **record})


def _score(training: Training, record: dict[str, Any]) -> float:
    """The score that selects the best weights; higher is better."""
    score, monitor = record.pop(SELECTION_SCORE, None), training.config.monitor
    if score is not None:
        return score
    return -record["loss"] if monitor == "loss" else record[monitor]


@torch.no_grad()
def choose_start_share(training: Training, evaluate: Callable[[], dict[str, float]]) -> float:
    """Interpolate the final weights to the initial weights with the best of ``START_SHARES``.

    Returns the chosen share.
    """
    optimizer, end = training.optimizer, training.final_weights()
    candidates: list[tuple[float, float, float]] = []  # score, minus the loss, minus the share
    training.model.eval()
    for share in START_SHARES:
        optimizer.load(optimizer.interpolate_to_start(end, share))
        record = evaluate()
        candidates.append((_score(training, record), -record["loss"], -share))
    share = -max(candidates)[-1]
    training.best_weights = optimizer.interpolate_to_start(end, share)
    return share


def _evaluate(training: Training, evaluate: Callable | None, epoch: int) -> tuple[dict[str, Any], bool]:
    """Evaluate, keep the best weights, and count evaluations without improvement (early stopping)."""
    config, sums = training.config, training.epoch_sums
    record: dict[str, Any] = {
        "train_loss": sums["loss"] / max(sums["count"], 1),
        "train_accuracy": sums["correct"] / max(sums["count"], 1),
    }
    is_best = False
    if evaluate is not None:
        training.model.eval()
        with training.evaluation_weights():
            record |= evaluate()
        score = _score(training, record)
        finite(np.array([record["loss"], score]), "validation losses or scores")
        is_improved = training.best_score is None or score > training.best_score
        is_best = is_improved or (score == training.best_score and training.better_by_loss(record["loss"]))
        if is_best:
            training.best_score, training.best_loss = score, record["loss"]
            training.best_step = training.step
            if config.keep_best:
                training.best_weights = training.optimizer.weights()
        if is_improved:
            training.bad_evaluations = 0
        else:  # a tie counts as no improvement
            training.bad_evaluations += 1
            training.stopped_early = 0 < config.early_stopping <= training.bad_evaluations
    training.history.append(
        {"kind": "evaluation", "step": training.step, "epoch": epoch, **record, "best": is_best}
    )
    return record, is_best
