"""Training callbacks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from glassformer.checkpoints.files import (
    break_hard_links,
    disk_errors,
    remove_leftovers,
    replace_text,
    verify_folder,
    write_folder,
)
from glassformer.checkpoints.locks import write_lock
from glassformer.checkpoints.native import newest_state
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ConfigError, FolderExistsError, GlassformerError, counted
from glassformer.finite import json_text
from glassformer.train.loop import StepInfo, run
from glassformer.train.state import Training

# --- progress bar in a notebook -------------------------------------------------------------------
#
# One cell output that is updated in place, without widgets.


REDRAW_SECONDS = 0.25  # minimum time between two updates


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which can show HTML, unlike IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """A progress bar for notebooks, with the methods of ``rich.progress.Progress`` that training uses.

    Args:
        remove_at_end: whether to remove the bar at the end.
    """

    def __init__(self, remove_at_end: bool = False):
        self.remove_at_end = remove_at_end
        self.done, self.total, self.description = 0, 0, ""
        self.metrics: dict[str, float] = {}
        self._start_time = self._last_drawn = 0.0
        self._display: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def add_task(self, description: str, total: int, completed: int = 0) -> int:
        """Start the bar, which has only one task."""
        self.description, self.total, self.done = description, total, completed
        self._start_time = time.monotonic()
        self._draw(always=True)
        return 0

    def update(self, task: int, completed: int, **metrics: float) -> None:
        """Set the progress; ``metrics`` are shown next to the bar."""
        self.done, self.metrics = completed, metrics
        self._draw(always=completed >= self.total)

    def advance(self, task: int, done: int) -> None:
        """Add ``done`` to the progress."""
        self.update(task, self.done + done, **self.metrics)

    def stop(self) -> None:
        """Draw the bar for the last time, or remove it."""
        if self._display is not None and self.remove_at_end:
            from IPython.display import HTML  # type: ignore[import-not-found]  # installed in notebooks

            self._display.update(HTML(""))
        elif self._display is not None:
            self._draw(always=True)

    def html(self) -> str:
        """The current bar as HTML."""
        seconds = time.monotonic() - self._start_time
        parts = [f"{self.done:,} of {self.total:,}"]
        if "epoch" in self.metrics:
            parts.append(f"epoch {self.metrics['epoch']:.0f}")
        if "loss" in self.metrics:
            parts.append(f"loss {self.metrics['loss']:.3f}")
        if "speed" in self.metrics:
            parts.append(f"{self.metrics['speed']:,.0f} tokens/s")
        parts.append(f"{seconds:,.0f} s")
        text, label = escape(f"{self.description}: {', '.join(parts)}"), escape(self.description)
        bar = f'<progress max="{self.total}" value="{self.done}" aria-label="{label}"></progress>'
        return f"<div>{bar} <span>{text}</span></div>"

    def _draw(self, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self._last_drawn < REDRAW_SECONDS:
            return
        from IPython.display import HTML, display  # type: ignore[import-not-found]  # installed in notebooks

        self._last_drawn = now
        if self._display is None:
            self._display = display(HTML(self.html()), display_id=True)
        else:
            self._display.update(HTML(self.html()))


# --- callbacks ------------------------------------------------------------------------------------


Advance = Callable[[int], None] | None  # called with the number of examples since the last call
Count = Callable[[str, int], AbstractContextManager[Advance]]  # arguments: task name, number of examples


INTERRUPTED = "interrupted"  # why the search for a model (``auto``) skipped a candidate
# The command line replaces this hint with a full command.
RESUME_HINT = "continue with --resume, in Python resume=True"


class Interrupted(GlassformerError):
    """A signal stopped the training between two steps; the command line exits with 130.

    Cause: Ctrl-C, SIGTERM or SIGHUP.
    Fix: run the command at the end of the message.
    """

    exit_code = 130
    code = "interrupted"
    run: Any = None  # the run that ended with the best model so far, if any


class Callback:
    """Base class of callbacks. The order of calls is start, step (once per step), end."""

    def start(self, training: Training) -> None:
        """Called before the first step, also after a resume."""

    def step(self, training: Training, info: StepInfo) -> None:
        """Called after each optimizer step, including its evaluation."""

    def note(self, line: str) -> None:
        """Called with a message between two trainings, such as the score of a candidate."""

    def end(self, training: Training) -> None:
        """Called after the last step, or when training fails or is interrupted."""


def run_with(callbacks: Sequence[Callback], training: Training, *loop: Any) -> None:
    """Run the training loop and call every callback at each step; ``loop``: arguments of ``loop.run``."""
    try:
        with training.ranks.report_lost_processes():
            for callback in callbacks:
                callback.start(training)
            for info in run(training, *loop):
                for callback in callbacks:
                    callback.step(training, info)
    finally:
        with ExitStack() as ends:  # calls every ``end`` in the order of ``callbacks``, even if one raises
            for callback in reversed(callbacks):
                ends.callback(callback.end, training)


class Checkpoints(Callback):
    """Save every ``every`` steps (0: after each epoch) and at the end."""

    def __init__(self, folder: Path, every: int = 0, keep_last: int = 2):
        self.folder, self.every, self.keep_last = Path(folder), every, keep_last
        self._locks = ExitStack()

    def begin(self, training: Training, resume: bool) -> Self:
        """Lock the folder for this process until ``end``, and resume from its newest complete checkpoint.

        Raises:
            ConfigError: another process writes to the folder; raised on every rank.
            CheckpointError: the folder has checkpoints and ``resume`` is False, or they belong to another
                training.
        """
        ranks, lock_error = training.ranks, None
        try:
            if ranks.is_main:
                self._locks.enter_context(write_lock(self.folder))
                remove_leftovers(self.folder)  # here, because resuming a finished training saves nothing
        except GlassformerError as error:
            lock_error = error
        message = ranks.broadcast(lock_error and str(lock_error))
        if message:
            raise lock_error or ConfigError(message)
        try:
            if newest := ranks.broadcast(newest_state(self.folder)):
                if not resume:
                    raise FolderExistsError("already has checkpoints", where=newest, fix="Use resume=True")
                training.load(self.folder)
        except BaseException:
            self._locks.close()
            raise
        return self

    def end(self, training: Training) -> None:
        self._locks.close()

    def step(self, training: Training, info: StepInfo) -> None:
        is_due = training.step % self.every == 0 if self.every else training.cursor == 0
        if is_due or training.finished:
            training.save(self.folder, self.keep_last)


class HistoryFile(Callback):
    """The history file, one JSON object per line. A resume truncates it to the steps of the checkpoint."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.count = 0

    def start(self, training: Training) -> None:
        self.count = 0
        replace_text(self.path, "")  # a new file: hard links elsewhere keep the old one
        self._flush(training)

    def step(self, training: Training, info: StepInfo) -> None:
        self._flush(training)

    def _flush(self, training: Training) -> None:
        # The file is not synced or replaced, because a resume rewrites it from the checkpoint.
        lines = "".join(json_text(record, ascii=True) + "\n" for record in training.history[self.count :])
        with disk_errors(self.path):
            break_hard_links(self.path)
        with disk_errors(self.path), self.path.open("ab", buffering=0) as file:
            size_before, remaining = file.seek(0, os.SEEK_END), lines.encode()
            try:
                while remaining:  # a full disk may write a part before it raises an error
                    remaining = remaining[file.write(remaining) :]
            except OSError:
                file.truncate(size_before)  # leave no half-written line
                raise
        self.count = len(training.history)


