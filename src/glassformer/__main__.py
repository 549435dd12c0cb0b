"""Entry point of ``python -m glassformer`` and ``torchrun -m glassformer``."""

import sys

from glassformer.cli.start import run

sys.exit(run())
