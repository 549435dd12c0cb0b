"""Accuracy beside the Trainer's, seed by seed: written as it ends, gone on with, and never of two kinds of processor."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from .benchmark_tools import BENCHMARKS, benchmark

pytest.importorskip("transformers")
TRAINED: list[tuple[str, int]] = []


def stub(name: str, wrong: int):
    """A training whose answers are right but for the first few, shifted by the seed."""

    def train(path, learned, judged, seed):
        TRAINED.append((name, seed))
        right = np.ones(len(judged[1]), bool)
        right[seed : seed + wrong] = False
        return right, {"seconds": 1.0, "loss": 0.5}

    return train


@pytest.fixture
def tool(monkeypatch):
    found = benchmark("equal_accuracy")
    TRAINED.clear()
    theirs, ours = found.CONTENDERS
    monkeypatch.setattr(found, "CONTENDERS", {theirs: stub("theirs", 13), ours: stub("ours", 11)})
    monkeypatch.setattr(found, "resolve_checkpoint", lambda name: SimpleNamespace(path=Path(name)))
    reviews = [str(i) for i in range(211)], [i % 2 for i in range(211)]
    monkeypatch.setattr(found, "load_rounds", lambda *_: [reviews])
    return found


def test_the_judged_reviews_are_the_same_for_every_seed_and_never_learned(tool):
    parts = [tool.reviews_of(seed, 101, 53) for seed in range(2)]
    assert parts[0][1] == parts[1][1]
    assert parts[0][0] != parts[1][0]
    for learned, judged in parts:
        assert len(learned[0]) == len(set(learned[0])) == 101
        assert not set(learned[0]) & set(judged[0])
        assert [int(text) % 2 for text in learned[0]] == learned[1]


def test_it_goes_on_where_it_ended(tool, tmp_path, capsys, monkeypatch):
    out = tmp_path / "equal.json"
    argv = ["--train", "101", "--held-out", "53", "--out", str(out)]
    assert tool.main([*argv, "--seeds", "0"]) == 0
    assert TRAINED == [("theirs", 0), ("ours", 0)]
    assert "difference" not in json.loads(out.read_text(encoding="utf-8"))
    assert tool.main([*argv, "--seeds", "0", "1", "2"]) == 0
    assert len(TRAINED) == 6
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["difference"]["points"] == pytest.approx(100 * 2 / 53)
    assert found["difference"]["by_seed"] == pytest.approx([100 * 2 / 53] * 3)
    low, high = found["difference"]["interval"]
    assert low < 100 * 2 / 53 < high
    assert "glassformer - HF Trainer: +3.77 points" in capsys.readouterr().out
    speed = benchmark("tables_speed")
    monkeypatch.setattr(speed, "read", lambda name: found if name.endswith("full") else None)
    made = speed.equal_accuracy()
    assert "| 2 | 75.47% | 79.25% |" in made
    assert "+3.77 points (95 % interval" in made
    assert "101 training reviews, 53 evaluated per seed." in made


def test_other_settings_are_refused(tool, tmp_path, capsys):
    out = tmp_path / "equal.json"
    assert tool.main(["--train", "101", "--held-out", "53", "--seeds", "0", "--out", str(out)]) == 0
    before = out.read_bytes()
    assert tool.main(["--train", "103", "--held-out", "53", "--seeds", "1", "--out", str(out)]) != 0
    assert "other settings" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_more_reviews_than_there_are_and_other_files_are_refused(tool, tmp_path, capsys):
    with pytest.raises(SystemExit):
        tool.main(["--train", "21001", "--held-out", "4000", "--out", str(tmp_path / "x.json")])
    assert "there are 25,000 reviews" in capsys.readouterr().err
    old = BENCHMARKS / "results" / "equal-accuracy.json"  # of before there were trainings in it
    assert tool.main(["--train", "3000", "--held-out", "4000", "--out", str(old)]) != 0
    assert "other settings" in capsys.readouterr().err
    assert not TRAINED


def test_no_training_begins_that_would_not_end_in_time(tool, tmp_path, capsys, monkeypatch):
    seconds = SimpleNamespace(monotonic=count(0, 61).__next__)  # at each look
    monkeypatch.setattr(benchmark("command"), "time", seconds)
    out = tmp_path / "equal.json"
    argv = ["--train", "101", "--held-out", "53", "--out", str(out)]
    assert tool.main([*argv, "--minutes", "1"]) == 0
    assert not TRAINED
    assert not out.exists()


def test_a_seed_is_never_of_two_kinds_of_processor(tool, tmp_path, monkeypatch):
    out = tmp_path / "equal.json"
    argv = ["--train", "101", "--held-out", "53", "--out", str(out)]
    monkeypatch.setattr(tool, "level", lambda: "avx2")
    tool.main([*argv, "--seeds", "0", "1"])
    found = json.loads(out.read_text(encoding="utf-8"))
    del found["runs"]["1"][list(tool.CONTENDERS)[1]]  # as if stopped between the two
    out.write_text(json.dumps(found), encoding="utf-8")
    TRAINED.clear()
    monkeypatch.setattr(tool, "level", lambda: "amx")
    tool.main([*argv, "--seeds", "0", "1"])
    assert TRAINED == [("theirs", 1), ("ours", 1)]
    runs = json.loads(out.read_text(encoding="utf-8"))["runs"]
    assert {one["level"] for one in runs["0"].values()} == {"avx2"}
    assert {one["level"] for one in runs["1"].values()} == {"amx"}


def test_windows_of_speed_are_whole_batches_of_similar_length(monkeypatch):
    train = benchmark("train_imdb")
    lengths = np.random.default_rng(3).permutation(1607) + 1
    asked = []

    def load(rounds, reviews, seed):
        asked.append((rounds, reviews, seed))
        return [([str(n) for n in lengths], [int(n) % 2 for n in lengths])]

    monkeypatch.setattr(train, "load_rounds", load)
    monkeypatch.setattr(train, "resolve_checkpoint", lambda name: SimpleNamespace(path=name))
    monkeypatch.setattr(train, "load_tokenizer", lambda path: None)
    monkeypatch.setattr(
        train, "encode", lambda _, texts, max_length: SimpleNamespace(lengths=np.array(texts, int))
    )
    rounds = train.epoch_rounds(2, 96, 32, 7)
    assert asked == [(0, 1600, 7)]
    assert len(rounds) == 3
    seen = [int(text) for texts, _ in rounds for text in texts]
    assert len(set(seen)) == len(seen) == 3 * 96
    for texts, labels in rounds:
        assert labels == [int(text) % 2 for text in texts]
        batches = np.array(texts, int).reshape(3, 32)
        assert (batches.max(1) - batches.min(1) == 31).all()
    assert {int(texts[0]) for texts, _ in rounds} != {1, 97, 193}  # batches are in random order


def test_padding_is_counted_batch_by_batch(monkeypatch):
    padding = benchmark("padding")
    lengths = np.array([3, 7, 5, 5])
    assert padding.padding(lengths, [[0, 1], [2, 3]]) == pytest.approx(4 / 24)
    assert padding.padding(lengths, [[2, 3]]) == 0.0


def test_few_reviews_are_padded_more_than_an_epoch_has_them(monkeypatch):
    pytest.importorskip("transformers")
    padding = benchmark("padding")
    lengths = np.random.default_rng(5).permutation(1607) % 251 + 2
    batches = padding.grouped(lengths[:97], 0)
    assert sorted(i for batch in batches for i in batch) == [*range(97)]
    assert [len(batch) for batch in batches] == [32, 32, 32, 1]
    shares = padding.windows(lengths, 96, seed=3)
    assert shares["grouped"] > shares["sorted"] > shares["whole batches"] > 0


def test_a_window_of_speed_has_whole_batches_or_is_refused(monkeypatch, capsys):
    train = benchmark("train_imdb")
    with pytest.raises(SystemExit):
        train.main(["--reviews", "100"])
    assert "--reviews 100: give a multiple of 32" in capsys.readouterr().err