class Signals:
    """Records Ctrl-C, SIGTERM or SIGHUP: the program can then stop at a suitable point.

    A second signal stops the program at once. Ignored signals (``nohup``) stay ignored. Python delivers
    signals only to the main thread, so in other threads nothing is recorded.
    """

    NAMES = ("SIGINT", "SIGTERM", "SIGHUP")

    def __init__(self) -> None:
        self.received: int | None = None
        self.handled = False  # whether the program has stopped its work because of the signal
        self._old_handlers: dict[int, Any] = {}

    def listen(self) -> None:
        """Start to record signals."""
        if threading.current_thread() is threading.main_thread():
            for name in self.NAMES:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._old_handlers[number] = signal.signal(number, self._receive)

    def _receive(self, number: int, frame: Any) -> None:
        self.received = number
        for other, handler in self._old_handlers.items():
            signal.signal(other, handler)
        # The command line's handler gets the next signal. ``mark_interrupted`` tells it to ignore repetitions
        # of this signal.
        if mark_interrupted := getattr(self._old_handlers.get(number), "mark_interrupted", None):
            mark_interrupted()

    def release(self) -> None:
        """Restore the previous handlers.

        A signal that came too late to stop the work is passed on to the command line's handler.
        """
        old_handlers, self._old_handlers = self._old_handlers, {}
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        if self.received is not None and not self.handled:
            handler, self.received = old_handlers.get(self.received), None
            if interrupt := getattr(handler, "interrupt", None):
                interrupt()


