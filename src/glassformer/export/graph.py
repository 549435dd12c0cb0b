"""ONNX graphs: export, quantization, and running them. Packages of the extra ``onnx`` are only imported
here.
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
    """Raise ConfigError if a package of the extra ``onnx`` is missing."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        fix = "pip install 'glassformer[onnx]', or '.[onnx]' in a clone"
        raise NotInstalledError(f"{missing[0]} is not installed", where="export", fix=fix)


def draw_graph(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, Any]],
    file: str | Path,
) -> Path:
    """Export a module to one ONNX file; dynamic ``axes`` of the example ``inputs`` must not have size 1."""
    need_onnx()
    module = copy.deepcopy(
        module
    ).eval()  # a copy, because the exporter swaps weights while other threads may use the model
    with _isolated(), computing(gradients=True, graph=True):
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
    """Isolate an export from other threads; one export at a time.

    While torch traces, it disables oneDNN and cuDNN for the whole process, to avoid decompositions into their
    operators. Our models have none, and other threads would compute results with different last bits, so this
    is prevented. Log messages of the exporter (deprecations, missing optional packages) are hidden.
    """
    from torch.export import _trace

    switched_off = getattr(_trace, "_ignore_backend_decomps", None)
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    with _EXPORT_LOCK, without_warnings(r"(torch|onnx|copyreg)"):
        levels = [logger.level for logger in loggers]
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            if switched_off is not None:
                _trace._ignore_backend_decomps = contextlib.nullcontext  # type: ignore[assignment]  # restored below
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if switched_off is not None:
                _trace._ignore_backend_decomps = switched_off


def quantize(file: str | Path, out: str | Path) -> Path:
    """Write the graph with int8 weights (ONNX Runtime's dynamic quantization)."""
    need_onnx()
    _OnnxProcess("quantize", str(file), str(out)).close()
    return Path(out)


def run_graph(file: str | Path, threads: int = 0) -> Run:
    """Open a graph in ONNX Runtime on the CPU; returns a function of its inputs, which ignores other names.

    The graph runs in a separate process, which ends when the function is deleted.
    """
    need_onnx()
    return _OnnxProcess("run", str(file), str(threads))


class _OnnxProcess:
    """ONNX Runtime in a separate process with telemetry disabled; see ``onnx_process``."""

    def __init__(self, verb: str, *values: str):
        # The process must find the same packages as this one.
        search = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": search}
        disable_telemetry(environment)
        command = [sys.executable, "-P", onnx_process.__file__, verb, *values]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.close = weakref.finalize(self, _end, self._process)
        self._reply()

    def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with contextlib.suppress(BrokenPipeError):  # the process has ended: reported below
            onnx_process.send(self._stdin, dict(batch))
        return list(self._reply().values())

    def _reply(self) -> dict[str, np.ndarray]:
        reply = onnx_process.receive(self._stdout)
        if reply is None:
            raise GlassformerError(f"ONNX Runtime's process ended with exit code {self._process.wait()}")
        if onnx_process.ERROR in reply:
            raise GlassformerError(f"ONNX Runtime failed: {reply[onnx_process.ERROR]}")
        return reply


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()
