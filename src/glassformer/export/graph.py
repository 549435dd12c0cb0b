"""ONNX graphs: drawn from a module, quantised, and run. What needs the extra ``onnx`` is
imported here only.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import GlassformerError, NotInstalledError
from glassformer.export import onnx_process
from glassformer.process import disable_telemetry, without_warnings
from glassformer.runtime import computing

OPSET = 18
Run = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]


def need_onnx() -> None:
    """Raises ConfigError where a package of the extra ``onnx`` is missing."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise NotInstalledError(
            f"{missing[0]} is not installed",
            where="export",
            fix="pip install 'glassformer[onnx]', or '.[onnx]' in a clone",
        )


def draw_graph(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, Any]],
    file: str | Path,
) -> Path:
    """Write a module as one ONNX file.

    Args:
        inputs: an example of every argument, none of its free axes of size 1.
        outputs: names of what comes back.
        axes: argument -> axis -> ``torch.export.Dim``, those that a caller is free in.
    """
    need_onnx()
    module = copy.deepcopy(
        module
    ).eval()  # the exporter swaps weights, and others may ask the model meanwhile
    with _apart(), computing(gradients=True, graph=True):
        torch.onnx.export(
            module,
            kwargs=dict(inputs),
            f=str(file),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes={name: dict(axes[name]) for name in inputs},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return Path(file)


_DRAWING = threading.RLock()  # torch's exporter keeps its state in the process


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Draw without changing what other threads compute and show, one at a time.

    While torch traces it switches oneDNN and cuDNN off for the whole process, so that no operator is taken
    apart into theirs. None of ours is, and without them other threads' results would have other last bits.
    What the exporter says of itself (deprecated calls, packages that it does without) is not shown.
    """
    from torch.export import _trace

    switched_off = getattr(_trace, "_ignore_backend_decomps", None)
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    with _DRAWING, without_warnings(r"(torch|onnx|copyreg)"):
        levels = [logger.level for logger in loggers]
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            if switched_off is not None:
                _trace._ignore_backend_decomps = contextlib.nullcontext  # type: ignore[assignment]  # a switch of torch's, given back below
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if switched_off is not None:
                _trace._ignore_backend_decomps = switched_off


def quantize(file: str | Path, out: str | Path) -> Path:
    """The graph with int8 weights; activation ranges come from each batch (ONNX Runtime's dynamic form)."""
    need_onnx()
    _OnnxProcess("quantize", str(file), str(out)).close()
    return Path(out)


def run_graph(file: str | Path, threads: int = 0) -> Run:
    """A graph in ONNX Runtime on the CPU, as a function of its inputs by name; others are left out.

    It runs in a process of its own, which ends with the function that is returned.

    Args:
        threads: 0 leaves ONNX Runtime's own choice.

    Raises:
        GlassformerError: ONNX Runtime cannot open or run the graph.
    """
    need_onnx()
    return _OnnxProcess("run", str(file), str(threads))


class _OnnxProcess:
    """ONNX Runtime in a process of its own, with telemetry switched off (see ``onnx_process``)."""

    def __init__(self, verb: str, *values: str):
        # The packages that this process sees, wherever it was told to look for them.
        search = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": search}
        disable_telemetry(environment)
        command = [sys.executable, "-P", onnx_process.__file__, verb, *values]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        self._given, self._told = process.stdin, process.stdout
        self.close = weakref.finalize(self, _end, self._process)
        self._reply()

    def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with contextlib.suppress(BrokenPipeError):  # it has ended: no reply says so below
            onnx_process.send(self._given, dict(batch))
        return list(self._reply().values())

    def _reply(self) -> dict[str, np.ndarray]:
        found = onnx_process.receive(self._told)
        if found is None:
            raise GlassformerError(f"ONNX Runtime's process ended with exit code {self._process.wait()}")
        if onnx_process.ERROR in found:
            raise GlassformerError(f"ONNX Runtime failed: {found[onnx_process.ERROR]}")
        return found


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()
