"""Run a recipe, or evaluate a finished run.

The folder of a run has these files, and further files of its task:

    config.toml  doctor.json  history.jsonl  checkpoints/  model/  metrics.json  report.html

This module calls the steps of a run in order; each task implements them. If the process is killed,
``resume=True`` continues bit-identically from the newest complete checkpoint.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.checkpoints.files import disk_errors, is_temporary, read_json, replace_text
from glassformer.checkpoints.locks import LOCK, check_unlocked, is_empty_folder, write_lock
from glassformer.checkpoints.native import OTHER_DATA, list_states
from glassformer.checkpoints.settings import find_metadata
from glassformer.config import join_names, read_toml, to_dict, to_toml
from glassformer.data.columns import AUTO, NONE
from glassformer.data.doctor_checks import without_skip_fix
from glassformer.data.files import reading_as
from glassformer.data.findings import summary_lines
from glassformer.data.rejected import skip_message, write_rejected
from glassformer.data.tags import EXACT_SCHEME
from glassformer.errors import (
    CheckpointError,
    ConfigError,
    ExistsError,
    NotARunError,
    NotForThisModelError,
    OtherRunError,
    UnknownKeyError,
    counted,
)
from glassformer.explain.architecture import blocks
from glassformer.outputs import check_folder_path
from glassformer.report.notebook import Records, run_html
from glassformer.report.run import read_history
from glassformer.runtime import as_single_process, machine_facts, peak_memory_mb, versions, world
from glassformer.tasks.card import write_card
from glassformer.tasks.catalog import TASKS, build_recipe, known_recipe
from glassformer.tasks.load import load
from glassformer.tasks.supervised import check_column, evaluate_every_epoch, slices
from glassformer.tasks.task import (
    DIGESTS_KEY,
    DataPreview,
    Log,
    RunContext,
    check_resumed,
    is_named,
    split_digests,
    write_json,
)
from glassformer.train.callbacks import (
    INTERRUPTED,
    RESUME_HINT,
    Callback,
    Count,
    HistoryFile,
    Interrupted,
    Progress,
    StopOnSignal,
    no_progress,
)
from glassformer.train.distributed import require_single_process
from glassformer.train.state import Training


@dataclass
class Run:
    """A finished run: its folder, its metrics and the path of its report."""

    folder: Path
    metrics: dict[str, Any]
    report: Path

    @classmethod
    def of(cls, folder: str | Path) -> Run:
        """Open a finished run."""
        folder = Path(folder)
        return cls(folder, read_json(folder / "metrics.json"), folder / "report.html")

    @property
    def history(self) -> Records:
        """The training history, from ``history.jsonl``."""
        return Records(read_history(self.folder / "history.jsonl"))

    def plot(self) -> Any:
        """A matplotlib figure with training loss and validation metrics over the steps."""
        return self.history.plot(self.folder.name)

    def _repr_html_(self) -> str:
        return str(run_html(self.folder, self.metrics))


class NotMainProcess(Exception):
    """Raised after training in all processes but the main one, which writes the results."""


@contextmanager
def main_process_only() -> Iterator[None]:
    """A context for work after training; in all processes but the main one, it raises NotMainProcess."""
    if world()[0]:
        raise NotMainProcess
    with as_single_process():
        yield


def read_run_recipe(folder: Path) -> Any:
    """Read the recipe of a run folder."""
    config = folder / "config.toml"
    values = read_toml(config)
    recipe = build_recipe(values, str(config))
    # Runs of older versions lack these keys.
    if hasattr(recipe.data, "pair_column") and "pair_column" not in values.get("data", {}):
        return replace(recipe, data=replace(recipe.data, pair_column=NONE))
    if hasattr(getattr(recipe, "text", None), "scheme") and "scheme" not in values.get("text", {}):
        return replace(recipe, text=replace(recipe.text, scheme=EXACT_SCHEME))
    return recipe


def training_columns(folder: str | Path) -> tuple[str | None, ...]:
    """The text columns (two for pairs) that a run or a saved model was trained on; empty if unknown."""
    folder = Path(folder)
    names = find_metadata(folder)[1].get("columns")
    if isinstance(names, list) and names:  # ``load`` reports invalid names
        return tuple(map(str, names))
    if not (folder / "config.toml").is_file():  # a saved model without a run
        return ()
    data = read_run_recipe(folder).data
    text = getattr(data, "text_column", None) or getattr(data, "source_column", None)
    pair = getattr(data, "pair_column", NONE)
    return (text, pair) if pair not in (AUTO, NONE) else (text,) if text else ()


def training_column(folder: str | Path) -> str | None:
    """The first of ``training_columns``; None: unknown."""
    return next(iter(training_columns(folder)), None)


def with_columns(recipe: Any, columns: Mapping[str, str]) -> Any:
    """The recipe with other columns, for evaluation on other data; ``columns`` are keys of ``data``."""
    for key in columns:
        if not hasattr(recipe.data, key):
            column_keys = [k for k in vars(recipe.data) if k.endswith("_column")]
            what = f"a recipe of {recipe.task} has no {key}"
            raise UnknownKeyError(what, where=key, fix=f"It has {' and '.join(column_keys) or 'no columns'}")
    return replace(recipe, data=replace(recipe.data, **columns))


FOLDERS = {"checkpoints", "tensorboard"}
# Files and folders that a run writes before its first step or checkpoint.
FIRST_FILES = {"config.toml", "doctor.json", "rejected.jsonl", "history.jsonl", LOCK, *FOLDERS}


def with_lock(run: Callable[..., Run]) -> Callable[..., Run]:
    """A decorator that locks the run folder while ``run`` works.

    If the run fails or is stopped before its first step, its files are removed.
    """

    @wraps(run)
    def run_locked(recipe: Any, folder: str | Path, *, resume: bool = False, **options: Any) -> Run:
        folder = check_folder_path(Path(folder))
        check_unlocked(folder)
        # A killed process leaves a lock file without a lock, before or after the start of a run.
        was_killed = (folder / LOCK).is_file()
        check_folder(folder, recipe, resume, was_killed)
        with write_lock(folder):
            # Check again, because another process may have written to the folder.
            check_folder(folder, recipe, resume, was_killed)
            if was_killed and not resume:
                remove_first_files(folder)
            is_new = not (folder / "config.toml").exists()
            try:
                return run(recipe, folder, resume=resume, **options)
            except NotMainProcess:
                raise
            except BaseException:
                if is_new:
                    remove_first_files(folder)
                raise

    return run_locked


def has_started(folder: Path) -> bool:
    """Whether a folder has a step, a checkpoint, or any file that is not one of ``FIRST_FILES``."""
    names = {name for name in os.listdir(folder) if not is_temporary(name)}
    history = folder / "history.jsonl"
    has_step = history.is_file() and history.stat().st_size > 0
    return not names <= FIRST_FILES or has_step or bool(list_states(folder / "checkpoints"))


def remove_first_files(folder: Path) -> None:
    """Remove the files of a run without a step, so that a corrected command can use the same folder."""
    if has_started(folder):
        return
    for name in os.listdir(folder):
        with suppress(OSError):
            if name in FOLDERS:
                shutil.rmtree(folder / name)
            elif name != LOCK:
                (folder / name).unlink()


def check_folder(folder: Path, recipe: Any, resume: bool, was_killed: bool = False) -> None:
    """Raise ConfigError if a run cannot be started or resumed in ``folder``.

    If the process of its run ``was_killed`` before the first step, the folder can be used again.
    """
    config = folder / "config.toml"
    check_folder_path(folder)
    if was_killed and not resume and not has_started(folder):
        return
    if folder.is_dir() and not is_empty_folder(folder):
        if not config.is_file():
            what = "the output folder exists and is not a run folder: it has no config.toml"
            raise (NotARunError if resume else ExistsError)(
                what, where=str(folder), fix="Choose another --out"
            )
        if not resume:
            what = "the output folder exists"
            raise ExistsError(what, where=str(folder), fix="Continue with --resume, or choose another --out")
    if not config.is_file():
        return
    if changes := _differences(relevant_settings(read_run_recipe(folder)), relevant_settings(recipe)):
        what = f"contains a run of another recipe ({join_names(changes)})"
        fix = "Resume with the same recipe and --set values, or choose another --out"
        raise OtherRunError(what, where=str(config), fix=fix)


IGNORED = {  # section -> settings that may differ when a run is resumed
    "train": ("verbose",),
    "text": ("scheme",),  # another scheme changes the tags, and so the digest of the data
    "data": ("broken", "on_bad_row", "copies", "pair_column", "encoding"),  # see ``with_run_settings``
}


def relevant_settings(recipe: Any) -> dict[str, Any]:
    """The settings of a recipe that must be equal to resume a run."""
    values = {key: value for key, value in to_dict(recipe).items() if key not in ("summary", "expect")}
    for section, keys in IGNORED.items():
        if section in values:
            values[section] = {key: value for key, value in values[section].items() if key not in keys}
    return values


def _differences(old: dict[str, Any], new: dict[str, Any], section: str = "") -> list[str]:
    """The settings that differ between two recipes, with both values."""
    out = []
    for key in dict.fromkeys((*old, *new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict) and key != "merge_labels":
            out += _differences(before, after, f"{key}.")
        elif before != after:
            out.append(f"{section}{key} is {before!r} there and {after!r} here")
    return out


def with_run_settings(recipe: Any, folder: Path) -> tuple[Any, bool]:
    """The recipe with the settings that determine the splits of the run in ``folder``.

    In a new run on data of the user, duplicates are in the same split. The second value is whether to leave
    out unreadable images only after splitting, so that the splits stay the same.
    """
    data, config, changes = recipe.data, folder / "config.toml", {}
    run_recipe: Any = read_run_recipe(folder) if config.is_file() else None
    old_values = run_recipe and run_recipe.data
    if getattr(getattr(run_recipe, "text", None), "scheme", None) == EXACT_SCHEME:
        recipe = replace(recipe, text=replace(recipe.text, scheme=EXACT_SCHEME))
    if hasattr(data, "copies"):
        if old_values is not None:
            old_copies = getattr(old_values, "copies", None)
            if data.copies is not None and data.copies != (old_copies or "apart"):
                what = f"was started with copies = {old_copies or 'apart'}"
                raise OtherRunError(what, where=str(config), fix="Leave copies out, or choose another --out")
            changes["copies"] = old_copies
        elif data.copies is None and not is_named(data.source):
            changes["copies"] = "together"
    if old_values is not None and getattr(data, "pair_column", None) == AUTO:
        changes["pair_column"] = old_values.pair_column
    drop_after_split = False
    if old_values is not None and hasattr(data, "broken"):
        drop_after_split = data.broken == "skip" != getattr(old_values, "broken", "skip")
        changes["broken"] = getattr(old_values, "broken", data.broken)
    return (replace(recipe, data=replace(data, **changes)) if changes else recipe), drop_after_split


def with_bad_rows(recipe: Any, on_bad_row: str | None, is_other_data: bool) -> Any:
    """The recipe with another ``on_bad_row``, and for other data than that of the run also ``broken``."""
    keys = ("on_bad_row", "broken") if is_other_data else ("on_bad_row",)
    changes = {key: on_bad_row for key in keys if on_bad_row is not None and hasattr(recipe.data, key)}
    return replace(recipe, data=replace(recipe.data, **changes)) if changes else recipe


def create_run_folder(folder: Path, recipe: Any) -> None:
    """Create the folder of a run and write its recipe, unless it exists."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        replace_text(folder / "config.toml", to_toml(recipe))


