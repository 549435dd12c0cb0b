"""Export, quantization and execution of ONNX graphs.

Only this module and ``onnx_process.py`` use packages of the extra ``onnx``.
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
from glassformer.runtime import isolated_torch

OPSET = 18  # version of the ONNX operators
Run = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]  # inputs by name -> outputs


def check_onnx() -> None:
    """Raise ConfigError if a package of the extra ``onnx`` is missing."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        fix = "pip install 'glassformer[onnx]', or '.[onnx]' in a clone"
        raise NotInstalledError(f"{missing[0]} is not installed", where="export", fix=fix)


def export_graph(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, Any]],
    file: str | Path,
) -> Path:
    """Export a module to an ONNX file; returns its path.

    Args:
        inputs: an example for each argument; its dynamic axes must not have size 1.
        axes: name of an input -> axis -> dynamic dimension.
    """
    check_onnx()
    # The exporter temporarily replaces weights, and other threads may use the model.
    module = copy.deepcopy(module).eval()
    with _isolated(), isolated_torch(gradients=True, graph=True):
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


_EXPORT_LOCK = threading.RLock()  # torch's exporter has global state


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Isolate an export from other threads, and hide log messages of the exporter.

    While torch traces a model, it disables oneDNN and cuDNN for the whole process. This context prevents it:
    models of glassformer do not need it, and the results of other threads would differ in their last bits.
    """
    from torch.export import _trace

    ignore_backends = getattr(_trace, "_ignore_backend_decomps", None)
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    with _EXPORT_LOCK, without_warnings(r"(torch|onnx|copyreg)"):
        levels = [logger.level for logger in loggers]
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            if ignore_backends is not None:
                _trace._ignore_backend_decomps = contextlib.nullcontext  # type: ignore[assignment]  # restored below
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if ignore_backends is not None:
                _trace._ignore_backend_decomps = ignore_backends


def quantize(file: str | Path, out: str | Path) -> Path:
    """Write a copy of a graph with int8 weights (ONNX Runtime's dynamic quantization)."""
    check_onnx()
    _OnnxProcess("quantize", str(file), str(out)).close()
    return Path(out)


def open_graph(file: str | Path, threads: int = 0) -> Run:
    """Open a graph in ONNX Runtime on the CPU; returns a function that maps inputs to outputs.

    The function ignores inputs that the graph lacks. The graph runs in a separate process, which ends when
    the function is deleted.
    """
    check_onnx()
    return _OnnxProcess("run", str(file), str(threads))


class _OnnxProcess:
    """ONNX Runtime in a separate process with disabled telemetry; see ``onnx_process``."""

    def __init__(self, command: str, *values: str):
        # The new process must find the same packages as this process.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        disable_telemetry(environment)
        arguments = [sys.executable, "-P", onnx_process.__file__, command, *values]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(arguments, env=environment, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.close = weakref.finalize(self, _end, self._process)
        self._receive()

    def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which ``_receive`` reports
            onnx_process.send(self._stdin, dict(batch))
        return list(self._receive().values())

    def _receive(self) -> dict[str, np.ndarray]:
        reply = onnx_process.receive(self._stdout)
        if reply is None:
            raise GlassformerError(f"ONNX Runtime's process ended with exit code {self._process.wait()}")
        if onnx_process.ERROR in reply:
            raise GlassformerError(f"ONNX Runtime failed: {reply[onnx_process.ERROR]}")
        return reply


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()
