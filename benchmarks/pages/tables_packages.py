"""The table of packages in clean environments, from packages.json; see tables.py."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.tables_speed import read


def passed(steps: dict[str, dict[str, Any]], name: str) -> bool:
    """Whether a step was made and ended well."""
    return "seconds" in steps.get(name, {})


def counted(step: dict[str, Any]) -> str:
    """How many tests passed, or that some did not."""
    if "failed" in step:
        return "failed"
    return step["said"].split(" passed")[0] if "said" in step else "not run"


def extras(steps: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """How many of the tried extras install and import, and how many of their tests passed; failures by name."""
    tried = [name for name in steps if name.startswith("[") and name.endswith("]")]
    wrong = [name for name in tried if not (passed(steps, name) and passed(steps, f"{name} imports"))]
    judged = [steps[f"{name} tests"] for name in tried if f"{name} tests" in steps]
    failed = [name for name in tried if "failed" in steps.get(f"{name} tests", {})]
    total = sum(int(counted(step)) for step in judged if "said" in step)
    installed = f"{len(tried) - len(wrong)} of {len(tried)}" if tried else "not tried"
    if wrong:
        installed += f", not {', '.join(wrong)}"
    return installed, f"{total}" + (f", failures in {', '.join(failed)}" if failed else "")


def order(column: dict[str, Any]) -> tuple[list[int], bool]:
    """Older Pythons first, the wheel before the source package."""
    return [int(part) for part in column["python"].split(".")], column["package"] != "wheel"


def packages() -> str:
    """A line a Python and a package: what was installed, ran and passed in an environment of its own."""
    result = read("packages")
    if result is None:
        return "Not tried yet: `benchmarks/reliability/packages.py`."
    lines = [
        "| Python | Package | torch | `demo --quick` | Tests of the core | Extras that install | Their tests |",
        "|---|---|---|---|---|---|---|",
    ]
    for t in sorted(result["tried"], key=order):
        steps = t["steps"]
        torch = steps.get("torch", {}).get("said") or f"{t['torch']} build"
        if not passed(steps, "core"):
            why = steps.get("core", {}).get("failed", "not reached").splitlines()[0]
            lines.append(f"| {t['python']} | {t['package']} | {torch} | {why} | | | |")
            continue
        demo = steps.get("demo --quick", {})
        if passed(steps, "demo --quick"):
            time = f"{demo['seconds']:.0f} s" + (
                f", load {demo['load_before']:.0f}" if "load_before" in demo else ""
            )
            if "processor_seconds" in demo:
                time += f"; {demo['processor_seconds']:.0f} s of the processor"
        else:
            time = "failed" if demo else "not run"
        installed, tests = extras(steps)
        lines.append(
            f"| {t['python']} | {t['package']} | {torch} | {time} | {counted(steps.get('tests', {}))} | {installed} | {tests} |"
        )
    by = sorted({f"{t['installer']} on {'.'.join(t['python'].split('.')[:2])}" for t in result["tried"]})
    machine = result["machine"]
    note = f"Installed by {', '.join(by)}, each in an empty environment; tests are counted where they passed. One core of {machine['cpu']}."
    return "\n".join([*lines, "", note])
