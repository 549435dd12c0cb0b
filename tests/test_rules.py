"""The rules of docs/architecture.md and CONTRIBUTING.md that a program can check."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import PACKAGE, modules, tree_of

from glassformer.data.vocabulary import BLANK_MARKS, CONTINUATION_PREFIX, SPECIAL_TOKENS, TOKEN_SPELLINGS
from glassformer.families import FAMILIES
from glassformer.study.grid import expand, load_study
from glassformer.targets import TARGETS
from glassformer.tasks.catalog import load_recipe, recipe_classes, recipe_names, study_names

ROOT = Path(__file__).parents[1]

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def read_levels(page: str) -> tuple[dict[str, int], set[tuple[str, str]]]:
    """The level of every unit, and the pairs (importer, imported) of one level that arrows lead along.

    A line of the diagram is a number, names with arrows, and after three blanks what it means.
    """
    levels: dict[str, int] = {}
    arrows: set[tuple[str, str]] = set()
    picture = page.split("## Levels", 1)[1].split("```")[1]
    for line in picture.splitlines():
        if not (match := re.match(r" (\d)  (.*)", line)):
            continue
        words = [word.rstrip("/") for word in match[2].split("   ")[0].split()]
        for i, word in enumerate(words):
            if "─" not in word:
                levels[word] = int(match[1])
            if word.endswith("▶"):
                arrows.add((words[i - 1], words[i + 1]))
            if word.startswith("◀"):
                arrows.add((words[i + 1], words[i - 1]))
    while further := {(a, d) for a, b in arrows for c, d in arrows if b == c and a != d} - arrows:
        arrows |= further
    return levels, arrows


LEVELS, ARROWS = read_levels(PAGE)

# What few places may import, and what none may.
WEB_PLOTTING_HUB = set(
    """
    fastapi starlette uvicorn pydantic prometheus_client matplotlib jinja2 huggingface_hub requests
""".split()
)
THEIR_PLACES = ("serve/", "report/", "explain/render.py", "checkpoints/", "data/sources.py")
ONE_PLACE = {"transformers": "export/proof.py"}
NEVER = {
    "sentence_transformers",
    "torchvision",
    "timm",
    "accelerate",
    "datasets",  # not needed
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",  # code in disguise
}
NEVER_CALLED = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "pickle.load"}
HEAVY = tuple(
    """
    sklearn scipy pandas pyarrow matplotlib numba PIL jinja2 typer rich huggingface_hub transformers datasets
    accelerate
""".split()
)

LONG, HEAD = 800, 20  # lines
SOURCES = {".py", ".js"}
GENERATED = {"node_modules", "_build", "__pycache__"}


def unit_of(path: Path) -> str:
    """The first name below the package: nn for nn/encoder.py, classifier for classifier.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, wherever it stands in the file."""
    package = ["glassformer", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def dotted_name(node: ast.expr) -> str:
    """torch.load for the expression ``torch.load``; empty for anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_module_has_a_level():
    unknown = {unit_of(path) for path in modules()} - LEVELS.keys() - {"__main__"}
    assert not unknown, "give it a place in the levels of docs/architecture.md"


def test_the_call_paths_of_the_architecture_lead_through_files_that_are_there():
    roads = PAGE.split("## Call paths")[1].split("\n## ")[0]
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", roads)
    assert len(named) > 20
    assert [name for name in named if not (PACKAGE / name).is_file()] == []
    fit, train = (road.split("\n\n")[1] for road in roads.split("\n**")[1:4:2])
    assert len(fit.splitlines()) <= 10
    assert len(train.splitlines()) <= 12


def test_imports_go_to_lower_levels_only():
    wrong = []
    for path in modules():
        unit = unit_of(path)
        for line, name in imports_of(path):
            package, _, rest = name.partition(".")
            if package != "glassformer" or rest == "__version__" or unit == "__main__":
                continue
            target = rest.partition(".")[0]
            target = target if target in LEVELS else "__init__"  # from glassformer import load
            level = LEVELS.get(unit, 9)  # without a place: the test above says so
            one_unit = target == unit or LEVELS[target] == level == 0
            if not (one_unit or LEVELS[target] < level or (unit, target) in ARROWS):
                wrong.append(f"{at(path, line)}: {unit} imports {target}")
    assert not wrong


def test_special_packages_stay_in_their_places():
    wrong = []
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        for line, name in imports_of(path):
            root = name.partition(".")[0]
            strange = root in WEB_PLOTTING_HUB and not place.startswith(THEIR_PLACES)
            if root in NEVER or strange or ONE_PLACE.get(root, place) != place:
                wrong.append(f"{at(path, line)}: {root}")
    assert not wrong


def test_nothing_runs_code_from_data():
    wrong = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call):
                continue
            if dotted_name(node.func) in NEVER_CALLED:
                wrong.append(f"{at(path, node.lineno)}: {dotted_name(node.func)}()")
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", None) is not False:
                    wrong.append(f"{at(path, node.lineno)}: allow_pickle")
    assert not wrong


