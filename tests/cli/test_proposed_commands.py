"""Every command that the data doctor proposes is run: it ends well, and loses no row, label or class."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.doctor import examine
from glassformer.data.repairs import FIXING_OPTIONS

from .every import TEXT, VIT, call, ok
from .tiny import pictures, sets, write_csv

PROPOSED = "suggested command: "
TINY = [s for s in TEXT if s != "maps=0"]


def doctored(*words: object) -> tuple[set[str], list[str]]:
    """The checks with a warning, and the words of the proposed command behind ``glassformer``."""
    report = json.loads(call("data", "doctor", *words, "--json").out)
    warned = {f["code"] for f in report["findings"] if f["severity"] == "warning"}
    lines = [line for line in call("data", "doctor", *words).out.split("\n") if line.startswith(PROPOSED)]
    return warned, shlex.split(lines[0].removeprefix(PROPOSED))[1:] if lines else []


def run(words: Sequence[str], out: Path, tiny: Sequence[str] = TINY) -> dict:
    """The proposed command with a tiny model; its metrics."""
    words = [w for i, w in enumerate(words) if "--out" not in (w, words[i - 1])]
    ok(*words, *sets(*tiny), "--out", out)
    return json.loads((out / "metrics.json").read_text())


def rows(metrics: dict) -> int:
    return metrics["train"]["of"] + sum((metrics[s] or {"n": 0})["n"] for s in ("validation", "test"))


def texts(count: int, *classes: str) -> list[tuple[str, str]]:
    names = ["red", "green", "blue", "black", "white", "grey", "pink", "brown"]
    text = lambda i: f"a {names[i % 8]} thing number {i} of {i % 13}"  # noqa: E731
    return [(text(i), classes[i % len(classes)]) for i in range(count)]


def table(folder: Path, found: Sequence[Sequence[str]], header: str = "text,label") -> Path:
    return write_csv(folder / "mine.csv", found, header)


# code of the check -> rows that set it off, and how many of them may be left out
TABLES = {
    "bad-rows": ([*texts(40, "a", "b"), ("", "a"), ("x", "")], 2),
    "duplicates": ([*texts(40, "a", "b"), *texts(7, "a", "b")], 7),
    "balance": ([*texts(130, "a"), *[(f"seldom {i} {i * i}", "b") for i in range(8)]], 0),
    "twin-classes": ([*texts(40, "good", "bad"), *[(f"other {i}", "Good") for i in range(7)]], 0),
    "label-kind": ([(text, f"{i / 7:.2f}") for i, (text, _) in enumerate(texts(41, "x"))], 0),
    "sets": ([(text, ("x|y", "y", "x|z", "z")[i % 4]) for i, (text, _) in enumerate(texts(40, "x"))], 0),
}


@pytest.mark.parametrize("code", TABLES)
def test_a_proposed_command_of_texts_answers_its_warning(code, tmp_path):
    found, lost = TABLES[code]
    file = table(tmp_path, found)
    warned, command = doctored(file)
    assert (code if code != "sets" else "label-kind") in warned
    assert command[:2] == ["train", "--text"]
    metrics = run(command, tmp_path / "run")
    assert rows(metrics) == len(found) - lost
    if code == "twin-classes":
        assert metrics["test"]["labels"] == ["bad", "good"]
    if code == "sets":
        assert sorted(metrics["test"]["labels"]) == ["x", "y", "z"]


def test_lone_and_missing_labels_are_never_left_out_by_the_command(tmp_path):
    found = [*texts(40, "good", "bad"), ("x y", "Good"), ("y z", "odd"), ("z a", "n/a"), ("z b", "n/a")]
    warned, command = doctored(table(tmp_path, found))
    assert {"twin-classes", "lone-classes", "no-label"} <= warned
    assert [word for word in command if "merge" in word] == ["merge_labels=spelling"]
    said = call("data", "doctor", tmp_path / "mine.csv").out.replace("\n", " ")
    assert "classes with one example (odd): add examples first" in said
    metrics = run(doctored(table(tmp_path, [*found, ("z c", "odd")]))[1], tmp_path / "run")
    assert rows(metrics) == len(found) + 1
    assert metrics["test"]["labels"] == ["bad", "good", "n/a", "odd"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--encoding", "cp1252"], ["--encoding=cp1252"]),
        (["--encoding=latin-1"], ["--encoding=latin-1"]),
        ([], ["--encoding", "cp1252"]),  # found by the doctor
    ],
)
def test_the_encoding_is_kept(given, kept, tmp_path):
    found = texts(40, "a", "b")
    found += [(text.replace("thing", "café – naïve"), label) for text, label in texts(60, "a", "b")[40:]]
    found += found[:5]  # so that there is something to answer
    file = tmp_path / "mine.csv"
    file.write_bytes(("text,label\n" + "\n".join(map(",".join, found)) + "\n").encode("cp1252"))
    warned, command = doctored(*given, file)
    assert ("bad-rows" in warned) is (not given)
    assert " ".join(kept) in " ".join(command)
    assert " ".join(command).count("--encoding") == 1
    assert rows(run(command, tmp_path / "run")) == 60


def test_the_encoding_is_kept_where_the_label_is_asked_for(tmp_path):
    lines = [f"film café {i // 2},{('Ana', 'Bo', 'Cy')[i % 3]},{'abcd'[i % 4]}" for i in range(23)]
    file = tmp_path / "a.csv"
    file.write_bytes(("what,Handled by,Kind of film\n" + "\n".join(lines) + "\n").encode("cp1252"))
    last = call("--encoding", "cp1252", "data", "doctor", file).out.strip().split("\n")[-1]
    command = shlex.split(last[last.index("glassformer data doctor") :])[1:]
    assert "--encoding=cp1252" in command
    assert call(*command).code == 0
    unlabelled = tmp_path / "b.csv"
    unlabelled.write_bytes(("what\n" + "".join(f"un film café {i}\n" for i in range(23))).encode("cp1252"))
    last = call("--encoding", "cp1252", "data", "doctor", unlabelled).out.strip().split("\n")[-1]
    assert last.endswith(f"glassformer predict RUN {unlabelled} --encoding=cp1252")


def test_model_length_and_columns_are_kept(tmp_path):
    lines = [*texts(30, "a", "b"), *texts(3, "a", "b")]
    found = [(str(i), *line) for i, line in enumerate(lines)]
    file = table(tmp_path, found, "number,what,kind")
    words = ["--text-column", "what", "--label-column", "kind", "--max-length", "17"]
    _, command = doctored(file, "--model", "all-minilm-l6-v2", *words)
    for word in ("--model", "all-minilm-l6-v2", *words):
        assert word in command
    i = command.index("--model")
    without = [*command[:i], *command[i + 2 :]]  # a tiny one is quicker
    assert rows(run(without, tmp_path / "run", [s for s in TINY if s != "max_length=16"])) == 30


def test_accents_are_no_matter_of_an_option(tmp_path):
    found = [(f"le café très naïf numéro {i}", "ab"[i % 2]) for i in range(40)]
    warned, command = doctored(table(tmp_path, found), "--model", "all-minilm-l6-v2")
    assert "accents" in warned
    assert "strip_accents" not in " ".join(command)
    assert "accents" not in FIXING_OPTIONS


def test_pictures_that_cannot_be_read_are_left_out_by_the_command(tmp_path):
    pictures(tmp_path / "mine", {"dark": 15, "light": 15})
    (tmp_path / "mine" / "dark" / "broken.png").write_bytes(b"no image")
    copy = (tmp_path / "mine" / "dark" / "3.png").read_bytes()
    (tmp_path / "mine" / "dark" / "3 again.png").write_bytes(copy)
    warned, command = doctored(tmp_path / "mine")
    assert warned & {"unreadable", "bad-rows"}
    assert command[:2] == ["train", "--images"]
    assert "broken=skip" in command
    metrics = run(command, tmp_path / "run", VIT)
    assert rows(metrics) == 31 - ("drop_duplicates=true" in command)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@john_doe and @mary_ann saw café number {} #so_nice https://a_b.example/c_d 😀", False),
        ("the naïve user_name of table_{} is set_by row_count", False),
        ("@a_b thấy nhà hàng số {} rất tốt", False),  # Vietnamese, and only a name has one
        ("nhà_hàng số {} phục_vụ rất tốt", True),
    ],
)
def test_names_with_an_underscore_are_no_segmented_vietnamese(text, told):
    split = TextSplit([text.format(i) for i in range(40)], ["a", "b"] * 20, "mine")
    report = examine(TextDataset("mine", {"train": split}))
    assert ("segmentation" in {f.code for f in report.findings}) is told


def test_every_option_of_the_doctor_is_one_of_train():
    known = call("train", "--help-keys").out + call("train", "--help").out
    for options in FIXING_OPTIONS.values():
        for word in options:
            key = word.split("=")[0]
            assert re.search(rf"\b{re.escape(key.lstrip('-'))}\b", known) or key in ("skip",), key
