"""Which lines of some source files run: for `mutants.py`, in a test's process and in those that it starts.

It imports nothing but the standard library, because a process that a test starts reads it before anything else.
"""

import atexit
import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = "MUTANTS_LINES"  # environment: where a started process leaves the lines that it ran
FILES = "MUTANTS_FILES"  # environment: the files that are watched, joined by os.pathsep


def watch(files: Iterable[str]) -> set[tuple[str, int]]:
    """A set that from now on takes (file, line) of every line that runs in ``files``, in all threads."""
    lines: set[tuple[str, int]] = set()

    def local_for(name: str) -> Any:
        def local(frame: Any, event: str, arg: Any) -> Any:
            if event == "line":
                lines.add((name, frame.f_lineno))
            return local

        return local

    locals_of = {name: local_for(name) for name in files}

    def enter(frame: Any, event: str, arg: Any) -> Any:
        local = locals_of.get(frame.f_code.co_filename)
        if local is not None:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    threading.settrace(enter)
    sys.settrace(enter)
    return lines


def watch_until_the_end() -> None:
    """In a started process: write the lines that ran into the folder when it ends."""
    folder, files = os.environ.get(FOLDER), os.environ.get(FILES)
    if folder and files and sys.gettrace() is None:  # the test's own process watches already
        lines = watch(files.split(os.pathsep))
        out = Path(folder) / f"{os.getpid()}.json"
        atexit.register(lambda: out.write_text(json.dumps(sorted(lines)), encoding="utf-8"))


if __name__ == "<run_path>":
    watch_until_the_end()
