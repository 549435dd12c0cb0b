"""Rows of the scoreboard that other benchmarks have counted, read from their result files."""

from typing import Any

from benchmarks.harness.results import RESULTS, kept

MOST_DIFFERENCE = 1e-4  # of a logit
MOST_MS = 100  # until a refusal
MOST_HEALTH_MS = 1000


def _file(name: str) -> dict[str, Any]:
    return kept(RESULTS / name)


def _requests(load: dict[str, Any]) -> int:
    return sum(load["statuses"].values()) + load["broken"]


def _right(load: dict[str, Any]) -> int:
    return load["statuses"].get("200", 0) - load["wrong"]


def answers() -> list[dict[str, Any]]:
    """A row for each precision: every answer of 1, 8, 64 and 256 clients beside ``predict_proba``."""
    found, rows = _file("serve.json").get("answers", {}), []
    for precision, words in (("fp32", "1e-5 in fp32"), ("auto", "0.02 in bf16")):
        loads = [load for name, load in found.items() if name.startswith(f"{precision},")]
        rows.append({
            "promise": f"HTTP server with 1 to 256 clients. Every request gets a response within {words} of `predict_proba` "
                       "(`benchmarks/results/serve.json`)",
            "asked": 8_900, "run": sum(map(_requests, loads)), "passed": sum(map(_right, loads)),
        })  # fmt: skip
    return rows


def refusals() -> dict[str, Any]:
    """The row of a queue that is full: how many were refused, and how soon."""
    load = _file("serve.json").get("overload", {})
    refused = load.get("statuses", {}).get("429", 0)
    soon = refused if (load.get("refused_p99_ms") or 0) <= MOST_MS else 0
    took = f" (measured: {load['refused_p99_ms']:.0f} ms)" if refused else ""
    return {
        "promise": f"HTTP server with a full queue. Accepted requests get a response within 0.02 of `predict_proba`; all other "
                   f"requests get status 429, 99 % of them within {MOST_MS} ms{took}",
        "asked": "all", "run": _requests(load) if load else 0, "passed": _right(load) + soon if load else 0,
    }  # fmt: skip


def fuzz() -> dict[str, Any]:
    """The row of made-up requests."""
    found = _file("fuzz.json")
    statuses = found.get("statuses", {})
    health = f" ({found['slowest_health_ms']:.0f} ms at most)" if found else ""
    held = found.get("slowest_health_ms", 0) < MOST_HEALTH_MS
    run = sum(statuses.values())
    return {
        "promise": "HTTP server: valid and invalid requests generated from its OpenAPI description. No status 5xx, "
                   f"and `/health` within 1 s{health} (`make fuzz`)",
        "asked": 20_000, "run": run, "passed": (run - statuses.get("5xx", 0)) * held if found else "not measured",
    }  # fmt: skip


def onnx() -> tuple[dict[str, Any], str]:
    """The row of exported models, and their largest difference."""
    models = _file("export.json").get("models", {}).values()
    close = [m for m in models if m["largest_difference"] <= MOST_DIFFERENCE]
    row = {
        "promise": "ONNX exports compared with their models. The same label, logits within 1e-4 (`benchmarks/results/export.json`)",
        "asked": 8_000, "run": sum(m["inputs"] for m in models),
        "passed": sum(m["inputs"] - m["labels_changed"] for m in close),
        "seconds": sum(m["seconds"] for m in models),
    }  # fmt: skip
    if not models:
        return row, ""
    most = f"the largest difference of a logit is {max(m['largest_difference'] for m in models):.1e}"
    return row, f"ONNX: {len(models)} models of 1,000 inputs each; {most}."
