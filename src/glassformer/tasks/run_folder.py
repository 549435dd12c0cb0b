"""What the runs of every task share: splits, the folder and its checks, and the lines said along the way."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import disk_errors, is_temporary, replace_text
from glassformer.checkpoints.locks import LOCK, holds_nothing, refuse_held, writing
from glassformer.checkpoints.native import list_states
from glassformer.config import nearest, read_toml, to_dict, to_toml
from glassformer.data.checks import place
from glassformer.data.doctor import DoctorReport, Severity
from glassformer.data.splits import block_split, stratified_split, stratified_subset
from glassformer.errors import ConfigError, DataError
from glassformer.outputs import check_folder_path
from glassformer.tasks.catalog import build_recipe
from glassformer.train.callbacks import Callback, Count, Progress, uncounted
from glassformer.train.distributed import world
from glassformer.train.state import Training

Say = Callable[[str], None]


@dataclass
class Run:
    """A finished run: its folder, its figures and its report."""

    folder: Path
    metrics: dict[str, Any]
    report: Path


@dataclass(frozen=True)
class Splits:
    """The examples of one experiment. ``judged`` is the split that the final figures come from."""

    dataset: Any  # TextDataset, ImageDataset
    train: Any  # TextSplit, ImageSplit
    validation: Any | None
    judged: Any | None
    judged_name: str


def split_up(dataset: Any, recipe: Any) -> Splits:
    """The splits of a data set, and what the recipe holds out of its training part.

    Raises:
        DataError: no training split, or a part that cannot be held out.
    """
    d, splits = recipe.data, dataset.splits
    if "train" not in splits:
        raise DataError(f"no train split, only {', '.join(splits)}", where=d.source)
    train, validation = splits["train"], splits.get("validation")
    if d.test_size is not None and "test" not in splits:
        train, splits = _held_out(train, d.test_size, d, splits, "test")
    if d.validation_size is not None:
        train, splits = _held_out(train, d.validation_size, d, splits, "validation")
        validation = splits["validation"]
    if d.train_size is not None and d.train_size < len(train):
        train = train.select(stratified_subset(train.labels or [], d.train_size, d.split_seed).tolist())
    name = choose_judged(recipe.evaluate.split, [*splits])
    judged = splits.get(name, validation)
    if judged is None and recipe.evaluate.split == "validation":
        raise DataError(
            "no validation split to judge on", where=d.source, fix="Set validation_size, such as 0.1"
        )
    return Splits(dataset, train, validation, judged, name)


def _held_out(train: Any, size: float, d: Any, splits: dict, name: str) -> tuple[Any, dict]:
    split = block_split if d.hold_out == "blocks" else stratified_split
    kept, held = split(train.labels or [], size, d.split_seed)
    return train.select(kept.tolist()), {**splits, name: train.select(held.tolist())}


JUDGED_OF_TRAINING = 1000  # examples, to see what was learned by heart


def training_sample(splits: Splits) -> Any:
    """Training examples to be judged like the others once training is over, classes in proportion."""
    train = splits.train
    return train.select(stratified_subset(train.labels or [], JUDGED_OF_TRAINING, 0).tolist())


def counter(callbacks: Sequence[Callback]) -> Count:
    """How those who watch the training watch the judging."""
    return next((call.count for call in callbacks if isinstance(call, Progress)), uncounted)


class Examine(Callback):
    """The data doctor between preparation, which settles the tokenizer, and the first step: said, and ``doctor.json``.

    Args:
        examine: makes the report.
        speak: of which severities.
    """

    def __init__(
        self,
        examine: Callable[[], DoctorReport],
        folder: Path,
        say: Say,
        speak: Sequence[Severity] = ("warning",),
    ):
        self.examine, self.folder, self.say, self.speak = examine, folder, say, speak
        self.seconds = 0.0  # what it took, which is no time of training

    def start(self, training: Training) -> None:
        if not training.ranks.leads:
            return
        started = time.perf_counter()
        report = self.examine()
        write_json(self.folder / "doctor.json", report.to_dict())
        for finding in report.findings:
            if finding.severity in self.speak:
                self.say(f"data doctor: {finding.message}")
        self.seconds = time.perf_counter() - started
        training.began += self.seconds


class Announce(Callback):
    """Say where the weights come from, how large the model is, and where a resume goes on."""

    def __init__(self, say: Say, clf: Any):
        self.say, self.clf = say, clf

    def start(self, training) -> None:
        parameters = sum(p.numel() for p in training.model.parameters())
        weight = next(training.model.get_submodule("encoder").parameters())
        dtype = str(weight.dtype).removeprefix("torch.")
        self.say(f"weights: {self.clf.weights_source_}")
        self.say(f"{parameters:,} parameters, computing in {dtype}, {training.total_steps} steps")
        for line in training.skipped:
            self.say(f"damaged checkpoint passed over: {line}")
        if training.step:
            self.say(f"resumed at step {training.step}")


class Helped(Exception):
    """This process has helped to train, and another one writes what came of it."""


def one_writer() -> None:
    """Called once training is over: of several processes, one goes on to judge and to write.

    Raises:
        Helped: in all the others.
    """
    if world()[0]:
        raise Helped


def read_run_recipe(folder: Path) -> Any:
    """The resolved recipe of a run folder."""
    config = folder / "config.toml"
    return build_recipe(read_toml(config), str(config))


def trained_column(folder: str | Path) -> str | None:
    """The column that a run's recipe names for its texts, or for the source of a translation; None: it names none."""
    if not (Path(folder) / "config.toml").is_file():  # a saved model alone
        return None
    data = read_run_recipe(Path(folder)).data
    return getattr(data, "text_column", None) or getattr(data, "source_column", None)


