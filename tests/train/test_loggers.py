"""Logs of a training, read back by their own tools: TensorBoard's event files and MLflow's store."""

import sys
from pathlib import Path

import pytest

from glassformer.errors import ConfigError
from glassformer.train.callbacks import Checkpoints, Interrupted, run_with
from glassformer.train.loggers import MLflow, TensorBoard, loggers, record_metrics

from .conftest import Rig


def drive(rig: Rig, *callbacks) -> None:
    run_with(callbacks, rig.training, rig.stream, rig.objective, rig.evaluate)


def judged(rig: Rig) -> dict[str, float]:
    return {"loss": 0.25, "accuracy": 0.875, "macro_f1": 0.5}


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> (step, value), as TensorBoard reads the files."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = event_accumulator.EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def as_logged(rig: Rig) -> dict[str, list[tuple[int, float]]]:
    """The same from the history."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in rig.training.history:
        for name, value in record_metrics(record).items():
            found.setdefault(name, []).append((record["step"], pytest.approx(value)))
    return found


def test_tensorboard_has_every_record_of_the_history(make_rig, tmp_path: Path):
    pytest.importorskip("tensorboard")
    rig = make_rig(epochs=3, evaluate=judged)
    drive(rig, TensorBoard(tmp_path / "log"))
    found = scalars(tmp_path / "log")
    assert found == as_logged(rig)
    assert [step for step, _ in found["train/loss"]] == list(range(1, 16))
    assert found["evaluation/accuracy"] == [(5, 0.875), (10, 0.875), (15, 0.875)]


class StopAt(TensorBoard):
    """Ends the training from outside at a step, having logged it."""

    at = 8

    def step(self, training, info):
        super().step(training, info)
        if training.step == self.at:
            raise Interrupted("on purpose")


def test_a_resumed_training_goes_on_in_the_same_log(make_rig, tmp_path: Path):
    pytest.importorskip("tensorboard")
    first, folder = make_rig(epochs=3, evaluate=judged), tmp_path / "states"
    with pytest.raises(Interrupted):
        drive(first, Checkpoints(folder, every=5), StopAt(tmp_path / "log"))
    again = make_rig(epochs=3, evaluate=judged)
    again.training.load(folder)
    assert again.training.step == 5
    drive(again, TensorBoard(tmp_path / "log"))
    assert scalars(tmp_path / "log") == as_logged(again)  # steps 6 to 8 once


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path / 'mlruns'}")
    yield mlflow
    while mlflow.active_run():
        mlflow.end_run()


def runs_of(mlflow) -> list:
    client = mlflow.tracking.MlflowClient()
    return client.search_runs([e.experiment_id for e in client.search_experiments()])


def test_mlflow_has_every_record_of_the_history(make_rig, tmp_path: Path, mlflow):
    rig = make_rig(epochs=3, evaluate=judged)
    rig.training.fingerprint = {"lr": 0.01, "note": "x" * 999, "none": None}
    drive(rig, MLflow("one", folder=tmp_path / "run", every=4))
    (run,) = runs_of(mlflow)
    assert run.info.run_name == "one"
    assert run.info.status == "FINISHED"
    assert run.data.params == {"lr": "0.01", "note": "x" * 500}
    client = mlflow.tracking.MlflowClient()
    found = {
        name: [
            (m.step, m.value)
            for m in sorted(client.get_metric_history(run.info.run_id, name), key=lambda m: m.step)
        ]
        for name in run.data.metrics
    }
    assert found == as_logged(rig)


def test_mlflow_goes_on_in_the_run_of_a_folder(make_rig, tmp_path: Path, mlflow):
    class Stop(MLflow):
        def step(self, training, info):
            super().step(training, info)
            if training.step == 5:
                raise Interrupted("on purpose")

    first, folder = make_rig(epochs=3), tmp_path / "states"
    with pytest.raises(Interrupted):
        drive(first, Checkpoints(folder, every=5), Stop("one", folder=tmp_path / "run"))
    assert runs_of(mlflow)[0].info.status == "KILLED"
    again = make_rig(epochs=3)
    again.training.load(folder)
    drive(again, MLflow("one", folder=tmp_path / "run"))
    (run,) = runs_of(mlflow)
    assert run.info.status == "FINISHED"
    history = mlflow.tracking.MlflowClient().get_metric_history(run.info.run_id, "train/loss")
    assert sorted(m.step for m in history) == list(range(1, 16))


def test_an_open_run_of_the_program_is_used_and_left_open(make_rig, mlflow):
    with mlflow.start_run(run_name="theirs") as theirs:
        drive(make_rig(), MLflow())
        assert mlflow.active_run().info.run_id == theirs.info.run_id
        mlflow.log_metric("mine", 1.0)
    (run,) = runs_of(mlflow)
    assert {"mine", "train/loss"} <= run.data.metrics.keys()


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow")])
def test_a_missing_package_is_one_line(name, package, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("glassformer.train.loggers.find_spec", lambda found: None)
    with pytest.raises(
        ConfigError, match=rf"{package} is not installed.*pip install 'glassformer\[{name}\]'"
    ):
        loggers([name], tmp_path)


def test_an_unknown_log_is_answered_with_the_nearest(tmp_path: Path):
    with pytest.raises(ConfigError, match="tensorboard"):
        loggers(["tensorbord"], tmp_path)


def test_nothing_is_logged_unasked(make_rig, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loggers([], tmp_path) == []
    before = set(sys.modules)
    drive(make_rig())
    assert not {m for m in set(sys.modules) - before if m.startswith(("tensorboard", "mlflow"))}
    assert list(tmp_path.iterdir()) == []
