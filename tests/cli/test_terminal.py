"""No verb prints what a terminal obeys: control characters, turned writing, separators of lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.cli import output
from glassformer.outputs import printable

CLI = Path(output.__file__).parent
HOSTILE = {
    "ESC": "\x1b[31m",
    "CSI of C1": "\x9b31m",
    "OSC of C1": "\x9d0;title\x9c",
    "bell": "\x07",
    "delete": "\x7f",
    "next line": "\x85",
    "line separator": "\u2028",
    "right to left": "\u202e",
    "isolate": "\u2066",
    "backspace": "\x08",
    "tag": "\U000e0041",
}


def is_harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\t\n" for c in text)


@pytest.mark.parametrize("name", HOSTILE)
def test_json_reads_back_and_is_harmless(name: str, capsys):
    value = {f"key {HOSTILE[name]}": [f"a {HOSTILE[name]} film", "Zoë 中文 👍", {"n": 1.5}]}
    output.say_json(value)
    told = capsys.readouterr().out
    assert is_harmless(told)
    assert json.loads(told) == value
    assert "Zoë 中文 👍" in told


def test_a_name_that_is_not_utf_8_is_written_with_its_bytes(capsys):
    output.say_json({"name": "caf\udce9"})
    assert json.loads(capsys.readouterr().out) == {"name": "caf\\xe9"}


@pytest.mark.parametrize("name", HOSTILE)
def test_lines_and_tables_are_harmless(name: str, capsys):
    text = f"a{HOSTILE[name]}b"
    output.emit(f"{text}\t1.0")
    output.say(text)
    output.note(text)
    output.show_table(text, [text, "n"], [[text, 1]])
    told = "".join(capsys.readouterr())
    assert is_harmless(told)
    assert told.count("\N{REPLACEMENT CHARACTER}") >= (0 if HOSTILE[name].isspace() else 5)


def test_printable_keeps_what_it_is_told_to():
    assert (
        printable("a\tb\nc\x9b")
        == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"
    )
    assert printable("a\tb\nc\x9b", keep="\t\n") == "a\tb\nc\N{REPLACEMENT CHARACTER}"


def test_every_verb_prints_through_one_function():
    for path in sorted(CLI.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert text.count("typer.echo(") == (path.name == "output.py"), path.name
        assert "sys.stdout.write" not in text, path.name
        assert "print_exc" not in text, path.name


def test_predict_shows_texts_and_answers_without_control_characters(gf, run: Path, tmp_path: Path):
    text = "a splendid " + "".join(HOSTILE.values()) + " film"
    for options in ((), ("--json",), ("--least-sure", "1")):
        result = gf("predict", run, text, *options)
        assert result.code == 0, result.err
        assert is_harmless(result.out + result.err)
        if "--json" in options:
            assert json.loads(result.out)["answers"][0]["text"] == text
    (tmp_path / "t.csv").write_text(f'text,note\n\n"",{text}\n', encoding="utf-8")
    failed = gf("predict", run, "t.csv", "--text-column", text, "--debug")
    assert failed.code == 2
    assert is_harmless(failed.out + failed.err)
