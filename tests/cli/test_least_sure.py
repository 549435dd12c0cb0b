"""``predict --least-sure``: which answers a person should look at first."""

from __future__ import annotations

import json

import numpy as np
import pytest

from glassformer.cli.predictions import LeastSure, Prediction
from glassformer.cli.rows import Row
from glassformer.errors import ConfigError

from .tiny import sentences, write_csv


def test_the_least_sure_come_first():
    p = np.random.default_rng(0).dirichlet([1, 1, 1], 53)
    p[7] = p[11] = [0.34, 0.33, 0.33]
    rows = [Row(f"text {i}", i + 2, "t.csv") for i in range(53)]
    shares, labels = p.max(1), [("a", "b", "c")[k] for k in p.argmax(1)]
    kept = LeastSure(5)
    for row, label, share, own in zip(rows, labels, shares.tolist(), p, strict=True):
        found = {"label": label, "probability": share, "probabilities": own}
        kept.add(Prediction(row, found), ["a", "b", "c"])
    found = kept.found()
    assert [f["row"] - 2 for f in found] == np.argsort(shares, kind="stable")[:5].tolist()
    assert [f["row"] for f in found[:2]] == [9, 13]
    for f in found:
        own = p[f["row"] - 2]
        assert [share for _, share in f["likeliest"]] == sorted(own.tolist(), reverse=True)[:2]
        assert f["likeliest"][0][0] == f["label"]
    with pytest.raises(ConfigError, match="0 rows"):
        LeastSure(0)


def test_predict_lists_them(gf, refused, run, tmp_path):
    data = write_csv(tmp_path / "new.csv", sentences(13, seed=2))
    result = gf("predict", run, data, "--least-sure", 3)
    assert result.code == 0, result
    assert "the 3 least sure of 13 texts" in result.out
    assert f"glassformer calibrate {run}" in result.err
    answers = json.loads(gf("predict", run, data, "--json").out)["answers"]
    found = json.loads(gf("predict", run, data, "--least-sure", 3, "--json").out)
    assert found["answers"] == answers
    order = sorted(answers, key=lambda a: a["probability"])[:3]
    assert [f["row"] for f in found["least_sure"]] == [a["row"] for a in order]
    written = gf("predict", run, data, "--least-sure", 2, "--out", "answers.csv")
    assert "the 2 least sure of 13 texts" in written.out
    assert len((tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()) == 14
    assert "0 rows" in refused("predict", run, data, "--least-sure", 0)
