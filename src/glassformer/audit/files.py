"""Writes the folder of an audit: a page, JSON, and a table of all predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.audit.page import audit_page
from glassformer.audit.predicted import Predicted
from glassformer.checkpoints.files import disk_errors
from glassformer.data.spreadsheet import csv_safe
from glassformer.finite import json_text
from glassformer.outputs import write_text


def write_audit(folder: Path, result: Mapping[str, Any], predicted: Predicted) -> None:
    """Write ``audit.html``, ``audit.json`` and ``predictions.csv`` into a new folder."""
    with disk_errors(folder):
        folder.mkdir(parents=True)
    write_text(folder / "predictions.csv", _table(predicted))
    write_text(folder / "audit.json", json_text(result, indent=2) + "\n")
    write_text(folder / "audit.html", audit_page(result))


def _table(p: Predicted) -> str:
    """A CSV table with one row per example, from which the audit's shares can be recomputed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["where", "label", "predicted", "confidence", "wrong"])
    kind = p.clf.kind_
    confidence = np.abs(p.scores) if p.gives_numbers else np.asarray(kind.confidence(p.outputs, p.chosen))
    predicted = p.labels_of(p.chosen)
    for i in range(len(p)):
        cells = [p.where(i), str(p.split.labels[i]), predicted[i]]
        writer.writerow([*map(csv_safe, cells), f"{confidence[i]:.6f}", int(p.wrong[i])])
    return out.getvalue()
