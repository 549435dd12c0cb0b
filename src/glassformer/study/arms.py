"""Runner of a study's jobs.

    STUDY/study.toml  arms/ARM/seed-0/ (a run folder; arm.json marks it as finished)  results.json ...

A job is one arm (a variant of the study's recipe) with one seed. Finished jobs are not run again, and
interrupted jobs resume from their newest checkpoint. Each job runs in a separate process: its peak memory can
be measured, and a crash does not affect other jobs.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import replace_text
from glassformer.checkpoints.hub import fetch_if_checkpoint
from glassformer.config import key_paths
from glassformer.errors import ExistsError, GlassformerError, InputError
from glassformer.finite import json_text
from glassformer.scale.engines import map_items, required_resources
from glassformer.study.grid import Arm, Study, folder_name, with_changes
from glassformer.tasks.run import is_named, read_run_recipe, relevant_settings, run_task
from glassformer.train.callbacks import Callback, Interrupted, Progress, time_left

MARKER = "arm.json"  # written when a job is finished
STOPPED = "interrupted; finished runs are kept, run the same command again to continue"
Log = Callable[[str], None]


def silent(line: str) -> None:
    """Log nothing. It is not a lambda, because it is pickled for other processes."""


@dataclass(frozen=True)
class Job:
    """One arm with one seed."""

    arm: str
    seed: int
    recipe: Any
    folder: Path
    in_study: bool = True  # False: a finished run outside of a study

    @property
    def relative_folder(self) -> str:
        """The run's folder relative to the study's, if there is a study."""
        folder = self.folder.relative_to(self.folder.parents[2]) if self.in_study else self.folder
        return folder.as_posix()

    @property
    def title(self) -> str:
        return f"{self.arm}, seed {self.seed}" if self.in_study else self.folder.as_posix()


def plan_jobs(study: Study, arms: Sequence[Arm], folder: Path) -> list[Job]:
    """The jobs of all arms and seeds.

    They are ordered by seed, because an interrupted study should have the same seeds for all arms. Baselines
    are trained only once, in the first job.
    """
    jobs = []
    for seed in study.seeds:
        for arm in arms:
            recipe = arm.with_seed(seed)
            if jobs and "baselines" in key_paths(type(recipe)):
                recipe = with_changes(recipe, {"baselines": False}, arm.name)
            jobs.append(Job(arm.name, seed, recipe, folder / "arms" / folder_name(arm.name) / f"seed-{seed}"))
    return jobs


def is_finished(job: Job) -> bool:
    """Whether the job is finished; raises ExistsError if its folder has a run of another recipe."""
    if not (job.folder / MARKER).is_file():
        return False
    if _compared_settings(read_run_recipe(job.folder)) != _compared_settings(job.recipe):
        fix = "Choose another --out, or remove that folder"
        raise ExistsError("contains a run of another recipe", where=str(job.folder), fix=fix)
    return True


def _compared_settings(recipe: Any) -> dict[str, Any]:
    """The settings that must be equal in a finished run: all except ``baselines``."""
    values = relevant_settings(recipe)
    return values | {"evaluate": {k: v for k, v in values.get("evaluate", {}).items() if k != "baselines"}}


def run_arm(job: Job, *, own_process: bool = False, log: Log = silent, progress: bool = False) -> Path:
    """Run or resume a job, unless it is finished; returns its folder.

    ``own_process`` is stored in the marker: whether the job runs in a separate process.
    """
    if is_finished(job):
        return job.folder
    resume = (job.folder / "config.toml").is_file()
    started = time.perf_counter()
    callbacks: list[Callback] = [Progress()] if progress else []
    run_task(with_existing_split(job), job.folder, resume=resume, log=log, callbacks=callbacks)
    seconds = time.perf_counter() - started
    marker = {"arm": job.arm, "seed": job.seed, "own_process": own_process, "seconds": seconds}
    replace_text(job.folder / MARKER, json_text(marker, ascii=True) + "\n")
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    return job.folder


def with_existing_split(job: Job) -> Any:
    """The job's recipe, with the value of ``copies`` in the study's earlier runs.

    ``copies`` determines whether duplicates of an example may be in different splits ("apart": they may, as
    in earlier versions). It must be the same in all arms, because they must have the same test examples.
    """
    data = job.recipe.data
    started = sorted(job.folder.parents[1].glob("*/*/config.toml"))
    if not started or getattr(data, "copies", "") is not None or is_named(data.source):
        return job.recipe
    copies = getattr(read_run_recipe(started[0].parent).data, "copies", None) or "apart"
    return replace(job.recipe, data=replace(data, copies=copies))


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    log: Log = silent,
    progress: bool = False,
    engine: str = "serial",
) -> dict[str, str]:
    """Run the jobs that are not finished; returns the error message of each failed job by its title.

    An input error of the first job is raised, because it probably affects all jobs.

    Args:
        workers: number of parallel processes; 0: run all jobs in this process.
        log: called with one line when a job starts or ends; with workers, it must be picklable.
        engine: ``ray`` runs the jobs on a Ray cluster, whose nodes need the study's folder at the same path.
    """
    remaining = [job for job in jobs if not is_finished(job)]
    if len(remaining) < len(jobs):
        log(f"{len(jobs) - len(remaining)} of {len(jobs)} runs are finished already")
    for recipe in {job.arm: job.recipe for job in remaining if engine == "serial"}.values():
        fetch_if_checkpoint(recipe)  # raises errors for missing weights before data are read
    failed: dict[str, str] = {}
    num_finished = len(jobs) - len(remaining)
    is_first = num_finished == 0
    start_time = time.perf_counter()
    num_ended = 0

    def record(job: Job, error: BaseException | None, seconds: float) -> None:
        nonlocal num_finished, is_first, num_ended
        if isinstance(error, Interrupted | KeyboardInterrupt):
            raise Interrupted(STOPPED) from None
        if isinstance(error, InputError) and is_first:
            raise error
        is_first = False
        num_finished += error is None
        if error is not None:
            failed[job.title] = str(error) or type(error).__name__
        num_ended += 1
        seconds_left = (time.perf_counter() - start_time) / num_ended * (len(remaining) - num_ended)
        time_note = f" (about {time_left(seconds_left)} left)" if seconds_left else ""
        result = f"failed: {error}" if error else f"{seconds:.0f} s"
        log(f"[{num_finished}/{len(jobs)}] {job.title}: {result}{time_note}")

    if engine == "ray":
        ray_jobs = [replace(job, folder=job.folder.resolve()) for job in remaining]
        for job, (error, seconds) in map_items("ray", _attempt, ray_jobs, **_resources(ray_jobs)):
            record(job, error, seconds)
        return failed
    if workers == 0:
        for job in remaining:
            record(job, *_attempt(job, log=log, progress=progress))
        return failed
    running: list[Any] = []
    with _shared_cores(workers), ThreadPoolExecutor(workers) as pool:
        try:
            show_progress = progress and workers == 1
            futures = {
                pool.submit(_run_in_process, job, log, show_progress, running): job for job in remaining
            }
            for future in as_completed(futures):
                record(futures[future], *future.result())
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.terminate()  # the process saves its state on SIGTERM
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(STOPPED) from None
            raise
    return failed


def _resources(jobs: Sequence[Job]) -> dict[str, int]:
    """The numbers of CPUs and GPUs that the most demanding job needs."""
    # Recipes of word vectors do not have a section ``train``, and run on the CPU.
    settings = [getattr(job.recipe, "train", None) for job in jobs]
    demands = [required_resources(getattr(s, "threads", 0), getattr(s, "device", "cpu")) for s in settings]
    return {name: max(demand[name] for demand in demands) for name in ("cpus", "gpus")} if demands else {}


@contextmanager
def _shared_cores(workers: int) -> Iterator[None]:
    """Give each process that is started in this context an equal share of the cores.

    It sets environment variables, which torch reads when it is imported.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: os.environ.get(name) for name in names}
    if workers > 1:
        for name in names:
            os.environ.setdefault(name, str(max(1, (os.cpu_count() or 1) // workers)))
    try:
        yield
    finally:
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)


def _run_in_process(
    job: Job, log: Log, progress: bool, running: list[Any]
) -> tuple[BaseException | None, float]:
    """Run a job in a new process; returns its error (or None) and its time in seconds."""
    started = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(job, log, progress, sender, os.getpid()))
    with _signals_blocked("SIGINT", "SIGHUP"):
        process.start()
    running.append(process)
    sender.close()
    try:
        error = receiver.recv()
    except EOFError:
        process.join()
        error = GlassformerError(f"its process ended with {_exit_status(process.exitcode)}")
    process.join()
    running.remove(process)
    return error, time.perf_counter() - started


@contextmanager
def _signals_blocked(*names: str) -> Iterator[None]:
    """Block signals in processes that are started in this context.

    A terminal sends these signals to the whole process group. But the command stops the jobs itself, because
    each job must save its state.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {getattr(signal, name) for name in names})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)


def _attempt(job: Job, **options: Any) -> tuple[BaseException | None, float]:
    """Run a job in this process; returns its error (or None) and its time in seconds."""
    started, error = time.perf_counter(), None
    try:
        run_arm(job, **options)
    except KeyboardInterrupt:
        error = Interrupted("interrupted")
    except GlassformerError as caught:
        error = caught
    except Exception as caught:  # some exceptions cannot be pickled, but the message can
        error = GlassformerError(f"{type(caught).__name__}: {caught}")
    return error, time.perf_counter() - started


def _exit_status(code: int | None) -> str:
    if code is not None and code < 0:
        hint = ": was there enough memory?" if -code == signal.SIGKILL else ""
        return f"signal {-code}{hint}"
    return f"exit code {code}"


def _child(job: Job, log: Log, progress: bool, sender: Any, parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # training installs its own handler
    threading.Thread(target=_stop_with_parent, args=(parent,), daemon=True).start()
    sender.send(_attempt(job, own_process=True, log=log, progress=progress)[0])


def _stop_with_parent(parent: int) -> None:
    """Stop this process after its parent process has ended; it then saves its state."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
