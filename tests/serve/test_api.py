"""The routes: answers are those of the classifier itself, whatever shares their batch."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

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
    asked = [
        [
            " ".join(rng.permutation(TEXTS[i].split() * int(rng.integers(1, 4))))
            for i in rng.integers(0, 40, n)
        ]
        for n in rng.integers(1, 6, 48)
    ]
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
    answers = [
        server.ask("/v1/predict", {"images": [given]}).body["predictions"] for given in (whole, in_lines)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("path", "body", "status", "what"),
    [
        ("/v1/predict", {}, 422, "exactly one of"),
        ("/v1/predict", {"texts": ["a"], "images": ["a"]}, 422, "exactly one of"),
        ("/v1/predict", {"texts": []}, 422, "texts: the list has 0 items. Send at least 1 item"),
        ("/v1/predict", {"texts": ["fine", " "]}, 422, "texts[1]: the text is empty"),
        ("/v1/predict", {"texts": ["fine", 7]}, 422, "texts[1]: has the wrong type. Send a string"),
        (
            "/v1/predict",
            {"texts": ["fine", ""]},
            422,
            "texts[1]: the text is empty. Send at least 1 character",
        ),
        ("/v1/predict", {"texts": ["a\0b"]}, 422, "NUL"),
        ("/v1/predict", b'{"texts": ["\\ud800"]}', 422, "texts[0]: has a lone surrogate"),
        ("/v1/explain", {"image": ""}, 422, "image: the image is empty"),
        ("/v1/predict", {"texts": ["a"], "model": "none"}, 404, "no such model"),
        (
            "/v1/predict",
            {"texts": ["a"], "model": "pictures"},
            422,
            "model: this model reads images. Send images, or name a model of texts: ",
        ),
        ("/v1/predict", {"texts": ["a"], "url": "http://x"}, 422, "url: there is no such field"),
        ("/v1/predict", {"images": ["***"]}, 422, "images[0]: not base64"),
        ("/v1/predict", {"images": ["aGVsbG8="]}, 422, "images[0]: not an image"),
        ("/v1/predict", {"images": ["/etc/passwd"]}, 422, "images[0]"),
        ("/v1/predict", {"texts": ["a"] * 65}, 413, "65 inputs"),
        ("/v1/predict", {"texts": ["a" * 100_001]}, 413, "texts[0]: 100,001 characters"),
        ("/v1/explain", {"text": "a" * 100_001}, 413, "text: 100,001 characters"),
        ("/v1/explain", {"text": " "}, 422, "text: the text is empty"),
        (
            "/v1/predict",
            {"text": "a" * 100_001},
            413,
            "text: 100,001 characters, 100,000 at most. Shorten it",
        ),
        ("/v1/predict", b"[" * 100_000, 400, "body"),
        ("/v1/predict", b'{"texts": NaN}', 422, "texts"),
        ("/v1/predict", b'"\xff"', 400, "body"),
        ("/v1/predict", b"{", 422, "body: JSON decode error at character 1: Expecting property name"),
        ("/v1/predict", b"", 422, "body: there is no body"),
        ("/v1/predict", {"images": ["data:image/png;base64,aGVsbG8="]}, 422, "images[0]: a URL"),
        (
            "/v1/explain",
            {"text": "a", "head": 1, "method": "rollout"},
            422,
            "head: rollout has no option 'head'",
        ),
        ("/v1/explain", {"text": "a", "method": "magic"}, 422, "method"),
        ("/v1/explain", {"text": "a", "method": "rollout", "target": "bad"}, 422, "has no target"),
        ("/v1/explain", {"text": "a", "method": "attention", "layer": 7}, 422, "no layer 7"),
        ("/v1/explain", {"text": "a", "layer": 1, "method": "rollout"}, 422, "no option 'layer'"),
        ("/v1/explain", {"text": "a", "method": "occlusion", "target": "x"}, 422, "no label 'x'"),
        ("/nowhere", None, 404, "no such path. "),
        ("/predict", None, 404, "/predict: no such path. Did you mean /v1/predict?"),
        ("/static/../app.py", None, 404, "no such path. "),
        ("/static/%2e%2e/app.py", None, 404, "no such path. "),
        ("/v1/predict", None, 405, "Method Not Allowed. Use POST"),
        ("/v1/predictions", None, 404, "no such path. Did you mean /v1/predict? GET /openapi.json"),
        ("/docs", None, 404, "no such path. "),
    ],
)
def test_what_cannot_be_answered_says_why(server: Running, path, body, status, what):
    answer = server.ask(path, body)
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
    for path, body, what in (
        ("/v1/predict", {"text": "a", "texts": ["b"]}, "both text and texts"),
        ("/v1/explain", {"text": "a", "texts": ["b"]}, "both text and texts"),
        ("/v1/explain", {"texts": ["a", "b"]}, "texts"),
        ("/v1/predict", {"text": "a", "image": image}, "exactly one of texts, pairs and images"),
    ):
        answer = server.ask(path, body)
        assert answer.status == 422
        assert what in f"{answer.body['error']['where']}: {answer.body['error']['what']}"


def test_top_gives_the_likeliest_classes_alone(server: Running, classifiers):
    whole = server.ask("/v1/predict", {"text": "a dull film"}).body["predictions"][0]
    found = server.ask("/v1/predict", {"text": "a dull film", "top": 1}).body["predictions"][0]
    assert found == whole | {"probabilities": {whole["label"]: whole["probability"]}}
    assert server.ask("/v1/predict", {"text": "a", "top": 0}).status == 422
    more = server.ask("/v1/predict", {"text": "a dull film", "top": 99}).body["predictions"][0]
    assert more == whole


def test_a_path_without_its_version_is_answered_with_the_whole(server: Running):
    answer = server.ask("/predict", {"texts": ["a dull film"]})
    assert answer.status == 404
    assert answer.body["error"]["fix"] == "Did you mean /v1/predict? GET /openapi.json lists all paths"


@pytest.mark.parametrize(
    ("path", "body", "fix"),
    [
        ("/v1/predict", {"inputs": ["a"]}, "Known: image, images, model, pairs, text, texts, top"),
        ("/v1/predict", {"texts": "a dull film"}, 'Send a list: {"texts": [...]}'),
    ],
)
def test_a_field_of_another_name_is_answered_with_the_right_one(server: Running, path, body, fix):
    answer = server.ask(path, body)
    assert answer.status == 422, answer
    assert answer.body["error"]["fix"] == fix


def test_a_model_without_attention_offers_what_it_has(serve, classifiers):
    clf = gf.TextClassifier("textcnn", d_model=7, embedding_dim=5, min_count=1, epochs=1, threads=1)
    clf.fit(TEXTS, ["good", "bad"] * 20)
    running = serve(others={"plain": clf})
    try:
        (about,) = [m for m in running.ask("/v1/models").body["models"] if m["name"] == "plain"]
        assert about["methods"] == ["occlusion", "gradient_x_input", "integrated_gradients", "shapley"]
        assert (about["layers"], about["heads"], about["channels"]) == (None, None, None)
        answer = running.ask("/v1/explain", {"text": "a dull film", "model": "plain"})
        assert (answer.status, answer.body["method"]) == (200, "occlusion")
        refused = running.ask("/v1/explain", {"text": "a", "model": "plain", "method": "rollout"})
        assert refused.status == 422
        assert "Use occlusion" in refused.body["error"]["fix"]
        (pictures,) = [m for m in running.ask("/v1/models").body["models"] if m["kind"] == "image"]
        assert pictures["channels"] == 3  # the page opens its pad white
    finally:
        running.stop()


def test_the_temperatures_of_several_labels_stand_beside_the_one_number(serve):
    clf = gf.TextClassifier("textcnn", d_model=7, embedding_dim=5, min_count=1, epochs=1, threads=1)
    clf.fit(TEXTS, [("good", "long"), ("bad",)] * 20)
    clf.temperature_, clf.threshold_ = np.array([1.5, 0.75, 2.0]), np.array([0.25, 0.5, 0.125])
    running = serve(others={"several": clf})
    try:
        models = {m["name"]: m for m in running.ask("/v1/models").body["models"]}
        about = models["several"]
        assert (about["temperature"], about["temperatures"]) == (1.0, [1.5, 0.75, 2.0])
        assert about["threshold"] == [0.25, 0.5, 0.125]
        assert (models["films"]["temperature"], models["films"]["temperatures"]) == (1.5, None)
        asked = running.ask("/v1/predict", {"texts": TEXTS[:5], "model": "several"})
        np.testing.assert_allclose(shares(asked), clf.predict_proba(TEXTS[:5]), atol=1e-5)
    finally:
        running.stop()


def test_thresholds_of_classes_and_abstaining_are_served(serve):
    clf = gf.TextClassifier("textcnn", d_model=7, embedding_dim=5, min_count=1, epochs=1, threads=1)
    clf.fit(TEXTS, [f"kind {i % 3}" for i in range(40)])
    clf.threshold_ = np.array([0.25, 0.5, 0.25])
    sure = clf.kind_.confidence(p := clf.predict_proba(TEXTS), clf.predicted_index(p))
    clf.abstain_below_ = float(np.median(sure))
    running = serve(others={"three": clf})
    try:
        models = {m["name"]: m for m in running.ask("/v1/models").body["models"]}
        about = models["three"]
        assert (about["threshold"], about["abstain_below"]) == ([0.25, 0.5, 0.25], clf.abstain_below_)
        assert models["films"]["abstain_below"] is None
        asked = running.ask("/v1/predict", {"texts": TEXTS, "model": "three"})
        found = asked.body["predictions"]
        assert [x["label"] for x in found] == clf.decide(p).tolist()
        assert [x.get("abstains", False) for x in found] == [a is None for a in clf.predict(TEXTS)]
        assert 0 < sum(x.get("abstains", False) for x in found) < len(found)
    finally:
        running.stop()


def test_a_body_of_no_stated_type_is_told_which(server: Running):
    answer = server.ask("/v1/predict", b'{"texts": ["a"]}', content_type="text/plain")
    assert answer.status == 422
    assert "content-type: application/json" in answer.body["error"]["fix"]
    assert "in UTF-8" in server.ask("/v1/predict", b'"\xff"').body["error"]["fix"]


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
    named = {path: call["operationId"] for path, calls in paths.items() for call in calls.values()}
    assert {path: named[path] for path in ("/v1/predict", "/v1/explain", "/v1/models")} == {
        "/v1/predict": "predict",
        "/v1/explain": "explain",
        "/v1/models": "models",
    }
    assert paths["/v1/predict"]["post"]["responses"].keys() >= {"200", "413", "422", "429", "503"}


def test_a_model_bears_a_name_as_long_as_its_folder_can_have(serve, classifiers):
    name = "n" * 255
    running = serve(others={name: classifiers[0]})
    try:
        found = running.ask("/v1/predict", {"texts": TEXTS[:3], "model": name})
        assert (found.status, found.body["model"]) == (200, name)
        assert running.ask("/v1/predict", {"texts": TEXTS[:3], "model": name + "n"}).status == 422
    finally:
        running.stop()


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
    running = Running(load_models(runs, Limits(), threads=1), Limits())
    try:
        films, seen, odd = running.ask("/v1/models").body["models"]
    finally:
        running.stop()
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
