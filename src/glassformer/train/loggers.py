"""Callbacks that log a training to TensorBoard or MLflow.

    clf.fit(X, y, callbacks=[TensorBoard("logs/one")])        glassformer train europe --log tensorboard

Both log the history: loss, learning rate and tokens of each step, and all metrics of each evaluation. A
resumed training continues the same log after the step of its checkpoint.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import disk_errors
from glassformer.errors import BadValueError, NotInstalledError
from glassformer.train.callbacks import Callback

STEP_METRICS = ("loss", "lr", "tokens")
NOT_METRICS = {"kind", "step", "epoch", "seconds", "best"}
MAX_METRICS = 1000  # maximum number per request to MLflow
MAX_PARAMS = 100  # maximum number per request to MLflow
MAX_PARAM_LENGTH = 500  # maximum number of characters


def record_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a history record, named ``train/...`` or ``evaluation/...``."""
    if record["kind"] == "step":
        return {f"train/{key}": float(record[key]) for key in STEP_METRICS if key in record}
    return {
        f"evaluation/{key}": float(value)
        for key, value in record.items()
        if key not in NOT_METRICS and isinstance(value, int | float) and not isinstance(value, bool)
    }


def require_package(package: str, extra: str) -> None:
    """Raise ConfigError if ``package`` is not installed."""
    if find_spec(package) is None:
        fix = f"pip install 'glassformer[{extra}]'"
        raise NotInstalledError(f"{package} is not installed", where=f"log to {extra}", fix=fix)


class Log(Callback, ABC):
    """Base class of loggers; only rank 0 logs."""

    def __init__(self) -> None:
        self._num_logged = 0
        self._is_open = False

    def start(self, training: Any) -> None:
        ranks = getattr(training, "ranks", None)
        if ranks is not None and not ranks.is_main:
            return
        self._num_logged = len(training.history)  # the records before a resume are logged already
        self._begin(training)
        self._is_open = True

    def step(self, training: Any, info: Any) -> None:
        if self._is_open:
            records = [training.history[i] for i in range(self._num_logged, len(training.history))]
            self._num_logged = len(training.history)
            self._log_records(records)

    def end(self, training: Any) -> None:
        if self._is_open:
            self._is_open = False
            self._end(bool(getattr(training, "finished", True)))

    @abstractmethod
    def _begin(self, training: Any) -> None: ...

    @abstractmethod
    def _log_records(self, records: Sequence[dict[str, Any]]) -> None: ...

    @abstractmethod
    def _end(self, finished: bool) -> None: ...


class TensorBoard(Log):
    """Write TensorBoard's event files; ``tensorboard --logdir FOLDER`` shows them.

    Args:
        folder: folder of the event files; created if missing.
    """

    def __init__(self, folder: str | Path):
        super().__init__()
        require_package("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def _begin(self, training: Any) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = training.step + 1 if training.step else None  # remove records after the checkpoint
        with disk_errors(self.folder):
            self._writer = SummaryWriter(str(self.folder), purge_step=purge)
        settings = settings_of(training)
        if settings and not training.step:
            lines = "\n".join(f"    {key} = {value}" for key, value in settings)  # a Markdown code block
            self._writer.add_text("settings", lines, 0)

    def _log_records(self, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            for name, value in record_metrics(record).items():
                self._writer.add_scalar(name, value, record["step"])

    def _end(self, finished: bool) -> None:
        self._writer.close()


class MLflow(Log):
    """Log a training as an MLflow run, on the server in ``MLFLOW_TRACKING_URI``.

    An active run is used and left open. Otherwise a run is started, and ended with the training
    (``FINISHED``, or ``KILLED`` if the training was interrupted).

    Args:
        name: name of a started run.
        folder: folder of the training; a resumed training continues the MLflow run of its folder.
        every: number of records per request.
    """

    TAG = "glassformer.folder"

    def __init__(self, name: str | None = None, *, folder: str | Path | None = None, every: int = 20):
        super().__init__()
        require_package("mlflow", "mlflow")
        from mlflow import get_tracking_uri

        if str(get_tracking_uri()).startswith("sqlite") and find_spec("sqlalchemy") is None:
            what = "mlflow-skinny has no database for its own files"
            fix = "Set MLFLOW_TRACKING_URI to the address of your server, or pip install mlflow"
            raise NotInstalledError(what, where="log to mlflow", fix=fix)
        self.name, self.folder, self.every = name, folder, max(1, every)
        self._unsent: list[dict[str, Any]] = []
        self._run: Any = None
        self._started_here = False

    def _begin(self, training: Any) -> None:
        import mlflow

        self._run = mlflow.active_run()
        self._started_here = self._run is None
        if self._run is None:
            run_id = self._previous_run() if training.step else None
            tags = {self.TAG: str(Path(self.folder).resolve())} if self.folder is not None else None
            self._run = (
                mlflow.start_run(run_id=run_id) if run_id else mlflow.start_run(run_name=self.name, tags=tags)
            )
        if not training.step:
            params = [(key, str(value)[:MAX_PARAM_LENGTH]) for key, value in settings_of(training)]
            for chunk in _chunks(params, MAX_PARAMS):
                mlflow.log_params(dict(chunk))

    def _previous_run(self) -> str | None:
        """The id of the MLflow run of this folder; None if the folder has no run."""
        from mlflow.tracking import MlflowClient

        if self.folder is None:
            return None
        folder, client = str(Path(self.folder).resolve()), MlflowClient()
        ids = [e.experiment_id for e in client.search_experiments()]
        for run in client.search_runs(ids, order_by=["attributes.start_time DESC"], max_results=1000):
            if run.data.tags.get(self.TAG) == folder:
                return run.info.run_id
        return None

    def _log_records(self, records: Sequence[dict[str, Any]]) -> None:
        self._unsent += records
        if len(self._unsent) >= self.every or any(r["kind"] != "step" for r in records):
            self._send()

    def _send(self) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        now, client = int(1000 * time.time()), MlflowClient()
        metrics = [
            Metric(name, value, now, record["step"])
            for record in self._unsent
            for name, value in record_metrics(record).items()
        ]
        self._unsent = []
        for chunk in _chunks(metrics, MAX_METRICS):
            client.log_batch(self._run.info.run_id, metrics=chunk)

    def _end(self, finished: bool) -> None:
        import mlflow

        with suppress(Exception):  # the training is over, and its own files have all metrics
            self._send()
        if self._started_here:
            mlflow.end_run("FINISHED" if finished else "KILLED")


def settings_of(training: Any) -> list[tuple[str, Any]]:
    """All settings of a training that have a value, including automatically chosen values."""
    settings = dict(getattr(training, "fingerprint", None) or {})
    return [(key, value) for key, value in settings.items() if value is not None]


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[i : i + size] for i in range(0, len(items), size))


LOGS = ("tensorboard", "mlflow")


def loggers(names: Sequence[str], folder: Path) -> list[Callback]:
    """The callbacks for the values of ``--log``, for a run in ``folder``."""
    from glassformer.config import suggest

    callbacks: list[Callback] = []
    for name in dict.fromkeys(names):
        if name not in LOGS:
            raise BadValueError(f"unknown log {name!r}", where="--log", fix=suggest(name, LOGS))
        is_tensorboard = name == "tensorboard"
        callbacks.append(TensorBoard(folder / name) if is_tensorboard else MLflow(folder.name, folder=folder))
    return callbacks