def run_task(recipe: Any, folder: str | Path, **options: Any) -> Run:
    """Run a recipe of any task in ``folder``.

    Args:
        options: ``resume``: continue the run in the folder; otherwise an existing folder is an error.
            ``log``: called with each line to print. ``callbacks``: called at every training step.
            ``best_so_far``: if a signal stops the comparison of models, evaluate and report the best model
            so far before the error ``Interrupted``.

    Raises:
        ConfigError: the folder exists and ``resume`` is False, or it has a run of another recipe.
        InputError: the data, the settings or the checkpoint are invalid.
        NotMainProcess: with ``torchrun``, in all processes except the main one, which writes the run.
        Interrupted: a signal stopped the run; ``resume`` continues it.
    """
    if reason := TASKS[recipe.task].estimator.SINGLE_PROCESS_REASON:
        require_single_process(reason, "Run it without torchrun")
    if world()[0] == 0:
        return _run(recipe, folder, **options)
    with TemporaryDirectory() as scratch:
        return _run(recipe, Path(scratch) / "run", resume=options.get("resume", False))


@with_lock
def _run(
    recipe: Any,
    folder: Path,
    *,
    resume: bool = False,
    log: Log = lambda line: None,
    callbacks: Sequence[Callback] = (),
    best_so_far: bool = False,
) -> Run:
    task, started = TASKS[recipe.task], time.perf_counter()
    recipe, drop_after_split = with_run_settings(recipe, folder)
    count = next((call.count for call in callbacks if isinstance(call, Progress)), no_progress)
    context = RunContext(task, recipe, folder, log, count)
    context.data = task.load(recipe)
    digests = split_digests(context.data)
    if resume:
        check_resumed(folder, context.data, recipe.data.source)
    if drop_after_split:
        context.data, messages = task.drop_unreadable(context.data, context)
        for line in messages:
            log(line)
    preview = task.preview_data(context)
    context.estimator = task.estimator.from_recipe(recipe)
    create_run_folder(folder, recipe)
    for line in preview.lines:
        log(line)
    if preview.rejected:
        write_rejected(folder / "rejected.jsonl", preview.rejected)
        log(skip_message(preview.rejected))
    doctor = RunDoctor(context, preview)
    setup = time.perf_counter() - started
    fit_started = time.perf_counter()
    run_callbacks: list[Callback] = [HistoryFile(folder / "history.jsonl"), *callbacks]
    if not task.estimator.SINGLE_PROCESS_REASON:  # such estimators handle signals and progress themselves
        stop = StopOnSignal(folder / "checkpoints", best_so_far=best_so_far)
        run_callbacks = [run_callbacks[0], doctor, LogStart(context), *callbacks, stop]
    try:
        task.fit(context, checkpoints=folder / "checkpoints", resume=resume, callbacks=run_callbacks)
    except CheckpointError as error:
        source = getattr(recipe.data, "source", "")
        if error.what != OTHER_DATA or not source:
            raise
        what = f"{source} has changed since the run began"
        fix = "Restore it, or start a new run with another --out"
        raise error.replace(what=what, where=str(folder), fix=fix) from None
    fit_seconds = time.perf_counter() - fit_started
    with main_process_only():
        context.estimator.save(folder / "model", overwrite=True)
        context.estimator.save_run_files(folder)
        metrics: dict[str, Any] = _run_metadata(context) | task.evaluate(context)
        metrics["peak_memory_mb"] = peak_memory_mb()
        train_seconds = context.estimator.train_seconds_  # includes training before an interruption
        metrics["seconds"] = {
            "setup": setup + doctor.seconds,
            "train": train_seconds - doctor.seconds,
            "total": time.perf_counter() - started + max(0.0, train_seconds - fit_seconds),
        } | metrics.get("seconds", {})
        if digests:
            metrics[DIGESTS_KEY] = digests
        write_json(folder / "metrics.json", metrics)
        write_card(folder / "model", context.estimator, folder)
        for name, artifact in task.collect_artifacts(context).items():
            write_json(folder / name, artifact)
        run = Run(folder, metrics, task.render_report(folder, known_recipe(folder)))
        if best := best_of_interrupted(metrics):
            error = Interrupted(
                f"stopped before all models were compared; the best so far, {best}, is kept; {RESUME_HINT}"
            )
            error.run = run
            raise error
        return run


