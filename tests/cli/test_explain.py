"""glassformer explain: tables, pages, figures, and what cannot be."""

from __future__ import annotations

import json
import re

import pytest

from glassformer.explain.methods import METHODS

TEXT = "the film number 3 has a splendid ending"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_prints_a_table(gf, trained, method):
    result = gf("explain", trained, TEXT, "--method", method)
    assert result.code == 0, result
    assert method in result.out
    assert "splendid" in result.out


def test_a_page_with_maps_and_a_judgement(gf, trained, tmp_path):
    result = gf(
        "explain", trained, TEXT, "a dreadful plot", "--method", "occlusion", "--set", "unit=word", "--trust",
        "--out", "map.html",
    )  # fmt: skip
    assert result.code == 0, result
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert page.count("<article") == 2
    assert len(re.findall("better than random orders in|neither trusted nor doubted", page)) == 2
    assert '"pairHeads": 2' in page
    assert "unit word" in page
    assert "map.html" in result.out


def test_figures_as_json(gf, trained, tmp_path):
    (tmp_path / "two.txt").write_text("a splendid film\na dreadful film\n", encoding="utf-8")
    options = ("--method", "integrated_gradients", "--target", "neg", "--set", "steps=8", "--out", "map.json")
    assert gf("explain", trained, "two.txt", *options).code == 0
    values = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))
    assert [v["text"] for v in values] == ["a splendid film", "a dreadful film"]
    assert all(v["target"] == "neg" and v["method"] == "integrated_gradients" for v in values)
    assert all(len(v["scores"]) == len(v["tokens"]) for v in values)


def test_an_unfinished_integral_is_noted(gf, trained):
    options = ("--set", "steps=1", "--set", "max_steps=1", "--set", "tolerance=0")
    result = gf("explain", trained, TEXT, "--method", "integrated_gradients", *options)
    assert result.code == 0
    assert "note: the scores are complete up to" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "rolout"], "Did you mean 'rollout'?"),
        (["--target", "pos"], "rollout has no target"),
        (["--method", "occlusion", "--target", "meh"], "no label 'meh'"),
        (["--set", "fusing=max"], "Did you mean 'fusion'?"),
        (["--set", "fusion"], "not KEY=VALUE"),
        (["--set", "residual=2"], "residual 2 is not in [0, 1]"),
        (["--method", "attention", "--set", "layer=9"], "no layer 9"),
        (["--method", "occlusion", "--set", "window=wide"], "window is a whole number, not 'wide'"),
        (["--method", "occlusion", "--set", "by=7"], "by is text, not 7"),
        (["--set", "residual=half"], "residual is a number, not 'half'"),
        (["--out", "map.pdf"], "not .html or .json"),
        (["--out", "nowhere/map.html"], "no such folder"),
    ],
)
def test_what_cannot_be(refused, trained, arguments, said):
    assert said in refused("explain", trained, TEXT, *arguments)


def test_too_many_inputs_and_no_run(refused, trained):
    assert "21 inputs" in refused("explain", trained, *[TEXT] * 21)
    assert "no such run folder" in refused("explain", "nothing-here", TEXT)
    assert "text is empty" in refused("explain", trained, " ")
