"""CUDA graphs of the forward and backward pass.

For a small encoder, the CPU needs more time to launch hundreds of kernels than the GPU to run them. A graph
launches all kernels with one call, but its shapes and memory are fixed. So a batch of texts is padded to one
of ``NUM_SIZES`` total numbers of tokens, with extra sequences whose targets are ignored. Batches of images
have fixed shapes. A graph is captured once per shape and then replayed.

``GLASSFORMER_GRAPHS=1`` enables graphs for classification in bf16. The gain has not been measured on a
dedicated GPU. If capturing fails, a warning gives the reason and training continues without graphs.
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

NUM_SIZES = 8  # number of different batch sizes in tokens
NUM_WARM_UP = 2  # ordinary passes before a capture, as torch's notes on CUDA graphs recommend
PADDING_VALUES = {"ids": 0, "segments": 0, "targets": IGNORED, "weights": 0}

# Model, batch, divisor of the loss -> loss and counts; accumulates gradients.
Compute = Callable[[nn.Module, Any, float], StepLoss]
# A function -> a function that replays its captured graph, and the result tensors.
Capture = Callable[[Callable[[], tuple[Tensor, ...]]], tuple[Callable[[], None], tuple[Tensor, ...]]]


def make_graphs(training: Training, stream: Any, objective: Any) -> Compute | None:
    """A function that computes a batch with graphs; None if this training does not use graphs."""
    if os.environ.get("GLASSFORMER_GRAPHS") != "1":
        return None
    if type(objective) not in (Classification, ImageClassification):
        return None
    if getattr(getattr(training.model, "config", None), "sides", None):  # reads lengths on the CPU
        return None
    weights = list(training.model.parameters())
    is_static = training.ranks.size == 1 and not training.config.unfreeze_every
    if not (is_static and weights[0].is_cuda and any(w.dtype == torch.bfloat16 for w in weights)):
        return None
    has_texts = type(objective) is Classification
    sizes = PaddedSizes.of(stream, training.config.epochs) if has_texts else None
    return Graphs(objective, sizes, graph_capture(weights[0].device))


@dataclass(frozen=True)
class PaddedSizes:
    """Padded batch sizes: multiples of ``step`` tokens in ``count`` sequences of up to ``longest`` tokens."""

    step: int
    count: int
    longest: int

    @staticmethod
    def of(stream: Any, epochs: int) -> PaddedSizes:
        """Sizes that fit every batch of ``epochs`` epochs of a ``TextStream``."""
        lengths = stream.table.lengths
        batches = [index for epoch in range(epochs) for micro in stream.steps(epoch) for index in micro]
        longest, max_tokens = int(lengths.max()), max(int(lengths[index].sum()) for index in batches)
        step = -(-max_tokens // NUM_SIZES)
        # At least one padding sequence, and enough so that none is longer than the longest text.
        num_padding = 1 + -(-step // max(longest - 1, 1))
        return PaddedSizes(step, max(map(len, batches)) + num_padding, longest)

    def padded(self, packing: Packing) -> Packing:
        """The packing of a batch with padding sequences added."""
        extra = self.count - packing.count
        total = -(-(packing.total + extra) // self.step) * self.step
        length, longer = divmod(total - packing.total, extra)
        padding = (length + 1,) * longer + (length,) * (extra - longer)
        return Packing(packing.lengths + padding, packing.device)


class FixedPacking(Packing):
    """A packing for CUDA graphs: its tensors keep their shapes and memory while the lengths change.

    A captured graph replays the same kernels on the same memory, so it must not read lengths on the CPU.
    Reading ``lengths`` raises ShapeError. ``max_length`` is an upper bound.
    """

    REFILLED = ("length_tensor", "first_rows", "cu_seqlens", "sequence_ids", "positions")
    is_uniform = False  # pyright: ignore[reportAssignmentType]  # no property here

    def __init__(self, like: Packing, max_length: int):
        values = {"count": like.count, "total": like.total, "max_length": max_length, "device": like.device}
        values |= {name: getattr(like, name).clone() for name in self.REFILLED}
        self.__dict__.update(values)

    count: int = 0

    def refill(self, packing: Packing) -> None:
        """Copy the lengths of ``packing``, which has the same number of sequences and tokens."""
        for name in self.REFILLED:
            getattr(self, name).copy_(getattr(packing, name))

    @property
    def lengths(self) -> tuple[int, ...]:
        raise ShapeError("the lengths were read on the host", where="a captured graph")

    def __repr__(self) -> str:
        return f"FixedPacking({self.count} sequences, {self.total} tokens)"

    starts = padded_rows = lengths  # pyright: ignore[reportAssignmentType]  # raise the same error


class Graphs:
    """Computes batches like ``with_gradients``, by replaying a captured graph.

    Args:
        sizes: padded sizes for texts; None: batches are not padded.
        capture: captures a function as a graph. Returns a function that replays the graph, and the result
            tensors, which each replay overwrites.
    """

    def __init__(self, objective: Any, sizes: PaddedSizes | None, capture: Capture):
        self.objective, self.sizes, self.capture = objective, sizes, capture
        self.captured: dict[tuple, _CapturedPass] = {}
        self.weights: dict[str, Tensor] = {}  # weights with a gradient
        self.gradients: dict[str, Tensor] = {}  # all graphs add to these sums over a step
        self.has_failed = False

    def __call__(self, model: nn.Module, batch: Any, per_step: float) -> StepLoss:
        """Loss and counts of a batch; the gradients are added to the gradients of the model."""
        if self.has_failed:
            return with_gradients(self.objective, model, batch, per_step)
        tensors, packing, count = self.objective.inputs(batch), batch.packing, batch.packing.count
        if self.sizes is not None:
            packing = self.sizes.padded(packing)
            tensors = {name: _pad(name, x, packing) for name, x in tensors.items()}
        shape = tuple((name, x.shape, x.dtype) for name, x in tensors.items())
        if shape not in self.captured:
            try:
                # Capturing must not advance the random generators.
                with preserved_random_state(packing.device):
                    self.captured[shape] = self._capture_pass(model, tensors, packing, per_step)
            except (RuntimeError, GlassformerError) as error:
                self.has_failed = True
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                warnings.warn(f"no CUDA graphs for this training: {reason}", stacklevel=2)
                return with_gradients(self.objective, model, batch, per_step)
        captured = self.captured[shape]
        captured.load(tensors, packing, per_step)
        for name, weight in self.weights.items():
            if weight.grad is None:  # the first batch of a step
                weight.grad = self.gradients[name].zero_()
        captured.replay()
        loss, correct = (x.clone() for x in captured.results)
        return StepLoss(loss, correct, count)

    def _capture_pass(
        self, model: nn.Module, batch: Mapping[str, Tensor], packing: Packing, per_step: float
    ) -> _CapturedPass:
        memory = {name: x.clone() for name, x in batch.items()}
        fixed = packing if self.sizes is None else FixedPacking(packing, self.sizes.longest)
        divisor = torch.tensor(per_step, device=packing.device)
        if not self.weights:
            self.weights = _weights_with_gradient(model, self.objective.compute(model, memory, fixed).loss)
            self.gradients = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        weights, sums = list(self.weights.values()), list(self.gradients.values())

        def function() -> tuple[Tensor, Tensor]:
            out = self.objective.compute(model, memory, fixed)
            torch.ops.aten._foreach_add_.List(sums, list(torch.autograd.grad(out.loss / divisor, weights)))
            return out.loss.detach(), out.correct

        saved = [x.clone() for x in sums]  # capturing adds gradients to the sums of earlier batches
        try:
            replay, results = self.capture(function)
        finally:
            torch.ops.aten._foreach_copy_(sums, saved)
        return _CapturedPass(memory, fixed, divisor, tuple(model.buffers()), replay, results)


@dataclass
class _CapturedPass:
    """A captured graph for one shape, and its input memory."""

    inputs: dict[str, Tensor]
    packing: Packing
    divisor: Tensor
    buffers: tuple[Tensor, ...]  # buffers that the graph reads, kept alive if the model replaces them
    replay: Callable[[], None]
    results: tuple[Tensor, ...]

    def load(self, tensors: Mapping[str, Tensor], packing: Packing, per_step: float) -> None:
        for name, x in tensors.items():
            self.inputs[name].copy_(x)
        if isinstance(self.packing, FixedPacking):
            self.packing.refill(packing)
        self.divisor.fill_(per_step)


def _pad(name: str, x: Tensor, packing: Packing) -> Tensor:
    """Pad a tensor of a batch to the number of tokens or of sequences in ``packing``."""
    length = packing.total if name in ("ids", "segments") else packing.count
    return F.pad(x, (0, length - len(x)), value=PADDING_VALUES[name])


def _weights_with_gradient(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The weights with a gradient. For all others it stays None, so that weight decay skips them."""
    weights = {name: w for name, w in model.named_parameters() if w.requires_grad}
    gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    pairs = zip(weights.items(), gradients, strict=True)
    return {name: w for (name, w), gradient in pairs if gradient is not None}