def best_of_interrupted(metrics: Mapping[str, Any]) -> str:
    """The best model of a comparison that a signal stopped; empty if no signal stopped it."""
    tried = metrics.get("tried") or []
    is_stopped = any(record.get("left out") == INTERRUPTED for record in tried)
    return next((record["model"] for record in tried if is_stopped and record.get("chosen")), "")


def evaluate_task(
    folder: str | Path,
    data: str | None = None,
    log: Log = lambda line: None,
    count: Count = no_progress,
    on_bad_row: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    every_epoch: bool = False,
    by: str | None = None,
) -> dict[str, Any]:
    """Evaluate the saved model of a run again, on its own data or on other data.

    Args:
        on_bad_row: ``skip`` leaves out rows and images that cannot be used, and logs them. ``refuse`` raises
            an error for the first one. None: the value of the recipe.
        columns: key of the recipe -> name of a column in ``data``, for names that differ from training.
        every_epoch: evaluate the weights of each epoch of a classifier with ``keep_epochs``. The result is
            ``{"epochs": [...]}``.
        by: a column of the evaluated table. The result also has metrics per value, see ``slices``.

    Raises:
        ConfigError: the model is not of its recipe's task, no weights of epochs were saved, or there is no
            such column.
        InputError: the model is damaged, or the data cannot be evaluated.
    """
    training_recipe = read_run_recipe(Path(folder))
    recipe = with_columns(training_recipe, columns or {})
    task = TASKS[recipe.task]
    recipe = with_bad_rows(recipe, on_bad_row, is_other_data=False)
    context = RunContext(task, recipe, Path(folder), log, count, estimator=load(folder))
    context.training_recipe, context.drop_unreadable = training_recipe, on_bad_row == "skip"
    if not isinstance(context.estimator, task.estimator):
        raise ConfigError(f"contains no {task.estimator.__name__}, as its recipe says", where=str(folder))
    if not every_epoch:
        with reading_as(recipe.data, other=data is not None):
            if by is not None:
                check_column(context, data, by)
            metrics = task.evaluate_saved(context, data)
            return metrics if by is None else metrics | {"by": slices(context, by)}
    if task.answer is None:
        what = f"{recipe.task} does not save the weights of each epoch"
        raise NotForThisModelError(what, where=str(folder), fix="Leave --every-epoch out")
    return {"epochs": evaluate_every_epoch(context, data)}


