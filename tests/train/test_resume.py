"""Exact resume: from every step of a run, the same bits and the same history as without a stop."""

import shutil

import pytest
import torch
from tests.stopping import without_clock

from glassformer.checkpoints.native import list_states
from glassformer.errors import CheckpointError
from glassformer.train.loop import run
from glassformer.train.objectives import InputMasking

STEPS, STOP, BEST = 60, 42, 30
KEYS = {"epochs": 12, "dropout": 0.3, "evaluate_every": 2, "early_stopping": 6, "average": 0.9, "accumulate": 2,
        "batch_size": 3, "count": 29, "label_smoothing": 0.1, "weight_decay": 0.1}  # fmt: skip


def evaluate(rig):
    """Better until step 30, then not: with a patience of six evaluations it stops at step 42 of 60, inside an epoch."""
    step = rig.training.step
    with torch.no_grad():
        out = rig.objective(rig.training.model, rig.stream.pack(torch.arange(7).numpy()))
    return {"loss": float(out.loss), "accuracy": step / 100 if step <= BEST else 0.1, "macro_f1": 0.5}


def build(make_rig, dtype):
    return make_rig(
        evaluate=evaluate, dtype=dtype, **KEYS, objective={"masking": InputMasking(0.2, mask_id=4)}
    )


def everything(rig):
    """What must be equal in the end, clock aside."""
    t = rig.training
    plain = [
        t.step,
        t.epoch,
        t.cursor,
        dict(t.epoch_sums),
        t.best_score,
        t.best_loss,
        t.ties,
        t.best_step,
        t.bad_evaluations,
        t.stopped_early,
    ]
    tensors = t.optimizer.tensors() | {f"best/{n}": w for n, w in (t.best_weights or {}).items()}
    tensors |= {f"model/{n}": p.detach() for n, p in t.model.named_parameters()} | {
        "rng": torch.get_rng_state()
    }
    return plain, without_clock(t.history), {n: w.clone() for n, w in tensors.items()}


