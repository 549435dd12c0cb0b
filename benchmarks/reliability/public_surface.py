"""What users rely on, in a commit and in this code: what went missing, and which defaults changed.

    python -m benchmarks.reliability.public_surface COMMIT                     names, parameters, verbs, recipes, HTTP, exit codes
    python -m benchmarks.reliability.public_surface COMMIT --runs              and what small runs of every kind leave behind
    python -m benchmarks.reliability.public_surface COMMIT --runs --freeze     and keep the commit's as tests/house/surface.json

Each side is read by ``tests/house/surface.py`` and ``surface_runs.py`` in a process of its own. What is added is no
loss; it is counted. The tests hold the code to the frozen surface.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, ROOT, environment, write_result

HOUSE = ROOT / "tests" / "house"
FROZEN = HOUSE / "surface.json"
sys.path.insert(0, str(HOUSE))


def surface_of(root: Path, scratch: Path, runs: bool) -> dict[str, Any]:
    """What the scripts find in the code below ``root``."""
    scratch.mkdir()
    code = {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-W", "ignore"]
    subprocess.run([*words, HOUSE / "surface.py", "out.json"], check=True, cwd=scratch, env=os.environ | code)
    found = json.loads((scratch / "out.json").read_text(encoding="utf-8"))
    if runs:
        script = [*words, HOUSE / "surface_runs.py", "runs.json", "work"]
        subprocess.run(script, check=True, cwd=scratch, env=os.environ | code, stdout=subprocess.DEVNULL)
        found["runs"] = json.loads((scratch / "runs.json").read_text(encoding="utf-8"))
    return found


def leaves(value: Any) -> int:
    """How many single facts a surface states."""
    if isinstance(value, dict | list):
        return sum(leaves(item) for item in (value.values() if isinstance(value, dict) else value))
    return 1


def main() -> None:
    options = parse(
        __doc__,
        "commit",
        runs=(False, "train small models of every kind too (two minutes)"),
        freeze=(False, f"write the commit's to {FROZEN.relative_to(ROOT)}"),
    )
    from surface import lost

    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
        old_root = Path(folder) / "code"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(old_root), options.commit], check=True)
        try:
            old = surface_of(old_root, Path(folder) / "old", options.runs)
        finally:
            subprocess.run([*git, "remove", "--force", str(old_root)], check=True)
        new = surface_of(ROOT, Path(folder) / "new", options.runs)
    losses = {part: list(lost(old[part], new[part], part)) for part in old}
    added = {part: len(list(lost(new[part], old[part]))) for part in old}
    for part, found in losses.items():
        console.print(f"{part}: {leaves(old[part]):,} facts, {len(found)} lost, {added[part]} added or other")
        for line in found:
            console.print(f"  {line}")
    about = {part: {"facts": leaves(old[part]), "lost": losses[part], "added": added[part]} for part in old}
    result = {"commit": options.commit, "parts": about, "environment": environment()}
    write_result(RESULTS / "public-surface.json", result)
    if options.freeze:
        FROZEN.write_text(json.dumps(old, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
    sys.exit(any(losses.values()))


if __name__ == "__main__":
    main()
