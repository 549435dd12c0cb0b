"""What compiled code says when it fails: by an exception of no precise type, or by a panic, which is no
exception.
"""

from __future__ import annotations


def failure(error: BaseException) -> str | None:
    """The first line of what it says; None for what is not its failure: an interrupt, an exit, a lack of
    memory.

    A panic of Rust arrives as ``pyo3_runtime.PanicException``, which nothing that catches ``Exception``
    catches.
    """
    if isinstance(error, MemoryError):
        return None
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return None
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
