"""glassformer explain: tables, pages, figures, and what cannot be."""

import json
import re

import numpy as np
import pytest

from glassformer import ImageClassifier, load
from glassformer.cli.explain import _format_score
from glassformer.explain.methods import NETWORK_METHODS

from .tiny import sentences, settings, write_csv

TEXT = "the film number 3 has a splendid ending"


@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_every_method_prints_a_table(ok, trained, method):
    result = ok("explain", trained, TEXT, "--method", method)
    assert method in result.out
    assert "splendid" in result.out


def test_a_page_with_maps_and_a_judgement(ok, trained, tmp_path):
    result = ok(
        "explain",
        trained,
        TEXT,
        "a dreadful plot",
        "--method",
        "occlusion",
        "--set",
        "unit=word",
        "--trust",
        "--out",
        "map.html",
    )
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert page.count("<article") == 2
    assert len(re.findall("better than random orders in|The test cannot tell", page)) == 2
    assert '"pairHeads": 2' in page
    assert "unit word" in page
    assert page.count("<polyline") == 2 * 4
    assert "map.html" in result.out


def test_figures_as_json(ok, trained, tmp_path):
    (tmp_path / "two.txt").write_text("a splendid film\na dreadful film\n", encoding="utf-8")
    options = ("--method", "integrated_gradients", "--target", "neg", "--set", "steps=8", "--out", "map.json")
    ok("explain", trained, "two.txt", *options)
    values = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))
    assert [v["text"] for v in values] == ["a splendid film", "a dreadful film"]
    assert all(v["target"] == "neg" and v["method"] == "integrated_gradients" for v in values)
    assert all(len(v["scores"]) == len(v["tokens"]) for v in values)


def test_the_figures_of_trust_are_written(ok, trained, tmp_path):
    ok("explain", trained, TEXT, "a dreadful plot", "--trust", "--out", "map.json")
    for value in json.loads((tmp_path / "map.json").read_text(encoding="utf-8")):
        assert value["notes"] == [value["trust"]["verdict"]]
        assert value["trust"]["figures"].keys() == value["trust"]["random"]["figures"].keys()


def test_an_unfinished_integral_is_noted(ok, trained):
    options = ("--set", "steps=1", "--set", "max_steps=1", "--set", "tolerance=0")
    result = ok("explain", trained, TEXT, "--method", "integrated_gradients", *options)
    assert "note: the scores sum to the logit difference only within" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--method", "rolout"],
            "Did you mean 'rollout'? For this model: decomposition, attention, rollout",
        ),
        (["--method", "shap"], "Did you mean 'shapley'?"),
        (["--method", "lime"], "unknown method 'lime'. For this model: decomposition, attention, rollout"),
        (["--method", "weights"], "weights: is only for linear models of texts (tfidf), and "),
        (["--method", "rollout", "--target", "pos"], "rollout has no target"),
        (["--method", "occlusion", "--target", "meh"], "no label 'meh'"),
        (["--method", "rollout", "--set", "fusing=max"], "Did you mean 'fusion'?"),
        (["--set", "fusion"], "not KEY=VALUE"),
        (["--set", "residual=2"], "residual 2 is not in [0, 1]"),
        (["--method", "attention", "--set", "layer=9"], "no layer 9: the model has "),
        (["--method", "occlusion", "--set", "window=wide"], "window must be a whole number, got 'wide'"),
        (["--method", "occlusion", "--set", "by=7"], "by must be text, got 7"),
        (["--set", "residual=half"], "residual must be a number, got 'half'"),
        (["--method", "occlusion", "--set", "window=0"], "a window of 0"),
        (
            ["--method", "integrated_gradients", "--set", "tolerance=-1"],
            "tolerance -1 is negative. Give 0 or more",
        ),
        (["--method", "integrated_gradients", "--set", "steps=2000"], "Give fewer, or raise max_steps"),
        (["--set", "maps=1"], "'maps' is only an option in Python"),
        (["--out", "map.pdf"], "the output is written as HTML or JSON"),
        (["--out", "nowhere/map.html"], "no such folder"),
    ],
)
def test_what_cannot_be(refused, trained, arguments, said):
    assert said in refused("explain", trained, TEXT, *arguments)


def test_too_many_inputs_and_no_run(refused, trained):
    assert "21 inputs" in refused("explain", trained, *[TEXT] * 21)
    assert "no such run folder" in refused("explain", "nothing-here", TEXT)
    assert "text is empty" in refused("explain", trained, " ")


