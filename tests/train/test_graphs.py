"""CUDA graphs, without a GPU: a trace of the operations stands in for a graph.

As a graph does, such a trace repeats the same operations on the same memory, whatever the host knows by then: lengths
baked into it would give wrong results here too. Real graphs are captured in ``tests/gpu``.
"""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from glassformer.data.augment import MixedPairs
from glassformer.data.batching import ResidentTable, pack_texts
from glassformer.data.image_batching import ImageBatch
from glassformer.errors import ShapeError
from glassformer.families.vit import vit
from glassformer.models.image import ImageEncoder as ViT
from glassformer.nn import attention
from glassformer.packing import Packing
from glassformer.train import graphs, loop
from glassformer.train.graphs import FixedPacking, Graphs, PaddedSizes
from glassformer.train.objectives import ImageClassification, InputMasking, with_gradients


def dense_varlen(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k):
    """Attention from the borders of the sequences as a tensor: no length is known to the host."""
    places = (torch.arange(len(x)) for x in (query, key))
    own_q, own_k = (
        torch.bucketize(p, cu[1:].long(), right=True) for p, cu in zip(places, (cu_seq_q, cu_seq_k))
    )
    scores = torch.einsum("thk,shk->hts", query, key) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(own_q[:, None] != own_k[None], -torch.inf)
    return torch.einsum("hts,shk->thk", scores.softmax(-1), value)


def traced(function):
    """``Capture`` by a trace of the operations."""
    repeat_once = make_fx(function)()
    results = tuple(x.clone() for x in repeat_once())

    def repeat():
        for kept, new in zip(results, repeat_once(), strict=True):
            kept.copy_(new)

    return repeat, results


