"""Answers from texts: questions by the commands from words, files and standard input, on tiny data."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassformer.cli.app import build_app
from glassformer.errors import InputError

TINY = ["d_model=14", "num_layers=1", "num_heads=2", "d_ff=11", "epochs=2", "batch_size=5", "lr=0.02"]
TINY += ["min_count=1", "precision=fp32", "threads=1", "max_length=24", "bootstrap=53", "model=encoder-mini"]


def call(*words: object) -> str:
    found = CliRunner().invoke(build_app(), [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*words: object) -> str:
    found = CliRunner().invoke(build_app(), [str(word) for word in words])
    assert isinstance(found.exception, InputError), found.output
    return str(found.exception)


def rows(n: int, shift: int = 0) -> list[dict]:
    out = []
    for i in range(n):
        city = ("New York", "Oslo", "Santiago de Chile")[i % 3]
        context = f"Ann {i + shift} lives in {city} and bakes"
        there = (
            {"text": [city], "answer_start": [context.index(city)]}
            if i % 4
            else {"text": [], "answer_start": []}
        )
        asked = f"where does Ann {i + shift} live" if i % 4 else f"when did Ann {i + shift} come"
        out.append({"id": f"q{i}", "question": asked, "context": context, "answers": there})
    return out


def settings(*more: str) -> list[str]:
    return [word for one in (*TINY, *more) for word in ("--set", one)]


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    (folder / "data").mkdir()
    for name, (n, shift) in {"train": (31, 0), "dev": (11, 50), "test": (13, 70)}.items():
        text = "".join(json.dumps(row) + "\n" for row in rows(n, shift))
        (folder / "data" / f"{name}.jsonl").write_text(text)
    for name, more in {"a": [], "c": ["epochs=4"]}.items():
        call("train", "facts-minilm", "--data", folder / "data", *settings(*more), "--out", folder / name)
    return folder


def test_runs_are_compared_by_their_f1_on_the_same_questions(work):
    results = json.loads(call("compare", work / "a", work / "c", "--json"))
    assert (results["measure"], results["drawn"]) == ("f1", "texts with their questions")
    scores = [json.loads((work / name / "metrics.json").read_text())["test"] for name in "ac"]
    assert any(one["f1"] != one["exact_match"] for one in scores)
    for measure, key in (("f1", "f1"), ("accuracy", "exact_match")):
        means = [arm[measure]["mean"] for arm in results["arms"]]
        assert means == pytest.approx([one[key] for one in scores], abs=1e-6)


def test_a_text_with_a_line_break_of_its_own_is_compared(work, tmp_path):
    for name in "ac":
        shutil.copytree(work / name, tmp_path / name)
        text = (work / name / "predictions.jsonl").read_text().replace("lives in", "lives\u2028in")
        (tmp_path / name / "predictions.jsonl").write_text(text)
    assert "\u2028" in text
    assert "F1" in call("compare", tmp_path / "a", tmp_path / "c")


def test_questions_come_from_words_files_and_standard_input(work, monkeypatch):
    out = call("predict", work / "a", "where does Bo live", "Bo lives in Rome and bakes")
    answer, share, question = out.rstrip("\n").split("\t")
    assert question == "where does Bo live"
    assert 0 <= float(share) <= 1
    assert answer in ("(no answer)", *["Bo", "lives", "in", "Rome", "and", "bakes"]) or " " in answer
    found = CliRunner().invoke(
        build_app(),
        ["predict", str(work / "a"), "-", "--json"],
        input="where\tBo lives in Rome\nwho\tAnn bakes\n",
    )
    told = json.loads(found.stdout)
    assert [(one["question"], one["row"]) for one in told] == [("where", 1), ("who", 2)]
    file = work / "answers.csv"
    call("predict", work / "a", work / "data" / "test.jsonl", "--out", file)
    assert len(file.read_text().splitlines()) == 14
    nested = {"data": [{"paragraphs": [{"context": "Bo bakes", "qas": [{"question": "who", "id": "x"}]}]}]}
    (work / "squad.json").write_text(json.dumps(nested))
    assert call("predict", work / "a", work / "squad.json").endswith("\twho\n")
    alone = refused("predict", work / "a", "where does Bo live")
    assert "reads a question with a text, and the question 'where does Bo live' has no text" in alone
    assert 'Give both, "QUESTION" "TEXT"' in alone
    (work / "bad.csv").write_text("question,context\nwho,Bo bakes\nwho,\n")
    assert "row 3" in refused("predict", work / "a", work / "bad.csv")
    said = CliRunner().invoke(
        build_app(), ["predict", str(work / "a"), str(work / "bad.csv"), "--on-bad-row", "skip"]
    )
    assert said.exit_code == 0, said.output


def test_the_doctor_counts_windows_of_a_model(work):
    report = json.loads(call("data", "doctor", work / "data", "--model", work / "a" / "model", "--json"))
    assert report["figures"]["splits"]["train"]["windows"]["all"] >= 31
