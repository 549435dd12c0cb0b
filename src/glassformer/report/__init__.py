"""A run as one page that opens anywhere, offline."""

from glassformer.report.html import write_report

__all__ = ["write_report"]
