"""Rows of the scoreboard that other benchmarks have counted, read from their result files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from common import RESULTS

MOST_DIFFERENCE = 1e-4  # of a logit
MOST_MS = 100  # until a refusal


def _file(name: str) -> dict[str, Any]:
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _loads(value: Any, peer: bool = False) -> Iterator[dict[str, Any]]:
    """Every summary of a load on our own server."""
    if isinstance(value, dict) and "statuses" in value and not peer:
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _loads(inner, peer or key == "FastAPI + pipeline")
    elif isinstance(value, list):
        for inner in value:
            yield from _loads(inner, peer)


def server() -> tuple[dict[str, Any], str]:
    """The row of requests, and what must be read beside it."""
    found = _file("serve.json")
    loads = list(_loads(found))
    statuses = [(int(code), n) for load in loads for code, n in load["statuses"].items()]
    faults = sum(load["wrong"] + load["broken"] for load in loads)
    faults += sum(n for code, n in statuses if code not in (200, 429, 503))
    run = sum(n for _, n in statuses) + sum(load["broken"] for load in loads)
    row = {
        "promise": "HTTP server under load: answered as offline, or refused with 429 or 503; nothing else, none broken "
                   "(`benchmarks/results/serve.json`)", "asked": 20_000, "run": run, "passed": run - faults,
    }  # fmt: skip
    said = ["Of the server's requests, "]
    refused = [load["refused_p99_ms"] for load in loads if load["refused_p99_ms"] is not None]
    if refused:
        said.append(f"refusals took at most {max(refused):.0f} ms in 99 of 100 cases ({MOST_MS} wanted)")
    if "answers" not in found:
        said.append(
            ("; " if refused else "")
            + "the part that holds answers of 1, 8, 64 and 256 clients to 1e-5 has not been run"
            " (speed was measured at 0.05, overload at 0.02)"
        )
    return row, "".join(said) + "." if len(said) > 1 else ""


def onnx() -> tuple[dict[str, Any], str]:
    """The row of exported models, and their largest difference."""
    models = _file("export.json").get("models", {})
    held = [
        m["inputs"] - m["labels_changed"] if m["largest_difference"] <= MOST_DIFFERENCE else 0
        for m in models.values()
    ]
    row = {
        "promise": "ONNX beside torch: the same label, logits within 1e-4 (`benchmarks/results/export.json`)",
        "asked": 8_000, "run": sum(m["inputs"] for m in models.values()), "passed": sum(held),
        "seconds": sum(m["seconds"] for m in models.values()),
    }  # fmt: skip
    if not models:
        return row, ""
    most = max(m["largest_difference"] for m in models.values())
    return (
        row,
        f"ONNX: {len(models)} models of 1,000 inputs each; the largest difference of a logit is {most:.1e}.",
    )
