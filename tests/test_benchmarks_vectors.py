"""Word vectors beside gensim, on a corpus of seconds: what is trained, kept, continued and told."""

import json
from pathlib import Path

import pytest

from glassformer.data.corpus import countries_sentences
from glassformer.evaluate.vectors import evaluate_vectors

from .benchmark_tools import benchmark

pytest.importorskip("gensim")


@pytest.fixture
def bench(monkeypatch, tmp_path):
    bench = benchmark("word2vec")
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench, "TESTS", ("countries",))
    monkeypatch.setattr(bench, "SETTING", bench.SETTING | {"dim": 7})
    return bench


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(s.lower() + "\n" for s in countries_sentences(300)), encoding="utf-8")
    return path


def test_quality_goes_on_record_by_record_and_is_told(bench, file, monkeypatch, tmp_path, capsys):
    judged = []

    def judge(words, vectors, *rest):
        judged.append(vectors.shape)
        return evaluate_vectors(words, vectors, *rest)

    monkeypatch.setattr(bench, "evaluate_vectors", judge)
    bench.quality(file, [0], 1, [1, 2], "q")
    assert len(judged) == 4
    first = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))["epochs"]
    assert first["1"]["difference"] == {"countries": {}}  # one seed has no interval
    bench.quality(file, [0, 1], 1, [2], "q")
    assert len(judged) == 6  # seed 0 is not trained again
    found = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))["epochs"]
    assert found["1"] == first["1"]
    assert found["2"]["seeds"]["0"] == first["2"]["seeds"]["0"]
    apart = found["2"]["difference"]["countries"]
    assert apart["low"] <= apart["mean"] <= apart["high"]
    assert "2 epochs, countries: glassformer - gensim = " in capsys.readouterr().out
    bench.quality(file, [1], 1, [2], "q", again=True)
    assert len(judged) == 7  # ours alone
    assert len(set(judged)) == 1


def test_sentences_to_vectors_are_timed_in_turn(bench, file, tmp_path, monkeypatch):
    for kind in ("glassformer", "gensim"):
        assert bench.fit_once(kind, str(file), 1, 1, 0) > 0.0
    taken = iter([2.0, 6.0, 5.0, 1.0])
    asked = []

    def alone(work, kind, *rest):
        asked.append(kind)
        return next(taken)

    monkeypatch.setattr(bench, "alone", alone)
    bench.fit(file, 2, 1, [3], "f")
    assert asked == ["glassformer", "gensim", "gensim", "glassformer"]
    part = json.loads((tmp_path / "f.json").read_text(encoding="utf-8"))["epochs"]["3"]
    assert part["seconds"] == {"glassformer": [2.0, 1.0], "gensim": [6.0, 5.0]}
    assert part["ratio"] == {"median": 4.0, "min": 3.0, "max": 5.0}


def test_a_round_of_speed_is_an_epoch_of_each(bench, file):
    for make in (bench.make_ours, bench.make_gensim):
        contender = make(str(file), 1)
        window = contender.run(0)
        assert window.reviews == 300
        assert window.tokens == sum(len(s.split()) for s in countries_sentences(300))


def test_more_seeds_of_one_of_the_two_leave_the_other_alone(bench, monkeypatch, tmp_path, file):
    monkeypatch.setattr(bench, "figures", lambda words, vectors: dict.fromkeys(bench.TESTS, 7.0))
    bench.quality(file, [3], 1, [1], "q", kinds=["glassformer"])
    bench.quality(file, [4], 1, [1], "q", kinds=["gensim"])
    part = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))["epochs"]["1"]
    assert {seed: list(found) for seed, found in part["seeds"].items()} == {
        "3": ["glassformer"],
        "4": ["gensim"],
    }
    assert part["difference"] == {test: {} for test in bench.TESTS}
    bench.quality(file, [3], 1, [1], "q", again=True, kinds=["gensim"])
    found = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))["epochs"]["1"]["seeds"]
    assert list(found["3"]) == ["glassformer", "gensim"]  # whose own are not trained again stay