def test_families_and_special_tokens_are_named_in_their_own_places_only():
    """What a family is called and does stands in families/, what tokens mean in data/vocabulary.py (and in TOML),
    and the short names of checkpoints in their catalog."""
    families = {name.removeprefix("glassformer-") for name in FAMILIES if not name.startswith("glassformer-")}
    families -= {"clip"}  # also a setting (of gradients) and a method of arrays
    tokens = {name for names in TOKEN_SPELLINGS.values() for name in names} | {
        CONTINUATION_PREFIX,
        *BLANK_MARKS,
    }
    wrong = []
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        if place in ("data/vocabulary.py", "checkpoints/catalog.py") or place.startswith("families/"):
            continue
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        } | {  # the meaning of a key is read by people
            id(node.args[1])
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Call) and dotted_name(node.func) == "setting" and len(node.args) > 1
        }
        for node in ast.walk(tree_of(path)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in documentation
            ):
                text = node.value
                if text in families | tokens or any(t in text for t in SPECIAL_TOKENS):
                    wrong.append(f"{at(path, node.lineno)}: {text[:40]!r}")
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            if isinstance(name, str) and families & set(re.split(r"[_.]", name.lower())):
                wrong.append(f"{at(path, getattr(node, 'lineno', 0))}: {name}")
    assert not wrong


def test_code_that_needs_a_kind_of_target_asks_the_target():
    """Which kind it is, a run or an estimator knows (``target_of``, ``Task.target``, ``kind_``): whoever needs
    something particular asks that, and compares no name and no key that one kind alone has."""
    marks = {mark for target in TARGETS for mark in target.marker_keys}
    names = {"classes", "labels", "tags", "answers", "numbers", "similarity", "translation", "scored pairs"}
    names |= marks | {*recipe_classes()}

    def strings(node: ast.expr) -> set[str]:
        if isinstance(node, ast.Tuple | ast.Set | ast.List):
            return {text for part in node.elts for text in strings(part)}
        return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()

    asking = {
        at(path, node.lineno)
        for path in modules()
        if unit_of(path) != "targets"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Compare)
        and any(strings(side) & names for side in (node.left, *node.comparators))
    }
    assert not asking, f"ask the target: {sorted(asking)}"


def test_what_type_checkers_are_told_to_pass_over_has_a_reason():
    wrong = []
    for path in modules():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = re.search(r"# (?:type|pyright): ignore(\[[\w,-]+\])?(.*)", line)
            if found and not (found[1] and re.match(r"  # [a-z]", found[2])):
                wrong.append(at(path, number))
    assert not wrong, "say which rule, and behind it why: `# type: ignore[rule]  # why`"


def test_only_the_command_line_prints():
    wrong = [
        at(path, node.lineno)
        for path in modules()
        if unit_of(path) != "cli"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and dotted_name(node.func) in {"print", "sys.stdout.write"}
    ]
    assert not wrong


def test_a_long_file_says_why_it_is_long():
    folders = [ROOT / name for name in ("src", "tests", "benchmarks", "docs", "labs")]
    silent = {}
    for path in (p for folder in folders for p in folder.rglob("*")):
        if path.suffix in SOURCES and not GENERATED & set(path.parts):
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > LONG and "is long because " not in " ".join(lines[:HEAD]).lower():
                silent[str(path.relative_to(ROOT))] = len(lines)
    assert not silent, "say in its first lines why it is one file: This module is long because ..."


def test_importing_glassformer_is_light():
    program = f"import sys, glassformer; print([name for name in {HEAVY!r} if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


# --- recipes --------------------------------------------------------------------------------------


def test_recipe_names_are_unique():
    files = sorted((PACKAGE / "recipes").rglob("*.toml"))
    assert sorted([*recipe_names(), *study_names()]) == sorted(path.stem for path in files)


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_loads_and_states_its_command_and_score(name: str):
    recipe = load_recipe(name)
    assert isinstance(recipe, recipe_classes()[recipe.task])
    assert recipe.name == name
    assert recipe.summary
    assert recipe.expect, "say which score to expect, its spread over seeds, the time and the machine"
    header = [
        line for line in recipe_names()[name].read_text(encoding="utf-8").splitlines() if line.startswith("#")
    ]
    assert any(f"glassformer train {name}" in line for line in header)


@pytest.mark.parametrize("name", study_names())
def test_study_loads_and_states_its_command_and_outcome(name: str):
    study = load_study(name)
    assert study.name == name
    assert study.summary
    assert study.expect, "say what came out, on which machine and in what time"
    assert len(expand(study)) >= 2
    lines = study_names()[name].read_text(encoding="utf-8").splitlines()
    assert any(f"glassformer compare {name}" in line for line in lines if line.startswith("#"))


# --- the tests themselves -------------------------------------------------------------------------


def judges(function: ast.AST, helpers: set[str]) -> bool:
    """Whether a function can fail for a reason of its own: an assertion, or a call of one that does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            last = dotted_name(node.func).rpartition(".")[2]
            if last in {"raises", "warns", "fail"} | helpers or last.startswith(("assert_", "check_")):
                return True
    return False


def judging_functions(module: ast.Module) -> tuple[set[str], list[ast.FunctionDef]]:
    """The names of a module's functions that judge, directly or through each other, and all functions."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    found: set[str] = set()
    while new := {f.name for f in functions if f.name not in found and judges(f, found)}:
        found |= new
    return found, functions


def test_every_test_asserts_something():
    idle = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        found, functions = judging_functions(tree_of(path))
        idle += [
            f"{at(path, f.lineno)}: {f.name}"
            for f in functions
            if f.name.startswith("test_") and f.name not in found
        ]
    assert not idle


def test_constraints_pin_every_requirement():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = {re.split("[<>=!~ ]", line)[0].replace("_", "-") for group in groups for line in group}
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
    assert wanted <= pins.keys()
    assert pins["torch"] == "2.13.0"
