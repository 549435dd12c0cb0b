"""Distributed training.

    torchrun --nproc-per-node 4 -m glassformer train RECIPE

Every process (rank) prepares the same data and the same weights. It computes a part of each batch, with
nearly the same number of tokens as the other processes. PyTorch's DDP or FSDP2 sums the gradients. Batches,
loss and checkpoints are the same as with one process, so a run can resume with another number of processes.
Only rank 0 writes files. Processes exchange JSON and raw bytes, without pickle.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from glassformer.checkpoints.layout import first_line
from glassformer.checkpoints.native import LoadedState
from glassformer.errors import ConfigError, GlassformerError, SeveralProcessesWarning
from glassformer.runtime import generator_states, set_generator_states, set_seed, world

TIMEOUT = timedelta(minutes=10)  # for communication; a process that dies is noticed at once


def require_single_process(what: str, fix: str) -> None:
    """Raise ConfigError if there is more than one process (``WORLD_SIZE``)."""
    if (size := world()[1]) > 1:
        raise ConfigError(what, where="torchrun", fix=f"{fix}, or unset WORLD_SIZE (now {size})")


class Ranks:
    """Communication between processes.

    This base class is for one process, so nothing is sent; ``MultipleRanks`` overrides it.
    """

    rank, size, sharded = 0, 1, False

    @property
    def is_main(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    # --- the model -------------------------------------------------------------------------------

    def wrap(self, model: nn.Module, may_skip_weights: bool) -> None:
        """Sum gradients over processes.

        Args:
            may_skip_weights: whether some weights may have no gradient in a step.
        """

    def local(self, x: Any) -> Any:
        """This process's part of a sharded weight or gradient."""
        return x

    def part(self, full: Tensor) -> Tensor:
        """This process's part of a full tensor."""
        return full

    def full_tensor(self, part: Tensor, shape: torch.Size) -> Tensor:
        """The full tensor from the parts of all processes."""
        return part

    def norm(self, norm: Tensor) -> Tensor:
        """The norm over all processes from the norm of each part."""
        return norm

    @contextmanager
    def full_weights(self) -> Iterator[None]:
        """Context in which each process has all weights, for calls without gradients."""
        yield

    # --- a step ----------------------------------------------------------------------------------

    def divide(self, stream: Any, objective: Callable) -> tuple[Any, Callable]:
        """The batches and the objective, restricted to the examples of this process."""
        return stream, objective

    def gradient_sync(self, enabled: bool) -> Any:
        """Context of a backward pass, which sums the gradients over processes if ``enabled``."""
        return nullcontext()

    def sum(self, **values: float) -> dict[str, float]:
        """Sum values over processes."""
        return values

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is True in at least one process; all processes get the same result."""
        return flag

    # --- data and states -------------------------------------------------------------------------

    def own_examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        """The examples that this process evaluates."""
        return examples

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """The results of all examples, from each process's results for its ``own_examples``."""
        return rows

    def broadcast(self, value: Any) -> Any:
        """The value of rank 0; it must be JSON-serializable."""
        return value

    def share_state(self, loaded: LoadedState | None) -> LoadedState:
        """Send the checkpoint that rank 0 has read to all processes."""
        assert loaded is not None
        return loaded

    def generators(self) -> dict[str, Tensor]:
        """The states of the random generators of all processes."""
        return generator_states()

    def set_generators(self, tensors: dict[str, Tensor], step: int) -> None:
        """Restore this rank's random generators from a checkpoint."""
        set_generator_states(tensors)

    @contextmanager
    def report_lost_processes(self) -> Iterator[None]:
        """Context that raises a clear error if another process dies."""
        yield


ONE_PROCESS = Ranks()


