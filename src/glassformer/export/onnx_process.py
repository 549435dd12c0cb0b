"""Program that runs ONNX Runtime in a separate process; ``graph.py`` starts it.

When imported, ONNX Runtime writes a device id into the user's cache and looks up a telemetry host. Only
``ORT_DISABLE_TELEMETRY=1`` in the environment of its process prevents that, and the environment of the
caller's process must not be changed.

This file imports nothing from glassformer. A message is its length, then arrays in NumPy's npz format.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import IO

import numpy as np

LENGTH = 8  # bytes of a message's length, little-endian
ERROR = "error"  # name of the array with an error message


def send(file: IO[bytes], arrays: dict[str, np.ndarray]) -> None:
    """Write one message."""
    memory = io.BytesIO()
    np.savez(memory, allow_pickle=False, **{f"_{name}": array for name, array in arrays.items()})
    file.write(len(memory.getbuffer()).to_bytes(LENGTH, "little"))
    file.write(memory.getbuffer())
    file.flush()


def receive(file: IO[bytes]) -> dict[str, np.ndarray] | None:
    """The next message; None: the other process has ended."""
    head = file.read(LENGTH)
    size = int.from_bytes(head, "little")
    if len(head) < LENGTH or len(body := file.read(size)) < size:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name[1:]: arrays[name] for name in arrays.files}


def quantize(file: str, out: str) -> None:
    """Write the graph with int8 weights (dynamic quantization)."""
    import logging

    import onnx  # pyright: ignore[reportMissingImports]  # of the extra
    from onnxruntime.quantization import (  # pyright: ignore[reportMissingImports]  # of the extra
        QuantType,
        quantize_dynamic,
    )

    logging.disable(logging.WARNING)
    graph = onnx.load(file)
    del graph.graph.value_info[:]  # the exporter's shapes of inner tensors confuse the quantizer
    quantize_dynamic(graph, out, weight_type=QuantType.QInt8)


def answer(file: str, threads: int, given: IO[bytes], out: IO[bytes]) -> None:
    """Run the graph on each message of inputs, until there are no more."""
    import onnxruntime  # pyright: ignore[reportMissingImports]  # of the extra

    onnxruntime.disable_telemetry_events()  # builds for Windows use this instead of the variable
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    input_names = {value.name for value in session.get_inputs()}
    send(out, {})
    while (batch := receive(given)) is not None:
        outputs = session.run(None, {name: array for name, array in batch.items() if name in input_names})
        send(out, {str(i): np.asarray(array) for i, array in enumerate(outputs)})


def main(verb: str, *values: str) -> None:
    """``quantize FILE OUT`` or ``run FILE THREADS``; an error is sent as the last message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C and ends this process
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not be mixed with messages
    try:
        if verb == "quantize":
            quantize(*values)
            send(out, {})
        else:
            answer(values[0], int(values[1]), sys.stdin.buffer, out)
    except Exception as error:  # ONNX Runtime has several error classes
        send(out, {ERROR: np.array(f"{type(error).__name__}: {error}")})


if __name__ == "__main__":
    main(*sys.argv[1:])
