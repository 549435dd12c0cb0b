"""Run a recipe, or evaluate a finished run.

The folder of a run has these files, and further files of its task:

    config.toml  doctor.json  history.jsonl  checkpoints/  model/  metrics.json  report.html

This module calls the stages of a run in order; each task implements them. If the process is killed,
``resume=True`` continues bit-identically from the newest complete checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.checkpoints.native import OTHER_DATA
from glassformer.data.doctor_checks import without_skip_fix
from glassformer.data.files import reading_as
from glassformer.data.findings import summary_lines
from glassformer.data.rejected import skipped_rows_message, write_rejected
from glassformer.errors import CheckpointError, ConfigError, NotForThisModelError, counted
from glassformer.explain.architecture import blocks
from glassformer.runtime import machine_facts, peak_memory_mb, versions, world
from glassformer.tasks.card import write_card
from glassformer.tasks.catalog import TASKS, known_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run_folder import (
    Run,
    begin,
    main_process_only,
    read_run_recipe,
    with_bad_rows,
    with_columns,
    with_lock,
    with_run_settings,
)
from glassformer.tasks.run_steps import KEY, check_resumed, split_digests
from glassformer.tasks.supervised import check_column, evaluate_every_epoch, slices
from glassformer.tasks.task import DataPreview, Log, RunContext, write_json
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


def run_task(recipe: Any, folder: str | Path, **options: Any) -> Run:
    """Run a recipe of any task in ``folder``.

    Args:
        options: ``resume``: continue the run in the folder; otherwise an existing folder is an error.
            ``log``: called with each line to print. ``callbacks``: called at every training step.
            ``best_so_far``: if a signal stops the comparison of models, evaluate and report the best model
            so far before raising ``Interrupted``.

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
    begin(folder, recipe)
    for line in preview.lines:
        log(line)
    if preview.rejected:
        write_rejected(folder / "rejected.jsonl", preview.rejected)
        log(skipped_rows_message(preview.rejected))
    doctor = RunDoctor(context, preview)
    setup = time.perf_counter() - started
    fit_started = time.perf_counter()
    calls = _all_callbacks(doctor, callbacks, best_so_far)
    try:
        task.fit(context, checkpoints=folder / "checkpoints", resume=resume, callbacks=calls)
    except CheckpointError as error:
        source = getattr(recipe.data, "source", "")
        if error.what != OTHER_DATA or not source:
            raise
        what = f"{source} has changed since the run began"
        fix = "Put it back as it was, or start a new run with another --out"
        raise error.but(what=what, where=str(folder), fix=fix) from None
    fit_seconds = time.perf_counter() - fit_started
    with main_process_only():
        context.estimator.save(folder / "model", overwrite=True)
        context.estimator.save_run_files(folder)
        metrics: dict[str, Any] = _facts(context) | task.evaluate(context)
        metrics["peak_memory_mb"] = peak_memory_mb()
        train_seconds = context.estimator.train_seconds_  # includes training before an interruption
        metrics["seconds"] = {
            "setup": setup + doctor.seconds,
            "train": train_seconds - doctor.seconds,
            "total": time.perf_counter() - started + max(0.0, train_seconds - fit_seconds),
        } | metrics.get("seconds", {})
        if digests:
            metrics[KEY] = digests
        write_json(folder / "metrics.json", metrics)
        write_card(folder / "model", context.estimator, folder)
        for name, artifact in task.collect_artifacts(context).items():
            write_json(folder / name, artifact)
        run = Run(folder, metrics, task.render_report(folder, known_recipe(folder)))
        if best := best_of_interrupted(metrics):
            stopped = Interrupted(
                f"stopped before all models were compared; the best so far, {best}, is kept; {RESUME_HINT}"
            )
            stopped.run = run
            raise stopped
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
            an error for the first one. None: as in the recipe.
        columns: key of the recipe -> name of the column in ``data``, if it differs from training.
        every_epoch: evaluate the weights of each epoch of a classifier with ``keep_epochs``. The result is
            ``{"epochs": [...]}``.
        by: a column of the evaluated table. The result also has metrics per value, see ``slices``.

    Raises:
        ConfigError: the model is not of its recipe's task, no weights of epochs were saved, or there is no
            such column.
        InputError: the model is damaged, or the data cannot be evaluated.
    """
    trained = read_run_recipe(Path(folder))
    recipe = with_columns(trained, columns or {})
    task = TASKS[recipe.task]
    recipe = with_bad_rows(recipe, on_bad_row, other=False)
    context = RunContext(task, recipe, Path(folder), log, count, estimator=load(folder), trained=trained)
    context.drop_unreadable = on_bad_row == "skip"
    if not isinstance(context.estimator, task.estimator):
        raise ConfigError(f"holds no {task.estimator.__name__}, as its recipe says", where=str(folder))
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


def _facts(context: RunContext) -> dict[str, Any]:
    estimator = context.estimator
    facts: dict[str, Any] = {
        "task": context.recipe.task,
        "machine": machine_facts(),
        "versions": versions(*context.task.packages),
        "seed": estimator.seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if not hasattr(estimator, "model_"):
        return facts
    steps = [record for record in estimator.history_ if record["kind"] == "step"]
    tokens = sum(record["tokens"] for record in steps)
    tokens_per_second = tokens / max(steps[-1]["seconds"], 1e-9) if tokens else None
    return facts | {
        "weights_source": estimator.weights_source_,
        "chosen": dict(estimator.chosen_),
        "parameters": sum(p.numel() for p in estimator.model_.parameters()),
        "architecture": [block.to_dict() for block in blocks(estimator.model_)],
        "tokens_per_second": tokens_per_second,
        "best_step": estimator.best_step_,
    }


def _all_callbacks(doctor: RunDoctor, callbacks: Sequence[Callback], best_so_far: bool) -> list[Callback]:
    context = doctor.context
    calls: list[Callback] = [HistoryFile(context.folder / "history.jsonl")]
    if context.estimator.SINGLE_PROCESS_REASON:  # this estimator handles signals and shows progress itself
        return [*calls, *callbacks]
    stop = StopOnSignal(context.folder / "checkpoints", best_so_far=best_so_far)
    return [*calls, doctor, LogStart(context), *callbacks, stop]


class RunDoctor(Callback):
    """Runs the data doctor before the first step, because it needs the tokenizer or transform."""

    def __init__(self, context: RunContext, preview: DataPreview):
        self.context, self.preview = context, preview
        self.seconds = 0.0  # duration of the checks, which does not count as training time
        self.logged: set[str] = set()  # a run with several trainings logs each line once

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
            self.log(f"{parameters:,} parameters, fitted at once")
            return
        weight = next(training.model.get_submodule("encoder").parameters())
        dtype = str(weight.dtype).removeprefix("torch.")
        solved = training.total_steps == 1 and training.config.lr == 0
        steps = "head solved without training steps" if solved else counted(training.total_steps, "step")
        self.log(f"{parameters:,} parameters, computing in {dtype}, {steps}")
        for line in training.skipped:
            self.log(f"damaged checkpoint passed over: {line}")
        if training.step:
            self.log(f"resumed at step {training.step}")
