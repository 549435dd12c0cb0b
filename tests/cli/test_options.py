"""Every command says what it is for, completes in shells, and prints nothing that a terminal obeys; documents parse."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from glassformer.cli import output
from glassformer.cli.app import UsageError, build_app
from glassformer.cli.options import complete_recipes, complete_runs, complete_studies
from glassformer.outputs import make_printable
from glassformer.process import READ_OPTIONS
from glassformer.serve.limits import Limits
from glassformer.tasks.catalog import recipe_names, study_names

ROOT = Path(__file__).parents[2]
ROOT_COMMAND: Any = typer.main.get_command(build_app())


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
    docs = sorted((ROOT / "docs").rglob("*.md"))
    docs = [p for p in docs if p.parent.name != "reference" and p.name != "changes.md"]  # made from the code
    texts = [ROOT / "README.md", *docs, *recipe_names().values(), *study_names().values()]
    return [path for path in texts if path.is_file()]


def commands_in(path: Path) -> list[str]:
    """Every ``glassformer verb ...`` that begins a line of code, a comment or a quoted command."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [re.match(r"(?:\s*(?:\$|#|>)?\s*|.*?`)glassformer (?!\.)(.*)", line) for line in lines]
    return [ARROW.split(match[1])[0].strip() for match in found if match]


def parses(line: str) -> None:
    """Raises UsageError where the command line would refuse it. Nothing is run."""
    anywhere = "|".join(option for option, _ in READ_OPTIONS.values())  # taken off before the line is parsed
    line = re.sub(rf"(?:^|(?<= ))(?:{anywhere})[ =]\S+ ?", "", line).strip()
    command, words, path = ROOT_COMMAND, shlex.split(line), "glassformer"
    while hasattr(command, "commands") and words:
        if words == ["--help"]:
            return
        path, child = f"{path} {words[0]}", command.commands.get(words[0])
        if child is None:
            raise UsageError(f"no command {path!r}")
        command, words = child, words[1:]
    with contextlib.suppress(typer.Exit):  # of an option that prints and ends, such as --help-keys
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


# --- completion -------------------------------------------------------------------------------------


def ask(shell: str, line: str, folder: Path, kind: str = "complete") -> str:
    """What a shell gets for a command line whose last word is being typed."""
    words = line.split(" ")
    asked = {
        "_GLASSFORMER_COMPLETE": f"{kind}_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    program = "import sys; from glassformer.cli.start import run; sys.exit(run())"
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    how = {"cwd": folder, "env": os.environ | asked | {"PYTHONPATH": path}}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, **how)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(s, marks=pytest.mark.slow) for s in ("zsh", "fish"))]
)
def test_every_shell_is_offered_verbs_and_recipes(shell, tmp_path):
    verbs = ask(shell, "glassformer tra", tmp_path)
    assert "train" in verbs
    assert "translate" in verbs
    assert "predict" not in verbs
    assert "europe-frozen" in ask(shell, "glassformer train euro", tmp_path)
    script = ask(shell, "glassformer", tmp_path, "source")
    assert "_glassformer_completion" in script or shell == "fish"
    assert "_GLASSFORMER_COMPLETE" in script


def test_bash_is_offered_options_and_runs(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "config.toml").write_text("")
    assert ask("bash", "glassformer evaluate --js", tmp_path).split() == ["--json"]
    assert ask("bash", "glassformer evaluate runs/", tmp_path).split() == ["runs/one"]


def test_folders_are_offered_by_what_they_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run/config.toml", "model/glassformer.json", "other/x.txt", ".hidden/config.toml", "file"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert complete_runs("") == ["model", "other/", "run"]
    assert complete_runs("ru") == ["run"]
    assert complete_runs(".h") == [".hidden"]
    assert complete_runs("nosuch/x") == []
    assert "europe" in complete_recipes("eu")
    assert complete_recipes("zz") == []
    assert "europe-pooling" in complete_studies("europe-p")


# --- the terminal -----------------------------------------------------------------------------------

CLI = Path(output.__file__).parent
HOSTILE = {"ESC": "\x1b[31m", "CSI of C1": "\x9b31m", "OSC of C1": "\x9d0;title\x9c", "bell": "\x07"}
HOSTILE |= {"delete": "\x7f", "next line": "\x85", "line separator": "\u2028", "right to left": "\u202e"}
HOSTILE |= {"isolate": "\u2066", "backspace": "\x08", "tag": "\U000e0041"}


def is_harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\t\n" for c in text)


@pytest.mark.parametrize("name", HOSTILE)
def test_json_lines_and_tables_are_harmless(name: str, capsys):
    value = {f"key {HOSTILE[name]}": [f"a {HOSTILE[name]} film", "Zoë 中文 👍", {"n": 1.5}]}
    output.print_json(value)
    told = capsys.readouterr().out
    assert is_harmless(told)
    assert json.loads(told) == value
    assert "Zoë 中文 👍" in told
    text = f"a{HOSTILE[name]}b"
    output.print_text(f"{text}\t1.0")
    output.print_message(text)
    output.print_note(text)
    output.show_table(text, [text, "n"], [[text, 1]])
    told = "".join(capsys.readouterr())
    assert is_harmless(told)
    assert told.count("\ufffd") >= (0 if HOSTILE[name].isspace() else 5)
    output.print_json({"name": "caf\udce9"})  # a name that is not UTF-8 is written with its bytes
    assert json.loads(capsys.readouterr().out) == {"name": "caf\\xe9"}


def test_printable_keeps_what_it_is_told_to():
    assert make_printable("a\tb\nc\x9b") == "a\ufffdb\ufffdc\ufffd"
    assert make_printable("a\tb\nc\x9b", allowed="\t\n") == "a\tb\nc\ufffd"


def test_every_verb_prints_through_one_function():
    for path in sorted(CLI.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert text.count("typer.echo(") == (path.name == "output.py"), path.name
        assert "sys.stdout.write" not in text, path.name
        assert "print_exc" not in text, path.name


def test_predict_shows_texts_and_answers_without_control_characters(gf, ok, run: Path, tmp_path: Path):
    text = "a splendid " + "".join(HOSTILE.values()) + " film"
    for options in ((), ("--json",), ("--least-sure", "1")):
        result = ok("predict", run, text, *options)
        assert is_harmless(result.out + result.err)
        if "--json" in options:
            assert json.loads(result.out)["answers"][0]["text"] == text
    (tmp_path / "t.csv").write_text(f'text,note\n\n"",{text}\n', encoding="utf-8")
    failed = gf("predict", run, "t.csv", "--text-column", text, "--debug")
    assert failed.code == 2
    assert is_harmless(failed.out + failed.err)
