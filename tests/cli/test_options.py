"""Every command says what it is for, and what the documents say parses; the set of options: tests/house."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from glassformer.cli.app import UsageError, app
from glassformer.process import READING
from glassformer.serve.limits import Limits
from glassformer.tasks.recipe import recipe_names, study_names

ROOT = Path(__file__).parents[2]
ROOT_COMMAND: Any = typer.main.get_command(app)


def test_every_command_and_option_says_what_it_is_for():
    def check(command: Any, path: str) -> None:
        assert (command.help or "").strip(), path
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{path} {parameter.name}"
        for name, child in getattr(command, "commands", {}).items():
            check(child, f"{path} {name}")

    check(ROOT_COMMAND, "glassformer")


def test_recipes_are_listed_a_line_each_and_by_a_word(gf, refused):
    lines = gf("recipes").out.splitlines()
    assert {line.split()[0] for line in lines} == recipe_names().keys()
    assert all(len(line.split(maxsplit=2)) == 3 for line in lines), "name, task and description"
    (line,) = gf("recipes", "Goemotions-MINI").out.splitlines()
    assert line.startswith("goemotions-minilm  text-classification  MiniLM")
    assert {line.split()[1] for line in gf("recipes", "word2vec").out.splitlines()} == {"word2vec"}
    assert "no recipe has 'xyzzy'" in refused("recipes", "xyzzy")


def test_the_help_of_train_fits_two_screens_and_that_of_serve_has_its_limits(gf, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    said = gf("train", "--help").out
    assert len(said.splitlines()) <= 2 * 30
    assert "glassformer recipes" in said
    panels = [re.sub("[╭╮─ ]", "", line) for line in said.splitlines() if line.startswith("╭")]
    assert panels == ["Arguments", "Options", "Data", "Model", "Training", "Output", "Limits"]
    options, limits = gf("serve", "--help").out.split("─ Limits ─")
    for option in ("--port", "--host", "--json"):
        assert option in options
    for limit in fields(Limits):
        assert f"--{limit.name.replace('_', '-')} " in limits


# --- the documents --------------------------------------------------------------------------------

ARROW = re.compile(r"\s{2,}|\s#|[`;|&]")  # what ends a command in a text: a column, a comment, the shell


def documents() -> list[Path]:
    texts = [
        ROOT / "README.md",
        *sorted(
            p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "reference"
        ),  # that is made from the code
        *recipe_names().values(),
        *study_names().values(),
    ]
    return [path for path in texts if path.is_file()]


def commands_in(path: Path) -> list[str]:
    """Every ``glassformer verb ...`` that begins a line of code, a comment or a quoted command."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [re.match(r"(?:\s*(?:\$|#|>)?\s*|.*?`)glassformer (?!\.)(.*)", line) for line in lines]
    return [ARROW.split(match[1])[0].strip() for match in found if match]


def parses(line: str) -> None:
    """Raises UsageError where the command line would refuse it. Nothing is run."""
    anywhere = "|".join(option for option, _ in READING.values())  # taken off before the line is parsed
    line = re.sub(rf"(?:^|(?<= ))(?:{anywhere})[ =]\S+ ?", "", line).strip()
    command, words, path = ROOT_COMMAND, shlex.split(line), "glassformer"
    while hasattr(command, "commands") and words:
        if words == ["--help"]:
            return
        path, child = f"{path} {words[0]}", command.commands.get(words[0])
        if child is None:
            raise UsageError(f"no command {path!r}")
        command, words = child, words[1:]
    command.make_context(path, [w for w in words if w != "--debug"])


def test_the_checker_itself():
    parses("train europe --set lr=1e-4 --resume --debug")
    parses("--help")
    parses("data show a.csv --header no")
    parses("--quoting=none predict RUN a.csv")
    for wrong in ("trian europe", "train europe --rate 3", "evaluate", "--halp", "--help trian"):
        with pytest.raises(UsageError):
            parses(wrong)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_commands_in_documents_parse(path: Path):
    for line in commands_in(path):
        try:
            parses(line)
        except UsageError as error:
            pytest.fail(f"glassformer {line}: {error}")


def test_every_recipe_names_its_command():
    for name, path in recipe_names().items():
        assert f"train {name}" in commands_in(path)
    for name, path in study_names().items():
        assert f"compare {name}" in commands_in(path)


@pytest.mark.parametrize(
    ("words", "said"), [(("--epochs", "x"), "a whole number"), (("--lr", "x"), "a number")]
)
def test_a_value_of_another_type_is_told_in_plain_words(refused, words, said):
    line = refused("train", "--text", "a.csv", *words)
    assert line == f"error: {words[0]} takes {said}. See 'glassformer train --help'"
