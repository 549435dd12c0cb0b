"""The result file of `mutants.py`: killed of tried by package and file, and each survivor with its reason."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness.results import RESULTS, environment, write_result

EXPLAINED = Path(__file__).parent / "mutants_explained.json"


def explained() -> dict[tuple[str, str, str], dict[str, str]]:
    """What is known about survivors, by file, text of the line, and mutation.

    ``kind`` is "equivalent" (no test could tell: it does the same, or differs in speed or memory only) or "left"
    (a test could tell, but not here, or it would hold a detail that nobody relies on).
    """
    if not EXPLAINED.exists():
        return {}
    listed = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {(one["file"], one["line"], one["mutation"]): one for one in listed}


def survivors(result: dict[str, Any], package: str, found: dict[str, list[Any]]) -> list[Any]:
    """Those mutants of ``found`` that survived in an earlier result, wherever their lines stand now."""
    wanted = {
        (one["file"], one["text"], one["mutation"])
        for run in result["runs"]
        if run["package"] == package
        for one in run["survivors"]
    }
    return [one for of_file in found.values() for one in of_file if one.key in wanted]


def summary(package: str, seed: int, tried: list[dict[str, Any]]) -> dict[str, Any]:
    """One package's figures, from what became of each mutant."""
    files: dict[str, list[int]] = {}
    for one in tried:
        counts = files.setdefault(one["file"], [0, 0])
        counts[0] += one["killed"]
        counts[1] += 1
    left = [{k: v for k, v in one.items() if k != "killed"} for one in tried if not one["killed"]]
    return judged(
        {
            "package": package,
            "seed": seed,
            "tried": len(tried),
            "killed": sum(one["killed"] for one in tried),
            "too_slow": sum(one.get("by") == "too slow" for one in tried),
            "seconds": round(sum(one["seconds"] for one in tried), 1),
            "files": {name: {"killed": k, "tried": n} for name, (k, n) in files.items()},
            "survivors": left,
        }
    )


def judged(run: dict[str, Any]) -> dict[str, Any]:
    """A run with the reasons of its survivors as they are known now."""
    known = explained()
    for one in run["survivors"]:
        reason = known.get((one["file"], one["text"], one["mutation"]), {})
        one["kind"], one["reason"] = reason.get("kind"), reason.get("reason")
    run["equivalent"] = sum(one["kind"] == "equivalent" for one in run["survivors"])
    run["explained"] = sum(one["kind"] == "left" for one in run["survivors"])
    return run


def tried_again(file: Path, package: str, tried: list[dict[str, Any]]) -> None:
    """Count what was killed at a second try in the runs of a result file."""
    result = json.loads(file.read_text(encoding="utf-8"))
    killed = {(one["file"], one["text"], one["mutation"]) for one in tried if one["killed"]}
    for run in result["runs"]:
        for one in run["survivors"] if run["package"] == package else []:
            if (one["file"], one["text"], one["mutation"]) in killed:
                run["killed"] += 1
                run["killed_by_new_tests"] = run.get("killed_by_new_tests", 0) + 1
                run["files"][one["file"]]["killed"] += 1
        left = [one for one in run["survivors"] if (one["file"], one["text"], one["mutation"]) not in killed]
        run["survivors"] = left
    file.write_text(json.dumps(result), encoding="utf-8")
    write(file, {}, [], 0)


def write(out: Path, tried: dict[str, list[dict[str, Any]]], wrong: Iterable[str], seed: int) -> None:
    """Put runs into a result file: in the place of those with the same package and seed."""
    result = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"runs": []}
    runs = {(run["package"], run["seed"]): judged(run) for run in result["runs"]}
    for package, answers in tried.items():
        runs[package, seed] = summary(package, seed, answers)
    if tried:
        result |= environment("pytest", "hypothesis")
        result["controls_that_failed"] = list(wrong)
    result["runs"] = list(runs.values())
    write_result(out, result)
    for run in runs.values():
        real = run["tried"] - run["equivalent"]
        print(
            f"{run['package']:16} seed {run['seed']}: {run['killed']} of {run['tried']} killed, "
            f"{run['equivalent']} equivalent: {100 * run['killed'] / max(real, 1):.1f} %"
        )


def section() -> list[str]:
    """What the tests hold, in Markdown, for docs/reliability.md."""
    lines = ["## Mutants", ""]
    file = RESULTS / "mutants.json"
    if not file.exists():
        return [*lines, "Not measured yet: `make mutants`.", ""]
    result = json.loads(file.read_text(encoding="utf-8"))
    lines += [
        "A mutant is the package with one small fault. A mutant is killed if a test of `make test` fails. The faults are drawn at random with a seed, in",
        "each file in proportion to its size. An equivalent mutant changes nothing that a test could detect. The last column is the share killed",
        "before tests were added for the surviving mutants of this seed.", "",
        "| Package | Seed | Tried | Killed | Equivalent | Share of non-equivalent mutants killed | Before new tests |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for run in sorted(result["runs"], key=lambda run: (run["seed"], run["package"])):
        real = max(run["tried"] - run["equivalent"], 1)
        shares = (run["killed"], run["killed"] - run.get("killed_by_new_tests", 0))
        cells = [f"`{run['package']}`", *(str(run[key]) for key in ("seed", "tried", "killed", "equivalent"))]
        lines.append(f"| {' | '.join([*cells, *(f'{100 * share / real:.1f} %' for share in shares)])} |")
    if note := result.get("note"):
        lines += ["", note]
    left = [one for run in result["runs"] for one in run["survivors"] if one["kind"] != "equivalent"]
    said = sum(one["kind"] == "left" for one in left)
    lines += [
        "",
        f"{len(left)} mutants survived that are not equivalent. {said} of them are explained in `benchmarks/reliability/mutants_explained.json`;",
        "`benchmarks/results/mutants.json` lists all with their places.", "",
    ]  # fmt: skip
    return lines
