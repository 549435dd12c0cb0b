"""Work in forked processes, and the memory of this one."""

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """What the system counts as resident now."""
    return _of_status("VmRSS")


def peak_mb() -> float:
    """The most that was resident since ``reset_peak``, or since the process began."""
    return _of_status("VmHWM")


def reset_peak() -> float:
    """Begin to measure the peak anew; what is resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident_mb()


def _of_status(field: str) -> float:
    found = re.search(rf"{field}:\s*(\d+) kB", STATUS.read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024 / 1e6


@contextmanager
def scratch(enter: bool = False) -> Iterator[Path]:
    """A folder of no consequence; with ``enter`` it is the current one meanwhile."""
    path = Path(tempfile.mkdtemp(prefix="reliability-"))
    try:
        with contextlib.chdir(path) if enter else contextlib.nullcontext():
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def forked(work: Callable[[], int | None], out: int | None = None, err: int | None = None) -> int:
    """Start ``work`` in a process of its own; its number. It ends with the exit code that ``work`` returns, or 0.

    Args:
        out, err: what its standard streams become; an exception that nobody expects stands on the latter, exit code 1.
    """
    from glassformer.errors import GlassformerError

    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for stream, to in ((1, out), (2, err)):
            if to is not None:
                os.dup2(to, stream)
        code = work() or 0
    except GlassformerError as error:
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def ended(pid: int) -> int:
    """The exit code once it has ended; minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def answered(work: Callable[[], Any], out: int | None = None, err: int | None = None) -> tuple[int, Any]:
    """The exit code of ``work`` in a process of its own, and what it returned, as JSON has it; None: nothing."""
    reader, writer = os.pipe()

    def child() -> None:
        os.close(reader)
        with open(writer, "w", encoding="utf-8") as pipe:
            json.dump(work(), pipe)

    pid = forked(child, out, err)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    return ended(pid), json.loads(said) if said else None
