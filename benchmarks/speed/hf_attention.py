"""Which of transformers' attentions serves a peer best on this machine: tried on the peer's own work, not assumed.

The fused one (sdpa, transformers' default) wins in fp32; in bf16 on a processor with AMX the products of the eager one
can be twice as fast.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

ATTENTIONS = ("sdpa", "eager")


def choose_attention(model: Any, work: Callable[[], Any]) -> str:
    """Leave ``model`` with the attention that ``work`` is done faster with.

    Each is tried twice, in turn, and its better time counts. Training that happens in ``work`` is undone in the
    weights; an optimiser is the caller's to clear.

    Returns:
        What a result file says of the choice: the attention taken, the other one and how much slower that was.
    """
    before = copy.deepcopy(model.state_dict())
    found = dict.fromkeys(ATTENTIONS, float("inf"))
    for name in ATTENTIONS * 2:
        model.set_attn_implementation(name)
        started = time.perf_counter()
        work()
        found[name] = min(found[name], time.perf_counter() - started)
        model.load_state_dict(before)
    first, second = sorted(found, key=lambda name: found[name])
    model.set_attn_implementation(first)
    return f"{first} ({second}: {found[second] / found[first]:.2f} times the time)"
