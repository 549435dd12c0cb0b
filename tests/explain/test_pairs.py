"""Explanations of pairs: words of both sides, and what words of one side do to those of the other."""

from itertools import pairwise

import numpy as np
import pytest
from tests.commands import ok

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain.cross import cross
from glassformer.explain.methods import NETWORK_METHODS
from glassformer.explain.subject import text_subject

COLORS = ("red", "blue", "green")
PAIRS = [(f"the {a} one", f"a {b} one here") for a in COLORS for b in COLORS]
SAME = ["same" if a.split()[1] == b.split()[1] else "other" for a, b in PAIRS]
SETTINGS = {"d_model": 22, "num_heads": 2, "d_ff": 31, "num_layers": 2, "dropout": 0.0, "max_length": 17,
            "min_count": 1, "epochs": 6, "lr": 1e-2, "batch_size": 9, "precision": "fp32", "threads": 1}  # fmt: skip
PAIR = ("the red one", "a red one here")


@pytest.fixture(scope="module")
def clf():
    return gf.TextClassifier("encoder-mini", **SETTINGS).fit(PAIRS * 3, SAME * 3)


@pytest.mark.parametrize("method", [*NETWORK_METHODS])
def test_every_method_scores_words_of_both_sides(method, clf):
    e = clf.explain(PAIR, method=method)
    assert e.text == "the red one\na red one here"
    assert [word for word, _ in e.words_of(0)] == ["the", "red", "one"]
    assert [word for word, _ in e.words_of(1)] == ["a", "red", "one", "here"]
    assert e.sides.tolist() == [-1, 0, 0, 0, -1, 1, 1, 1, 1, -1]
    assert len(e.words()) == 7
    assert e.to_dict()["sides"] == e.sides.tolist()
    assert "the red one" not in e._repr_html_()
    assert "<br>" in e._repr_html_()


def test_scores_of_occlusion_are_the_falls_of_the_logit(clf):
    e = clf.explain(PAIR, method="occlusion", target="same", unit="word")
    whole = clf.logits([PAIR])[0, 1]
    hidden = [("[MASK] red one", PAIR[1]), (PAIR[0], "a red one [MASK]")]
    falls = [whole - clf.logits([pair])[0, 1] for pair in hidden]
    words = [score for _, score in e.words()]
    np.testing.assert_allclose([words[0], words[-1]], falls, atol=1e-4)
    # what is cut is explained as it is read
    e = clf.explain(("red " * 30, "blue one"))
    assert len(e.tokens) == 17
    assert [word for word, _ in e.words_of(1)] == ["blue", "one"]
    assert len(e.words_of(0)) == 12


def test_interactions_are_second_differences_of_hidden_words(clf):
    found = clf.explain(PAIR, cross=True, method="occlusion", target="same").cross

    def logit(first: str, second: str) -> float:
        return clf.logits([(first, second)])[0, clf.classes_.tolist().index("same")]

    a, b = "the [MASK] one", "a [MASK] one here"
    wanted = (logit(*PAIR) - logit(PAIR[0], b)) - (logit(a, PAIR[1]) - logit(a, b))
    assert found["first"] == ["the", "red", "one"]
    assert found["second"] == ["a", "red", "one", "here"]
    assert np.array(found["interactions"]).shape == (3, 4)
    assert found["interactions"][1][1] == pytest.approx(wanted, abs=1e-4)
    assert found["contributions"]["second"][1] == pytest.approx(logit(*PAIR) - logit(PAIR[0], b), abs=1e-4)
    bare = "[MASK] [MASK] [MASK]"
    assert found["alone"]["second"][1] == pytest.approx(logit(bare, PAIR[1]) - logit(bare, b), abs=1e-4)
    sizes = [abs(value) for _, _, value in found["strongest"]]
    assert all(x >= y for x, y in pairwise(sizes))
    first, second = np.array(found["first_reads_second"]), np.array(found["second_reads_first"])
    assert (first.shape, second.shape) == ((3, 4), (4, 3))
    e = clf.explain(PAIR, method="attention", maps=True)
    np.testing.assert_allclose(first[1, 1], e.maps[:, :, 2, 6].mean(), atol=1e-5)
    np.testing.assert_allclose(second[3, 0], e.maps[:, :, 8, 1].mean(), atol=1e-5)


def test_one_text_has_no_other_side():
    texts = [a for a, _ in PAIRS]
    single = gf.TextClassifier("encoder-mini", **{**SETTINGS, "epochs": 1}).fit(texts, SAME)
    with pytest.raises(InputError, match="the input is not a pair of texts"):
        single.explain(texts[0], cross=True)
    assert "sides" not in single.explain(texts[0]).to_dict()
    with pytest.raises(InputError, match="not a pair of texts"):
        cross(text_subject(single, texts[0]))
    # models without attention are explained too
    shared = {k: SETTINGS[k] for k in ("max_length", "min_count", "precision")}
    lstm = gf.TextClassifier("lstm", d_model=7, embedding_dim=5, epochs=1, **shared)
    e = lstm.fit(PAIRS, SAME).explain(PAIR, method="occlusion", cross=True)
    assert e.cross["first_reads_second"] is None
    assert len(e.words_of(1)) == 4


def test_the_page_and_the_table_show_both_sides(clf, tmp_path):
    clf.save(tmp_path / "model")
    ok("explain", tmp_path / "model", *PAIR, "--cross", "--out", tmp_path / "e.html")
    page = (tmp_path / "e.html").read_text()
    assert page.count('<h2 class="small">') == 3
    assert "that depend on the first text" in page
    said = ok("explain", tmp_path / "model", *PAIR, "--cross").out
    assert "first" in said
    assert "second" in said
