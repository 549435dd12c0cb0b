"""The routes: answers are those of the classifier itself, whatever shares their batch."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.models import example_sentences, load_models, read_score

from .conftest import EXAMPLES, PICTURES, TEXTS, Running, png


def shares(answer) -> list[list[float]]:
    assert answer.status == 200, answer
    return [list(p["probabilities"].values()) for p in answer.body["predictions"]]


def test_texts(server: Running, classifiers):
    texts = [*TEXTS[:5], "a dull film " * 30]
    answer = server.ask("/v1/predict", {"texts": texts})
    np.testing.assert_allclose(shares(answer), classifiers[0].predict_proba(texts), atol=1e-5)
    first, *_, last = answer.body["predictions"]
    assert first["label"] == classifiers[0].predict(texts[:1])[0]
    assert first["probability"] == max(first["probabilities"].values())
    assert (first["truncated"], last["truncated"]) == (False, True)
    assert answer.body["model"] == "films"


def test_long_texts_in_windows(server: Running, classifiers):
    texts = ["a dull film , a warm and wise film " * 9, "a film"]
    answer = server.ask("/v1/predict", {"texts": texts, "model": "windows"})
    np.testing.assert_allclose(shares(answer), classifiers[1].predict_proba(texts), atol=1e-5)
    assert answer.body["predictions"][0]["label"] == str(classifiers[1].predict(texts[:1])[0])


def test_pictures(server: Running, classifiers):
    answer = server.ask("/v1/predict", {"images": [png(picture) for picture in PICTURES[:3]]})
    np.testing.assert_allclose(shares(answer), classifiers[2].predict_proba(PICTURES[:3]), atol=1e-5)


def test_many_clients_of_many_lengths_get_their_own_answers(server: Running, classifiers):
    rng = np.random.default_rng(0)
    made = lambda i: " ".join(rng.permutation(TEXTS[i].split() * int(rng.integers(1, 4))))  # noqa: E731
    asked = [[made(i) for i in rng.integers(0, 40, n)] for n in rng.integers(1, 6, 48)]
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda texts: server.ask("/v1/predict", {"texts": texts}), asked))
    for texts, answer in zip(asked, answers, strict=True):
        np.testing.assert_allclose(shares(answer), classifiers[0].predict_proba(texts), atol=1e-5)
    batches = server.app.state.server.metrics.batch.labels("films")._sum.get()
    assert batches > 0


def test_explanations(server: Running, classifiers):
    text = "a dull film , unlikely"
    answer = server.ask("/v1/explain", {"text": text, "method": "occlusion", "target": "bad"})
    assert answer.status == 200, answer
    expected = classifiers[0].explain(text, method="occlusion", target="bad")
    assert "".join(piece["text"] for piece in answer.body["pieces"]) == expected.text
    scored = [(p["text"], p["score"]) for p in answer.body["pieces"] if p["score"] is not None]
    assert scored == [(w, pytest.approx(s, abs=1e-5)) for w, s in expected.words()]
    assert answer.body["target"] == "bad"
    assert [p["text"] for p in answer.body["special"]] == ["[CLS]", "[SEP]"]
    one = server.ask("/v1/explain", {"text": text, "method": "attention", "layer": 1, "head": 0})
    assert one.body["settings"] == {"layer": 1, "head": 0}
    picture = server.ask("/v1/explain", {"image": png(PICTURES[0]), "method": "gradient_x_input"})
    assert np.shape(picture.body["scores"]) == (3, 3)
    assert picture.body["image"].startswith("data:image/png;base64,")


def test_an_explanation_says_that_a_part_alone_is_explained(server: Running, classifiers, monkeypatch):
    text = "a dull film , " * 11
    cut, read = server.ask("/v1/explain", {"text": text, "method": "rollout"}).body["notes"]
    assert read.startswith("Attention followed through all layers.")
    assert cut.startswith(f"only the first {classifiers[0].max_length} tokens were read")
    monkeypatch.setattr(classifiers[0], "long_texts", "mean")
    default = server.ask("/v1/explain", {"text": text}).body
    assert default["method"] == "decomposition"  # as in Python and on the command line
    note, _ = default["notes"]
    assert note.startswith(f"only the first {classifiers[0].max_length} tokens are explained")
    picture = {"image": png(PICTURES[0]), "method": "occlusion"}
    assert server.ask("/v1/explain", picture).body["notes"] == [
        "How much the logit of the explained label falls when the patch is masked."
    ]


def test_base64_may_stand_in_lines(server):
    whole = png(PICTURES[0])
    in_lines = "\n".join(whole[i : i + 76] for i in range(0, len(whole), 76)) + "\n"
    one, other = (server.ask("/v1/predict", {"images": [given]}) for given in (whole, in_lines))
    assert one.body["predictions"] == other.body["predictions"]


REFUSED: list[tuple[str, Any, int, str]] = [
    ("predict", {}, 422, "exactly one of"),
    ("predict", {"texts": ["a"], "images": ["a"]}, 422, "exactly one of"),
    ("predict", {"text": "a", "image": "a"}, 422, "exactly one of texts, pairs and images"),
    ("predict", {"text": "a", "texts": ["b"]}, 422, "both text and texts"),
    ("predict", {"texts": []}, 422, "texts: the list has 0 items. Send at least 1 item"),
    ("predict", {"texts": ["fine", " "]}, 422, "texts[1]: the text is empty"),
    ("predict", {"texts": ["fine", 7]}, 422, "texts[1]: has the wrong type. Send a string"),
    ("predict", {"texts": ["fine", ""]}, 422, "texts[1]: the text is empty. Send at least 1 character"),
    ("predict", {"texts": ["a\0b"]}, 422, "NUL"),
    ("predict", {"texts": "a dull film"}, 422, 'Send a list: {"texts": [...]}'),
    ("predict", {"text": "a", "top": 0}, 422, "top"),
    ("predict", {"inputs": ["a"]}, 422, "Known: image, images, model, pairs, text, texts, top"),
    ("predict", {"texts": ["a"], "url": "http://x"}, 422, "url: there is no such field"),
    ("predict", {"texts": ["a"], "model": "none"}, 404, "no such model"),
    ("predict", {"texts": ["a"], "model": "pictures"}, 422, "Send images, or name a model of texts: "),
    ("predict", {"images": ["***"]}, 422, "images[0]: not base64"),
    ("predict", {"images": ["aGVsbG8="]}, 422, "images[0]: not an image"),
    ("predict", {"images": ["/etc/passwd"]}, 422, "images[0]"),
    ("predict", {"images": ["data:image/png;base64,aGVsbG8="]}, 422, "images[0]: a URL"),
    ("predict", {"texts": ["a"] * 65}, 413, "65 inputs"),
    ("predict", {"texts": ["a" * 100_001]}, 413, "texts[0]: 100,001 characters"),
    ("predict", {"text": "a" * 100_001}, 413, "text: 100,001 characters, 100,000 at most. Shorten it"),
    ("predict", b'{"texts": ["\\ud800"]}', 422, "texts[0]: has a lone surrogate"),
    ("predict", b"[" * 100_000, 400, "body"),
    ("predict", b'{"texts": NaN}', 422, "texts"),
    ("predict", b'"\xff"', 400, "in UTF-8"),
    ("predict", b"{", 422, "body: JSON decode error at character 1: Expecting property name"),
    ("predict", b"", 422, "body: there is no body"),
    ("predict", None, 405, "Method Not Allowed. Use POST"),
    ("predictions", None, 404, "no such path. Did you mean /v1/predict? GET /openapi.json lists all paths"),
    ("explain", {"image": ""}, 422, "image: the image is empty"),
    ("explain", {"text": " "}, 422, "text: the text is empty"),
    ("explain", {"text": "a", "texts": ["b"]}, 422, "both text and texts"),
    ("explain", {"texts": ["a", "b"]}, 422, "texts"),
    ("explain", {"text": "a" * 100_001}, 413, "text: 100,001 characters"),
    ("explain", {"text": "a", "head": 1, "method": "rollout"}, 422, "head: rollout has no option 'head'"),
    ("explain", {"text": "a", "layer": 1, "method": "rollout"}, 422, "no option 'layer'"),
    ("explain", {"text": "a", "layer": 7, "method": "attention"}, 422, "no layer 7"),
    ("explain", {"text": "a", "method": "magic"}, 422, "method"),
    ("explain", {"text": "a", "method": "rollout", "target": "bad"}, 422, "has no target"),
    ("explain", {"text": "a", "method": "occlusion", "target": "x"}, 422, "no label 'x'"),
    ("/nowhere", None, 404, "no such path. "),
    (
        "/predict",
        {"texts": ["a"]},
        404,
        "/predict: no such path. Did you mean /v1/predict? GET /openapi.json",
    ),
    ("/static/../app.py", None, 404, "no such path. "),
    ("/static/%2e%2e/app.py", None, 404, "no such path. "),
    ("/docs", None, 404, "no such path. "),
]


@pytest.mark.parametrize(("path", "body", "status", "what"), REFUSED)
def test_what_cannot_be_answered_says_why(server: Running, path, body, status, what):
    answer = server.ask(path if path.startswith("/") else f"/v1/{path}", body)
    assert answer.status == status, answer
    error = answer.body["error"]
    assert what in f"{error['where']}: {error['what']}. {error['fix']}"
    assert error["fix"], "a way out"


def test_one_text_or_image_needs_no_list_and_one_in_a_list_is_explained(server: Running, classifiers):
    many = server.ask("/v1/predict", {"texts": ["a dull film"]}).body
    assert server.ask("/v1/predict", {"text": "a dull film"}).body == many
    image = png(PICTURES[3])
    many = server.ask("/v1/predict", {"images": [image]}).body
    assert server.ask("/v1/predict", {"image": image}).body == many
    one = server.ask("/v1/explain", {"text": "a dull film", "method": "occlusion"}).body
    assert server.ask("/v1/explain", {"texts": ["a dull film"], "method": "occlusion"}).body == one


def test_top_gives_the_likeliest_classes_alone(server: Running, classifiers):
    whole = server.ask("/v1/predict", {"text": "a dull film"}).body["predictions"][0]
    found = server.ask("/v1/predict", {"text": "a dull film", "top": 1}).body["predictions"][0]
    assert found == whole | {"probabilities": {whole["label"]: whole["probability"]}}
    more = server.ask("/v1/predict", {"text": "a dull film", "top": 99}).body["predictions"][0]
    assert more == whole


@pytest.fixture
def others(serve) -> tuple[dict[str, Any], Running, dict[str, Any]]:
    """Models without attention, with one label, several labels and three classes; their server, which lists them."""
    several, three = [("good", "long"), ("bad",)] * 20, [f"kind {i % 3}" for i in range(40)]
    models: dict[str, Any] = {"plain": ["good", "bad"] * 20, "several": several, "three": three}
    for name, labels in models.items():
        clf = gf.TextClassifier("textcnn", d_model=7, embedding_dim=5, min_count=1, epochs=1, threads=1)
        models[name] = clf.fit(TEXTS, labels)
    models["several"].temperature_ = np.array([1.5, 0.75, 2.0])
    models["several"].threshold_ = np.array([0.25, 0.5, 0.125])
    three = models["three"]
    three.threshold_ = np.array([0.25, 0.5, 0.25])
    sure = three.kind_.confidence(p := three.predict_proba(TEXTS), three.predicted_index(p))
    three.abstain_below_ = float(np.median(sure))
    running = serve(others=models)
    return models, running, {m["name"]: m for m in running.ask("/v1/models").body["models"]}


def test_a_model_without_attention_offers_what_it_has(others):
    _, running, listed = others
    about = listed["plain"]
    assert about["methods"] == ["occlusion", "gradient_x_input", "integrated_gradients", "shapley"]
    assert (about["layers"], about["heads"], about["channels"]) == (None, None, None)
    answer = running.ask("/v1/explain", {"text": "a dull film", "model": "plain"})
    assert (answer.status, answer.body["method"]) == (200, "occlusion")
    refused = running.ask("/v1/explain", {"text": "a", "model": "plain", "method": "rollout"})
    assert refused.status == 422
    assert "Use occlusion" in refused.body["error"]["fix"]
    assert listed["pictures"]["channels"] == 3  # the page opens its pad white


def test_temperatures_thresholds_and_abstaining_are_served(others):
    models, running, listed = others
    several, films = listed["several"], listed["films"]
    assert several["temperature"] == 1.0  # the one number, beside those of the labels
    assert several["temperatures"] == [1.5, 0.75, 2.0]
    assert (films["temperature"], films["temperatures"], films["abstain_below"]) == (1.5, None, None)
    assert several["threshold"] == [0.25, 0.5, 0.125]
    asked = running.ask("/v1/predict", {"texts": TEXTS[:5], "model": "several"})
    np.testing.assert_allclose(shares(asked), models["several"].predict_proba(TEXTS[:5]), atol=1e-5)
    clf, about = models["three"], listed["three"]
    assert (about["threshold"], about["abstain_below"]) == ([0.25, 0.5, 0.25], clf.abstain_below_)
    found = running.ask("/v1/predict", {"texts": TEXTS, "model": "three"}).body["predictions"]
    assert [x["label"] for x in found] == clf.decide(clf.predict_proba(TEXTS)).tolist()
    abstains = [x.get("abstains", False) for x in found]
    assert abstains == [a is None for a in clf.predict(TEXTS)]
    assert 0 < sum(abstains) < len(found)


def test_a_body_of_no_stated_type_is_told_which(server: Running):
    answer = server.ask("/v1/predict", b'{"texts": ["a"]}', content_type="text/plain")
    assert answer.status == 422
    assert "content-type: application/json" in answer.body["error"]["fix"]


def test_probes_may_ask_for_the_head_alone(server: Running):
    for path in ("/health", "/ready"):
        answer = server.ask(path, method="HEAD")
        assert (answer.status, answer.body) == (200, b"")


def test_probes_models_metrics_and_description(server: Running):
    assert server.ask("/health").body == {"state": "alive"}
    assert server.ask("/ready").body == {"state": "ready"}
    films, windows, pictures = server.ask("/v1/models").body["models"]
    assert (films["kind"], films["labels"], films["calibrated"]) == ("text", ["bad", "good"], True)
    assert (films["layers"], films["heads"], films["max_length"]) == (2, 2, 19)
    assert windows["labels"] == ["0", "1"]
    assert pictures["size"] == [12, 12]
    assert (films["example"], films["score"], films["multi_label"]) == (EXAMPLES[0], None, False)
    assert pictures["example"] is None  # the page draws one
    before = server.ask("/metrics").body.decode()
    server.ask("/nowhere-" + "x" * 50)
    text = server.ask("/metrics").body.decode()
    assert 'glassformer_requests_total{route="other",status="404"}' in text
    assert "nowhere-" not in text
    assert len(text.splitlines()) - len(before.splitlines()) < 30
    paths = server.ask("/openapi.json").body["paths"]
    assert {"/v1/predict", "/v1/explain", "/v1/models", "/health", "/ready", "/metrics"} <= paths.keys()
    named = {call["operationId"]: path for path, calls in paths.items() for call in calls.values()}
    for name in ("predict", "explain", "models"):
        assert named[name] == f"/v1/{name}"
    assert paths["/v1/predict"]["post"]["responses"].keys() >= {"200", "413", "422", "429", "503"}


def test_a_model_bears_a_name_as_long_as_its_folder_can_have(serve, classifiers):
    name = "n" * 255
    running = serve(others={name: classifiers[0]})
    found = running.ask("/v1/predict", {"texts": TEXTS[:3], "model": name})
    assert (found.status, found.body["model"]) == (200, name)
    assert running.ask("/v1/predict", {"texts": TEXTS[:3], "model": name + "n"}).status == 422


def test_the_page_and_its_headers(server: Running):
    page = server.ask("/")
    assert b"<title>glassformer</title>" in page.body
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert b"http://" not in page.body.replace(b"http://www.w3.org", b"")
    assert b"https://" not in page.body
    for line in page.body.decode().split('"'):
        if line.startswith("/static/"):
            assert server.ask(line).status == 200, line
    assert server.ask("/", method="HEAD").status == 200


@pytest.mark.parametrize(
    ("metrics", "score"),
    [
        (None, None),
        ([], None),
        ({"test": 3}, None),
        ({"test": {"accuracy": float("nan"), "n": 3}}, None),
        ({"test": {"accuracy": 0.5, "n": 8}}, ("accuracy", 0.5, "test", 8)),
        ({"test": {"accuracy": 1, "n": "8"}, "judged": "final"}, ("accuracy", 1, "final", None)),
        ({"validation": {"accuracy": 0.25, "n": 4}, "judged": "test"}, ("accuracy", 0.25, "validation", 4)),
        (
            {"test": {"kind": "labels", "accuracy": 0.1, "macro_f1": 0.5, "n": 2}},
            ("macro_f1", 0.5, "test", 2),
        ),
        ({"test": {"entity_f1": 0.75, "accuracy": 0.9, "n": 5}}, ("entity_f1", 0.75, "test", 5)),
        ({"test": {"exact_match": 0.5, "f1": 0.625, "n": 7}}, ("f1", 0.625, "test", 7)),
        ({"test": {"r2": None, "mae": 2.5, "n": 1}}, ("mae", 2.5, "test", 1)),
        ({"similarity": {"test": {"spearman": -0.5, "n": 3}}}, ("spearman", -0.5, "test", 3)),
    ],
)
def test_the_score_is_the_main_metric_of_the_run(tmp_path, metrics, score):
    if metrics is not None:
        (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    keys = ("metric", "value", "split", "examples")
    assert read_score(tmp_path) == (score and dict(zip(keys, score, strict=True)))


def test_models_say_how_good_they_are_and_bring_their_example(classifiers, tmp_path, caplog):
    texts, _, pictures = classifiers
    runs = [tmp_path / "films", tmp_path / "seen", tmp_path / "odd"]
    for run, clf in zip(runs, (texts, pictures, pictures), strict=True):
        clf.save(run / "model")
        (run / "metrics.json").write_text(json.dumps({"test": {"accuracy": 0.875, "n": 40}}))
    (runs[1] / "example.png").write_bytes(base64.b64decode(png(PICTURES[0])))
    (runs[2] / "example.jpg").write_bytes(b"nothing")
    with Running(load_models(runs, Limits(), threads=1), Limits()) as running:
        films, seen, odd = running.ask("/v1/models").body["models"]
    assert films["score"] == {"metric": "accuracy", "value": 0.875, "split": "test", "examples": 40}
    assert films["example"] == "This is an example. Write a text of your own here."
    assert seen["example"] == png(PICTURES[0])
    assert odd["example"] is None
    assert "example.jpg cannot be shown" in caplog.text


def test_examples_are_sentences_of_the_recipe_never_rows_of_the_data(tmp_path):
    assert example_sentences(tmp_path) == []
    file = tmp_path / "metrics.json"
    for broken in ("", "[]", '{"sentences": 3}', '{"sentences": [{}]}'):
        file.write_text(broken)
        assert example_sentences(tmp_path) == []
    file.write_text('{"sentences": [{"text": "Dull.", "label": "neg"}, {"text": "Wise.", "label": "pos"}]}')
    (tmp_path / "predictions.csv").write_text("text\nsecret\n")
    assert example_sentences(tmp_path) == ["Dull.", "Wise."]
