"""A new module with every weight moved: biases and norms start at 0 and 1, which would hide much."""

from typing import TypeVar

import torch

Module = TypeVar("Module", bound=torch.nn.Module)


def shaken(module: Module, by: float) -> Module:
    """``module``, to be compared: ``by`` is the spread of what is drawn for each weight."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(by * torch.randn_like(weight))
    return module.eval()
