"""Findings of a data doctor: the outcome of each check, and how to fix the problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from glassformer.data.checks import place

Severity = Literal["ok", "note", "warning"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check; ``code`` is the stable name of the check, ``fix`` what to do."""

    severity: Severity
    code: str
    message: str
    count: int = 0
    examples: tuple[str, ...] = ()
    fix: str = ""

    @property
    def sentence(self) -> str:
        """The message and the fix."""
        return f"{self.message}: {self.fix}" if self.fix else self.message


@dataclass(frozen=True)
class DoctorReport:
    """All findings, and the numbers that they are based on.

    ``figures`` holds ``splits`` (split -> rows, distinct, classes, words), ``leaks`` (pairs of splits
    -> distinct texts in both) and, with a tokenizer, ``tokens`` (split -> lengths, shares of truncated texts
    and unknown tokens) and ``accents``. Shares are between 0 and 1.
    """

    name: str
    findings: list[Finding]
    figures: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON supports."""
        findings = [asdict(f) | {"examples": list(f.examples)} for f in self.findings]
        return {"name": self.name, "findings": findings, "figures": self.figures}


# A check takes the splits of a data set and the report's figures, yields findings and may add to the figures.
Check = Callable[[Mapping[str, Any], dict[str, Any]], Iterable[Finding]]


def finding_of(
    severity: Severity,
    code: str,
    items: Sequence[Any],
    message: str,
    fix: str = "",
    *,
    shown: Iterable[str] | None = None,
    ok: str = "",
) -> Iterable[Finding]:
    """Yield a finding that counts ``items``; if there are none, a finding "ok" with the message ``ok``.

    Args:
        shown: examples; None: the first three of ``items``.
    """
    if items:
        examples = tuple(items[:3] if shown is None else shown)
        yield Finding(severity, code, message, len(items), examples, fix)
    elif ok:
        yield Finding("ok", code, ok)


def at_rows(split: Any, rows: Sequence[int], text: Callable[[int], str], limit: int = 3) -> list[str]:
    """File and row of the first examples in ``rows``, each with a text."""
    return [f"{place(split.origin, i, split.rows)}: {text(i)}" for i in rows[:limit]]


def listed_in_part(names: Sequence[str], limit: int = 3, separator: str = ", ") -> str:
    """The first names, and the number of further names."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + more


def in_lines(findings: Sequence[Finding]) -> list[str]:
    """One sentence per check: its first finding, and the names of other splits with the same finding."""
    lines: dict[Any, str] = {}
    other_splits: dict[Any, list[str]] = {}
    for i, finding in enumerate(findings):
        key = _line_of(finding.code, finding.message, i)
        if key in lines:
            other_splits.setdefault(key, []).append(finding.message.partition(": ")[0])
        else:
            lines[key] = finding.sentence
    for key, names in other_splits.items():
        lines[key] += f" (also in {' and '.join(names)})"
    return list(lines.values())


def num_warnings(findings: Sequence[dict[str, Any]]) -> int:
    """Number of lines that ``in_lines`` returns for the warnings among ``findings`` (as in doctor.json)."""
    warned = [f for f in findings if f["severity"] == "warning"]
    return len({_line_of(f["code"], f["message"], i) for i, f in enumerate(warned)})


def _line_of(code: str, message: str, place: int) -> str | int:
    """Key of the line a finding belongs to: its check if the message begins with a split's name."""
    split, colon, _ = message.partition(": ")
    return code if colon and " " not in split else place


def percent(part: int, whole: int) -> str:
    """``part`` / ``whole`` as a percentage."""
    return f"{part / whole:.1%}"


def excerpt(text: str, width: int = 120) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text[: 4 * width].split())
    return text if len(text) <= width else text[: width - 1] + "…"
