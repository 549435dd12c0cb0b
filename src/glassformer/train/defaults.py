"""Defaults that learn: rate, epochs, batches and warm-up for a classifier, where a fit is told none.

A fit learns in steps, not in epochs: 64 texts in batches of 32 are two steps an epoch, and three epochs of
them leave random weights as they were. So the number of steps is settled first, then how many passes.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from glassformer.errors import FewStepsWarning, HighRateWarning, IdleSettingWarning
from glassformer.train.config import ClassifierFitConfig

CHOSEN = ("lr", "epochs", "batch_size", "warmup")
SOLVED_BATCH = 1024  # of a pass in which nothing is learned
FEW = 36  # steps that teach nothing
FIXES = {"epochs": "raise epochs", "batch_size": "lower batch_size"}
HURRY = 300  # steps in which a rate for long trainings gets nowhere
BATCHES = (32, 16, 8, 4, 2)
TOO_HIGH = 100  # times the usual rate
MOST_RATE = 4.0
EPOCH_STEPS = 8  # an epoch has at least so many where the batches allow it
GIVEN_STEPS = 72  # likewise all epochs together, where their number is given


@dataclass(frozen=True)
class Kind:
    """What one kind of training wants.

    Args:
        lr: the rate at ``width``, or at any where there is none.
        steps: wanted in all, of batches of 32.
        least, most: epochs.
        width, power: the rate falls with ``(d_model / width) ** power``: wide layers want smaller steps.
        low, high: the rate's bounds.
        hurried: factor on the rate where the epochs that are given leave fewer than ``HURRY`` steps.
        by_classes: whether more classes than three want a higher rate and more steps (``for_classes``).
    """

    lr: float
    steps: int
    least: int
    most: int
    warmup: float = 0.06
    width: int = 0
    power: float = 0.0
    low: float = 0.0
    high: float = 1.0
    hurried: float = 1.0
    by_classes: bool = False

    def for_classes(self, classes: int) -> Kind:
        """As many classes want it: with the logarithm of their number, the rate up to ``MOST_RATE`` times."""
        more = max(math.log2(max(classes, 1)) / 1.5, 1.0) if self.by_classes else 1.0
        return replace(self, lr=self.lr * min(more, MOST_RATE), steps=round(self.steps * more))

    def rate(self, d_model: int, steps: float = math.inf) -> float:
        """The learning rate for a model of this width, two digits of it."""
        scale = (self.width / d_model) ** self.power if self.width and d_model else 1.0
        hurry = self.hurried if steps < HURRY else 1.0
        return float(f"{hurry * min(max(self.lr * scale, self.low), self.high):.1e}")


# Figures: benchmarks/defaults.py, docs/defaults.md.
KINDS: dict[str, Kind] = {
    "pretrained": Kind(1e-4, 250, 2, 20, width=384, power=2.0, low=3e-5, high=1e-3),
    "solved": Kind(1e-4, 250, 2, 20, width=384, power=2.0, low=3e-5, high=1e-3, by_classes=True),
    "adapter": Kind(5e-4, 700, 3, 20, width=384, power=1.0, low=2e-4, high=2e-3),
    "head": Kind(1e-2, 1500, 10, 60),
    "solved head": Kind(1e-2, 1500, 10, 60),
    "encoder": Kind(1e-3, 1000, 3, 60, width=128, power=1.0, low=1e-4, high=2e-3),
    "recurrent": Kind(1e-3, 700, 3, 30, hurried=3.0),
    "convolution": Kind(1e-3, 700, 3, 30),
}


def chosen(
    train: ClassifierFitConfig, kind: str, d_model: int, examples: int, classes: int = 0
) -> dict[str, Any]:
    """What each setting of ``CHOSEN`` that is unset becomes.

    Args:
        kind: a key of ``KINDS``.
        d_model: width of the model's rows.
        examples: of training.
        classes: of the head; 0: it has none.
    """
    out: dict[str, Any] = {}
    # Nothing is left to learn, unless a rate or epochs are given.
    if kind == "solved head" and train.lr is None and train.epochs is None:
        out = {"lr": 0.0, "epochs": 1, "warmup": 0.0}
        out |= {"batch_size": SOLVED_BATCH} if train.batch_size is None else {}
        train = replace(train, **out)
    want = KINDS[kind].for_classes(classes)
    batch, epochs = train.batch_size, train.epochs
    if batch is None:
        needed = EPOCH_STEPS if epochs is None else math.ceil(GIVEN_STEPS / epochs)
        needed *= train.accumulate
        batch = out["batch_size"] = next((b for b in BATCHES if examples >= needed * b), BATCHES[-1])
    each = (batch or BATCHES[0]) * train.accumulate  # examples a step; batch 0: as many as fit batch_tokens
    epoch_steps = math.ceil(max(examples, 1) / each)
    if epochs is None:
        passes = math.ceil(want.steps * min(BATCHES[0], 2 * each) / max(examples, 1))
        passes = min(max(passes, want.least), want.most)
        out["epochs"] = max(passes, math.ceil(FEW / epoch_steps))
    if train.lr is None:
        out["lr"] = want.rate(d_model, math.inf if epochs is None else epochs * epoch_steps)
    if train.warmup is None:
        out["warmup"] = want.warmup
    return {key: out[key] for key in CHOSEN if key in out}


def kind_of(train: Any, network: Any, from_scratch: bool, solved: bool = False) -> str:
    """Which of ``KINDS`` a training is: what of the model learns, and from where."""
    if train.train_layers == 0 and not train.unfreeze_every:
        return "solved head" if solved and not train.lora_rank else "head"
    if train.lora_rank:
        return "adapter"
    if from_scratch:
        return network.kind
    return "solved" if solved else "pretrained"


def settled(train: Any, values: Mapping[str, Any]) -> Any:
    """The settings with what was chosen in them; ``values`` of a saved model may hold other keys."""
    known = {key: values[key] for key in CHOSEN if key in values}
    return replace(train, **known) if known else train


def outside() -> int:
    """The ``stacklevel`` of a warning in the calling function that names the user's line, not one of ours."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "glassformer":
        frame, level = frame.f_back, level + 1
    return level


