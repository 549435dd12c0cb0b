"""The labs' questions with power: what is said of differences, how a run goes on, and that the arms exist."""

import json
from pathlib import Path

import numpy as np
import pytest

from .benchmark_tools import benchmark

ROOT = Path(__file__).parents[1]


@pytest.fixture
def module():
    return benchmark("lab_questions")


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
    assert same["says"] == "less than 3 points"
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
    argv = ["pooler", "--seeds", "0", "1", "--runs", str(tmp_path), "--out", str(out)]
    module.main([*argv, "--minutes", "0.0000001"])
    assert not trained
    assert not out.exists()
    assert "6 trainings are left" in capsys.readouterr().out
    module.main(argv)
    assert [seed for seed, _ in trained] == [0, 0, 0, 1, 1, 1]
    module.main(argv)
    assert len(trained) == 6
    found = json.loads(out.read_text(encoding="utf-8"))["questions"]
    assert list(found) == ["pooler"]
    assert found["pooler"]["arms"]["ViT"]["cpu_seconds"][0] >= 0


def test_questions_of_other_runs_stay_in_the_file(module, tmp_path):
    path = tmp_path / "lab-questions.json"
    there = {"date": "D", "machine": {"cpu": "old"}, "versions": {"python": "P"}, "commit": "C"}
    old = {"questions": {"stem": {"seeds": [0, 1, 2]}, "pooler": {"seeds": [0]}}}
    path.write_text(json.dumps(there | old), encoding="utf-8")
    now = there | {"machine": {"cpu": "new"}}
    few = {"stem": {"seeds": [3, 4]}, "pooler": {"seeds": [3]}, "scale": {"seeds": [0, 1]}}
    made = module.merged(path, few, now | {"benchmark": "B"})
    assert list(made) == ["pooler", "stem", "scale"]
    assert made["stem"] == {"seeds": [0, 1, 2], "measured": there}
    assert made["pooler"] == {"seeds": [3], "measured": now}
    assert made["scale"]["measured"] == now
    path.write_text(json.dumps(now | {"questions": made}), encoding="utf-8")
    assert module.merged(path, {}, there | {"date": "later"}) == made


def test_other_attentions_are_what_their_names_say(module):
    import torch

    from benchmarks.quality.lab_fits import attending
    from glassformer.nn import Encoder, EncoderConfig, attend
    from glassformer.packing import Packing

    x, packing = torch.randn(7, 6), Packing((4, 3))

    def layer(name):
        torch.manual_seed(3)
        with attending(name):
            return Encoder(EncoderConfig(6, 1, 2, 5)).layers[0].attention

    plain = layer("")
    q, k, v = plain.project(x)
    wanted = {
        "": attend(q, k, v, packing),
        "undivided": attend(q, k, v, packing, scale=1.0),
        "keys as values": attend(q, k, k, packing),
    }
    for name, out in wanted.items():
        torch.testing.assert_close(layer(name)(x, packing), plain.out(out.flatten(1)))
    assert type(Encoder(EncoderConfig(6, 1, 2, 5)).layers[0].attention) is type(plain)


@pytest.mark.parametrize("key", ["scale", "shared", "initial", "kinds", "hunger"])
def test_settings_of_every_arm_are_those_of_an_estimator(module, key):
    """A tiny fit of each arm would take minutes: its settings are built into a recipe, which checks them."""
    lab_fits = benchmark("lab_fits")

    from glassformer import ImageClassifier, TextClassifier

    for name in module.arms_of(module.QUESTIONS[key]):
        arm = module.ARMS[name]
        changes = {k: v for k, v in arm.changes.items() if k not in ("attends", "count", "labels")}
        assert arm.changes.get("attends", "") in lab_fits.ATTENDS
        if arm.kind == "vit":
            ImageClassifier(**(lab_fits.VIT | changes)).configs()
        elif arm.kind == "text":
            TextClassifier(**(lab_fits.TEXT | changes)).configs()
        else:
            assert arm.kind in ("cnn", "tfidf")


def test_maps_are_summed_up_over_seeds(tmp_path, monkeypatch):
    lab_maps = benchmark("lab_maps")

    looks = iter([0.1, 0.2, 0.3])
    kinds = {"text": lambda seed: {"entropy": next(looks)}, "pictures": lambda seed: {"entropy": 0.5}}
    monkeypatch.setattr(lab_maps, "KINDS", kinds)
    out = tmp_path / "maps.json"
    argv = ["--seeds", "0", "1", "2", "--runs", str(tmp_path / "runs"), "--out", str(out)]
    lab_maps.main(argv)
    lab_maps.main(argv)  # nothing is trained again: the values are used up
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["kinds"]["text"]["entropy"]["by_seed"] == [0.1, 0.2, 0.3]
    low, high = found["kinds"]["text"]["entropy"]["interval"]
    assert (low + high) / 2 == pytest.approx(0.2)
    assert high - low == pytest.approx(2 * 4.303 * 0.1 / 3**0.5, rel=1e-3)
    assert found["kinds"]["pictures"]["entropy"]["interval"] == [0.5, 0.5]


def test_baselines_learn_and_judge_the_same_reviews(module, monkeypatch, tmp_path):
    lab_fits = benchmark("lab_fits")

    words = {"neg": "dull endless flat", "pos": "warm wise funny"}
    y = np.array(["neg", "pos"] * 60)
    monkeypatch.setattr(lab_fits, "JUDGED_REVIEWS", 40)
    monkeypatch.setattr(lab_fits, "reviews", lambda: ([f"{words[c]} film {i}" for i, c in enumerate(y)], y))
    rows, judged = lab_fits.review_parts(3, 50)
    assert len(rows) == 50
    assert len(judged) == 40
    assert not set(rows) & set(judged)
    assert lab_fits.tfidf(3, tmp_path, labels=50).all()


def test_words_are_written_anew_from_the_figures_that_are_kept(module, tmp_path):
    for seed in range(2):
        for arm in ("64 tokens", "encoder, mean", "ViT, half the patches", "ViT"):
            write_run(module, tmp_path, arm, seed, np.arange(101) % 2 == 0)
    found = module.judged(tmp_path, "cheaper", [0, 1])
    old = {name: one | {"says": "old"} for name, one in reversed(found["differences"].items())}
    out = tmp_path / "kept.json"
    kept = {"date": "then", "questions": {"cheaper": found | {"differences": old, "note": ""}}}
    out.write_text(json.dumps(kept))
    argv = ["--words", "--out", str(out)]
    module.main(argv)
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert kept["date"] == "then"
    assert kept["questions"]["cheaper"] == json.loads(json.dumps(found))
    assert "all are read" in found["note"]
    assert found["note"] in found["answer"]
    renamed = {f"{name}!": one for name, one in old.items()}
    out.write_text(json.dumps({"questions": {"cheaper": found | {"differences": renamed}}}))
    with pytest.raises(SystemExit, match="judge them again"):
        module.main(argv)
    out.unlink()
    with pytest.raises(SystemExit, match="2"):
        module.main(argv)
