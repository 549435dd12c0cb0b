"""Callbacks that log a training to TensorBoard or MLflow, where these are installed and asked for.

    clf.fit(X, y, callbacks=[TensorBoard("logs/one")])        glassformer train europe --log tensorboard

Both write the records of the history: of each step the loss, the rate and the tokens, of each evaluation
every figure. A training that is resumed goes on in the same log, behind what its checkpoint knows.
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

OF_STEPS = ("loss", "lr", "tokens")
NO_FIGURES = {"kind", "step", "epoch", "seconds", "best"}
MOST_METRICS = 1000  # of one request to MLflow, and
MOST_PARAMS = 100  # likewise
MOST_VALUE = 500  # characters of a parameter


def figures_of(record: Mapping[str, Any]) -> dict[str, float]:
    """What a record of the history says, under the names of the logs: ``train/...`` or ``evaluation/...``."""
    if record["kind"] == "step":
        return {f"train/{key}": float(record[key]) for key in OF_STEPS if key in record}
    return {
        f"evaluation/{key}": float(value)
        for key, value in record.items()
        if key not in NO_FIGURES and isinstance(value, int | float) and not isinstance(value, bool)
    }


def need(package: str, extra: str) -> None:
    """Raises ConfigError where a package that is to be logged to is not installed."""
    if find_spec(package) is None:
        fix = f"pip install 'glassformer[{extra}]'"
        raise NotInstalledError(f"{package} is not installed", where=f"log to {extra}", fix=fix)


class Log(Callback, ABC):
    """Base of the loggers: each record once, by the rank that leads, and a last time at the end."""

    def __init__(self) -> None:
        self._written = 0
        self._open = False

    def start(self, training: Any) -> None:
        ranks = getattr(training, "ranks", None)
        if ranks is not None and not ranks.leads:
            return
        self._written = len(training.history)  # a training that goes on has logged these
        self._begin(training)
        self._open = True

    def step(self, training: Any, info: Any) -> None:
        if self._open:
            records = [training.history[i] for i in range(self._written, len(training.history))]
            self._written = len(training.history)
            self._records(records)

    def end(self, training: Any) -> None:
        if self._open:
            self._open = False
            self._end(bool(getattr(training, "finished", True)))

    @abstractmethod
    def _begin(self, training: Any) -> None: ...

    @abstractmethod
    def _records(self, records: Sequence[dict[str, Any]]) -> None: ...

    @abstractmethod
    def _end(self, finished: bool) -> None: ...


class TensorBoard(Log):
    """Write TensorBoard's event files; ``tensorboard --logdir FOLDER`` shows them.

    Args:
        folder: made where it is not there.

    Raises:
        ConfigError: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path):
        super().__init__()
        need("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def _begin(self, training: Any) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = training.step + 1 if training.step else None  # what a killed process had logged beyond it
        with disk_errors(self.folder):
            self._writer = SummaryWriter(str(self.folder), purge_step=purge)
        settings = settings_in(training)
        if settings and not training.step:
            lines = "\n".join(f"    {key} = {value}" for key, value in settings)  # indented: Markdown's code
            self._writer.add_text("settings", lines, 0)

    def _records(self, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            for name, value in figures_of(record).items():
                self._writer.add_scalar(name, value, record["step"])

    def _end(self, finished: bool) -> None:
        self._writer.close()


class MLflow(Log):
    """Log a training as a run of MLflow, to where ``MLFLOW_TRACKING_URI`` says.

    An active run of the calling program is used, and left open; else one is begun, and ended with the
    training (``FINISHED``, or ``KILLED`` where it stopped early).

    Args:
        name: of the run that is begun.
        folder: of the training; one that goes on there goes on in the same run of MLflow.
        every: steps between two requests; what came since goes along.

    Raises:
        ConfigError: mlflow is not installed.
    """

    TAG = "glassformer.folder"

    def __init__(self, name: str | None = None, *, folder: str | Path | None = None, every: int = 20):
        super().__init__()
        need("mlflow", "mlflow")
        from mlflow import get_tracking_uri

        if str(get_tracking_uri()).startswith("sqlite") and find_spec("sqlalchemy") is None:
            what = "mlflow-skinny has no database for its own files"
            fix = "Set MLFLOW_TRACKING_URI to the address of your server, or pip install mlflow"
            raise NotInstalledError(what, where="log to mlflow", fix=fix)
        self.name, self.folder, self.every = name, folder, max(1, every)
        self._waiting: list[dict[str, Any]] = []
        self._run: Any = None
        self._own = False

    def _begin(self, training: Any) -> None:
        import mlflow

        self._run = mlflow.active_run()
        self._own = self._run is None
        if self._run is None:
            before = self._before() if training.step else None
            tags = {self.TAG: str(Path(self.folder).resolve())} if self.folder is not None else None
            self._run = (
                mlflow.start_run(run_id=before) if before else mlflow.start_run(run_name=self.name, tags=tags)
            )
        if not training.step:
            params = [(key, str(value)[:MOST_VALUE]) for key, value in settings_in(training)]
            for part in _parts(params, MOST_PARAMS):
                mlflow.log_params(dict(part))

    def _before(self) -> str | None:
        """The run of MLflow that the folder's training was logged to, where one is found."""
        from mlflow.tracking import MlflowClient

        if self.folder is None:
            return None
        folder, client = str(Path(self.folder).resolve()), MlflowClient()
        ids = [e.experiment_id for e in client.search_experiments()]
        for run in client.search_runs(ids, order_by=["attributes.start_time DESC"], max_results=1000):
            if run.data.tags.get(self.TAG) == folder:
                return run.info.run_id
        return None

    def _records(self, records: Sequence[dict[str, Any]]) -> None:
        self._waiting += records
        if len(self._waiting) >= self.every or any(r["kind"] != "step" for r in records):
            self._send()

    def _send(self) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        now, client = int(1000 * time.time()), MlflowClient()
        metrics = [
            Metric(name, value, now, record["step"])
            for record in self._waiting
            for name, value in figures_of(record).items()
        ]
        self._waiting = []
        for part in _parts(metrics, MOST_METRICS):
            client.log_batch(self._run.info.run_id, metrics=part)

    def _end(self, finished: bool) -> None:
        import mlflow

        with suppress(Exception):  # the training is over, and its own files hold every figure
            self._send()
        if self._own:
            mlflow.end_run("FINISHED" if finished else "KILLED")


def settings_in(training: Any) -> list[tuple[str, Any]]:
    """Every setting of a training that has a value, what was chosen for it among them."""
    settings = dict(getattr(training, "fingerprint", None) or {})
    return [(key, value) for key, value in settings.items() if value is not None]


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[i : i + size] for i in range(0, len(items), size))


LOGS = ("tensorboard", "mlflow")


def loggers(names: Sequence[str], folder: Path) -> list[Callback]:
    """The callbacks of a run in ``folder`` that ``--log`` names.

    Raises:
        ConfigError: no such log, or its package is not installed.
    """
    from glassformer.config import nearest

    made: list[Callback] = []
    for name in dict.fromkeys(names):
        if name not in LOGS:
            raise BadValueError(f"no log {name!r}", where="--log", fix=nearest(name, LOGS))
        tensorboard = name == "tensorboard"
        made.append(TensorBoard(folder / name) if tensorboard else MLflow(folder.name, folder=folder))
    return made