def join(strategy: str, device: torch.device, seed: int) -> Ranks:
    """Connect to the other processes that ``torchrun`` has started; ``ONE_PROCESS`` for a single process.

    With ``strategy = "fsdp"`` weights are sharded; otherwise each process has all weights.
    """
    rank, size = world()
    if size < 2:
        return ONE_PROCESS
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        _connect(size, "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return MultipleRanks(rank, size, strategy == "fsdp", device, seed)


def _connect(size: int, backend: str) -> None:
    """Wait for the other processes; warn if ``torchrun`` has not started this process."""
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    fix = f"Unset WORLD_SIZE for one process, or use torchrun --nproc-per-node {size}"
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        waiting = f"WORLD_SIZE is {size}: waiting for {size} processes to connect at {address}"
        warnings.warn(f"{waiting}. {fix}", SeveralProcessesWarning, stacklevel=5)
    try:
        dist.init_process_group(backend, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        what = f"WORLD_SIZE is {size}, but not all processes connected at {address} ({first_line(error)})"
        raise ConfigError(what, where="WORLD_SIZE", fix=fix) from None


@dataclass
class PartialBatch:
    """The examples of a batch that this process computes."""

    batch: Any
    # Whether this process repeats the part of rank 0 (there are too few examples for all), so that its
    # results do not count.
    is_copy: bool

    @property
    def packing(self) -> Any:
        return self.batch.packing


@dataclass(frozen=True)
class PartialStream:
    """The batches of a stream, restricted to the examples of one process."""

    stream: Any
    rank: int
    size: int

    @property
    def examples(self) -> int:
        return self.stream.examples

    def steps(self, epoch: int) -> list[list]:
        return self.stream.steps(epoch)

    def pack(self, index: Any) -> PartialBatch:
        shard = self.stream.shard(index, self.rank, self.size)
        is_copy = shard is None
        selected = self.stream.shard(index, 0, self.size) if is_copy else shard
        return PartialBatch(self.stream.pack(selected), is_copy)


class ModelWithObjective(nn.Module):
    """Model and objective as one module, because DDP and FSDP hook into the call of a module."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, objective: Callable, batch: Any) -> tuple[Any, Any]:
        out = objective(self.model, batch)
        return getattr(out, "loss", None), out  # FSDP finds tensors in tuples only


class MultipleRanks(Ranks):
    """One of several processes that train the same model."""

    def __init__(self, rank: int, size: int, sharded: bool, device: torch.device, seed: int):
        self.rank, self.size, self.sharded, self.device, self.seed = rank, size, sharded, device, seed
        self.wrapped: Any = None
        self._fsdp_modules: list[Any] = []  # modules that FSDP shards as a unit, the root module last

    # --- the model -------------------------------------------------------------------------------

    def wrap(self, model: nn.Module, may_skip_weights: bool) -> None:
        if self.rank:  # other dropout masks in each process; rank 0 has those of a run with one process
            set_seed(self._own_seed(0))
        wrapped = ModelWithObjective(model)
        if not self.sharded:
            self.wrapped = nn.parallel.DistributedDataParallel(
                wrapped, find_unused_parameters=may_skip_weights
            )
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        encoder = model.get_submodule("encoder")
        layers = list(getattr(encoder, "layers", []))
        self._fsdp_modules = [*layers, encoder, wrapped] if layers else [wrapped]
        mesh = init_device_mesh(self.device.type, (self.size,))
        for module in self._fsdp_modules:
            fully_shard(module, mesh=mesh)
        self.wrapped = wrapped
        with torch.no_grad():  # the first call determines the root module
            wrapped(lambda model, batch: None, None)
        for module in self._fsdp_modules:
            module.reshard()

    def local(self, x: Any) -> Any:
        return x.detach().to_local() if hasattr(x, "to_local") else x

    def part(self, full: Tensor) -> Tensor:
        if not self.sharded or full.ndim == 0:
            return full
        parts = full.chunk(self.size)  # FSDP shards along the first axis; there may be fewer parts than ranks
        return parts[self.rank].clone() if self.rank < len(parts) else full[:0].clone()

    def full_tensor(self, part: Tensor, shape: torch.Size) -> Tensor:
        if not self.sharded or part.ndim == 0:
            return part
        longest = -(-shape[0] // self.size)
        padded = part.new_zeros(longest, *shape[1:])
        padded[: len(part)] = part
        return torch.cat(self._all_gather(padded))[: shape[0]]

    def norm(self, norm: Tensor) -> Tensor:
        if not self.sharded:
            return norm
        total = norm.detach().double().square()
        dist.all_reduce(total)
        return total.sqrt().to(norm.dtype)

    @contextmanager
    def full_weights(self) -> Iterator[None]:
        if not self.sharded:
            yield
            return
        self.wrapped.set_reshard_after_forward(False)
        for module in self._fsdp_modules:
            module.unshard()
        try:
            yield
        finally:
            for module in self._fsdp_modules:
                module.reshard()
            self.wrapped.set_reshard_after_forward(True)

    # --- a step ----------------------------------------------------------------------------------

    def divide(self, stream: Any, objective: Callable) -> tuple[Any, Callable]:
        return PartialStream(stream, self.rank, self.size), self._compute(objective)

    def _compute(self, objective: Callable) -> Callable:
        def compute(model: nn.Module, part: PartialBatch) -> Any:
            loss, out = self.wrapped(objective, part.batch)
            if part.is_copy:
                return replace(out, loss=loss * 0.0, correct=out.correct * 0, count=0)
            return replace(out, loss=loss)

        return compute

    @contextmanager
    def gradient_sync(self, enabled: bool) -> Iterator[None]:
        if self.sharded:
            self.wrapped.set_requires_gradient_sync(enabled)
            yield
        else:
            with nullcontext() if enabled else self.wrapped.no_sync():
                yield

    def sum(self, **values: float) -> dict[str, float]:
        totals = torch.tensor([float(v) for v in values.values()], dtype=torch.float64)
        dist.all_reduce(totals)
        kinds = [type(v) for v in values.values()]
        return {name: kind(v) for name, kind, v in zip(values, kinds, totals.tolist(), strict=True)}

    def any(self, flag: bool) -> bool:
        return self.sum(flag=int(flag))["flag"] > 0

    # --- data and states -------------------------------------------------------------------------

    def own_examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        selected = examples[self.rank :: self.size]
        # A process without examples evaluates one example, which is not counted.
        return selected if len(selected) else examples[:1]

    def gather(self, rows: np.ndarray) -> np.ndarray:
        counts = self._all_gather(torch.tensor([len(rows)]))
        longest = int(max(counts))
        padded = np.zeros((longest, *rows.shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        parts = [x.numpy() for x in self._all_gather(torch.from_numpy(padded))]
        # Rank i % size has evaluated example i as its example i // size.
        interleaved = np.stack(parts, 1).reshape(-1, *rows.shape[1:])
        valid = np.stack([np.arange(longest) < int(n) for n in counts], 1).reshape(-1)
        return interleaved[valid]

    def _all_gather(self, x: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x)
        return parts

    def broadcast(self, value: Any) -> Any:
        text = json.dumps(value).encode() if self.is_main else b""
        length = torch.tensor([len(text)])
        dist.broadcast(length, 0)
        data = torch.frombuffer(bytearray(text or bytes(int(length))), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return json.loads(data.numpy().tobytes())

    def share_state(self, loaded: LoadedState | None) -> LoadedState:
        header = None
        if loaded is not None:
            shapes = {
                n: [str(t.dtype).removeprefix("torch."), list(t.shape)] for n, t in loaded.tensors.items()
            }
            skipped = [[str(p), s] for p, s in loaded.skipped]
            header = [loaded.step, shapes, loaded.state, str(loaded.path), skipped]
        step, shapes, state, path, skipped = self.broadcast(header)
        tensors = {}
        for name, (kind, shape) in shapes.items():
            dtype = getattr(torch, kind)
            x = loaded.tensors[name].contiguous() if loaded else torch.empty(shape, dtype=dtype)
            if x.numel():
                dist.broadcast(x.reshape(-1).view(torch.uint8), 0)
            tensors[name] = x
        return loaded or LoadedState(step, tensors, state, path, skipped)

    def generators(self) -> dict[str, Tensor]:
        states: dict[str, Tensor] = {}
        for name, state in super().generators().items():
            for rank, rank_state in enumerate(self._all_gather(state)):
                states[f"{name}/{rank}" if rank else name] = rank_state
        return states

    def set_generators(self, tensors: dict[str, Tensor], step: int) -> None:
        if f"rng/torch/{self.size - 1}" not in tensors or f"rng/torch/{self.size}" in tensors:
            if self.rank:  # a checkpoint of another number of processes has no state for this rank
                set_seed(self._own_seed(step))
                return
            super().set_generators(tensors, step)
            return
        end = f"/{self.rank}" if self.rank else ""
        super().set_generators(
            {n: tensors[n + end] for n in ("rng/torch", "rng/cuda") if n + end in tensors}, step
        )

    def _own_seed(self, step: int) -> int:
        return int(np.random.SeedSequence([self.seed, step, self.rank]).generate_state(1, np.uint64)[0] >> 1)

    @contextmanager
    def report_lost_processes(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # DistError is a subclass; gloo raises plain RuntimeErrors
            if not isinstance(error, dist.DistError) and not re.search(
                r"gloo|nccl|c10d|connection (closed|reset|refused)|broken pipe", str(error), re.IGNORECASE
            ):
                raise
            raise GlassformerError(
                f"process {self.rank} of {self.size} lost the connection to another process, which "
                "has ended or cannot be reached; continue from the newest checkpoint with --resume"
            ) from error