def _run_metadata(context: RunContext) -> dict[str, Any]:
    """Entries of metrics.json about the task, the machine, the model and its training."""
    estimator = context.estimator
    metadata: dict[str, Any] = {
        "task": context.recipe.task,
        "machine": machine_facts(),
        "versions": versions(*context.task.packages),
        "seed": estimator.seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if not hasattr(estimator, "model_"):
        return metadata
    steps = [record for record in estimator.history_ if record["kind"] == "step"]
    tokens = sum(record["tokens"] for record in steps)
    tokens_per_second = tokens / max(steps[-1]["seconds"], 1e-9) if tokens else None
    return metadata | {
        "weights_source": estimator.weights_source_,
        "chosen": dict(estimator.chosen_),
        "parameters": sum(p.numel() for p in estimator.model_.parameters()),
        "architecture": [block.to_dict() for block in blocks(estimator.model_)],
        "tokens_per_second": tokens_per_second,
        "best_step": estimator.best_step_,
    }


class RunDoctor(Callback):
    """Runs the data doctor before the first step, because it needs the tokenizer or transform."""

    def __init__(self, context: RunContext, preview: DataPreview):
        self.context, self.preview = context, preview
        self.seconds = 0.0  # duration of the checks, which does not count as training time
        self.logged: set[str] = set()  # lines of earlier calls: a run may train several models

    def start(self, training: Training) -> None:
        if self.preview.doctor is None or not training.ranks.is_main:
            return
        started = time.perf_counter()
        report = without_skip_fix(self.preview.doctor())
        write_json(self.context.folder / "doctor.json", report.to_dict())
        for line in summary_lines([f for f in report.findings if f.severity in self.preview.severities]):
            if line not in self.logged:
                self.logged.add(line)
                self.context.log(f"data doctor: {line}")
        seconds = time.perf_counter() - started
        self.seconds += seconds
        training.start_time += seconds


class LogStart(Callback):
    """Logs the origin of the weights, the size of the model, and the step at which a run resumes."""

    def __init__(self, context: RunContext):
        self.log, self.estimator = context.log, context.estimator

    def start(self, training: Training) -> None:
        parameters = sum(p.numel() for p in training.model.parameters())
        self.log(f"weights: {self.estimator.weights_source_}")
        if getattr(training.model, "is_linear", False):
            self.log(f"{parameters:,} parameters, fitted directly, without training steps")
            return
        weight = next(training.model.get_submodule("encoder").parameters())
        dtype = str(weight.dtype).removeprefix("torch.")
        solved = training.total_steps == 1 and training.config.lr == 0
        steps = "head solved without training steps" if solved else counted(training.total_steps, "step")
        self.log(f"{parameters:,} parameters, computing in {dtype}, {steps}")
        for line in training.skipped:
            self.log(f"skipped a damaged checkpoint: {line}")
        if training.step:
            self.log(f"resumed at step {training.step}")
