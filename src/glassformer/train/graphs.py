"""The forward and backward pass of a step as CUDA graphs: captured once for each shape, then replayed.

A small encoder keeps a GPU busy for less time than the processor needs to start its hundreds of kernels. A
graph starts them all with one call, but on fixed shapes and memory. So a batch of texts is filled up to one
of ``SIZES`` numbers of tokens with sequences whose target counts for nothing, so that their loss and gradient
are 0. Images have one shape anyway.

Off unless ``GLASSFORMER_GRAPHS=1``, since what they gain has not been measured on a GPU of one's own; then
used for classification in bf16. What cannot be captured is computed without, and a warning says
why.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import GlassformerError, ShapeError
from glassformer.packing import Packing
from glassformer.process import without_warnings
from glassformer.runtime import generator_states, set_generator_states
from glassformer.train.objectives import (
    IGNORED,
    Classification,
    ImageClassification,
    StepLoss,
    with_gradients,
)
from glassformer.train.state import Training

SIZES = 8  # numbers of tokens that batches are filled up to
WARM_UP = 2  # plain passes, and one more, before a capture: torch's notes on CUDA graphs ask for some
FILLING = {"ids": 0, "segments": 0, "targets": IGNORED, "weights": 0}

Compute = Callable[[nn.Module, Any, float], StepLoss]
Capture = Callable[[Callable[[], tuple[Tensor, ...]]], tuple[Callable[[], None], tuple[Tensor, ...]]]


def graphs_of(training: Training, stream: Any, objective: Any) -> Compute | None:
    """How to compute the batches of this training with graphs; None where that is not to be."""
    wanted = os.environ.get("GLASSFORMER_GRAPHS") == "1" and type(objective) in (
        Classification,
        ImageClassification,
    )
    weights = list(training.model.parameters())
    steady = training.ranks.size == 1 and not training.config.unfreeze_every
    if getattr(getattr(training.model, "config", None), "sides", None):  # where sides end, the host must know
        return None
    if not (wanted and steady and weights[0].is_cuda and any(w.dtype == torch.bfloat16 for w in weights)):
        return None
    texts = type(objective) is Classification
    sizes = Sizes.of(stream, training.config.epochs) if texts else None
    return Graphs(objective, sizes, on_gpu(weights[0].device))


@dataclass(frozen=True)
class Sizes:
    """Multiples of ``step`` tokens, always in ``count`` sequences of at most ``longest``."""

    step: int
    count: int
    longest: int

    @staticmethod
    def of(stream: Any, epochs: int) -> Sizes:
        """For every batch of so many epochs of a ``TextStream``."""
        lengths = stream.table.lengths
        batches = [index for epoch in range(epochs) for micro in stream.steps(epoch) for index in micro]
        longest, most = int(lengths.max()), max(int(lengths[index].sum()) for index in batches)
        step = -(-most // SIZES)
        # Of the sequences that fill there is one at least, and so many that none is longer than a real one.
        filling = 1 + -(-step // max(longest - 1, 1))
        return Sizes(step, max(map(len, batches)) + filling, longest)

    def filled(self, packing: Packing) -> Packing:
        """The sequences of a batch, then those that fill it up: one token each, more where needed."""
        extra = self.count - packing.count
        total = -(-(packing.total + extra) // self.step) * self.step
        each, more = divmod(total - packing.total, extra)
        filling = (each + 1,) * more + (each,) * (extra - more)
        return Packing(packing.lengths + filling, packing.device)


class FixedPacking(Packing):
    """A packing whose tensors keep their shapes and places while the lengths in them change: for CUDA graphs.

    A captured graph replays the same kernels on the same memory, so nothing in it may depend on lengths that
    the host knows; asking for them raises. ``max_length`` is the longest that may come.
    """

    REFILLED = ("length_tensor", "first_rows", "cu_seqlens", "sequence_ids", "positions")
    is_uniform = False  # pyright: ignore[reportAssignmentType]  # no property here

    def __init__(self, like: Packing, max_length: int):
        values = {"count": like.count, "total": like.total, "max_length": max_length, "device": like.device}
        values |= {name: getattr(like, name).clone() for name in self.REFILLED}
        self.__dict__.update(values)

    count: int = 0

    def refill(self, packing: Packing) -> None:
        """Take over the lengths of ``packing``, which has as many sequences and tokens."""
        for name in self.REFILLED:
            getattr(self, name).copy_(getattr(packing, name))

    @property
    def lengths(self) -> tuple[int, ...]:
        raise ShapeError("the lengths were asked for on the host", where="a captured graph")

    def __repr__(self) -> str:
        return f"FixedPacking({self.count} sequences, {self.total} tokens)"

    starts = padded_rows = lengths  # pyright: ignore[reportAssignmentType]  # refuse likewise


class Graphs:
    """Computes batches as ``with_gradients`` does, by replaying what was captured for their shape.

    Args:
        sizes: how texts are filled up; None: batches come in few shapes by themselves.
        capture: records a function; gives how to repeat it, and its results, which each repetition renews.
    """

    def __init__(self, objective: Any, sizes: Sizes | None, capture: Capture):
        self.objective, self.sizes, self.capture = objective, sizes, capture
        self.captured: dict[tuple, _Pass] = {}
        self.weights: dict[str, Tensor] = {}  # that the loss reaches
        self.gradients: dict[str, Tensor] = {}  # their sums over a step, where all graphs add
        self.refused = False

    def __call__(self, model: nn.Module, batch: Any, per_step: float) -> StepLoss:
        """Loss and counts of a batch; its gradients are added to those on the model."""
        if self.refused:
            return with_gradients(self.objective, model, batch, per_step)
        given, packing, count = self.objective.inputs(batch), batch.packing, batch.packing.count
        if self.sizes is not None:
            packing = self.sizes.filled(packing)
            given = {name: _longer(name, x, packing) for name, x in given.items()}
        shape = tuple((name, x.shape, x.dtype) for name, x in given.items())
        if shape not in self.captured:
            try:
                with same_draws(packing.device):  # neither trying nor capturing counts as a step
                    self.captured[shape] = self._new(model, given, packing, per_step)
            except (RuntimeError, GlassformerError) as error:
                self.refused = True
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                warnings.warn(f"no CUDA graphs for this training: {reason}", stacklevel=2)
                return with_gradients(self.objective, model, batch, per_step)
        ready = self.captured[shape]
        ready.load(given, packing, per_step)
        for name, weight in self.weights.items():
            if weight.grad is None:  # the first batch of a step
                weight.grad = self.gradients[name].zero_()
        ready.repeat()
        loss, correct = (x.clone() for x in ready.results)
        return StepLoss(loss, correct, count)

    def _new(self, model: nn.Module, given: Mapping[str, Tensor], packing: Packing, per_step: float) -> _Pass:
        kept = {name: x.clone() for name, x in given.items()}
        fixed = packing if self.sizes is None else FixedPacking(packing, self.sizes.longest)
        divisor = torch.tensor(per_step, device=packing.device)
        if not self.weights:
            self.weights = _reached(model, self.objective.compute(model, kept, fixed).loss)
            self.gradients = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        weights, sums = list(self.weights.values()), list(self.gradients.values())

        def function() -> tuple[Tensor, Tensor]:
            out = self.objective.compute(model, kept, fixed)
            torch.ops.aten._foreach_add_.List(sums, list(torch.autograd.grad(out.loss / divisor, weights)))
            return out.loss.detach(), out.correct

        before = [x.clone() for x in sums]  # of this step's earlier batches; capturing runs the function too
        try:
            repeat, results = self.capture(function)
        finally:
            torch.ops.aten._foreach_copy_(sums, before)
        return _Pass(kept, fixed, divisor, tuple(model.buffers()), repeat, results)


@dataclass
class _Pass:
    """What was captured for one shape, and the memory it reads."""

    given: dict[str, Tensor]
    packing: Packing
    divisor: Tensor
    tables: tuple[
        Tensor, ...
    ]  # which the model may replace by longer ones while the graph goes on reading these
    repeat: Callable[[], None]
    results: tuple[Tensor, ...]

    def load(self, given: Mapping[str, Tensor], packing: Packing, per_step: float) -> None:
        for name, x in given.items():
            self.given[name].copy_(x)
        if isinstance(self.packing, FixedPacking):
            self.packing.refill(packing)
        self.divisor.fill_(per_step)


def _longer(name: str, x: Tensor, packing: Packing) -> Tensor:
    """A tensor of a batch of texts filled up to the tokens or the sequences of ``packing``."""
    wanted = packing.total if name in ("ids", "segments") else packing.count
    return F.pad(x, (0, wanted - len(x)), value=FILLING[name])


def _reached(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The weights that have a gradient: that of the others stays None, so that they do not decay."""
    weights = {name: w for name, w in model.named_parameters() if w.requires_grad}
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {
        name: w for (name, w), gradient in zip(weights.items(), found, strict=True) if gradient is not None
    }


def on_gpu(device: torch.device) -> Capture:
    """Captures into CUDA graphs that share one pool of memory, since no two of them run at once."""
    return partial(_capture, device=device, pool=torch.cuda.graph_pool_handle())


def _capture(
    function: Callable[[], tuple[Tensor, ...]], device: torch.device, pool: Any
) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    with torch.cuda.device(device):
        main, side, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(main)
        try:
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    function()
                # A capture in which the host waits for the GPU cannot be undone cleanly: found out before.
                _waiting_is("error")
                function()
                _waiting_is("default")
            main.wait_stream(side)
            with torch.cuda.graph(graph, pool=pool):
                results = function()
        except BaseException:
            _waiting_is("default")
            torch.cuda.set_stream(main)  # which a failed capture may have left
            main.wait_stream(side)
            raise

    def repeat() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return repeat, results


def _waiting_is(mode: str) -> None:
    """What happens where the host waits for the GPU; torch warns that it does not notice every such place."""
    with without_warnings("torch", UserWarning):
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def same_draws(device: torch.device) -> Iterator[None]:
    """What is drawn at random inside is drawn again after it."""
    states = generator_states(device)
    try:
        yield
    finally:
        set_generator_states(states, device)