def check_same(found, wanted):
    assert found[0] == wanted[0]
    assert found[1] == wanted[1]
    assert found[2].keys() == wanted[2].keys()
    assert not [name for name, tensor in found[2].items() if not torch.equal(tensor, wanted[2][name])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_at_every_step(make_rig, tmp_path, dtype):
    """Five steps on it has the bits of the run that was not stopped, and so it would have them in the end."""
    whole, wanted = build(make_rig, dtype), {}
    assert whole.training.total_steps == STEPS
    torch.manual_seed(9)
    for info in run(whole.training, whole.stream, whole.objective, whole.evaluate):
        whole.training.save(tmp_path / str(info.step))
        wanted[info.step] = everything(whole)
    wanted[STOP] = everything(whole)
    assert whole.training.step == STOP
    assert whole.training.stopped_early
    assert whole.training.best_step == BEST
    best = wanted[STOP][2]["best/head.out.weight"]
    assert torch.equal(best, whole.training.final_weights()["head.out.weight"])

    for step in range(1, STOP + 1):
        rig = build(make_rig, dtype)
        torch.manual_seed(1000 + step)  # what was drawn meanwhile must not matter
        found = rig.training.load(tmp_path / str(step))
        assert found.step == rig.training.step == step
        assert not found.skipped
        for info in run(rig.training, rig.stream, rig.objective, rig.evaluate):
            if info.step == step + 5 < STOP:
                break
        assert rig.training.step == min(step + 5, STOP)
        check_same(everything(rig), wanted[rig.training.step])


def unsure_first(rig):
    """One accuracy at every epoch, a lower loss at each."""
    return {"loss": 1 / rig.training.step, "accuracy": 0.9, "macro_f1": 0.9}


@pytest.mark.parametrize(("made", "best"), [("before", 5), ("now", 20)])
def test_a_checkpoint_goes_on_by_the_rule_of_ties_it_began_with(make_rig, tmp_path, made, best):
    """Those made before the loss decided between equal scores keep the first, also when stopped once more."""
    rig = make_rig(epochs=4, evaluate=unsure_first)
    for stop in (7, 12):
        for info in run(rig.training, rig.stream, rig.objective, rig.evaluate):
            if info.step == stop:
                break
        if made == "before" and stop == 7:
            rig.training.best_step, rig.training.ties = 5, "first"
            rig.training.NEW_KEYS = {}  # what is not written
        rig.training.save(tmp_path / str(stop))
        rig = make_rig(epochs=4, evaluate=unsure_first)
        rig.training.load(tmp_path / str(stop))
    rig.steps()
    assert rig.training.best_step == best
    bests = [r["best"] for r in rig.training.history if r["kind"] == "evaluation"]
    assert bests == ([True] * 4 if made == "now" else [True, False, False, False])


def test_the_time_of_every_leg_counts(make_rig, tmp_path):
    first = make_rig().training
    first.seconds_before = 1000.0  # of a leg before this one
    first.save(tmp_path)
    second = make_rig().training
    assert 0 < second.seconds_spent < 1000
    second.load(tmp_path)
    assert 1000 < second.seconds_before <= second.seconds_spent
    assert first.seconds_spent - 1000 > 0


def test_resume_of_a_resume(make_rig, tmp_path):
    """Killed after every single step, fifteen times over."""
    torch.manual_seed(9)
    whole = make_rig(dropout=0.3, epochs=3)
    whole.steps()
    wanted = everything(whole)
    torch.manual_seed(9)
    first = make_rig(dropout=0.3, epochs=3)
    first.training.save(tmp_path)
    while True:
        rig = make_rig(dropout=0.3, epochs=3)
        rig.training.load(tmp_path)
        if next(run(rig.training, rig.stream, rig.objective), None) is None:
            break
        rig.training.save(tmp_path)
    assert rig.training.step == 15
    check_same(everything(rig), wanted)


def test_the_clock_goes_on(make_rig, tmp_path):
    rig = make_rig()
    next(run(rig.training, rig.stream, rig.objective))
    rig.training.seconds = 1000.0
    rig.training.save(tmp_path)
    again = make_rig()
    again.training.load(tmp_path)
    again.steps()
    assert all(
        r["seconds"] >= 1000 for r in again.training.history if r.get("step", 0) > 1 and "seconds" in r
    )


def test_a_damaged_newest_checkpoint_is_passed_over(make_rig, tmp_path):
    torch.manual_seed(9)
    whole = make_rig(dropout=0.3)
    for info in run(whole.training, whole.stream, whole.objective):
        if info.step in (4, 5):
            whole.training.save(tmp_path)
    wanted = everything(whole)
    (_, older), (_, newer) = list_states(tmp_path)
    file = newer / "state.safetensors"
    data = bytearray(file.read_bytes())
    data[-7] ^= 1
    file.write_bytes(data)
    rig = make_rig(dropout=0.3)
    found = rig.training.load(tmp_path)
    assert (found.step, found.path) == (4, older)
    assert [path for path, _ in found.skipped] == [newer]
    assert "state.safetensors" in found.skipped[0][1]
    rig.steps()
    check_same(everything(rig), wanted)


def test_checkpoints_of_a_future_that_did_not_happen_go_away(make_rig, tmp_path):
    rig = make_rig()
    for info in run(rig.training, rig.stream, rig.objective):
        if info.step in (2, 7):
            rig.training.save(tmp_path)
    shutil.rmtree(list_states(tmp_path)[1][1])
    again = make_rig()
    again.training.load(tmp_path)
    next(run(again.training, again.stream, again.objective))
    again.training.save(tmp_path)
    assert [step for step, _ in list_states(tmp_path)] == [2, 3]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ({"lr": 0.1, "data": "x"}, r"lr = 0\.2, now it is 0\.1"),
        ({"lr": 0.2, "data": "y"}, "data = 'x', now it is 'y'"),
        ({"lr": 0.2}, "made with data = 'x', but now it is not set"),
        ({"lr": 0.2, "data": "x", "new": 3}, "made without new, now it is 3"),
        ({}, "made with data = 'x', but now it is not set"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_nothing_is_touched(make_rig, tmp_path, ours, said):
    theirs = make_rig()
    theirs.training.fingerprint = {"lr": 0.2, "data": "x"}
    next(run(theirs.training, theirs.stream, theirs.objective))
    theirs.training.save(tmp_path)
    rig = make_rig(seed=1)
    rig.training.fingerprint = ours
    before, state = rig.weights(), torch.get_rng_state()
    with pytest.raises(CheckpointError, match=said):
        rig.training.load(tmp_path)
    assert rig.training.step == 0
    assert rig.training.history == []
    assert all(torch.equal(w, before[n]) for n, w in rig.weights().items())
    assert torch.equal(torch.get_rng_state(), state)
