"""Reports of runs as single, self-contained HTML pages. Plotting packages are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.report.html import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'glassformer.report' has no attribute {name!r}")
    from glassformer.report.html import write_report

    return write_report
