"""Training in several processes: which rows of a batch each computes, and what they tell each other.

    torchrun --nproc-per-node 4 -m glassformer train RECIPE

Every process (a rank) prepares the same data and the same weights. Of each batch it computes a share of the
rows with nearly the same number of tokens as the others have; PyTorch's own DDP or FSDP2 adds the gradients.
The batches, the loss and what a checkpoint holds are those of one process, so a run may go on with another
number of them. Rank 0 alone writes files. Values travel as JSON and plain bytes: nothing is pickled.
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

from glassformer.checkpoints.layout import reason
from glassformer.checkpoints.native import LoadedState
from glassformer.errors import ConfigError, GlassformerError, SeveralProcessesWarning
from glassformer.runtime import generator_states, set_generator_states, set_seed, world

PATIENCE = timedelta(
    minutes=10
)  # with a process that is alive and silent; one that has died is noticed at once


def refuse_several(what: str, fix: str) -> None:
    """Raises ConfigError under ``torchrun`` with more than one process, or with what is left of one."""
    if (size := world()[1]) > 1:
        raise ConfigError(what, where="torchrun", fix=f"{fix}, or unset WORLD_SIZE (now {size})")


class Ranks:
    """One process: nothing to share and nobody to ask. ``Several`` overrides every method."""

    rank, size, sharded = 0, 1, False

    @property
    def leads(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    # --- the model -------------------------------------------------------------------------------

    def wrap(self, model: nn.Module, uneven: bool) -> None:
        """Let gradients be added over the processes; ``uneven``: a step may leave weights without one."""

    def local(self, x: Any) -> Any:
        """The part of a weight or gradient that lies in this process."""
        return x

    def part(self, full: Tensor) -> Tensor:
        """That part of a tensor that is whole here."""
        return full

    def whole(self, part: Tensor, shape: torch.Size) -> Tensor:
        """The whole tensor of which every process has a part."""
        return part

    def norm(self, norm: Tensor) -> Tensor:
        """The norm of gradients of which each process knows that of its part."""
        return norm

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, the model is whole in each process and can be called freely, without gradients."""
        yield

    # --- a step ----------------------------------------------------------------------------------

    def divide(self, stream: Any, objective: Callable) -> tuple[Any, Callable]:
        """The batches and the objective, of which this process computes its share."""
        return stream, objective

    def adding(self, now: bool) -> Any:
        """The context of a backward pass: after the last of a step the gradients are added."""
        return nullcontext()

    def sum(self, **values: float) -> dict[str, float]:
        """Sums over the processes."""
        return values

    def any(self, flag: bool) -> bool:
        """Whether it holds in at least one process; every one hears the same."""
        return flag

    # --- data and states -------------------------------------------------------------------------

    def own(self, examples: Sequence[Any]) -> Sequence[Any]:
        """The examples that this process judges."""
        return examples

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """The rows of all examples, from those of ``own`` in each process."""
        return rows

    def agree(self, value: Any) -> Any:
        """What rank 0 has, for JSON."""
        return value

    def share_state(self, found: LoadedState | None) -> LoadedState:
        """A checkpoint that rank 0 has read."""
        assert found is not None
        return found

    def generators(self) -> dict[str, Tensor]:
        """The states of every process's random generators."""
        return generator_states()

    def set_generators(self, tensors: dict[str, Tensor], step: int) -> None:
        """Go on drawing where a checkpoint's process of this rank stood."""
        set_generator_states(tensors)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, the end of another process is one clear error."""
        yield


ALONE = Ranks()


def join(strategy: str, device: torch.device, seed: int) -> Ranks:
    """Meet the other processes that ``torchrun`` has started; without any, ``ALONE``.

    Args:
        strategy: ``auto`` and ``ddp``: every process has all weights; ``fsdp``: a part of each.

    Raises:
        ConfigError: the others do not come within ``PATIENCE``; as ``world``.
    """
    rank, size = world()
    if size < 2:
        return ALONE
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        _meet(size, "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Several(rank, size, strategy == "fsdp", device, seed)


def _meet(size: int, backend: str) -> None:
    """Wait for the other processes. Who was not started by ``torchrun`` is told so: there may be none."""
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    fix = f"Unset WORLD_SIZE for one process, or use torchrun --nproc-per-node {size}"
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        waiting = f"WORLD_SIZE is {size}: waiting for {size} processes to meet at {address}"
        warnings.warn(f"{waiting}. {fix}", SeveralProcessesWarning, stacklevel=5)
    try:
        dist.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        what = f"the {size} processes that WORLD_SIZE names did not meet at {address} ({reason(error)})"
        raise ConfigError(what, where="WORLD_SIZE", fix=fix) from None


@dataclass
class Share:
    """This process's rows of a batch; ``idle``: more processes than rows, so it helps out for nothing."""

    batch: Any
    idle: bool

    @property
    def packing(self) -> Any:
        return self.batch.packing


