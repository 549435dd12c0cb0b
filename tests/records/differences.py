"""Two records compared: structure and texts exactly, figures as closely as two machines agree on them."""

import math
import re
from collections.abc import Iterator
from typing import Any

from reading import FLOAT

RELATIVE, ABSOLUTE = 0.05, 0.05
# Figures that a last digit of training moves far: only that they are there, and of which type, is compared.
CHAOTIC = re.compile(
    r"loss|p_value|(^|_)p$|temperature|threshold|ece|brier|nll|interval|best_step|best_epoch|epoch$|mean$|gradient|norm"
)


def differences(old: Any, new: Any, where: str = "", exact: bool | None = None) -> Iterator[str]:
    """``path: old -> new`` of everything that differs; exactly where both records are exact."""
    if isinstance(old, dict) and isinstance(new, dict):
        if "exact" in old and "exact" in new:
            exact = bool(old["exact"] and new["exact"])
        for key in sorted(old.keys() | new.keys(), key=str):
            place = f"{where} > {key}" if where else str(key)
            if key not in new:
                yield f"{place}: {shown(old[key])} -> (gone)"
            elif key not in old:
                yield f"{place}: (not there) -> {shown(new[key])}"
            elif key != "exact":
                yield from differences(old[key], new[key], place, exact)
    elif isinstance(old, list) and isinstance(new, list):
        if not exact:
            old, new = in_order(old), in_order(new)
        for i in range(max(len(old), len(new))):
            if i >= len(new):
                yield f"{where}[{i}]: {shown(old[i])} -> (gone)"
            elif i >= len(old):
                yield f"{where}[{i}]: (not there) -> {shown(new[i])}"
            else:
                yield from differences(old[i], new[i], f"{where}[{i}]", exact)
    elif old != new and not (math_nan(old) and math_nan(new)):
        key = re.sub(r"\[\d+\]$", "", where.rpartition(" > ")[2])
        if exact or not alike(old, new, key):
            yield f"{where}: {shown(old)} -> {shown(new)}"


def in_order(items: list[Any]) -> list[Any]:
    """Printed lines in which the rows of each table are sorted, since the order of what is equally likely is chance."""
    found: list[Any] = []
    rows: list[str] = []
    for item in [*items, None]:
        if isinstance(item, str) and item.startswith("│"):
            rows.append(item)
        else:
            found += [*sorted(rows, key=lambda line: FLOAT.sub("#", line)), item]
            rows = []
    return found[:-1]


def math_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def alike(old: Any, new: Any, key: str) -> bool:
    """Whether two leaves differ by no more than two machines do."""
    if isinstance(old, str) and isinstance(new, str):
        if FLOAT.sub("#", old) != FLOAT.sub("#", new):
            return False
        pairs = zip(FLOAT.findall(old), FLOAT.findall(new), strict=True)
        return bool(CHAOTIC.search(old)) or all(near(number(a), number(b)) for a, b in pairs)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in (old, new)):
        return False
    if CHAOTIC.search(key):
        return True
    return near(old, new) and (isinstance(old, float) or isinstance(new, float))


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def near(old: float, new: float) -> bool:
    return old == new or abs(old - new) <= max(ABSOLUTE, RELATIVE * abs(old))


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + " ..."
