"""The loop: what a step is, what it leaves in the history, when it judges and when it stops."""

import numpy as np
import pytest
import torch
from tests.commands import values

from glassformer.errors import GlassformerError
from glassformer.train.loop import run
from glassformer.train.optim import MixedPrecisionOptimizer, learning_rate

ROUNDING = {"atol": 2e-5, "rtol": 0}


class Recorder(MixedPrecisionOptimizer):
    """Keeps the gradients of each step and changes nothing."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []

    def update(self, lr, norm):
        self.seen.append({n: p.grad.clone() for n, p in self.params.items()})
        for p in self.params.values():
            p.grad = None


def total_gradient(rig):
    """Of the plain sum of all losses, computed in one batch."""
    model = rig.training.model
    out = rig.objective(model, rig.stream.pack(np.arange(len(rig.stream.table))))
    names, params = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(out.loss, params), strict=True)), float(out.loss.detach())


UNEVEN = """batch_size=5; batch_size=5 accumulate=2; batch_size=0 batch_tokens=40;
    batch_size=4 batch_tokens=19 accumulate=3; batch_size=23"""


@pytest.mark.parametrize("keys", UNEVEN.split(";"))
def test_every_sequence_weighs_the_same(make_rig, keys):
    """However uneven the batches: the steps of an epoch add up to the gradient of the whole."""
    rig = make_rig(epochs=1, optimizer=Recorder, **values(keys))
    wanted, loss = total_gradient(rig)
    infos = rig.steps()
    seen = rig.training.optimizer.seen
    for name, gradient in wanted.items():
        total = sum(step[name] for step in seen) * 23 / len(seen)
        torch.testing.assert_close(total, gradient, atol=1e-4, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
    counts = [sum(len(index) for index in step) for step in rig.stream.steps(0)]
    assert sum(info.loss * n for info, n in zip(infos, counts, strict=True)) == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("count", [24, 23])
def test_batch_size_times_accumulation_gives_the_same_losses(make_rig, count):
    """With a last step that is not full, too."""
    runs = []
    for size, accumulate in ((12, 1), (6, 2), (4, 3), (3, 4), (1, 12)):
        rig = make_rig(
            count, epochs=3, batch_size=size, accumulate=accumulate, length_window=0, weight_decay=0.1
        )
        infos = rig.steps()
        assert len(infos) == 6
        runs.append(([i.loss for i in infos], [i.gradient_norm for i in infos], [i.tokens for i in infos]))
    for losses, norms, tokens in runs[1:]:
        assert losses == pytest.approx(runs[0][0], abs=2e-5)
        assert norms == pytest.approx(runs[0][1], rel=2e-3)
        assert tokens == runs[0][2]


def test_history_says_what_happened(make_rig):
    rig = make_rig(epochs=3, batch_size=5)
    infos = rig.steps()
    steps = [r for r in rig.training.history if r["kind"] == "step"]
    assert len(steps) == len(infos) == rig.training.total_steps == 15
    assert [r["step"] for r in steps] == list(range(1, 16))
    assert [r["epoch"] for r in steps] == [0] * 5 + [1] * 5 + [2] * 5
    total = int(rig.stream.table.lengths.sum())
    for epoch in range(3):
        assert sum(r["tokens"] for r in steps if r["epoch"] == epoch) == total
    for i, (record, info) in enumerate(zip(steps, infos, strict=True)):
        assert record["lr"] == info.lr == learning_rate(i, 15, rig.training.config)
        assert (record["loss"], record["tokens"], record["step"]) == (info.loss, info.tokens, info.step)
        assert info.gradient_norm > 0
    seconds = [r["seconds"] for r in steps]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    assert rig.training.finished


def test_it_learns(make_rig):
    """Twenty-three random texts with random labels: a model that is trained knows them by heart."""
    rig = make_rig(epochs=30, lr=3e-2)
    rig.steps()
    last = [r for r in rig.training.history if r["kind"] == "evaluation"][-1]
    assert last["train_accuracy"] == 1.0
    assert last["train_loss"] < 0.05
    # the order of epochs differs and is the seed's
    stream = make_rig(seed=3).stream
    orders = [
        np.concatenate([np.concatenate(step) for step in stream.steps(epoch)]).tolist() for epoch in (0, 1, 0)
    ]
    assert orders[0] == orders[2] != orders[1]
    assert make_rig(seed=4).stream.steps(0)[0][0].tolist() != stream.steps(0)[0][0].tolist()


def test_train_figures_are_those_of_the_epoch_so_far(make_rig):
    rig = make_rig(epochs=2, optimizer=Recorder)  # the weights stay, so every epoch gives the same figures
    _, loss = total_gradient(rig)
    with torch.no_grad():
        out = rig.objective(rig.training.model, rig.stream.pack(np.arange(23)))
    rig.steps()
    judged = [r for r in rig.training.history if r["kind"] == "evaluation"]
    assert [(r["step"], r["epoch"]) for r in judged] == [(5, 0), (10, 1)]
    for record in judged:
        assert record["train_loss"] == pytest.approx(loss / 23, rel=1e-5)
        assert record["train_accuracy"] == pytest.approx(out.correct / 23)


def test_a_loss_that_is_not_finite_is_an_error_that_names_the_step(make_rig):
    rig = make_rig()
    steps = run(rig.training, rig.stream, rig.objective)
    next(steps)
    with torch.no_grad():
        rig.training.model.head.out.bias[0] = float("nan")
    with pytest.raises(GlassformerError, match=r"loss is nan at step 2: lower lr"):
        next(steps)
    assert rig.training.step == 1


def test_the_caller_may_stop_anywhere_and_go_on(make_rig):
    whole, parts = make_rig(dropout=0.3), make_rig(dropout=0.3)
    torch.manual_seed(9)
    whole.steps()
    torch.manual_seed(9)
    for _ in range(3):
        next(run(parts.training, parts.stream, parts.objective))
    parts.steps()
    assert all(
        torch.equal(a, b) for a, b in zip(whole.weights().values(), parts.weights().values(), strict=True)
    )


# --- judging --------------------------------------------------------------------------------------


def scripted(scores, key="accuracy"):
    """Figures that a test knows beforehand, one per evaluation."""
    values = iter(scores)

    def evaluate(rig):
        assert not rig.training.model.training
        value = next(values)
        return {"loss": 1.0, "accuracy": 0.5, "macro_f1": 0.5} | {key: value}

    return evaluate


def judged(rig):
    return [r for r in rig.training.history if r["kind"] == "evaluation"]


@pytest.mark.parametrize(
    ("monitor", "scores", "best", "bests"),
    [
        ("accuracy", [0.3, 0.7, 0.6, 0.7], 10, [True, True, False, False]),  # a tie is no improvement
        ("macro_f1", [0.3, 0.2, 0.1, 0.4], 20, [True, False, False, True]),
        ("loss", [0.9, 0.5, 0.7, 0.4], 20, [True, True, False, True]),
        ("loss", [0.5, 0.9, 0.9, 0.9], 5, [True, False, False, False]),
    ],
)
def test_the_best_weights_are_kept(make_rig, monitor, scores, best, bests):
    rig = make_rig(epochs=4, monitor=monitor, evaluate=scripted(scores, monitor))
    kept = {}
    for info in run(rig.training, rig.stream, rig.objective, rig.evaluate):
        kept[info.step] = rig.training.optimizer.weights()
        assert info.is_best == (info.evaluation is not None and bests[info.step // 5 - 1])
        assert (info.evaluation is not None) == (info.step % 5 == 0)
    assert [r["best"] for r in judged(rig)] == bests
    assert [r[monitor] for r in judged(rig)] == scores
    assert rig.training.best_step == best
    final = rig.training.final_weights()
    assert all(torch.equal(w, kept[best][n]) for n, w in final.items())


@pytest.mark.parametrize("monitor", ["accuracy", "macro_f1"])
def test_of_equal_scores_the_lowest_loss_is_kept(make_rig, monitor):
    """It spends patience all the same; a higher score wins whatever its loss, an equal loss changes nothing."""
    figures = [(0.7, 0.9), (0.7, 0.5), (0.7, 0.6), (0.7, 0.5), (0.8, 2.0), (0.8, 1.5), (0.7, 0.1), (0.8, 1.4)]
    values = iter(figures)

    def evaluate(rig):
        score, loss = next(values)
        return {"accuracy": 0.5, "macro_f1": 0.5, "loss": loss} | {monitor: score}

    rig, kept = make_rig(epochs=8, monitor=monitor, early_stopping=4, evaluate=evaluate), {}
    for info in run(rig.training, rig.stream, rig.objective, rig.evaluate):
        kept[info.step] = rig.training.optimizer.weights()
    assert [r["best"] for r in judged(rig)] == [True, True, False, False, True, True, False, True]
    assert (rig.training.best_step, rig.training.best_score, rig.training.best_loss) == (40, 0.8, 1.4)
    assert rig.training.bad_evaluations == 3  # since the first 0.8
    assert all(torch.equal(w, kept[40][n]) for n, w in rig.training.final_weights().items())


def test_the_last_weights_where_none_are_kept(make_rig):
    rig = make_rig(epochs=3, keep_best=False, evaluate=scripted([0.9, 0.1, 0.1]))
    rig.steps()
    assert rig.training.best_weights is None
    masters = rig.training.optimizer.masters
    assert all(torch.equal(w, masters[n]) for n, w in rig.training.final_weights().items())
    # a tie does not postpone the stop
    losses = iter([0.9, 0.8, 0.7, 0.6, 0.5])
    rig = make_rig(
        epochs=5,
        early_stopping=2,
        evaluate=lambda rig: {"loss": next(losses), "accuracy": 1.0, "macro_f1": 1.0},
    )
    assert rig.steps()[-1].step == 15
    assert (rig.training.best_step, rig.training.best_loss) == (15, 0.7)
    # without validation data only training is judged
    rig = make_rig(epochs=2, early_stopping=1)
    rig.steps()
    keys = {"kind", "step", "epoch", "train_loss", "train_accuracy", "best"}
    assert [set(r) for r in judged(rig)] == [keys] * 2
    assert not any(r["best"] for r in judged(rig))
    assert rig.training.best_weights is None


@pytest.mark.parametrize(
    ("patience", "scores", "stop"),
    [
        (0, [0.9, 0.1, 0.1, 0.1, 0.1, 0.1], 30),
        (1, [0.5, 0.6, 0.6], 15),
        (2, [0.5, 0.4, 0.6, 0.5, 0.5], 25),
        (3, [0.5, 0.4, 0.4, 0.6, 0.6, 0.6], 30),
    ],
)
def test_early_stopping(make_rig, patience, scores, stop):
    rig = make_rig(epochs=6, early_stopping=patience, evaluate=scripted(scores))
    infos = rig.steps()
    assert infos[-1].step == rig.training.step == stop
    assert rig.training.stopped_early == (stop < 30)
    assert rig.training.finished
    assert rig.steps() == []


@pytest.mark.parametrize(("every", "at", "best"), [(3, [3, 6, 9, 10], 9), (4, [4, 8, 10], 10)])
def test_evaluation_every_so_many_steps_and_of_the_last_weights(make_rig, every, at, best):
    scores = {3: [0.1, 0.2, 0.3, 0.2], 4: [0.1, 0.2, 0.3]}[every]
    rig = make_rig(epochs=2, evaluate_every=every, evaluate=scripted(scores))
    infos = rig.steps()
    assert [i.step for i in infos if i.evaluation is not None] == at
    assert [(r["step"], r["epoch"]) for r in judged(rig)] == [(step, int(step > 5)) for step in at]
    assert all(0 <= r["train_accuracy"] <= 1 for r in judged(rig))
    assert rig.training.best_step == best


def test_judging_does_not_disturb_training(make_rig):
    """Weights and random numbers go on as if nobody had looked."""
    plain = make_rig(dropout=0.3, epochs=3)
    watched = make_rig(dropout=0.3, epochs=3, evaluate_every=1, evaluate=scripted([0.5] * 15))
    ends = []
    for rig in (plain, watched):
        torch.manual_seed(9)
        rig.steps()
        ends.append(rig.weights())
    assert all(torch.equal(a, ends[1][n]) for n, a in ends[0].items())


# --- the running mean -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_running_mean_is_judged_and_kept_and_training_goes_on_without_it(make_rig, dtype):
    seen = []

    def evaluate(rig):
        optimizer = rig.training.optimizer
        for name, p in rig.training.model.named_parameters():
            assert torch.equal(p, optimizer.average[name].to(p.dtype)), name
        seen.append(optimizer.weights())
        return {"loss": 1.0, "accuracy": len(seen) / 10, "macro_f1": 0.5}

    rig = make_rig(epochs=3, average=0.9, dropout=0.3, dtype=dtype, evaluate=evaluate)
    plain = make_rig(epochs=3, dropout=0.3, dtype=dtype)
    for one in (rig, plain):
        torch.manual_seed(9)
        one.steps()
    masters = rig.training.optimizer.masters
    assert all(torch.equal(m, plain.training.optimizer.masters[n]) for n, m in masters.items())
    final = rig.training.final_weights()
    assert all(torch.equal(w, seen[-1][n]) for n, w in final.items())
    assert not torch.allclose(final["head.out.weight"], masters["head.out.weight"], **ROUNDING)


def test_weights_come_back_when_judging_fails(make_rig):
    rig = make_rig(average=0.9, dtype=torch.bfloat16)
    rig.steps()
    before = {n: p.clone() for n, p in rig.training.model.named_parameters()}
    with pytest.raises(RuntimeError, match="on purpose"), rig.training.evaluation_weights():
        raise RuntimeError("on purpose")
    assert all(torch.equal(p, before[n]) for n, p in rig.training.model.named_parameters())