def graph_capture(device: torch.device) -> Capture:
    """A ``Capture`` whose graphs share one memory pool, because they never run at the same time."""
    return partial(_capture, device=device, pool=torch.cuda.graph_pool_handle())


def _capture(
    function: Callable[[], tuple[Tensor, ...]], device: torch.device, pool: Any
) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    with torch.cuda.device(device):
        main, side, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(main)
        try:
            with torch.cuda.stream(side):
                for _ in range(NUM_WARM_UP):
                    function()
                # A capture fails if the CPU synchronizes with the GPU; this call raises a clear error first.
                _set_sync_mode("error")
                function()
                _set_sync_mode("default")
            main.wait_stream(side)
            with torch.cuda.graph(graph, pool=pool):
                results = function()
        except BaseException:
            _set_sync_mode("default")
            torch.cuda.set_stream(main)  # a failed capture may have switched the stream
            main.wait_stream(side)
            raise

    def replay() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay, results


def _set_sync_mode(mode: str) -> None:
    """Set what happens when the CPU synchronizes with the GPU; torch detects most of these calls."""
    with without_warnings("torch", UserWarning):
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def preserved_random_state(device: torch.device) -> Iterator[None]:
    """Restore the state of the random generators at the end of the context."""
    states = generator_states(device)
    try:
        yield
    finally:
        set_generator_states(states, device)
