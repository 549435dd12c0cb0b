"""What only a GPU can show: skipped where there is none. ``pytest tests/gpu`` runs them alone."""

import pytest
import torch


@pytest.fixture
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return torch.device("cuda")
