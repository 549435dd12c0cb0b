"""Models of every task beside each other over HTTP: the library's answers, its explanations, one-line refusals."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.cli.serve import search_source
from glassformer.errors import ConfigError
from glassformer.inputs.inputs import ServedInputs
from glassformer.serve.app import Server
from glassformer.serve.limits import Limits
from glassformer.serve.models import ServedModel, load_models, set_search_texts
from glassformer.serve.problems import Problem
from glassformer.serve.schema import ExplainResponse

from .conftest import CHROMIUM, TEXTS, Running, over

SIZES: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1}
SIZES |= {"precision": "fp32", "threads": 1}
QUESTIONS = [("where is Ann ?", "Ann is in Rome now"), ("where is Bo ?", "Bo is in New York now")] * 4
QUESTIONS += [("where is Cy ?", "Cy has a dog")] * 4
WORDS = [["Ann", "lives", "in", "New", "York"], ["In", "Rome", "we", "met", "Bo"], ["nobody", "came"]] * 5
TAGS = [["B-person", "O", "O", "B-place", "I-place"], ["O", "B-place", "O", "O", "B-person"], ["O", "O"]] * 5
TAGGED = ["Ann  met Bo", "in New York nobody lives", "Rome came " * 17]
ASKED = ["a warm film", "a dull film , and many of them", "number 7"]
COLORS = ("red", "blue", "green")
PAIRS = [(f"the {a} one", f"a {b} one here") for a in COLORS for b in COLORS]
SAME = ["same" if a.split()[1] == b.split()[1] else "other" for a, b in PAIRS]
OF_PAIRS = SIZES | {"d_model": 22, "d_ff": 31, "max_length": 17, "lr": 1e-2, "batch_size": 9, "epochs": 1}
GOOD = ["good", "bad"] * 20


@pytest.fixture(scope="module")
def models(classifiers) -> dict[str, Any]:
    """Of each task a fitted model, by the name that it is served under."""
    training = SIZES | {"epochs": 25, "batch_size": 3}
    answers = ["Rome", "New York"] * 4 + [None] * 4
    tagger = gf.TokenTagger("encoder-mini", lr=0.01, max_length=13, **training).fit(WORDS, TAGS)
    tagger.temperature_ = 1.7
    near = list(zip(TEXTS[:6:2], TEXTS[2:8:2], strict=True))
    return {
        "films": classifiers[0],
        "pictures": classifiers[2],
        "facts": gf.QuestionAnswerer("encoder-mini", lr=0.02, max_length=17, **training).fit(
            QUESTIONS, answers
        ),
        "names": tagger,
        "alike": gf.Embedder("encoder-mini", max_length=19, **SIZES).fit(near),
        "nli": gf.TextClassifier("encoder-mini", **OF_PAIRS).fit(PAIRS * 2, SAME * 2),
        "linear": gf.TextClassifier("tfidf").fit(TEXTS, GOOD),
        "linear pairs": gf.TextClassifier("tfidf").fit(list(zip(TEXTS, TEXTS[::-1], strict=True)), GOOD),
        "lengths": gf.TextRegressor("tfidf").fit(TEXTS, [float(len(text)) for text in TEXTS]),
    }


@pytest.fixture(scope="module")
def served(models, tmp_path_factory) -> Iterator[Running]:
    """A server of them all but the linear ones, from saved folders."""
    of_networks = {name: models[name] for name in ("films", "facts", "names", "alike", "nli")}
    with over(tmp_path_factory.mktemp("served"), **of_networks) as running:
        yield running


def test_models_say_what_they_give(served, models):
    about = {m["name"]: m for m in served.ask("/v1/models").body["models"]}
    gives = {"films": "labels", "facts": "answers", "names": "tags", "alike": "vectors", "nli": "labels"}
    assert {name: m["gives"] for name, m in about.items()} == gives
    pairs = {"films": False, "facts": True, "nli": True}
    assert {name: about[name]["pairs"] for name in pairs} == pairs
    assert about["facts"]["labels"] == ["answer", "no answer"]
    assert about["facts"]["no_answer_threshold"] == models["facts"].threshold_ == 0.0
    assert (about["names"]["spans"], about["names"]["temperature"]) == (["person", "place"], 1.7)
    assert about["names"]["labels"] == models["names"].classes_.tolist()
    assert about["names"]["calibrated"]
    paths = {"/v1/tag", "/v1/embed", "/v1/similar", "/v1/answer", "/v1/search"}
    assert paths <= served.ask("/openapi.json").body["paths"].keys()
    assert served.ask("/v1/predict", {"texts": ASKED}).body["model"] == "films"


REFUSED: list[tuple[str, Any, int, str]] = [
    ("answer", {"question": "q"}, 422, "the context is missing"),
    ("answer", {}, 422, "question with context, or questions"),
    ("answer", {"question": "q", "context": "c", "n_best": 0}, 422, "n_best"),
    ("answer", {"question": "q", "context": " "}, 422, "the context is empty"),
    ("answer", {"question": "q", "context": "c", "model": "films"}, 422, "this model gives labels"),
    ("embed", {}, 422, "texts:"),
    ("embed", {"text": "a", "texts": ["b"]}, 422, "both text and texts"),
    ("embed", {"texts": []}, 422, "Send at least 1 item"),
    ("embed", {"texts": ["a", " "]}, 422, "texts[1]: the text is empty"),
    ("embed", {"texts": ["a"], "model": "other"}, 404, "no such model"),
    ("embed", {"texts": ["a"], "model": "films"}, 422, "this model gives labels"),
    ("embed", {"texts": ["a"] * 65}, 413, "65 inputs"),
    ("search", {"texts": ["a"]}, 422, "--search TABLE"),
    ("similar", {"pairs": [["a"]]}, 422, "Send at least 2 items"),
    ("similar", {"pairs": [["a", "b"], ["c", "d"]], "explain": True}, 422, "only one pair can be explained"),
    ("similar", {"pairs": [["a", "b"], ["c", "   "]]}, 422, "pairs[1][1]:"),
    ("similar", {"paris": [["a", "b"]]}, 422, "pairs"),
    ("similar", {"pairs": [["a", "b"]] * 33}, 413, "66 inputs"),
    ("tag", {}, 422, "body: exactly one of text, words, texts and sentences"),
    ("tag", {"text": "a", "words": ["a"]}, 422, "body: exactly one of"),
    ("tag", {"text": ["a"]}, 422, "text: has the wrong type. Send a string"),
    ("tag", {"words": "a b"}, 422, '{"words": [...]}'),
    ("tag", {"words": ["a", " "]}, 422, "words: word 2 is empty"),
    ("tag", {"text": " "}, 422, "text: the sentence has no words"),
    ("tag", {"texts": ["a", " "]}, 422, "texts[1]: the sentence has no words"),
    ("tag", {"sentences": [["a"], []]}, 422, "sentences[1]: the list has 0 items. Send at least 1 item"),
    ("tag", {"word": ["a"]}, 422, "word:"),
    ("tag", {"text": "a", "model": "films"}, 422, "Use /v1/predict"),
    ("tag", {"text": "a", "model": "other"}, 404, "model: no such model"),
    ("tag", {"texts": ["a"] * 65}, 413, "texts: 65 inputs"),
    ("tag", {"text": "a" * 100_001}, 413, "text: 100,001 characters"),
    ("predict", {"texts": ["t"], "model": "facts"}, 422, "Use /v1/answer"),
    ("predict", {"texts": ["a"], "model": "alike"}, 422, "this model gives vectors"),
    ("predict", {"texts": ["a"], "model": "names"}, 422, "Use /v1/tag"),
    ("predict", {"texts": ["a"], "model": "nli"}, 422, "this model reads pairs of texts"),
    ("predict", {"pairs": [["a", "b"]], "model": "films"}, 422, "this model reads one text"),
    ("predict", {"pairs": [["a", "b"]], "texts": ["a"]}, 422, "exactly one of"),
    ("predict", {"pairs": [["a"]]}, 422, "pairs[0]"),
    ("predict", {"pairs": [["a", "b", "c"]]}, 422, "pairs[0]"),
    ("predict", {"pairs": [["a", " "]]}, 422, "pairs[0]"),
    ("predict", {"pairs": ["ab"]}, 422, "pairs[0]"),
    ("explain", {"text": "t", "model": "facts"}, 422, "text_pair"),
    ("explain", {"text": "a", "model": "alike"}, 422, "this model gives vectors"),
    ("explain", {"text": "a", "model": "nli"}, 422, "this model reads pairs of texts"),
    ("explain", {"text_pair": "a"}, 422, "exactly one of"),
    ("explain", {"text": "a b", "word": "c"}, 422, "explain: no word 'c'"),
    ("explain", {"text": "a", "word": 0, "model": "films"}, 422, "word: this model predicts labels"),
    ("explain", {"text": "a", "word": 0, "method": "occlusion", "layer": 1}, 422, "layer:"),
    ("explain", {"text": "a " * 300, "word": 0}, 413, "256 at most"),
]


@pytest.mark.parametrize(("path", "body", "status", "said"), REFUSED)
def test_what_cannot_be_answered_is_one_problem(served, path, body, status, said):
    answer = served.ask(f"/v1/{path}", body)
    assert answer.status == status, answer.body
    error = answer.body["error"]
    assert said in f"{error['where']}: {error['what']}. {error['fix']}"


# --- questions --------------------------------------------------------------------------------------


def test_answers_are_those_of_the_library(served, models):
    long = ("where is Bo ?", "a dog has a dog " * 9 + "Bo is in New York now")
    asked = [QUESTIONS[0], QUESTIONS[1], QUESTIONS[-1], long]
    answer = served.ask("/v1/answer", {"questions": [list(pair) for pair in asked], "n_best": 3})
    assert answer.status == 200, answer.body
    assert answer.body["model"] == "facts"
    for told, (best, *others) in zip(answer.body["answers"], models["facts"].answers(asked, 3), strict=True):
        assert (told["answer"], told["start"], told["end"]) == (best.text, best.start, best.end)
        assert told["probability"] == pytest.approx(best.probability, abs=1e-5)
        assert [one["answer"] for one in told["others"]] == [one.text for one in others]
    (one,) = served.ask("/v1/answer", {"question": QUESTIONS[1][0], "context": QUESTIONS[1][1]}).body[
        "answers"
    ]
    assert (one["answer"], one["others"]) == ("New York", [])


def test_an_answer_is_explained(models):
    body = {"text": QUESTIONS[0][0], "text_pair": QUESTIONS[0][1], "method": "occlusion"}
    with over(films=models["films"], facts=models["facts"]) as server:
        found = server.ask("/v1/explain", body | {"model": "facts"}).body
        assert server.ask("/v1/explain", body).body == found  # nothing else here reads pairs
        rollout = server.ask("/v1/explain", body | {"method": "rollout"}).body
        other = server.ask("/v1/predict", {"pairs": [["where is Ann ?", "Ann is in Rome"]]})
        picture = server.ask("/v1/predict", {"images": ["AAAA"]})
    assert (found["label"], found["target"]) == ("Rome", "answer")
    words = [piece["text"] for piece in found["pieces"] if piece["score"] is not None]
    assert words == " ".join(QUESTIONS[0]).split()
    assert found["pieces"][found["second"]]["text"] == "Ann"
    assert any("not why the model made this prediction" in note for note in rollout["notes"])
    ExplainResponse.model_validate(rollout)
    error = other.body["error"]  # a request for labels is told where answers are asked
    assert (other.status, error["what"]) == (422, "no model here reads pairs of texts")
    assert error["fix"] == "POST /v1/answer for facts"
    assert (picture.status, picture.body["error"]["fix"]) == (422, "Start the server with one that does")


# --- vectors and a list to search in ----------------------------------------------------------------


def test_vectors_and_cosines_are_those_of_the_library(served, models):
    answer = served.ask("/v1/embed", {"texts": [*ASKED, "a film " * 30]})
    assert answer.status == 200, answer.body
    assert answer.body["model"] == "alike"
    assert answer.body["truncated"] == [False] * 3 + [True]
    np.testing.assert_allclose(answer.body["vectors"][:3], models["alike"].encode(ASKED), atol=1e-5)
    pairs = [ASKED[:2], ASKED[1:]]
    found = served.ask("/v1/similar", {"pairs": pairs}).body
    assert found["cosines"] == pytest.approx([models["alike"].similarity(*pair) for pair in pairs], abs=1e-5)
    assert found["explanation"] is None
    told = served.ask("/v1/similar", {"pairs": pairs[:1], "explain": True}).body["explanation"]
    assert np.sum(told["table"]) == pytest.approx(told["cosine"], abs=1e-5)
    assert np.shape(told["table"]) == tuple(map(len, told["tokens"]))
    many = served.ask("/v1/embed", {"texts": ASKED[:1]}).body
    assert served.ask("/v1/embed", {"text": ASKED[0]}).body == many  # one text needs no list


LISTED = (
    ["a warm film", "a dull film", "number 7 , many"],
    [2, 4, 5],
    [{"id": 1, "price": float("nan")}, {}, {"id": 3}],
)


@pytest.fixture(scope="module")
def searching(models, tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("searching")
    saved = [models[name].save(folder / name) for name in ("films", "alike")]
    loaded = load_models(saved, Limits(), threads=1, precision="fp32")
    set_search_texts(loaded, LISTED)
    with Running(loaded, Limits()) as running:
        yield running


def test_a_list_is_searched_as_the_library_does(searching, models):
    answer = searching.ask("/v1/search", {"texts": ASKED, "count": 2})
    assert answer.status == 200, answer.body
    rows, cosines = models["alike"].search(ASKED, LISTED[0], 2)
    for found, places, values in zip(answer.body["answers"], rows, cosines, strict=True):
        assert [one["row"] for one in found["found"]] == [LISTED[1][i] for i in places]
        assert [one["text"] for one in found["found"]] == [LISTED[0][i] for i in places]
        np.testing.assert_allclose([one["cosine"] for one in found["found"]], values, atol=1e-5)
        assert found["nearest"] == found["found"][0]["cosine"]
    assert answer.body["answers"][0]["found"][0]["columns"] == {"id": 1, "price": None}
    assert answer.body["truncated"] == [False] * 3
    for given, wanted in (("a dull film", [4]), ("number", [])):
        asked = {"texts": [given], "count": 100, "least": 0.9999}
        (most,) = searching.ask("/v1/search", asked).body["answers"]
        assert [one["row"] for one in most["found"]] == wanted
    (about,) = (m for m in searching.ask("/v1/models").body["models"] if m["name"] == "alike")
    assert about["searched"] == 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"texts": ["a"], "count": 0}, "count"),
        ({"texts": ["a"], "count": 101}, "count"),
        ({"texts": ["a"], "least": 2}, "least"),
        ({"texts": [" "]}, "the text is empty"),
        ({"texts": ["a"], "model": "films"}, "this model gives labels"),
        ({"query": "a"}, "texts"),
    ],
)
def test_a_search_that_cannot_be_is_one_problem(searching, body, said):
    answer = searching.ask("/v1/search", body)
    assert answer.status == 422
    assert said in str(answer.body["error"])


def test_only_one_model_of_vectors_can_be_searched(models, tmp_path):
    saved = [
        models["films"].save(tmp_path / "films"),
        *(models["alike"].save(tmp_path / name) for name in "ab"),
    ]
    with pytest.raises(ConfigError, match="searching needs embeddings, but films gives labels"):
        set_search_texts(load_models(saved[:1], Limits(), threads=1), LISTED)
    with pytest.raises(ConfigError, match="a and b both give vectors"):
        set_search_texts(load_models(saved[1:], Limits(), threads=1), LISTED)


def test_the_command_reads_a_table_or_an_index(models, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("id,question\n1,can I send it back\n2,where is my parcel\n")
    texts, rows, beside = search_source(str(table), "question")
    assert (list(texts), list(rows)) == (["can I send it back", "where is my parcel"], [2, 3])
    assert [str(own["id"]) for own in beside] == ["1", "2"]
    index = models["alike"].index(texts).save_index(tmp_path / "index")
    assert search_source(str(index), None) == index
    assert search_source(None, None) is None
    with pytest.raises(ConfigError, match="no such table or index"):
        search_source(str(tmp_path / "nothing.csv"), None)
    with pytest.raises(ConfigError, match="has an effect only with --search"):
        search_source(str(index), "question")


# --- words ------------------------------------------------------------------------------------------


def test_spans_are_those_of_the_library(served, models):
    answer = served.ask("/v1/tag", {"texts": TAGGED})
    assert answer.status == 200, answer.body
    assert answer.body["model"] == "names"
    found = [span for spans in models["names"].spans(TAGGED) for span in spans]
    assert len(found) > 3
    told = [span for sentence in answer.body["sentences"] for span in sentence["spans"]]
    keys = ("text", "label", "start", "end", "first", "last")
    assert [tuple(span[key] for key in keys) for span in told] == [
        (s.text, s.kind, s.start, s.end, s.first, s.last) for s in found
    ]
    np.testing.assert_allclose([s["probability"] for s in told], [s.probability for s in found], atol=1e-5)
    for text, sentence, tags in zip(TAGGED, answer.body["sentences"], models["names"].predict(TAGGED)):
        assert (sentence["text"], sentence["words"], sentence["tags"]) == (text, text.split(), tags)
    words = TAGGED[1].split()  # a text, its words and a list of either are answered alike
    bodies = [{"text": TAGGED[1]}, {"words": words}, {"texts": [TAGGED[1]]}, {"sentences": [words]}]
    answers = [served.ask("/v1/tag", body).body for body in bodies]
    assert answers[0]["sentences"][0]["spans"]
    assert answers == answers[:1] * 4


def test_a_word_is_explained(served, models, tmp_path):
    asked = {"text": TAGGED[0], "method": "occlusion"}
    told = served.ask("/v1/explain", asked | {"word": 2}).body
    mine = models["names"].explain(TAGGED[0], word=2, method="occlusion")
    assert (told["model"], told["label"]) == ("names", mine.label)
    assert told["probability"] == pytest.approx(mine.probability, abs=1e-5)
    np.testing.assert_allclose(told["scores"], mine.scores, atol=1e-4)
    assert "'Bo'" in told["notes"][0]
    assert served.ask("/v1/explain", asked | {"word": "Bo", "model": "names"}).body == told
    assert "'Ann'" in served.ask("/v1/explain", asked | {"model": "names"}).body["notes"][0]
    assert served.ask("/v1/explain", asked).body["model"] == "films"
    for others in ([], ["pictures"]):  # where no other model reads texts it need not be named
        with over(
            tmp_path / str(len(others)), **{name: models[name] for name in [*others, "names"]}
        ) as running:
            told = running.ask("/v1/explain", asked)
            assert (told.status, told.body["model"]) == (200, "names")
            wrong = running.ask("/v1/explain", asked | {"word": "--5"})
            assert (wrong.status, wrong.body["error"]["what"]) == (422, "no word '--5'")


def test_without_a_tagger_the_fix_is_to_start_one(models, tmp_path):
    films = load_models([models["films"].save(tmp_path / "films")], Limits(), threads=1)
    with pytest.raises(Problem) as caught:
        Server(films, Limits()).select_model(None, ServedInputs, "tags")
    assert caught.value.what == "no model here gives tags"
    assert caught.value.fix == "Start the server with a run of a TokenTagger"


# --- pairs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["together", "apart"])
def test_pairs_are_answered_as_offline_whatever_shares_their_batch(models, how):
    clf = models["nli"]
    if how == "apart":
        clf = gf.TextClassifier("encoder-mini", pairs="apart", **OF_PAIRS).fit(PAIRS * 2, SAME * 2)
    asked = [*PAIRS, ("red " * 40, "blue one")]
    first, second = PAIRS[1]
    with over(films=models["films"], nli=clf) as server:
        answer = server.ask("/v1/predict", {"pairs": [list(pair) for pair in asked]})
        body = {"text": first, "text_pair": second, "method": "occlusion"}
        explained = server.ask("/v1/explain", body)
        rollout = server.ask("/v1/explain", body | {"method": "rollout"})
    assert answer.status == explained.status == rollout.status == 200, answer
    assert rollout.body["second"] == explained.body["second"]
    assert answer.body["model"] == "nli"
    shares = [list(p["probabilities"].values()) for p in answer.body["predictions"]]
    np.testing.assert_allclose(shares, clf.predict_proba(asked), atol=1e-5)
    assert [p["truncated"] for p in answer.body["predictions"]] == [False] * len(PAIRS) + [True]
    words = [piece["text"] for piece in explained.body["pieces"]]
    assert "".join(words) == f"{first}\n{second}"
    assert words[explained.body["second"] :] == ["a", " ", "blue", " ", "one", " ", "here"]
    scored = [piece["score"] for piece in explained.body["pieces"] if piece["score"] is not None]
    wanted = [score for _, score in clf.explain(PAIRS[1], method="occlusion").words()]
    np.testing.assert_allclose(scored, wanted, atol=1e-5)


@pytest.mark.parametrize("named", [{}, {"model": "m"}])
def test_pairs_for_a_model_of_single_texts_and_the_other_way_round(models, named):
    with over(m=models["nli"]) as of_pairs, over(m=models["films"]) as of_one:
        bodies = (("predict", {"text": "a"}), ("predict", {"texts": ["a", "b"]}), ("explain", {"text": "a"}))
        answers = [of_pairs.ask(f"/v1/{path}", body | named) for path, body in bodies]
        other = of_one.ask("/v1/predict", {"pairs": [["a", "b"]]} | named)
    for answer in answers:
        assert (answer.status, answer.body["error"]["what"]) == (422, "this model reads pairs of texts")
        assert answer.body["error"]["fix"].startswith('Send "pairs": [["FIRST", "SECOND"]] to /v1/predict')
    assert (other.status, other.body["error"]["what"]) == (422, "this model reads one text")
    assert other.body["error"]["fix"] == 'Send "text" or "texts"'


# --- linear models ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear(models) -> Iterator[Running]:
    names = ("linear", "linear pairs", "lengths")
    own = [ServedModel(name, models[name], Limits(), threads=1, examples=TEXTS[:2]) for name in names]
    with Running([(each, False) for each in own], Limits()) as running:
        yield running


def test_labels_of_a_linear_model_are_those_offline(linear, models):
    texts = [TEXTS[0], "ЖЖ", "a warm film , " * 6000]
    answer = linear.ask("/v1/predict", {"texts": texts, "model": "linear"})
    assert answer.status == 200
    shares = [
        [one["probabilities"][label] for label in ("bad", "good")] for one in answer.body["predictions"]
    ]
    np.testing.assert_allclose(shares, models["linear"].predict_proba(texts), atol=1e-6)
    assert [one["truncated"] for one in answer.body["predictions"]] == [False] * 3
    films, pairs, _ = linear.ask("/v1/models").body["models"]
    assert (films["methods"], films["examples"]) == (["weights", "occlusion"], TEXTS[:2])
    assert (films["max_length"], films["layers"], films["heads"]) == (None, None, None)
    assert pairs["pairs"]
    assert linear.ask("/").status == 200


def test_a_linear_model_is_explained_by_its_weights(linear, models):
    answer = linear.ask("/v1/explain", {"text": TEXTS[0], "model": "linear"})
    assert (answer.status, answer.body["method"]) == (200, "weights")
    pieces, settings = answer.body["pieces"], answer.body["settings"]
    total = sum(piece["score"] for piece in pieces if piece["score"] is not None)
    assert total + settings["bias"] == pytest.approx(settings["logit"], abs=1e-5)
    assert settings["logit"] == pytest.approx(models["linear"].logits(TEXTS[:1]).max(), abs=1e-5)
    assert "".join(piece["text"] for piece in pieces) == TEXTS[0]
    long = {"text": "a dull film " * 500, "model": "linear", "target": "bad"}
    assert linear.ask("/v1/explain", long).status == 200
    maps = linear.ask("/v1/explain", {"text": TEXTS[0], "model": "linear", "method": "rollout"})
    assert maps.status == 422
    assert "Use weights or occlusion" in str(maps.body)


def test_without_held_out_examples_there_is_no_interval(models):
    bare = copy.deepcopy(models["lengths"])
    bare.errors_ = bare.errors_[:3]
    served = ServedModel("lengths", bare, Limits(), threads=1, precision="fp32")
    items = served.prepare(TEXTS[:1])
    assert "interval" not in served.response(items, served.compute(items))["numbers"][0]


# --- the page ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_shows_spans_and_answers(served, models, browser):
    from .test_page import until

    page, said = browser.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{served.port}/")
    until(page, "document.querySelectorAll('#model option').length === 4")
    page.select_option("#model", "names")
    text = "Ann met <b>Bo</b> in New York"
    page.fill("textarea", text)
    until(page, "document.querySelector('.tagged')?.textContent.includes('York')")
    (found,) = models["names"].spans([text])
    assert found
    shown = page.locator(".tagged .span").all_text_contents()
    assert [t.split(s.kind)[0] for t, s in zip(shown, found, strict=True)] == [s.text for s in found]
    assert page.locator(".tagged button").all_text_contents() == text.split()
    page.locator(".tagged button").nth(5).click()
    until(page, "document.querySelector('.caption').textContent.includes(\"'York'\")")
    page.select_option("#model", "facts")
    page.select_option("#method", "occlusion")
    assert page.text_content("#whose") == "For the answer"
    assert "label" not in page.text_content("#about")
    page.fill("textarea.first", QUESTIONS[0][0])
    page.fill("textarea.second", QUESTIONS[0][1])
    until(page, "document.querySelector('.caption')?.textContent.startsWith('occlusion')")
    until(page, "document.querySelector('.words').textContent.includes('Rome')")
    words = [word for side in QUESTIONS[0] for word in (*side.split(), "[SEP]")]
    assert page.locator(".words .w").all_text_contents() == ["[CLS]", *words]
    page.select_option("#model", "films")
    until(page, "document.querySelector('.answer') && !document.querySelector('.answer').hidden")
    assert page.text_content("#whose") == "For the label"
    assert page.locator(".tagged").first.is_hidden()
    assert said == []
    page.close()
