"""ONNX graphs: drawn from a module, quantised, and run. What needs the extra ``onnx`` is
imported here only.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError

OPSET = 18
Run = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]


def need_onnx() -> None:
    """Raises ConfigError where a package of the extra ``onnx`` is missing."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise ConfigError(
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
    talk = io.StringIO()  # the exporter prints its progress
    level = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings(), contextlib.redirect_stdout(talk), contextlib.redirect_stderr(talk):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(),
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
    finally:
        logging.disable(level)
    return Path(file)


def quantize(file: str | Path, out: str | Path) -> Path:
    """The graph with int8 weights; activation ranges come from each batch (ONNX Runtime's dynamic form)."""
    need_onnx()
    import onnx  # pyright: ignore[reportMissingImports]  # of the extra
    import onnxruntime.quantization as onnx_int8  # pyright: ignore[reportMissingImports]  # of the extra

    graph = onnx.load(str(file))
    del graph.graph.value_info[:]  # the exporter's shapes of inner tensors, which the quantiser disputes
    level = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        onnx_int8.quantize_dynamic(graph, str(out), weight_type=onnx_int8.QuantType.QInt8)
    finally:
        logging.disable(level)
    return Path(out)


def run_graph(file: str | Path, threads: int = 0) -> Run:
    """A graph in ONNX Runtime on the CPU, as a function of its inputs by name; others are left out.

    Args:
        threads: 0 leaves ONNX Runtime's own choice.
    """
    need_onnx()
    import onnxruntime  # pyright: ignore[reportMissingImports]  # of the extra

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    return lambda batch: session.run(None, {k: v for k, v in batch.items() if k in wanted})
