"""``python -m glassformer``: the command, for ``torchrun -m glassformer``."""

import sys

from glassformer.cli.start import run

sys.exit(run())
