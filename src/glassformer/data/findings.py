"""Findings of the data doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from glassformer.data.checks import location

Severity = Literal["ok", "note", "warning"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check of the data doctor."""

    severity: Severity
    code: str  # name of the check, which does not change between versions
    message: str
    count: int = 0  # number of affected examples
    examples: tuple[str, ...] = ()
    fix: str = ""  # what to do

    @property
    def sentence(self) -> str:
        """The message and the fix."""
        return f"{self.message}: {self.fix}" if self.fix else self.message

    @staticmethod
    def if_any(
        severity: Severity,
        code: str,
        items: Sequence[Any],
        message: str,
        fix: str = "",
        *,
        shown: Iterable[str] | None = None,
        ok: str = "",
    ) -> Findings:
        """Yield a finding about ``items``; if there are none, a finding "ok" with the message ``ok``.

        Args:
            shown: examples; None: the first three of ``items``.
            ok: empty: yield nothing if there are no items.
        """
        if items:
            examples = tuple(items[:3] if shown is None else shown)
            yield Finding(severity, code, message, len(items), examples, fix)
        elif ok:
            yield Finding("ok", code, ok)


@dataclass(frozen=True)
class DoctorReport:
    """All findings about a data set, and its statistics.

    ``figures`` has the statistics. For texts these are ``splits`` (split -> rows, distinct, classes, words),
    ``leaks`` (pair of splits -> distinct texts in both) and, with a tokenizer, ``tokens`` (split -> lengths,
    shares of truncated texts and unknown tokens) and ``accents``. Shares are between 0 and 1.
    """

    name: str
    findings: list[Finding]
    figures: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON supports."""
        findings = [asdict(f) | {"examples": list(f.examples)} for f in self.findings]
        return {"name": self.name, "findings": findings, "figures": self.figures}


Findings = Iterable[Finding]
Stats = dict[str, Any]  # statistics of a report
# A check takes the splits of a data set and the report's statistics, to which it may add. It yields findings.
Check = Callable[[Mapping[str, Any], Stats], Findings]


def row_examples(split: Any, rows: Sequence[int], text: Callable[[int], str], limit: int = 3) -> list[str]:
    """Describe the first examples in ``rows``: file, row and ``text(row)``."""
    return [f"{location(split.origin, i, split.rows)}: {text(i)}" for i in rows[:limit]]


def listed_in_part(names: Sequence[str], limit: int = 3, separator: str = ", ") -> str:
    """The first names, and the number of further names."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + more


def summary_lines(findings: Sequence[Finding]) -> list[str]:
    """One sentence per check: its first finding, and the other splits with a finding of the same check."""
    lines: dict[Any, str] = {}
    other_splits: dict[Any, list[str]] = {}
    for i, finding in enumerate(findings):
        key = _line_key(finding.code, finding.message, i)
        if key in lines:
            other_splits.setdefault(key, []).append(finding.message.partition(": ")[0])
        else:
            lines[key] = finding.sentence
    for key, names in other_splits.items():
        lines[key] += f" (also in {' and '.join(names)})"
    return list(lines.values())


def num_warnings(findings: Sequence[dict[str, Any]]) -> int:
    """Number of lines of ``summary_lines`` for the warnings among ``findings`` (as in doctor.json)."""
    warnings = [f for f in findings if f["severity"] == "warning"]
    return len({_line_key(f["code"], f["message"], i) for i, f in enumerate(warnings)})


def _line_key(code: str, message: str, index: int) -> str | int:
    """A key for the summary line of a finding; findings of one check about several splits share a line."""
    split, colon, _ = message.partition(": ")
    return code if colon and " " not in split else index


def percent(part: int, whole: int) -> str:
    """``part`` / ``whole`` as a percentage."""
    return f"{part / whole:.1%}"


def excerpt(text: str, width: int = 120) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text[: 4 * width].split())
    return text if len(text) <= width else text[: width - 1] + "…"