@pytest.fixture
def as_on_gpu(monkeypatch):
    """Tensors say that they lie on a GPU, and attention takes the varlen branch, with the function above in it."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", dense_varlen)  # a slow import
    monkeypatch.setattr(attention, "choose_branch", lambda *args: "varlen")


def gradients(model):
    return {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def cleared(model):
    for p in model.parameters():
        p.grad = None


def test_every_batch_fills_up_to_one_of_few_shapes(make_rig):
    rig = make_rig(count=97, batch_size=7, epochs=3)
    sizes = PaddedSizes.of(rig.stream, 3)
    batches = [rig.stream.pack(i) for e in range(3) for micro in rig.stream.steps(e) for i in micro]
    filled = [sizes.padded(b.packing) for b in batches]
    for batch, packing in zip(batches, filled, strict=True):
        assert packing.lengths[: batch.packing.count] == batch.packing.lengths
        assert packing.total % sizes.step == 0
        assert packing.count == sizes.count
        assert packing.max_length <= sizes.longest == rig.stream.table.lengths.max()
    assert 1 < len({p.total for p in filled}) <= graphs.NUM_SIZES + 2


@pytest.mark.parametrize(("pooling", "weighted"), [("pooler", False), ("mean", True)])
def test_replayed_texts_equal_plain_ones(make_rig, as_on_gpu, monkeypatch, pooling, weighted):
    weights = np.linspace(0.5, 1.5, 23, dtype=np.float32) if weighted else None
    rig = make_rig(objective={"weights": weights, "label_smoothing": 0.1})
    model = rig.training.model.with_head(pooling=pooling).train()
    replaying = Graphs(rig.objective, PaddedSizes.of(rig.stream, 2), traced)
    indices = [i for e in range(2) for micro in rig.stream.steps(e) for i in micro]
    for index in indices:
        found = []
        for compute in (replaying, lambda *args: with_gradients(rig.objective, *args)):
            out = compute(model, rig.stream.pack(index), 4.0)
            found.append((out.loss.detach(), out.correct, out.count, gradients(model)))
            cleared(model)
        ours, wanted = found
        assert ours[1:3] == wanted[1:3]
        torch.testing.assert_close(ours[0], wanted[0])
        for name, gradient in wanted[3].items():
            torch.testing.assert_close(
                ours[3][name], gradient, atol=1e-6, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
            )
        with torch.no_grad():  # the graph reads the weights where they are
            for p in model.parameters():
                p.add_(0.01 * torch.sign(p))
    assert 1 < len(replaying.captured) < len(indices)


def test_gradients_of_several_batches_add_up(make_rig, as_on_gpu):
    rig = make_rig(count=29)
    model = rig.training.model.train()
    replaying = Graphs(rig.objective, PaddedSizes.of(rig.stream, 1), traced)
    indices = [i for micro in rig.stream.steps(0) for i in micro]
    found = []
    for compute in (replaying, lambda *args: with_gradients(rig.objective, *args), replaying):
        for index in indices:
            compute(model, rig.stream.pack(index), 4.0)
        found.append(gradients(model))
        cleared(model)
    for ours in (found[0], found[2]):
        for name, gradient in found[1].items():
            torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=1e-4)


def test_training_with_graphs_ends_where_training_without_does(make_rig, as_on_gpu, monkeypatch):
    wanted = make_rig(epochs=3, accumulate=2)
    losses = [info.loss for info in wanted.steps()]
    rig = make_rig(epochs=3, accumulate=2)
    made = []

    def on_this(training, stream, objective):
        made.append(Graphs(objective, PaddedSizes.of(stream, 3), traced))
        return made[0]

    monkeypatch.setattr(loop, "make_graphs", on_this)
    infos = rig.steps()
    assert made[0].captured
    assert not made[0].has_failed
    assert [info.loss for info in infos] == pytest.approx(losses, rel=1e-4)
    for name, weight in wanted.training.optimizer.weights().items():
        found = rig.training.optimizer.weights()[name]
        if name.endswith("qkv.bias"):  # that of the keys has no gradient but rounding, which Adam blows up
            weight, found = (torch.cat([x[:14], x[28:]]) for x in (weight, found))
        torch.testing.assert_close(found, weight, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mix", [False, True])
def test_replayed_pictures_equal_plain_ones(as_on_gpu, mix):
    torch.manual_seed(3)
    model = ViT(vit((7, 7), (3, 3), 14, 2, 2, 11, head="classification", num_labels=5)).train()
    rng = np.random.default_rng(5)
    objective = ImageClassification(rng.integers(0, 5, 31), np.linspace(0.5, 1.5, 31, dtype=np.float32), 0.1)
    replaying = Graphs(objective, None, traced)
    for count in (7, 7, 3, 7):
        index = rng.choice(31, count, replace=False)
        batch = ImageBatch(torch.randn(count, 3, 7, 7), Packing.uniform(count, 5), index)
        if mix:
            batch = replace(batch, mixed=MixedPairs(torch.randperm(count), torch.rand(count)))
        found = []
        for compute in (replaying, lambda *args: with_gradients(objective, *args)):
            out = compute(model, batch, 4.0)
            found.append((out.loss.detach(), out.correct, gradients(model)))
            cleared(model)
        for ours, wanted in zip(found[0][:2], found[1][:2], strict=True):
            torch.testing.assert_close(ours, wanted)
        for name, gradient in found[1][2].items():
            torch.testing.assert_close(found[0][2][name], gradient, atol=1e-6, rtol=1e-4)
    assert len(replaying.captured) == 2


def test_weights_that_the_loss_does_not_reach_keep_no_gradient(make_rig, as_on_gpu):
    rig = make_rig()
    model = rig.training.model
    model.spare = torch.nn.Linear(3, 3)
    compute = Graphs(rig.objective, PaddedSizes.of(rig.stream, 1), traced)
    compute(model, rig.stream.pack(rig.stream.steps(0)[0][0]), 4.0)
    assert model.spare.weight.grad is None
    assert sum(p.grad is None for p in model.parameters()) == 2


def test_what_depends_on_lengths_is_refused_and_computed_plainly(make_rig, as_on_gpu, monkeypatch):
    """The groups of attention are cut along the lengths, which a graph would bake in."""
    monkeypatch.setattr(attention, "choose_branch", lambda *args: "grouped")
    rig, wanted = make_rig(), make_rig()
    compute = Graphs(rig.objective, PaddedSizes.of(rig.stream, 1), traced)
    index = rig.stream.steps(0)[0][0]
    with pytest.warns(
        UserWarning, match="no CUDA graphs for this training: .*the lengths were read on the host"
    ):
        out = compute(rig.training.model.train(), rig.stream.pack(index), 4.0)
    plain = with_gradients(wanted.objective, wanted.training.model.train(), wanted.stream.pack(index), 4.0)
    assert out.loss == plain.loss
    for ours, theirs in zip(*(gradients(r.training.model).values() for r in (rig, wanted)), strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        compute(rig.training.model, rig.stream.pack(index), 4.0)


def test_a_capture_draws_no_random_numbers(make_rig, as_on_gpu):
    """A training that goes on from a checkpoint captures anew: its dropout must be that of one that was not stopped."""
    states = []
    for failing in (False, True):
        rig = make_rig(objective={"masking": InputMasking(0.3, mask_id=4)})
        index = rig.stream.steps(0)[0][0]

        def capture(function, failing=failing):
            torch.rand(7)
            if failing:
                raise RuntimeError
            return traced(function)

        torch.manual_seed(3)
        compute, plain = Graphs(rig.objective, PaddedSizes.of(rig.stream, 1), capture), torch.get_rng_state()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compute(rig.training.model.train(), rig.stream.pack(index), 4.0)
        after = torch.get_rng_state()
        torch.set_rng_state(plain)
        if failing:
            with_gradients(rig.objective, rig.training.model, rig.stream.pack(index), 4.0)
        else:
            compute(rig.training.model, rig.stream.pack(index), 4.0)
        states.append(torch.equal(after, torch.get_rng_state()))
        assert compute.has_failed == failing
    assert states == [True, True]


def test_a_capture_that_fails_leaves_the_gradients_of_the_step(make_rig, as_on_gpu):
    rig = make_rig(count=29)
    model = rig.training.model.train()
    indices = sorted(
        (i for micro in rig.stream.steps(0) for i in micro), key=lambda i: rig.stream.table.lengths[i].sum()
    )

    def capture(function):
        function()
        if compute.captured:
            raise RuntimeError("no memory")
        return traced(function)

    compute = Graphs(rig.objective, PaddedSizes.of(rig.stream, 1), capture)
    compute(model, rig.stream.pack(indices[0]), 4.0)
    with pytest.warns(UserWarning, match="no CUDA graphs for this training: no memory"):
        compute(model, rig.stream.pack(indices[-1]), 4.0)
    found = gradients(model)
    cleared(model)
    for index in (indices[0], indices[-1]):
        with_gradients(rig.objective, model, rig.stream.pack(index), 4.0)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "keys", [{"masking": InputMasking(0.3, mask_id=4, mask_first=False)}, {"damp_repeats": 0.5}]
)
def test_what_recipes_do_can_be_captured(make_rig, as_on_gpu, keys):
    """Hidden words and damped repeats read no value on the host, which a trace would refuse."""
    rig = make_rig(objective={k: v for k, v in keys.items() if k != "damp_repeats"})
    model = rig.training.model.train()
    if "damp_repeats" in keys:
        config = replace(model.config, embedding=replace(model.config.embedding, **keys))
        model = type(model)(config).train()
    compute = Graphs(rig.objective, PaddedSizes.of(rig.stream, 1), traced)
    for micro in rig.stream.steps(0):
        assert np.isfinite(float(compute(model, rig.stream.pack(micro[0]), 4.0).loss))
    assert compute.captured
    assert not compute.has_failed


def test_a_fixed_packing_has_tensors_and_no_lengths():
    first, second = Packing((5, 2, 4)), Packing((1, 7, 3))
    fixed = FixedPacking(first, 7)
    places = {name: getattr(fixed, name).data_ptr() for name in FixedPacking.REFILLED}
    fixed.refill(second)
    for name in FixedPacking.REFILLED:
        torch.testing.assert_close(getattr(fixed, name), getattr(second, name))
        assert getattr(fixed, name).data_ptr() == places[name]
    assert (fixed.count, fixed.total, fixed.max_length) == (3, 11, 7)
    assert not fixed.is_uniform
    assert fixed.one_row_each.lengths == (1, 1, 1)
    for ask in (
        lambda: fixed.lengths,
        lambda: fixed.starts,
        lambda: fixed.split(torch.zeros(11)),
        lambda: hash(fixed),
    ):
        with pytest.raises(ShapeError, match="the lengths were read on the host"):
            ask()


def test_graphs_are_for_a_gpu_in_half_precision_and_are_asked_for(make_rig, monkeypatch):
    rig = make_rig(dtype=torch.bfloat16)
    ask = lambda objective=rig.objective: graphs.make_graphs(rig.training, rig.stream, objective)  # noqa: E731
    monkeypatch.setenv("GLASSFORMER_GRAPHS", "1")
    assert ask() is None
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(graphs, "graph_capture", lambda device: traced)
    assert isinstance(ask(), Graphs)
    assert ask(SimpleNamespace()) is None  # an objective of another kind
    for value in ("0", ""):
        monkeypatch.setenv("GLASSFORMER_GRAPHS", value)
        assert ask() is None
    monkeypatch.delenv("GLASSFORMER_GRAPHS")
    assert ask() is None, "off unless asked for"
    monkeypatch.setenv("GLASSFORMER_GRAPHS", "1")
    rig.training.config = replace(rig.training.config, unfreeze_every=1)
    assert ask() is None


@pytest.mark.parametrize("segments", [False, True])
def test_a_resident_table_gives_the_batches_of_the_table(make_rig, segments):
    table = make_rig().stream.table
    if segments:
        table = replace(table, segments=(np.arange(len(table.ids)) % 2).astype(np.int8))
    resident = ResidentTable.of(table, torch.device("cpu"))
    index = np.array([7, 0, 19, 3])
    ours, wanted = resident.pack(index), pack_texts(table, index)
    torch.testing.assert_close(ours.ids, wanted.ids, rtol=0, atol=0)
    assert (ours.packing, ours.index.tolist()) == (wanted.packing, index.tolist())
    assert (ours.segments is None) == (not segments)
    if segments:
        torch.testing.assert_close(ours.segments, wanted.segments, rtol=0, atol=0)
