"""Variables of ``torchrun`` that are left over: an error in our words, never a silent wait or another run."""

import socket
from datetime import timedelta

import numpy as np
import pytest

import glassformer as gf
from glassformer.cli.app import main
from glassformer.errors import ConfigError, SeveralProcessesWarning
from glassformer.runtime import world
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.run import NotMainProcess, main_process_only
from glassformer.train import distributed

NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
WHOLE = {"WORLD_SIZE": "3", "RANK": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


@pytest.fixture
def environment(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)

    def put(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


@pytest.mark.parametrize(
    "text",
    ["", "WORLD_SIZE=1 RANK=0", "WORLD_SIZE=", "WORLD_SIZE=0", "RANK=1", "RANK=x LOCAL_RANK=7", "WHOLE"],
)
def test_what_the_environment_says(text, environment):
    """A rank without a size was taken for a helper, which writes nothing."""
    environment(**WHOLE if text == "WHOLE" else variables(text))
    assert world() == ((2, 3) if text == "WHOLE" else (0, 1))


LONELY = "WORLD_SIZE: is 2, but no launcher has started this process: RANK, MASTER_ADDR, MASTER_PORT not set. Unset"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"WORLD_SIZE": "2"}, LONELY),
        (WHOLE | {"MASTER_PORT": ""}, "MASTER_PORT not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: 'two' is not a whole number. Unset WORLD_SIZE"),
        ({"WORLD_SIZE": "2.0"}, "WORLD_SIZE: '2.0' is not a whole number"),
        (WHOLE | {"RANK": "x"}, "RANK: 'x' is not a whole number"),
        *((WHOLE | {"RANK": rank}, f"RANK is {rank}, but there are 3 processes") for rank in ("3", "-1")),
    ],
)
def test_what_no_launcher_sets(values, said, environment):
    environment(**values)
    with pytest.raises(ConfigError, match=said):
        world()


def test_the_one_that_writes_goes_on_alone(environment):
    """A simple model that it fitted to compare with waited for the processes that had ended."""
    environment(**WHOLE | {"RANK": "0"})
    assert world() == (0, 3)
    with main_process_only():
        assert world() == (0, 1)
    assert world() == (0, 3)
    environment(RANK="2")
    with pytest.raises(NotMainProcess), main_process_only():
        raise AssertionError


@pytest.mark.parametrize("task", ["text-classification", "token-tagging", "similarity", "masked-lm"])
def test_a_fit_names_the_variable(task, environment):
    environment(WORLD_SIZE="2")
    estimator, data = TASKS[task].example_fixture()
    with pytest.raises(ConfigError, match="Unset WORLD_SIZE for one process, or use torchrun"):
        estimator.fit(*data)


def test_the_command_too_and_prediction_goes_on(environment, tmp_path, capsys):
    clf, data = TASKS["text-classification"].example_fixture()
    clf.fit(*data).save(tmp_path / "model")
    wanted = clf.predict_proba(data[0])
    environment(WORLD_SIZE="2", RANK="1")
    assert main(["train", "europe", "--out", str(tmp_path / "run")]) == 2
    assert "error: process 1: WORLD_SIZE: is 2" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    np.testing.assert_array_equal(gf.load(tmp_path / "model").predict_proba(data[0]), wanted)


def test_a_wait_is_said_and_ends_in_our_words(environment, monkeypatch):
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=1))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment(WORLD_SIZE="2", RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    estimator, data = TASKS["text-classification"].example_fixture()
    waiting = pytest.warns(
        SeveralProcessesWarning, match=f"waiting for 2 processes to connect at 127.0.0.1:{port}"
    )
    with waiting, pytest.raises(ConfigError, match="WORLD_SIZE is 2, but not all processes connected at"):
        estimator.fit(*data)