@dataclass(frozen=True)
class SharedStream:
    """The batches of a stream, each cut down to the rows of one process."""

    stream: Any
    rank: int
    size: int

    @property
    def examples(self) -> int:
        return self.stream.examples

    def steps(self, epoch: int) -> list[list]:
        return self.stream.steps(epoch)

    def pack(self, index: Any) -> Share:
        mine = self.stream.cut(index, self.rank, self.size)
        idle = mine is None
        return Share(self.stream.pack(self.stream.cut(index, 0, self.size) if idle else mine), idle)


class Together(nn.Module):
    """Model and objective as one module, because DDP and FSDP act on the call of a module."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, objective: Callable, batch: Any) -> tuple[Any, Any]:
        out = objective(self.model, batch)
        return getattr(out, "loss", None), out  # FSDP looks for tensors in tuples only


class Several(Ranks):
    """One of several processes that train one model."""

    def __init__(self, rank: int, size: int, sharded: bool, device: torch.device, seed: int):
        self.rank, self.size, self.sharded, self.device, self.seed = rank, size, sharded, device, seed
        self._together: Any = None
        self._pieces: list[Any] = []  # modules whose weights FSDP shards together, the outermost last

    # --- the model -------------------------------------------------------------------------------

    def wrap(self, model: nn.Module, uneven: bool) -> None:
        if self.rank:  # each process draws its own dropout; rank 0 draws as one process would
            set_seed(self._own_seed(0))
        together = Together(model)
        if not self.sharded:
            self._together = nn.parallel.DistributedDataParallel(together, find_unused_parameters=uneven)
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        encoder = model.get_submodule("encoder")
        layers = list(getattr(encoder, "layers", []))
        self._pieces = [*layers, encoder, together] if layers else [together]
        mesh = init_device_mesh(self.device.type, (self.size,))
        for piece in self._pieces:
            fully_shard(piece, mesh=mesh)
        self._together = together
        with torch.no_grad():  # the first call settles which module is the outermost
            together(lambda model, batch: None, None)
        for piece in self._pieces:
            piece.reshard()

    def local(self, x: Any) -> Any:
        return x.detach().to_local() if hasattr(x, "to_local") else x

    def part(self, full: Tensor) -> Tensor:
        if not self.sharded or full.ndim == 0:
            return full
        parts = full.chunk(self.size)  # as FSDP cuts: along the first axis, the last parts may be empty
        return parts[self.rank].clone() if self.rank < len(parts) else full[:0].clone()

    def whole(self, part: Tensor, shape: torch.Size) -> Tensor:
        if not self.sharded or part.ndim == 0:
            return part
        longest = -(-shape[0] // self.size)
        padded = part.new_zeros(longest, *shape[1:])
        padded[: len(part)] = part
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return torch.cat(parts)[: shape[0]]

    def norm(self, norm: Tensor) -> Tensor:
        if not self.sharded:
            return norm
        total = norm.detach().double().square()
        dist.all_reduce(total)
        return total.sqrt().to(norm.dtype)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        if not self.sharded:
            yield
            return
        self._together.set_reshard_after_forward(False)
        for piece in self._pieces:
            piece.unshard()
        try:
            yield
        finally:
            for piece in self._pieces:
                piece.reshard()
            self._together.set_reshard_after_forward(True)

    # --- a step ----------------------------------------------------------------------------------

    def divide(self, stream: Any, objective: Callable) -> tuple[Any, Callable]:
        return SharedStream(stream, self.rank, self.size), self._compute(objective)

    def _compute(self, objective: Callable) -> Callable:
        def compute(model: nn.Module, share: Share) -> Any:
            loss, out = self._together(objective, share.batch)
            if share.idle:
                return replace(out, loss=loss * 0.0, correct=out.correct * 0, count=0)
            return replace(out, loss=loss)

        return compute

    @contextmanager
    def adding(self, now: bool) -> Iterator[None]:
        if self.sharded:
            self._together.set_requires_gradient_sync(now)
            yield
        else:
            with nullcontext() if now else self._together.no_sync():
                yield

    def sum(self, **values: float) -> dict[str, float]:
        totals = torch.tensor([float(v) for v in values.values()], dtype=torch.float64)
        dist.all_reduce(totals)
        kinds = [type(v) for v in values.values()]
        return {name: kind(v) for name, kind, v in zip(values, kinds, totals.tolist(), strict=True)}

    def any(self, flag: bool) -> bool:
        return self.sum(flag=int(flag))["flag"] > 0

    # --- data and states -------------------------------------------------------------------------

    def own(self, examples: Sequence[Any]) -> Sequence[Any]:
        mine = examples[self.rank :: self.size]
        return (
            mine if len(mine) else examples[:1]
        )  # fewer examples than processes: judged here and not counted

    def gather(self, rows: np.ndarray) -> np.ndarray:
        counts = self._each(torch.tensor([len(rows)]))
        longest = int(max(counts))
        padded = np.zeros((longest, *rows.shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        parts = [x.numpy() for x in self._each(torch.from_numpy(padded))]
        # Example i was judged by rank i % size, as its number i // size.
        woven = np.stack(parts, 1).reshape(-1, *rows.shape[1:])
        real = np.stack([np.arange(longest) < int(n) for n in counts], 1).reshape(-1)
        return woven[real]

    def _each(self, x: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x)
        return parts

    def agree(self, value: Any) -> Any:
        text = json.dumps(value).encode() if self.leads else b""
        length = torch.tensor([len(text)])
        dist.broadcast(length, 0)
        data = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else None
        if data is None:
            data = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return json.loads(data.numpy().tobytes())

    def share_state(self, found: LoadedState | None) -> LoadedState:
        head = None
        if found is not None:
            shapes = {
                n: [str(t.dtype).removeprefix("torch."), list(t.shape)] for n, t in found.tensors.items()
            }
            head = [found.step, shapes, found.state, str(found.path), [[str(p), s] for p, s in found.skipped]]
        step, shapes, state, path, skipped = self.agree(head)
        tensors = {}
        for name, (kind, shape) in shapes.items():
            dtype = getattr(torch, kind)
            x = found.tensors[name].contiguous() if found else torch.empty(shape, dtype=dtype)
            if x.numel():
                dist.broadcast(x.reshape(-1).view(torch.uint8), 0)
            tensors[name] = x
        return found or LoadedState(step, tensors, state, path, skipped)

    def generators(self) -> dict[str, Tensor]:
        states: dict[str, Tensor] = {}
        for name, mine in super().generators().items():
            for rank, theirs in enumerate(self._each(mine)):
                states[f"{name}/{rank}" if rank else name] = theirs
        return states

    def set_generators(self, tensors: dict[str, Tensor], step: int) -> None:
        if f"rng/torch/{self.size - 1}" not in tensors or f"rng/torch/{self.size}" in tensors:
            if self.rank:  # another number of processes wrote it: no state is mine
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
    def watched(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # DistError is one, and gloo's own are nothing more
            if not isinstance(error, dist.DistError) and not re.search(
                r"gloo|nccl|c10d|connection (closed|reset|refused)|broken pipe", str(error), re.IGNORECASE
            ):
                raise
            raise GlassformerError(
                f"process {self.rank} of {self.size} lost another one of this training, which has ended or "
                "cannot be reached; the newest checkpoint is whole: continue with --resume"
            ) from error
