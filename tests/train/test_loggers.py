"""Logs of a training, read back by their own tools: TensorBoard's event files and MLflow's store."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from glassformer.errors import ConfigError
from glassformer.train.callbacks import Checkpoints, Interrupted, run_with
from glassformer.train.loggers import MLflow, TensorBoard, loggers, record_metrics
from glassformer.train.state import History

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
    found = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    assert {name: sorted((m.step, m.value) for m in own) for name, own in found.items()} == as_logged(rig)


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
def test_what_cannot_be_logged_is_one_line(name, package, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("glassformer.train.loggers.find_spec", lambda found: None)
    with pytest.raises(
        ConfigError, match=rf"{package} is not installed.*pip install 'glassformer\[{name}\]'"
    ):
        loggers([name], tmp_path)
    with pytest.raises(ConfigError, match="tensorboard"):
        loggers(["tensorbord"], tmp_path)


def test_nothing_is_logged_unasked(make_rig, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loggers([], tmp_path) == []
    before = set(sys.modules)
    drive(make_rig())
    assert not {m for m in set(sys.modules) - before if m.startswith(("tensorboard", "mlflow"))}
    assert list(tmp_path.iterdir()) == []


# --- the history: few bytes per step, the same records --------------------------------------------


def step(i: int) -> dict:
    counted = {"step": i, "epoch": i // 7, "loss": 1 / (i + 3), "lr": 1e-3 * i}
    return {"kind": "step", **counted, "tokens": 2**40 + i, "seconds": i / 1000}


def records(count: int) -> list[dict]:
    """Steps; after every third an evaluation, some of them two in a row, and steps of another form."""
    out = []
    for i in range(count):
        out.append(step(i))
        if i % 3 == 2:
            out += [{"kind": "evaluation", "step": i, "accuracy": 0.5, "best": False}] * (1 + i % 2)
        if i % 5 == 4:
            out += [step(i) | {"pairs": 3}, step(i) | {"loss": 2}, {"step": 1, "kind": "step"}]
    return out


@pytest.mark.parametrize("count", [0, 1, 2, 3, 23])
def test_what_comes_out_is_what_went_in(count):
    wanted = records(count)
    history = History(wanted)
    assert len(history) == len(wanted)
    assert json.dumps(list(history)) == json.dumps(wanted)  # order of keys and types too
    assert history == wanted
    assert wanted == history
    assert history != [*wanted, step(0)]
    for i in range(-len(wanted), len(wanted)):
        assert history[i] == wanted[i]
    for part in (slice(None), slice(-5, None), slice(3, 17, 4), slice(9, 2), slice(None, None, -1)):
        assert history[part] == wanted[part]
    with pytest.raises(IndexError):
        history[len(wanted)]


def test_it_comes_back_from_a_checkpoint():
    wanted = records(23)
    history = History(wanted)
    again = History.restore(json.loads(json.dumps(history.other_records())), history.tensors())
    assert json.dumps(list(again)) == json.dumps(wanted)
    again.append(step(99))
    history.append(step(99))
    assert again == history
    assert History.restore(wanted, {}) == wanted  # as checkpoints of format 1 have it
    # a step takes few bytes
    history = History(step(i) for i in range(1000))
    assert sum(t.numel() * t.element_size() for t in history.tensors().values()) == 48_000
    assert history.other_records() == {"places": [], "others": []}
    assert np.isclose(history.tensors()["history/loss"].sum(), sum(r["loss"] for r in history))
