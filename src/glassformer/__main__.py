"""``python -m glassformer``: the command, for ``torchrun -m glassformer``."""

import sys

from glassformer.cli.app import main

sys.exit(main())