def check_unseen(splits: Splits) -> None:
    """A label that training never shows is found before training, not after it."""
    known = set(splits.train.labels or [])
    for split in (splits.validation, splits.judged):
        if split is None:
            continue
        for i, label in enumerate(split.labels or []):
            if label not in known:
                raise DataError(
                    f"label {label!r} was not seen in training",
                    where=place(split.origin, i, split.rows),
                    fix=f"Known: {', '.join(sorted(map(str, known)))}",
                )


UNBEGUN = {"config.toml", "doctor.json", "rejected.jsonl", "history.jsonl", "checkpoints", LOCK}


def alone(run: Callable[..., Run]) -> Callable[..., Run]:
    """A runner of recipes that holds the lock of its folder from its start to its end, and that leaves nothing where it
    is stopped, or fails, before there is anything to go on from.
    """

    @wraps(run)
    def guarded(recipe: Any, folder: str | Path, *, resume: bool = False, **options: Any) -> Run:
        folder = check_folder_path(Path(folder))
        refuse_held(folder)
        # The lock of a process that was killed: what it left is no run as long as nothing was begun.
        killed = (folder / LOCK).is_file()
        check_folder(folder, recipe, resume, killed)
        with writing(folder):
            check_folder(folder, recipe, resume, killed)  # whoever held the lock before may have left a run
            if killed and not resume:
                clear_unbegun(folder)
            new = not (folder / "config.toml").exists()
            try:
                return run(recipe, folder, resume=resume, **options)
            except Helped:
                raise
            except BaseException:
                if new:
                    clear_unbegun(folder)
                raise

    return guarded


def is_begun(folder: Path) -> bool:
    """Whether a folder holds more than the first files of a run: a step, a checkpoint, or anything else."""
    names = {name for name in os.listdir(folder) if not is_temporary(name)}
    history = folder / "history.jsonl"
    stepped = history.is_file() and history.stat().st_size > 0
    return not names <= UNBEGUN or stepped or bool(list_states(folder / "checkpoints"))


def clear_unbegun(folder: Path) -> None:
    """Remove the first files of a run that was not begun; else the corrected command would meet a folder in use."""
    if is_begun(folder):
        return
    for name in os.listdir(folder):
        with suppress(OSError):
            if name == "checkpoints":
                shutil.rmtree(folder / name)
            elif name != LOCK:
                (folder / name).unlink()


def check_folder(folder: Path, recipe: Any, resume: bool, killed: bool = False) -> None:
    """Raises ConfigError where a run cannot be begun, or gone on with, in ``folder``.

    Args:
        killed: a process was killed there; what it has not begun does not count.
    """
    config = folder / "config.toml"
    check_folder_path(folder)
    if killed and not resume and not is_begun(folder):
        return
    if folder.is_dir() and not holds_nothing(folder):
        if not resume:
            raise ConfigError(
                "the output folder exists",
                where=str(folder),
                fix="Go on with --resume, or choose another --out",
            )
        if not config.is_file():
            raise ConfigError("is not a run folder: it has no config.toml", where=str(folder))
    if config.is_file() and what_decides(read_run_recipe(folder)) != what_decides(recipe):
        raise ConfigError(
            "holds a run of another recipe",
            where=str(config),
            fix="Resume with the same recipe and --set values",
        )


def what_decides(recipe: Any) -> dict[str, Any]:
    """A recipe's settings without those that change nothing in a run: what is said of it, and how loudly."""
    values = {key: value for key, value in to_dict(recipe).items() if key not in ("summary", "expect")}
    train = {key: value for key, value in values.get("train", {}).items() if key != "verbose"}
    return values | ({"train": train} if train else {})


def begin(folder: Path, recipe: Any) -> None:
    """The run's folder with its recipe in it; one that is there already stays as it is."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        replace_text(folder / "config.toml", to_toml(recipe))


def choose_judged(wanted: str, splits: Sequence[str]) -> str:
    """The split that is judged: the one asked for, or validation where there is no test split.

    Raises:
        ConfigError: another split is asked for and not there (the nearest is named).
    """
    if wanted not in (*splits, "test", "validation"):
        raise ConfigError(f"no split {wanted!r}", where="evaluate.split", fix=nearest(wanted, [*splits]))
    return wanted if wanted in splits else "validation"


def describe(splits: Splits) -> str:
    """Name and sizes in one line."""
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    counts = ", ".join(f"{len(v):,} {k}" for k, v in parts.items() if v is not None)
    return f"{splits.dataset.name}: {counts}"


def write_json(path: Path, value: Any) -> None:
    """Write a file of a run folder as ``replacing`` does."""
    replace_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
