"""An explanation as values, JSON and HTML; text is data and never markup."""

import copy
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from glassformer.errors import InputError
from glassformer.explain.render import Explanation

NASTY = '<script>alert(1)</script> & "quoted" <img src=x onerror=alert(2)>'


def explanation(**changes):
    values = {
        "text": "It was <dull>.",
        "tokens": ["[CLS]", "it", "was", "<", "dull", ">", ".", "[SEP]"],
        "offsets": [(0, 0), (0, 2), (3, 6), (7, 8), (8, 12), (12, 13), (13, 14), (0, 0)],
        "scores": np.array([0.05, 0.11, 0.15, 0.0, 0.5, 0.02, 0.08, 0.1]),
        "label": np.str_("neg"),
        "probability": 0.875,
        "method": "attention",
        "maps": np.zeros((1, 1, 8, 8)),
    }
    return Explanation(**(values | changes))


class Reader(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.styles, self.titles = [], "", [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attrs = dict(attrs)
        if "title" in attrs:
            self.titles.append(attrs["title"])
            self.styles.append(attrs["style"])

    def handle_data(self, data):
        self.text += data


def test_highest_scores():
    assert explanation().top(3) == [("dull", 0.5), ("was", 0.15), ("it", 0.11)]
    assert len(explanation().top(100)) == 8
    # of equal scores the earlier token comes first
    scores = np.array([0.5, 1.0, 0.5, 1.0] * 11)
    tokens = [f"t{i}" for i in range(44)]
    explained = Explanation("x", tokens, [(0, 0)] * 44, scores, "pos", 0.9, "attention")
    assert [token for token, _ in explained.top(24)] == [f"t{i}" for i in (*range(1, 44, 2), 0, 2)]


def test_options_may_be_numpys_own(tiny):
    with pytest.raises(InputError, match=r"unknown method 7\. For this model: decomposition"):
        tiny.explain("warm", method=7)
    # options may be numpy's own
    e = tiny.explain("a dull film", method="attention", layer=np.int64(0))
    assert e.settings["layer"] == 0
    assert json.loads(json.dumps(e.to_dict()))["method"] == "attention"


def test_plain_values(tmp_path):
    values = explanation(target="neg").to_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["scores"] == [0.05, 0.11, 0.15, 0.0, 0.5, 0.02, 0.08, 0.1]
    assert (values["label"], values["target"], values["probability"]) == ("neg", "neg", 0.875)
    assert values["offsets"][4] == [8, 12]
    assert "maps" not in values
    assert explanation().to_dict()["target"] is None
    e = explanation()
    assert e.save(tmp_path / "map.json") == tmp_path / "map.json"
    assert json.loads((tmp_path / "map.json").read_text()) == e.to_dict()
    e.save(str(tmp_path / "map.html"))
    assert (tmp_path / "map.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_page_shows_the_whole_text_coloured_by_score():
    page = Reader(explanation()._repr_html_())
    assert "It was <dull>." in page.text
    assert set(page.tags) <= {"div", "b", "p", "span"}
    assert page.titles == ["it: 0.1100", "was: 0.1500", "<: 0.0000", "dull: 0.5000", ">: 0.0200", ".: 0.0800"]
    strengths = [float(re.search(r"/ ([\d.]+)\)", style)[1]) for style in page.styles]
    assert strengths == pytest.approx([0.22, 0.3, 0.0, 1.0, 0.04, 0.16])
    assert "neg" in page.text
    assert "87.5 %" in page.text
    assert "[CLS]" not in page.text
    assert "[SEP]" not in page.text
    # negative scores have another color
    page = Reader(explanation(scores=np.array([0, 0.5, -0.5, 0, 0, 0, 0, 0.0]))._repr_html_())
    assert page.styles[0] != page.styles[1]
    assert page.styles[0].split("/")[1] == page.styles[1].split("/")[1]
    # scores of nothing divide by nothing
    page = Reader(explanation(scores=np.zeros(8))._repr_html_())
    assert all("/ 0.00)" in style for style in page.styles)
    # bytes of one letter show it once
    e = explanation(
        text="aé!", tokens=["a", "Ã", "©", "!"], offsets=[(0, 1), (1, 2), (1, 2), (2, 3)],
        scores=np.array([0.1, 0.2, 0.3, 0.4]), maps=np.zeros((1, 1, 4, 4)),
    )  # fmt: skip
    shown = re.sub(r"<[^>]*>", "", e._repr_html_())
    assert "aé!" in shown


@pytest.mark.parametrize("field", ["text", "label", "method", "tokens"])
def test_markup_in_data_is_inert(field):
    value = [NASTY] * 8 if field == "tokens" else NASTY
    extra = {"offsets": [(0, 0)] * 7 + [(0, len(NASTY))]} if field in ("text", "tokens") else {}
    html = explanation(
        **({"text": NASTY} if field == "tokens" else {}), **{field: value}, **extra
    )._repr_html_()
    page = Reader(html)
    assert set(page.tags) <= {"div", "b", "p", "span"}
    assert "<script" not in html
    assert "<img" not in html
    assert NASTY in page.text or NASTY in " ".join(page.titles)
    assert 'onerror=alert(2)>"' not in html


def test_markup_in_data_is_inert_around_the_tokens():
    """What no token covers is shown all the same, as text."""
    n = len(NASTY)
    html = explanation(
        text=f"{NASTY}dull{NASTY}", tokens=["dull"], offsets=[(n, n + 4)], scores=np.ones(1)
    )._repr_html_()
    page = Reader(html)
    assert page.text.endswith(f"{NASTY}dull{NASTY}")
    assert set(page.tags) <= {"div", "b", "p", "span"}


def test_trust_stands_in_the_explanation_its_page_and_its_figures(tiny, tmp_path, monkeypatch):
    text = "it was not a dull film"
    e = tiny.explain(text, method="occlusion", target="neg", trust=True)
    plain = tiny.explain(text, method="occlusion", target="neg")
    assert np.array_equal(e.scores, plain.scores)
    assert plain.trust is None
    assert plain.notes == []
    assert e.trust is not None
    assert e.notes == [e.trust["verdict"]]
    probability = tiny.predict_proba([text])[0, tiny.classes_.tolist().index("neg")]
    assert e.trust["deletion"][0] == pytest.approx(probability, abs=1e-5)
    told = json.loads(e.save(tmp_path / "map.json").read_text())["trust"]
    assert len(told["shares"]) == len(told["deletion"]) == len(told["random"]["insertion"]) == 10
    page = e.save(tmp_path / "map.html").read_text()
    assert (
        page.count("<polyline") == e._repr_html_().count("<polyline") == 4
    )  # two curves, each beside random
    assert "<polyline" not in plain.save(tmp_path / "plain.html").read_text()
    # hidden variants are answered in the number format of prediction
    asked = []
    monkeypatch.setattr(tiny, "predictor", lambda: asked.append(1) or tiny.model_)
    tiny.explain("a dull film")
    assert asked == []
    tiny.explain("a dull film", trust=True)
    assert asked == [1]


def test_many_inputs_one_by_one(tiny):
    texts, done = ["a dull film", "it was not wonderful", "a film"], []
    many = tiny.explain_many(texts, method="occlusion", target="neg", progress=done.append)
    assert done == [1, 1, 1]
    for text, e in zip(texts, many, strict=True):
        assert np.array_equal(e.scores, tiny.explain(text, method="occlusion", target="neg").scores)
    with pytest.raises(InputError, match=r"texts\[1\]: the text is empty"):
        tiny.explain_many(["fine", " "], progress=done.append)
    assert len(done) == 3
    # what is not explained of a long text is said
    clf = copy.deepcopy(tiny).set_params(long_texts="mean", window_stride=5)
    long = "it was not dull " * 9
    assert any("first 13 tokens are explained" in note for note in clf.explain(long).notes)
    assert not clf.explain("a dull film").notes
    assert tiny.explain(long).notes == ["only the first 13 tokens were read and explained; the rest was cut"]
