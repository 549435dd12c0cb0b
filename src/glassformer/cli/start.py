"""Entry point of the program, which installs the signal handler before slow imports."""

from __future__ import annotations

import os

from glassformer.cli.stopping import INTERRUPTED, install_for_process


def run() -> int:
    """Run the ``glassformer`` command with the arguments of this process; returns the exit code."""
    handler = install_for_process()
    try:
        from glassformer.cli.app import main
    except KeyboardInterrupt:
        handler.code = INTERRUPTED
        os.write(2, b"error: interrupted; nothing was started, run the same command again\n")
        return INTERRUPTED
    return main()
