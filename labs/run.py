"""Run the labs, cell by cell, and write what they show into the documentation.

    python labs/run.py [1 2 ...] [--again]      pages go to docs/labs/, with a table of all answers: answers.md

A lab is a Python file in percent format: ``# %% [markdown]`` opens text, ``# %%`` opens code. A lab whose code and
result files have not changed since its page was written is not run again, so a run that was stopped goes on where it
was; its text is brought up to date.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import io
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

HERE = Path(__file__).resolve().parent
PAGES = HERE.parent / "docs" / "labs"
OTHER_LAB = re.compile(r"\]\((\d\d_\w+)\.py\)")  # a link that a notebook can follow; pages link to pages
sys.path.insert(0, str(HERE))


@dataclass(frozen=True)
class Cell:
    """One cell of a lab: text, or code under the heading that came last."""

    kind: str  # "markdown" or "code"
    source: str
    heading: str
    line: int  # of its first line in the file


def labs() -> list[Path]:
    """The labs, in order."""
    return sorted(HERE.glob("[0-9]*.py"))


def cells(path: Path) -> list[Cell]:
    """The cells of a file in percent format."""
    found, heading = [], ""
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        kind = "markdown" if "[markdown]" in lines[start] else "code"
        body = lines[start + 1 : stop]
        if kind == "markdown":
            body = [re.sub(r"^# ?", "", line) for line in body]
            heading = next((line.lstrip("# ") for line in body if line.startswith("#")), heading)
        if source := "\n".join(body).strip():
            found.append(Cell(kind, source, heading, start + 2))
    return found


def questions_of(path: Path) -> dict[str, str]:
    """Question -> heading of the cell that answers it, read from the code."""
    return {question: cell.heading for cell in cells(path) for question in answered(cell)}


def answered(cell: Cell) -> list[str]:
    """The questions that a cell answers, read from its code."""
    nodes = ast.walk(ast.parse(cell.source)) if cell.kind == "code" else ()
    calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) in ("answer", "lab.answer")]
    return [ast.literal_eval(call.args[0]) for call in calls]


def with_power(question: str) -> list[str]:
    """What ``benchmarks/quality/lab_questions.py`` has found of a question on more data and seeds, read from its result file."""
    import lab

    file = lab.RESULTS / "lab-questions.json"
    found = json.loads(file.read_text(encoding="utf-8"))["questions"] if file.is_file() else {}
    return [f"{one['asked']} {one['answer']}" for one in found.values() if one["lab"] == question]


def execute(
    path: Path, figures: Path | None = None
) -> tuple[list[tuple[Cell, str, list[str]]], dict[str, str]]:
    """Run a lab.

    Args:
        figures: the folder that takes its figures; None: they are drawn and dropped.

    Returns:
        cell, what it printed and the names of its figures, for each cell; and question -> answer.
    """
    mpl.use("Agg")
    import lab
    from matplotlib import pyplot as plt

    lab.ANSWERS.clear()
    space: dict[str, Any] = {"__name__": "__lab__", "__file__": str(path)}
    shown = []
    for cell in cells(path):
        out, names, ended = io.StringIO(), [], False
        if cell.kind == "code":
            with contextlib.redirect_stdout(out):
                try:
                    exec(compile("\n" * (cell.line - 1) + cell.source, str(path), "exec"), space)
                except SystemExit as end:  # a lab that cannot go on says why and ends here
                    ended = True
                    print(end)
            for number in plt.get_fignums():
                name = f"{path.stem}-{sum(len(n) for _, _, n in shown) + len(names) + 1}.svg"
                target: Any = io.StringIO() if figures is None else figures / name
                plt.figure(number).savefig(target, format="svg", metadata={"Date": None})
                names.append(name)
            plt.close("all")
        shown.append((cell, out.getvalue(), names))
        if ended:
            break
    return shown, dict(lab.ANSWERS)


def digest(path: Path) -> str:
    """Of the code that a page was made from, and of how its answers read; its text may change without a run."""
    from questions import TEMPLATES

    code = [cell.source for cell in cells(path) if cell.kind == "code"]
    code += [TEMPLATES[question] for question in questions_of(path)]
    return hashlib.sha256("\n# %%\n".join(code).encode()).hexdigest()[:16]


def stale_results(page: str) -> list[str]:
    """The result files that a page was made from and that are others now."""
    import lab

    lines = re.findall(
        r"^([\w.-]+): (?:read from|not measured yet; its file would be) .*$", page, re.MULTILINE
    )
    return [name for name in dict.fromkeys(lines) if lab.source_of(name) not in page]


def shown_on(page: str, path: Path) -> list[tuple[Cell, str, list[str]]]:
    """What a page of the same code shows of each cell: printed text and names of figures, as ``execute`` gives them.

    Raises:
        ValueError: the page is of other code.
    """
    shown, at = [], 0
    for cell in cells(path):
        printed, names = "", []
        if cell.kind == "code":
            block = f"```python\n{cell.source}\n```"
            at = page.index(block, at) + len(block)
            outputs = re.compile(
                r"(?:\n\n```text\n(.*?)\n```)?((?:\n\n!\[[^\n]*\]\(figures/[^\n]*\))*)", re.DOTALL
            )
            found = outputs.match(page, at)
            printed = (found and found[1]) or ""
            names = re.findall(r"\(figures/(.*?)\)", found[2] if found else "")
        shown.append((cell, printed, names))
    return shown


def reworded(old: str, path: Path) -> str:
    """A page with the text and solutions of now around the outputs that it has."""
    return page(path, shown_on(old, path), old.rstrip().rpartition("\n")[2].partition(" ran ")[2])


def solutions(path: Path) -> str:
    file = HERE / "solutions" / f"{path.stem}.py"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def page(path: Path, shown: list[tuple[Cell, str, list[str]]], how: str) -> str:
    """A lab with its outputs, as Markdown for the documentation; ``how`` it ran: "in 5 s on this machine."."""
    parts = [f"<!-- {path.name} {digest(path)}: written by labs/run.py -->"]
    for cell, printed, names in shown:
        if cell.kind == "markdown":
            parts.append(
                OTHER_LAB.sub(r"](\1.md)", cell.source)
                .replace("](../", "](../../")
                .replace("](../../docs/", "](../")
            )
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
        parts += [f"![{cell.heading}](figures/{name})" for name in names]
        parts += [
            f"**With more data and seeds**, read from [a long run](../questions.md): {told}"
            for question in answered(cell)
            for told in with_power(question)
        ]
    if text := solutions(path):
        parts.append(
            "## Solutions\n\n<details><summary>Show them</summary>\n\n"
            f"```python\n{text.strip()}\n```\n\n</details>"
        )
    parts.append(f"---\n\n[{path.name}](../../labs/{path.name}) ran {how}")
    return "\n\n".join(parts) + "\n"


def table() -> str:
    """Question, lab, cell and the answer of the last full run, as Markdown."""
    from questions import QUESTIONS

    file = PAGES / "answers.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    where = {q: (path, heading) for path in labs() for q, heading in questions_of(path).items()}
    lines = ["| Question | Lab | Cell | Measured |", "|---|---|---|---|"]
    for name, question in QUESTIONS.items():
        path, heading = where[name]
        said = " ".join([known.get(name, ""), *with_power(name)]).strip().replace("|", "\\|")
        lines.append(f"| {question} | [{path.stem}]({path.stem}.md) | {heading} | {said} |")
    return "\n".join(lines)


def answers_page() -> str:
    """docs/labs/answers.md."""
    return (
        "<!-- written by labs/run.py -->\n\n# All questions and measured answers\n\n"
        "Every question that a lab asks, the cell that answers it, and what the last full run measured.\n\n"
        f"{table()}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", type=int, nargs="*", help="which labs; none: all")
    parser.add_argument("--again", action="store_true", help="those with an up-to-date page too")
    args = parser.parse_args()
    import lab

    if lab.BUDGET != "full":
        raise SystemExit("pages come from full runs: unset GLASSFORMER_LAB_BUDGET")
    from glassformer.runtime import machine_facts

    facts = machine_facts()
    machine = f"{facts['threads']} thread{'s' * (facts['threads'] != 1)} of {facts['cpu']}"

    (PAGES / "figures").mkdir(parents=True, exist_ok=True)
    for path in labs():
        target = PAGES / f"{path.stem}.md"
        if args.numbers and int(path.name.split("_")[0]) not in args.numbers:
            continue
        old = target.read_text(encoding="utf-8") if target.is_file() else ""
        fresh = digest(path) in old[:200] and not stale_results(old)
        if fresh and not args.again:
            target.write_text(reworded(old, path), encoding="utf-8")
            print(
                f"{path.name}: not run, its code and the results it reads are those of the page", flush=True
            )
            continue
        started = time.process_time()  # other work on the machine does not count
        shown, answers = execute(path, PAGES / "figures")
        seconds = time.process_time() - started
        target.write_text(
            page(path, shown, f"in {seconds:.0f} s of processor time on {machine}."), encoding="utf-8"
        )
        file = PAGES / "answers.json"
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        file.write_text(json.dumps(known | answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {seconds:.0f} s, {len(answers)} answers", flush=True)
    (PAGES / "answers.md").write_text(answers_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