def warn_of_few(steps: int, given: Mapping[str, Any]) -> None:
    """Warn where the settings that were given leave too few steps to learn from."""
    named = {key: fix for key, fix in FIXES.items() if key in given}
    if steps >= FEW or not named:
        return
    said = ", ".join(f"{key} = {given[key]}" for key in named)
    what = f"{steps} optimizer {'step is' if steps == 1 else 'steps are'} too few to learn from ({said})"
    fix = " or ".join(named.values())
    warnings.warn(f"{what}; {fix}, or leave it unset", FewStepsWarning, stacklevel=outside())


def warn_of_high_rate(train: Any, kind: str, d_model: int) -> None:
    """Warn of a rate that is more than ``TOO_HIGH`` times the usual one."""
    usual = KINDS[kind].rate(d_model)
    if train.lr is not None and train.lr > TOO_HIGH * usual:
        what = f"lr = {train.lr:g} is {train.lr / usual:,.0f} times the usual {usual:g} of such a model"
        fix = f"the training may end in nan; use about {usual:g}, or leave lr unset"
        warnings.warn(f"{what}: {fix}", HighRateWarning, stacklevel=outside())


def warn_of_idle(train: Any, judged: bool, chosen: Mapping[str, Any]) -> None:
    """Warn of a rate at which nothing is learned, and of stopping early with nothing to judge by.

    Args:
        judged: whether examples are held out.
        chosen: what settings that were left unset became.
    """
    if train.lr == 0 and "lr" not in chosen:
        what = "lr = 0 changes no weight; raise it, or leave it unset where it may be"
        warnings.warn(what, IdleSettingWarning, stacklevel=outside())
    if train.early_stopping and not judged:
        what = f"early_stopping = {train.early_stopping} stops nothing without validation data"
        fix = "give validation, or set validation_fraction = 0.1"
        warnings.warn(f"{what}; {fix}", IdleSettingWarning, stacklevel=outside())
