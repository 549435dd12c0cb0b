"""ONNX Runtime in a separate process, which ``graph.py`` starts.

When ONNX Runtime is imported, it writes a device id to the user's cache and looks up a telemetry host. Only
``ORT_DISABLE_TELEMETRY=1`` in the environment prevents this, and glassformer does not change the environment
of the user's process.

This file does not import glassformer. A message consists of its length and arrays in NumPy's npz format.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import IO

import numpy as np

LENGTH_BYTES = 8  # number of bytes of a message's length, little-endian
ERROR = "error"  # name of the array with an error message


def send(file: IO[bytes], arrays: dict[str, np.ndarray]) -> None:
    """Write one message."""
    memory = io.BytesIO()
    np.savez(memory, allow_pickle=False, **{f"_{name}": array for name, array in arrays.items()})
    file.write(len(memory.getbuffer()).to_bytes(LENGTH_BYTES, "little"))
    file.write(memory.getbuffer())
    file.flush()


def receive(file: IO[bytes]) -> dict[str, np.ndarray] | None:
    """The arrays of the next message; None if the other process has ended."""
    head = file.read(LENGTH_BYTES)
    size = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or len(body := file.read(size)) < size:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name[1:]: arrays[name] for name in arrays.files}


def quantize(file: str, out: str) -> None:
    """Write a copy of a graph with int8 weights (dynamic quantization)."""
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


def serve(file: str, threads: int, requests: IO[bytes], out: IO[bytes]) -> None:
    """Run a graph on the inputs of each message, and send the outputs, until the input ends."""
    import onnxruntime  # pyright: ignore[reportMissingImports]  # of the extra

    onnxruntime.disable_telemetry_events()  # for Windows, where the environment variable has no effect
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    input_names = {value.name for value in session.get_inputs()}
    send(out, {})
    while (batch := receive(requests)) is not None:
        outputs = session.run(None, {name: array for name, array in batch.items() if name in input_names})
        send(out, {str(i): np.asarray(array) for i, array in enumerate(outputs)})


def main(command: str, *values: str) -> None:
    """Execute ``quantize FILE OUT`` or ``run FILE THREADS``; an error is sent as the last message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and ends this one
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # redirect what libraries print to stderr, because stdout is for messages
    try:
        if command == "quantize":
            quantize(*values)
            send(out, {})
        else:
            serve(values[0], int(values[1]), sys.stdin.buffer, out)
    except Exception as error:  # ONNX Runtime has several error classes
        send(out, {ERROR: np.array(f"{type(error).__name__}: {error}")})


if __name__ == "__main__":
    main(*sys.argv[1:])