def test_the_default_is_that_of_python(gf, trained):
    found = json.loads(gf("explain", trained, "a splendid film", "--json").out)[0]
    assert found["method"] == load(trained).explain("a splendid film").method == "decomposition"
    read = json.loads(gf("explain", trained, "a splendid film", "--set", "head=0", "--json").out)[0]
    assert read["method"] == "attention"  # the first that has this option


def test_several_inputs_are_told_apart_and_special_tokens_said(gf, trained):
    out = gf("explain", trained, "a splendid film", "a dreadful plot", "--method", "rollout").out
    assert out.index("1 of 2: a splendid film") < out.index("2 of 2: a dreadful plot")
    assert out.count("special tokens: [CLS] 0.") == 2
    assert "1 of" not in gf("explain", trained, "a splendid film").out


def test_scores_far_below_one_keep_their_digits():
    assert [_format_score(score, are_small=True) for score in (3e-06, -4.2e-05, 0.0)] == [
        "3.0e-06",
        "-4.2e-05",
        "0.0000",
    ]
    assert _format_score(0.12345, are_small=False) == "0.1235"


@pytest.fixture(scope="module")
def of_pictures(tmp_path_factory):
    """A classifier of pictures with a folder of three: a good one, a line, and one that is text."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("of-pictures")
    images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 3), dtype=np.uint8)
    tiny = dict(image_size=8, patch_size=4, d_model=16, num_heads=2, epochs=1, threads=1)
    ImageClassifier("vit-tiny", **tiny).fit(images, ["a", "b", "a", "b"]).save(folder / "model")
    (folder / "files").mkdir()
    Image.fromarray(images[0]).save(folder / "files" / "good.png")
    Image.new("L", (3000, 20)).save(folder / "line.png")
    (folder / "text.png").write_text("no picture")
    return folder


def test_pictures_by_file_and_folder(gf, ok, refused, trained, of_pictures, tmp_path):
    model, good = of_pictures / "model", of_pictures / "files" / "good.png"
    out = gf("explain", model, good, good.parent).out
    assert f"1 of 2: {str(good)[:40]}" in out
    assert "patch" in out
    ok("explain", model, good, "--out", "map.html")
    assert str(good) in (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "line.png: 3000 x 20 pixels" in refused("explain", model, good, of_pictures / "line.png")
    assert "text.png: is not an image" in refused("explain", model, good, of_pictures / "text.png")
    assert "this model reads images" in refused("explain", model, TEXT)
    assert "an image, and this model reads texts" in refused("explain", trained, good)
    assert "an image, and this model reads texts" in refused("predict", trained, good)


def test_a_file_under_the_column_of_the_training(gf, ok, tmp_path):
    rows = [(f"n{i}", text, label) for i, (text, label) in enumerate(sentences(41))]
    data = write_csv(tmp_path / "data.csv", rows, "name,body,label")
    ok("train", "--text", data, "--out", "run", *settings("text_column=body"))
    few = write_csv(tmp_path / "few.csv", [row[:2] for row in rows[:3]], "name,body")
    result = ok("explain", "run", few)
    assert "1 of 3: " + rows[0][1] in result.out
    result = gf("explain", "run", few, "--text-column", "name")
    assert "1 of 3: n0" in result.out


def test_a_model_without_attention_is_explained_by_what_it_has(ok, refused, tmp_path):
    import glassformer

    settings = {"d_model": 7, "embedding_dim": 5, "min_count": 1, "epochs": 1, "threads": 1}
    clf = glassformer.TextClassifier("textcnn", **settings)
    clf.fit(["a warm film", "a dull film"] * 5, ["good", "bad"] * 5).save(tmp_path / "textcnn")
    told = ok("explain", "textcnn", "a dull film")
    assert "· occlusion for" in told.out
    ok("explain", "textcnn", "a dull film", "--out", "page.html")
    assert "dull" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "'textcnn' has no attention to show. Use occlusion" in refused(
        "explain", "textcnn", "a dull film", "--method", "rollout"
    )


def test_rows_of_a_file_are_explained(ok, refused, trained, tmp_path):
    table = write_csv(tmp_path / "t.csv", [("7", "a splendid film"), ("11", ""), ("13", "a plot")], "id,text")
    told = ok("explain", trained, table, "--row", 4, "--row", 2, "--json", "--method", "occlusion")
    assert [e["text"] for e in json.loads(told.out)] == ["a plot", "a splendid film"]
    assert "row 3: the text is empty" in refused("explain", trained, table, "--row", 3)
    assert "no row 9. Rows 2 to 4 have texts" in refused("explain", trained, table, "--row", 9)
    assert "Name a file" in refused("explain", trained, "a film", "--row", 2)
