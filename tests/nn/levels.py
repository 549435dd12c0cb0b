"""One level of the kernels after the other, for the files that compute at each that this processor has."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from glassformer.nn import kernels
from glassformer.nn.kernels import levels, loading
from glassformer.runtime import cpu_flags

HERE = [level for level in levels.LEVELS if cpu_flags() >= level.flags]


@contextmanager
def at_level(name: str) -> Iterator[levels.Level]:
    """By the switch: what it limits is what is opened."""
    before = loading._loaded[:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(loading.SWITCH, name)
        loading._loaded[:] = []
        found = kernels.level()
        assert found is not None, kernels.why_not()
        assert found.name == name
        yield found
    loading._loaded[:] = before


def drawn(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
