"""What compiled code says when it fails: by an exception of vague type, or a panic, which is none."""

from __future__ import annotations


def failure(error: BaseException) -> str | None:
    """The first line of what it says; None for no failure of its own: an interrupt, an exit, no memory.

    A panic of Rust arrives as ``pyo3_runtime.PanicException``, which ``except Exception`` does not catch.
    """
    if isinstance(error, MemoryError):
        return None
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return None
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
