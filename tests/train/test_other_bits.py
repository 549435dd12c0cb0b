"""A resumed training that computes in another way than it began says so, and one that does not is silent."""

import pytest

from glassformer.errors import NotBitIdenticalWarning
from glassformer.train import state
from glassformer.train.loop import run

HERE = {"device": "cpu", "kernels": "AVX2", "torch": "AVX2", "threads": 1}


@pytest.fixture
def saved(make_rig, tmp_path, monkeypatch):
    """A folder with a checkpoint, begun with ``HERE``."""
    monkeypatch.setattr(state, "numerics", lambda device: HERE)
    rig = make_rig(epochs=2, batch_size=3, count=7)
    next(iter(run(rig.training, rig.stream, rig.objective, rig.evaluate)))
    rig.training.save(tmp_path)
    return tmp_path


def resumed(make_rig, folder):
    training = make_rig(epochs=2, batch_size=3, count=7).training
    training.load(folder)
    return training.step


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("before", [False, True])
def test_the_same_arithmetic_and_a_checkpoint_of_before_are_silent(make_rig, saved, monkeypatch, before):
    if before:
        found = state.load_state(saved)
        del found.state["computed"]
        monkeypatch.setattr(state, "load_state", lambda folder: found)
        monkeypatch.setattr(state, "numerics", lambda device: HERE | {"kernels": "AMX"})
    assert resumed(make_rig, saved) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kernels": "none"}, "(kernels: AVX2 before, none now): results will not be"),
        ({"threads": 2}, "(threads: 1 before, 2 now): results will not be"),
        (
            {"torch": "AVX512", "kernels": "AMX"},
            "kernels: AVX2 before, AMX now; torch: AVX2 before, AVX512 n",
        ),
    ],
)
def test_another_level_or_number_of_threads_is_told(make_rig, saved, monkeypatch, changed, said):
    monkeypatch.setattr(state, "numerics", lambda device: HERE | changed)
    with pytest.warns(NotBitIdenticalWarning, match="resumed at step 1") as told:
        resumed(make_rig, saved)
    assert said in str(told[0].message)


def test_once_mixed_a_training_stays_mixed(make_rig, saved, monkeypatch):
    monkeypatch.setattr(state, "numerics", lambda device: HERE | {"threads": 2})
    rig = make_rig(epochs=2, batch_size=3, count=7)
    with pytest.warns(NotBitIdenticalWarning):
        rig.training.load(saved)
    next(iter(run(rig.training, rig.stream, rig.objective, rig.evaluate)))
    for _ in range(2):
        rig.training.save(saved)
    assert state.load_state(saved).state["computed"] == [HERE, HERE | {"threads": 2}]
    with pytest.warns(
        NotBitIdenticalWarning, match="threads: 1 before, 2 now"
    ):  # the steps since do not undo it
        assert resumed(make_rig, saved) == 2


def test_what_is_noted_is_what_this_process_computes_with():
    from glassformer.nn import kernels

    found = state.numerics("cpu")
    level = kernels.level()
    assert found["kernels"] == (level.title if level else "none")
    assert found["threads"] >= 1
    assert state.numerics("cuda") == {"device": "cuda"}