class StopOnSignal(Callback):
    """On Ctrl-C, SIGTERM or SIGHUP, finish the step, save and raise ``Interrupted``.

    A second signal stops at once.

    Args:
        best_so_far: whether the fit compares models, and then returns the best one so far instead of raising.
    """

    def __init__(self, folder: Path, keep_last: int = 2, best_so_far: bool = False):
        self.folder, self.keep_last, self.best_so_far = Path(folder), keep_last, best_so_far
        self.signals = Signals()

    def start(self, training: Training) -> None:
        self.signals.listen()

    def step(self, training: Training, info: StepInfo) -> None:
        if not training.finished and training.ranks.any(self.signals.received is not None):
            path = training.current_checkpoint(self.folder) or training.save(self.folder, self.keep_last)
            where_saved = (
                f"saved in {path}; {RESUME_HINT}" if training.ranks.is_main else "the first process saves"
            )
            self.signals.handled = True
            raise Interrupted(f"stopped at step {training.step} of {training.total_steps}, {where_saved}")

    def end(self, training: Training) -> None:
        self.signals.release()


@contextmanager
def no_progress(what: str, total: int) -> Iterator[Advance]:
    """A ``Count`` that reports no progress."""
    yield None


LOG_SECONDS = 30.0  # seconds between lines in a log


