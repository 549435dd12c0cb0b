"""What a data doctor finds: each check's outcome, and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from glassformer.data.checks import place

Severity = Literal["ok", "note", "warning"]


@dataclass(frozen=True)
class Finding:
    """One check's outcome; ``code`` is the check's name and stays the same, ``fix`` the way out."""

    severity: Severity
    code: str
    message: str
    count: int = 0
    examples: tuple[str, ...] = ()
    fix: str = ""

    @property
    def sentence(self) -> str:
        """The message and the way out."""
        return f"{self.message}: {self.fix}" if self.fix else self.message


@dataclass(frozen=True)
class DoctorReport:
    """All findings, and the figures behind them.

    ``figures`` holds ``splits`` (split -> rows, distinct, classes, words), ``leaks`` (pairs of splits
    -> distinct texts in both) and, with a tokenizer, ``tokens`` (split -> lengths, shares cut and unknown)
    and ``accents``. Shares run from 0 to 1.
    """

    name: str
    findings: list[Finding]
    figures: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        findings = [asdict(f) | {"examples": list(f.examples)} for f in self.findings]
        return {"name": self.name, "findings": findings, "figures": self.figures}


# A check looks at the splits of a data set, yields what it finds, and may add to the report's figures.
Check = Callable[[Mapping[str, Any], dict[str, Any]], Iterable[Finding]]


def found(
    severity: Severity,
    code: str,
    things: Sequence[Any],
    message: str,
    fix: str = "",
    *,
    shown: Iterable[str] | None = None,
    ok: str = "",
) -> Iterable[Finding]:
    """A finding that counts ``things``, if there are any; else ``ok``, if it says something.

    Args:
        shown: examples; None: the first three of the things themselves.
    """
    if things:
        examples = tuple(things[:3] if shown is None else shown)
        yield Finding(severity, code, message, len(things), examples, fix)
    elif ok:
        yield Finding("ok", code, ok)


def at_rows(split: Any, rows: Sequence[int], text: Callable[[int], str], most: int = 3) -> list[str]:
    """Where the first of some examples of a split stand, and a text of each."""
    return [f"{place(split.origin, i, split.rows)}: {text(i)}" for i in rows[:most]]


def listed_in_part(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def in_lines(findings: Sequence[Finding]) -> list[str]:
    """A sentence for each check: what it finds in one split stands in full, the other splits are named."""
    lines: dict[Any, str] = {}
    others: dict[Any, list[str]] = {}
    for i, finding in enumerate(findings):
        key = _line_of(finding.code, finding.message, i)
        if key in lines:
            others.setdefault(key, []).append(finding.message.partition(": ")[0])
        else:
            lines[key] = finding.sentence
    for key, names in others.items():
        lines[key] += f" (also in {' and '.join(names)})"
    return list(lines.values())


def warnings_said(findings: Sequence[dict[str, Any]]) -> int:
    """How many lines ``in_lines`` makes of the warnings among findings as doctor.json has them."""
    warned = [f for f in findings if f["severity"] == "warning"]
    return len({_line_of(f["code"], f["message"], i) for i, f in enumerate(warned)})


def _line_of(code: str, message: str, place: int) -> str | int:
    """What findings of one line have in common: the check, where the message begins with a split's name."""
    split, colon, _ = message.partition(": ")
    return code if colon and " " not in split else place


def percent(part: int, whole: int) -> str:
    """A share in words."""
    return f"{part / whole:.1%}"


def excerpt(text: str, width: int = 120) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text[: 4 * width].split())
    return text if len(text) <= width else text[: width - 1] + "…"
