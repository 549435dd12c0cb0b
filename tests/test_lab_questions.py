"""The labs' questions with power: what is said of differences, how a run goes on, and that the arms exist."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import lab_questions

    return lab_questions


def write_run(module, runs: Path, arm: str, seed: int, right: np.ndarray) -> None:
    np.savez(module.file_of(runs, arm, seed), right=np.packbits(right), n=len(right), seconds=1.5)


def test_every_difference_names_arms_that_exist_and_a_question_of_the_labs(module, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "labs"))
    from questions import QUESTIONS as asked

    for question in module.QUESTIONS.values():
        assert question.lab in asked
        assert set(module.arms_of(question)) <= set(module.ARMS)
        assert all(sum(sign for sign, _ in terms) == 0 for terms in question.differences.values())
    files = [module.file_of(Path("runs"), arm, 3) for arm in module.ARMS]
    assert len(set(files)) == len(files)


def test_a_difference_is_paired_by_seed_and_knows_the_draw_of_the_examples(module, tmp_path):
    rng = np.random.default_rng(0)
    for seed in range(5):
        a = rng.random(2_003) < 0.5
        b = a.copy()
        b[np.flatnonzero(~a)[: 201 + seed]] = True  # about ten points better
        write_run(module, tmp_path, "ViT", seed, a)
        write_run(module, tmp_path, "ViT, pooler", seed, b)
        write_run(module, tmp_path, "ViT, mean", seed, a)
    found = module.judged(tmp_path, "pooler", range(7))
    assert found["seeds"] == [0, 1, 2, 3, 4]
    worse, same = found["differences"].values()
    assert worse["points"] == pytest.approx(-100 * 203 / 2_003)
    assert worse["says"] == "shown"
    assert worse["interval"][1] < 0
    by_seeds_alone = 2.776 * np.std(worse["by_seed"], ddof=1) / 5**0.5
    assert worse["interval"][1] - worse["points"] > 2 * by_seeds_alone
    assert same["points"] == 0
    assert same["says"] == "no effect of 3 points"
    assert worse["p_holm"] == pytest.approx(2 * worse["p"])
    assert "-10.1 (" in found["answer"]
    assert "2,003 judged examples" in found["answer"]


def test_few_answers_leave_a_question_open_or_unsaid(module, tmp_path):
    rng = np.random.default_rng(1)
    for seed in range(2):
        for arm in ("ViT", "ViT, pooler", "ViT, mean"):
            write_run(module, tmp_path, arm, seed, rng.random(53) < 0.5)
    assert {f["says"] for f in module.judged(tmp_path, "pooler", [0, 1])["differences"].values()} == {"open"}
    assert module.judged(tmp_path, "pooler", [1, 2]) is None
    assert module.judged(tmp_path, "stem", [0, 1]) is None


def test_a_run_goes_on_and_ends_in_time(module, tmp_path, monkeypatch, capsys):
    trained = []

    def fit(seed, folder, **changes):
        trained.append((seed, changes))
        return np.arange(11) % 3 > seed % 2

    monkeypatch.setitem(module.FITS, "vit", fit)
    out = tmp_path / "lab-questions.json"
    argv = ["lab_questions.py", "pooler", "--seeds", "0", "1", "--runs", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*argv, "--minutes", "0.0000001"])
    module.main()
    assert not trained
    assert not out.exists()
    assert "6 trainings are left" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", argv)
    module.main()
    assert [seed for seed, _ in trained] == [0, 0, 0, 1, 1, 1]
    module.main()
    assert len(trained) == 6
    found = json.loads(out.read_text(encoding="utf-8"))["questions"]
    assert list(found) == ["pooler"]
    assert found["pooler"]["arms"]["ViT"]["cpu_seconds"][0] >= 0


def test_the_tables_are_made_of_the_file(module, tmp_path, monkeypatch):
    for seed in range(2):
        for arm in ("ViT", "ViT, stem"):
            write_run(module, tmp_path, arm, seed, np.arange(101) % 2 == 0)
    result = {"questions": {"stem": module.judged(tmp_path, "stem", [0, 1])}}
    result |= {"machine": {"cpu": "X", "threads": 1}, "date": "2026-01-02T03:04"}
    import tables_questions

    monkeypatch.setattr(tables_questions, "read", lambda name: result)
    made = tables_questions.questions()
    assert "## What does a convolution stem alone give?" in made
    assert "| stem less none | +0.0 (-0.0 to +0.0) | 1.000 | no effect of 3 points |" in made
    assert "Accuracy: ViT, stem 50.5%; ViT 50.5%. 2 seeds, 101 judged examples." in made
    monkeypatch.setattr(tables_questions, "read", lambda name: None)
    assert tables_questions.questions().startswith("Not measured yet")