class Progress(Callback):
    """A progress bar with loss, speed and remaining time on a terminal or in a notebook; lines in a log.

    Args:
        stream: the stream to write to; None: standard error.
        every: seconds between lines in a log. The last step and the first and last evaluation always get a
            line.
    """

    def __init__(self, stream=None, every: float = LOG_SECONDS):
        from rich.console import Console

        self.notebook = in_notebook()
        self.console = Console(file=stream, stderr=stream is None, force_jupyter=False)
        is_terminal = self.console.is_terminal and not os.environ.get("NO_COLOR_PROGRESS")
        self.has_bar = is_terminal or self.notebook
        self.every = every
        self.bar: Any = None

    def start(self, training: Training) -> None:
        self.start_time, self.first_step, self.last_line = time.monotonic(), training.step, time.monotonic()
        self.last_evaluation, self.best = self.start_time, ""
        self.printed: set[str] = set()  # printed lines of evaluations
        # Training that only fits a head in closed form has no steps and no learning rate to show.
        self.has_steps = training.total_steps != 1 or training.config.lr != 0
        if training.chosen and self.has_steps:
            values = ", ".join(f"{key} = {value:g}" for key, value in training.chosen.items())
            self._line(f"chosen: {values} ({counted(training.total_steps, 'step')})")
        if not self.has_bar:
            return
        if self.notebook:
            self.bar = NotebookBar()
            self.task = self.bar.add_task("train", total=training.total_steps, completed=training.step)
            return
        from rich import progress as rp

        self.bar = rp.Progress(
            rp.TextColumn("epoch {task.fields[epoch]}"),
            rp.BarColumn(),
            rp.MofNCompleteColumn(),
            rp.TextColumn("loss {task.fields[loss]:.3f}"),
            rp.TextColumn("{task.fields[speed]:,.0f} tokens/s"),
            rp.TimeElapsedColumn(),
            rp.TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task(
            "train",
            total=training.total_steps,
            completed=training.step,
            epoch=training.epoch + 1,
            loss=0.0,
            speed=0.0,
        )
        self.bar.start()

    def step(self, training: Training, info: StepInfo) -> None:
        if (solution := getattr(training, "solution", "")) and info.evaluation is not None:
            line = _evaluation_line(1, info.evaluation, training.config, False)
            self._line(f"solved: {solution}  {line.removeprefix('epoch 1  ')}")
            return
        if self.bar is not None:
            loss, speed = _recent_loss_and_speed(training)
            self.bar.update(self.task, completed=training.step, epoch=info.epoch + 1, loss=loss, speed=speed)
        elif (training.finished and self.has_steps) or time.monotonic() - self.last_line >= self.every:
            loss, speed = _recent_loss_and_speed(training)
            done, total = training.step, training.total_steps
            seconds = (time.monotonic() - self.start_time) / max(done - self.first_step, 1) * (total - done)
            remaining = f"  ({time_left(seconds)} left)" if done < total else ""
            self._line(f"step {done}/{total}{remaining}  loss {loss:.4f}  {speed:,.0f} tokens/s")
        if (e := info.evaluation) is not None:
            line = _evaluation_line(info.epoch + 1, e, training.config, info.is_best)
            self.best = line if info.is_best else self.best
            is_last = training.finished
            is_due = not self.printed or time.monotonic() - self.last_evaluation >= self.every
            if self.bar is not None or is_last or is_due:
                if is_last and self.bar is None and self.best and self.best not in (line, *self.printed):
                    self._line(f"best: {self.best}")  # the weights that are kept
                self._line(line)
                self.printed.add(line)
                self.last_evaluation = time.monotonic()

    def _line(self, text: str) -> None:
        self.last_line = time.monotonic()
        with suppress(OSError):  # a closed terminal must not stop training
            self.console.print(text, highlight=False, markup=False, soft_wrap=not self.has_bar)

    def note(self, line: str) -> None:
        self._line(line)

    def end(self, training: Training) -> None:
        if self.bar is not None:
            with suppress(OSError):
                self.bar.stop()

    @contextmanager
    def count(self, what: str, total: int) -> Iterator[Advance]:
        """Progress of an evaluation of ``total`` examples: a temporary bar on a terminal, lines in a log."""
        if not self.has_bar:
            yield self._log_progress(what, total)
            return
        if self.notebook:
            with NotebookBar(remove_at_end=True) as bar:
                bar.add_task(what, total=total)
                yield lambda done: bar.advance(0, done)
            return
        from rich import progress as rp

        columns = rp.TextColumn("{task.description}"), rp.BarColumn(), rp.MofNCompleteColumn()
        with rp.Progress(*columns, rp.TimeRemainingColumn(), console=self.console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)

    def _log_progress(self, what: str, total: int) -> Callable[[int], None]:
        """A function that takes the number of new examples and logs the progress every ``every`` seconds."""
        start_time = last_line = time.monotonic()
        done = 0

        def advance(new: int) -> None:
            nonlocal done, last_line
            done += new
            if done < total and (now := time.monotonic()) - last_line >= self.every:
                remaining = time_left((now - start_time) / max(done, 1) * (total - done))
                self._line(f"{what}: {done:,} of {total:,}  ({remaining} left)")
                last_line = now

        return advance


def time_left(seconds: float) -> str:
    """A duration for a log: "38 s", "19 min", "2 h 5 min"."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


REGRESSION_SCORES = {"score": "score {:.4f}", "r2": "R² {:.4f}", "mae": "mean absolute error {:.4g}"}


def _evaluation_line(epoch: int, e: dict[str, Any], config: Any, best: bool) -> str:
    """The log line of an evaluation; the metric that selects the best weights is first."""
    line = f"epoch {epoch}  train loss {e['train_loss']:.4f}  "
    if "loss" in e and "accuracy" not in e:  # a regressor or an embedder
        scores = [form.format(e[key]) for key, form in REGRESSION_SCORES.items() if key in e]
        scores = scores or [f"{config.monitor.replace('_', ' ')} {e[config.monitor]:.4f}"]
        return "  ".join([f"{line}validation loss {e['loss']:.4f}", *scores]) + "  (best)" * best
    if "accuracy" not in e:
        has_accuracy = e["train_accuracy"] and not hasattr(config, "number_scale")  # not a regressor
        accuracy = f"train accuracy {e['train_accuracy']:.4f}" if has_accuracy else ""
        return (line + accuracy).rstrip() + "  (best)" * best
    loss, monitor = f"validation loss {e['loss']:.4f}", config.monitor
    if monitor == "loss":
        return line + loss + "  (best)" * best + f"  accuracy {e['accuracy']:.4f}"
    if "micro_f1" in e:  # multi-label
        return f"{line}{loss}  macro-F1 {e['macro_f1']:.4f}{'  (best)' * best}  micro-F1 {e['micro_f1']:.4f}"
    names = {"accuracy": "accuracy", "macro_f1": "macro-F1", "entity_f1": "entity F1"}
    names.setdefault(monitor, "F1" if monitor == "f1" else monitor.replace("_", " "))
    metrics = {key: f"{label} {e[key]:.4f}" for key, label in names.items() if key in e}
    first = metrics.pop(monitor, metrics["accuracy"])
    others = "" if monitor == "accuracy" else "".join(f"  {metric}" for metric in metrics.values())
    return f"{line}{loss}  {first}" + "  (best)" * best + others


def _recent_loss_and_speed(training: Training) -> tuple[float, float]:
    """Mean loss of the last ten steps, and tokens per second over the last 50 records."""
    steps = [r for r in training.history[-50:] if r["kind"] == "step"]
    losses = [r["loss"] for r in steps[-10:]]
    seconds = steps[-1]["seconds"] - steps[0]["seconds"]
    speed = sum(r["tokens"] for r in steps[1:]) / seconds if seconds > 0 else 0.0
    return sum(losses) / len(losses), speed


# --- the weights of every epoch -------------------------------------------------------------------
#
# The weights of each epoch, saved for evaluation after training.
#
#     checkpoints/epochs/epoch-0001/   weights.safetensors, manifest.json
#
# They are written before the checkpoint of the epoch's last step: a training that resumes from a checkpoint
# has the weights of all earlier epochs.


_NAME = re.compile(r"epoch-(\d{4,})")


class KeepEpochs(Callback):
    """Save the weights of each epoch next to the checkpoints of the training."""

    def __init__(self, checkpoints: str | Path | None):
        if checkpoints is None:
            what = "the weights of each epoch are saved next to the checkpoints, but there are none"
            raise ConfigError(what, where="keep_epochs", fix="Give fit a folder: checkpoints=...")
        self.folder = Path(checkpoints) / "epochs"

    def start(self, training: Training) -> None:
        if training.ranks.is_main:  # remove epochs after the one that training resumes from
            with disk_errors(self.folder):
                for epoch, path in saved_epochs(self.folder):
                    if epoch > training.epoch:
                        shutil.rmtree(path)

    def step(self, training: Training, info: StepInfo) -> None:
        if training.cursor:
            return
        weights = training.optimizer.weights()  # all processes take part in this call
        if training.ranks.is_main:
            path = self.folder / f"epoch-{training.epoch:04d}"

            def write(draft: Path) -> None:
                write_tensors(draft, weights, name="weights")

            with disk_errors(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                write_folder(
                    path, write, extra={"epoch": training.epoch, "step": training.step}, overwrite=True
                )


def saved_epochs(folder: Path) -> list[tuple[int, Path]]:
    """Numbers (from 1) and folders of the saved epochs, in order."""
    if not folder.is_dir():
        return []
    return sorted((int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)))


def epoch_weights(path: Path) -> tuple[int, dict[str, Tensor]]:
    """The last step of a saved epoch, and its weights."""
    step = verify_folder(path)["extra"].get("step")
    if not isinstance(step, int):
        raise CheckpointError("the manifest has no step", where=str(path))
    return step, read_tensors(path, "weights")
