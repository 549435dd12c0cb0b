"""What a page of a run is told of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class KnownRecipe:
    """What a page must know of recipes: this one's keys with defaults, and the shipped one of its name."""

    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shipped: dict[str, Any] | None = None


NOTHING_KNOWN = KnownRecipe()
