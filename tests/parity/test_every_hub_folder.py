"""Every verb on every kind of folder that the Hub has: the answer of ``transformers``, or one clear line.

A new family, head or verb fails here until the table says what it does.
"""

import base64
import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import typer.main
from PIL import Image
from tests.cli.every import call, leaves
from tests.parity.hub_folders import CLASSES, HEADS, KINDS, SENTENCES, TAGS, made_as, make
from transformers import AutoModel, AutoTokenizer

import glassformer as gf
from glassformer.cli.app import build_app
from glassformer.errors import InputError
from glassformer.families import FAMILIES

pytestmark = pytest.mark.slow  # 683 cells
transformers.logging.set_verbosity_error()
A, B = "a warm film .", "where is oslo in the dull plot"
QUESTION, CONTEXT = "where is oslo ?", "oslo is in the dull plot ."
TEXTS = "a warm film .", "a dull film", "where is oslo in the dull bad plot ?", "funny"
NEAR = {"rel": 2e-4, "abs": 2e-5}
FIRST = [kind for kind in KINDS if kind[0] in ("bert", "vit")] + [SENTENCES]


def what_of(family: str, head: str) -> str:
    """What a folder's model gives."""
    if head == "sentences":
        return "vectors"
    what = HEADS[head]
    return f"image {what}" if FAMILIES[family].model.reads == "images" else what


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Callable[[str, str], Path]:
    made: dict[tuple[str, str], Path] = {}

    def of(family: str, head: str) -> Path:
        if (family, head) not in made:
            made[family, head] = make(tmp_path_factory.mktemp("hub"), family, head)
        return made[family, head]

    return of


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("data")
    rows = [f"{TEXTS[i % 3]} {i},{CLASSES[i % 2]}\n" for i in range(24)]
    (home / "texts.csv").write_text("text,label\n" + "".join(rows))
    for label, i in product(CLASSES[:2], range(6)):
        (home / "images" / label).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i + 9 * (label == "bad")).integers(0, 255, (9, 8, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(home / "images" / label / f"{i}.png")
    return home


# --- what transformers answers ------------------------------------------------------------------------


def peer(folder: Path, family: str, head: str) -> Any:
    return getattr(transformers, made_as(family, head)).from_pretrained(folder).eval()


@torch.no_grad()
def outputs(folder: Path, family: str, head: str, *texts: str, **options: Any) -> tuple[Any, Any]:
    """The model's output on one text or pair, and the encoding."""
    batch = AutoTokenizer.from_pretrained(folder)(
        *texts, return_tensors="pt", return_offsets_mapping=True, **options
    )
    offsets = batch.pop("offset_mapping")[0].tolist()
    return peer(folder, family, head)(**batch), (batch, offsets)


@pytest.fixture(autouse=True)
def in_fp32(monkeypatch):
    """As transformers computes, also where ``auto`` would be bf16."""
    monkeypatch.setattr("glassformer.runtime.has_fast_bf16", lambda device: False)


@torch.no_grad()
def mean_vector(folder: Path, text: str) -> np.ndarray:
    """The mean over all tokens of the last layer, at length 1."""
    batch = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    mean = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state[0].mean(0).numpy()
    return mean / np.linalg.norm(mean)


def told(*words: Any) -> Any:
    done = call(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


# --- right answers of every family --------------------------------------------------------------------


def of_what(*wanted: str) -> list[tuple[str, str]]:
    return [kind for kind in [*KINDS, SENTENCES] if what_of(*kind) in wanted]


@pytest.mark.parametrize("kind", of_what("classes"), ids="-".join)
def test_classes_have_their_probabilities(kind, folder):
    logits = outputs(folder(*kind), *kind, A)[0].logits[0]
    wanted = dict(zip(CLASSES, logits.softmax(0).tolist(), strict=True))
    found = told("predict", folder(*kind), A)
    own = dict(zip(found["classes"], found["answers"][0]["probabilities"], strict=True))
    assert own == pytest.approx(wanted, **NEAR)
    assert found["answers"][0]["label"] == max(wanted, key=wanted.get)  # type: ignore[arg-type]  # all are there
    (explained,) = told("explain", folder(*kind), A)
    assert (explained["label"], explained["probability"]) == (
        found["answers"][0]["label"],
        pytest.approx(max(wanted.values()), **NEAR),
    )


@pytest.mark.parametrize("kind", of_what("tags"), ids="-".join)
def test_words_have_their_tags(kind, folder):
    out, (_, offsets) = outputs(folder(*kind), *kind, A)
    words, start = A.split(), 0
    rows = []
    for word in words:
        at = A.index(word, start)
        rows.append(next(i for i, (a, b) in enumerate(offsets) if b > at and b > a))
        start = at + len(word)
    wanted = out.logits[0][rows].softmax(-1).numpy()
    tagger = gf.load(folder(*kind)).set_params(precision="fp32")
    assert tagger.classes_.tolist() == list(TAGS)
    np.testing.assert_allclose(tagger.predict_proba([words])[0], wanted, atol=2e-5)
    (found,) = told("predict", folder(*kind), A)
    assert (found["words"], found["tags"]) == (words, tagger.predict([words])[0])
    likeliest = [TAGS[i] for i in wanted.argmax(1)]
    assert [tag.replace("B-", "I-") for tag in found["tags"]] == [
        tag.replace("B-", "I-") for tag in likeliest
    ]


@pytest.mark.parametrize("kind", of_what("answers"), ids="-".join)
def test_questions_have_their_best_span(kind, folder):
    out, (batch, offsets) = outputs(folder(*kind), *kind, QUESTION, CONTEXT)
    sides = batch.sequence_ids(0)
    begin, end = out.start_logits[0].tolist(), out.end_logits[0].tolist()
    inside = [i for i, (side, (a, b)) in enumerate(zip(sides, offsets, strict=True)) if side == 1 and b > a]
    pairs = [(i, j) for i in inside for j in inside if i <= j < i + 30]
    first, last = max(pairs, key=lambda pair: begin[pair[0]] + end[pair[1]])
    (found,) = told("predict", folder(*kind), QUESTION, CONTEXT)
    assert found["score"] == pytest.approx(begin[first] + end[last], **NEAR)
    assert found["answer"].strip() == CONTEXT[offsets[first][0] : offsets[last][1]].strip()


@pytest.mark.parametrize("kind", of_what("masked words"), ids="-".join)
def test_hidden_words_are_guessed(kind, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder(*kind))
    text = f"a {tokenizer.mask_token} film"
    out, (batch, _) = outputs(folder(*kind), *kind, text)
    place = int((batch["input_ids"][0] == tokenizer.mask_token_id).nonzero())
    logits = (out.prediction_logits if "pretraining" in kind else out.logits)[0, place]
    logits[tokenizer.all_special_ids] = -torch.inf  # no word
    best = logits.softmax(0).topk(5)
    (found,) = told("fill", folder(*kind), text)
    assert [one["probability"] for one in found["masks"][0]] == pytest.approx(best.values.tolist(), **NEAR)
    names = [tokenizer.decode([i]).strip() for i in best.indices.tolist()]
    words = [one["word"].strip() for one in found["masks"][0]]
    # The others are a byte of a letter, or blank.
    whole = [i for i, name in enumerate(names) if name and "\ufffd" not in name]
    assert whole
    assert [words[i] for i in whole] == [names[i] for i in whole]


@pytest.mark.parametrize(
    "kind", of_what("encoder", "classes", "tags", "masked words", "answers", "vectors"), ids="-".join
)
def test_texts_are_compared_by_the_mean_of_their_tokens(kind, folder):
    wanted = float(mean_vector(folder(*kind), A) @ mean_vector(folder(*kind), B))
    found = told("similar", A, B, "--model", folder(*kind))
    assert found["cosine"] == pytest.approx(wanted, abs=2e-5)


def test_vectors_are_those_of_sentence_transformers(folder, tmp_path):
    package = pytest.importorskip("sentence_transformers")
    wanted = package.SentenceTransformer(str(folder(*SENTENCES)), device="cpu").encode(list(TEXTS))
    assert call("embed", folder(*SENTENCES), *TEXTS, "--out", tmp_path / "v.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=2e-5)
    np.testing.assert_allclose(gf.load(folder(*SENTENCES)).encode(list(TEXTS)), wanted, atol=2e-5)


def test_vectors_of_a_classifier_are_what_its_head_reads(folder, tmp_path, data):
    place = folder("bert", "classification")
    with torch.no_grad():
        batch = AutoTokenizer.from_pretrained(place)(A, return_tensors="pt")
        wanted = peer(place, "bert", "classification").bert(**batch).pooler_output.numpy()
    assert call("embed", place, A, "--out", tmp_path / "v.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=2e-5)


@pytest.mark.parametrize("kind", of_what("image classes"), ids="-".join)
def test_images_have_their_probabilities(kind, folder, data, tmp_path):
    place, file = folder(*kind), data / "images" / "good" / "0.png"
    processor = transformers.AutoImageProcessor.from_pretrained(place)
    with torch.no_grad():
        batch = processor(Image.open(file).convert("RGB"), return_tensors="pt")
        out = peer(place, *kind)(**batch, output_hidden_states=True)
    wanted = dict(zip(CLASSES, out.logits[0].softmax(0).tolist(), strict=True))
    found = told("predict", place, file)
    assert dict(zip(found["classes"], found["answers"][0]["probabilities"], strict=True)) == pytest.approx(
        wanted, **NEAR
    )
    assert call("embed", place, file, "--out", tmp_path / "v.npy").code == 0
    parts = 2 if FAMILIES[kind[0]].hub.pooling == "first-mean" else 1
    assert np.load(tmp_path / "v.npy").shape == (1, parts * out.hidden_states[-1].shape[-1])


# --- every verb ---------------------------------------------------------------------------------------

Cell = Callable[[str, Path, Path, Path], list[Any]]


def example(what: str, data: Path) -> list[Any]:
    if what.startswith("image"):
        return [data / "images" / "good" / "0.png"]
    return [QUESTION, CONTEXT] if what == "answers" else [A]


def labeled(what: str, data: Path) -> Path:
    return data / ("images" if what.startswith("image") else "texts.csv")


def train(what: str, folder: Path, data: Path, tmp: Path) -> list[Any]:
    source = ["--images", data / "images"] if what.startswith("image") else ["--text", data / "texts.csv"]
    keys = ("epochs=1", "baselines=false", "bootstrap=7", "threads=1", f"model={folder}", "precision=fp32")
    return ["train", *source, "--out", tmp / "run", *(word for key in keys for word in ("--set", key))]


CALLS: dict[str, Cell] = {
    "train": train,
    "new": lambda what, folder, data, tmp: ["new", tmp / "new.toml", folder],
    "evaluate": lambda what, folder, data, tmp: ["evaluate", folder],
    "predict": lambda what, folder, data, tmp: ["predict", folder, *example(what, data)],
    "calibrate": lambda what, folder, data, tmp: ["calibrate", folder],
    "compare": lambda what, folder, data, tmp: ["compare", folder, folder],
    "audit": lambda what, folder, data, tmp: ["audit", folder, labeled(what, data), "--out", tmp / "audit"],
    "diff": lambda what, folder, data, tmp: ["diff", folder, folder, labeled(what, data)],
    "cross-validate": lambda what, folder, data, tmp: ["cross-validate", folder],
    "review-labels": lambda what, folder, data, tmp: ["review-labels", folder],
    "report": lambda what, folder, data, tmp: ["report", folder],
    "vectors": lambda what, folder, data, tmp: ["vectors", folder, "film"],
    "translate": lambda what, folder, data, tmp: ["translate", folder, A],
    "embed": lambda what, folder, data, tmp: ["embed", folder, *example(what, data), "--out", tmp / "v.npy"],
    "similar": lambda what, folder, data, tmp: ["similar", A, B, "--model", folder],
    "search": lambda what, folder, data, tmp: ["search", folder, data / "texts.csv", A],
    "fill": lambda what, folder, data, tmp: ["fill", folder, "a [MASK] film"],
    "explain": lambda what, folder, data, tmp: [
        "explain",
        folder,
        *(example(what, data) if what != "vectors" else (A, B)),
    ],
    "export": lambda what, folder, data, tmp: [
        "export",
        folder,
        "--to",
        "hf",
        "--out",
        tmp / "out",
        "--check",
        3,
    ],
    "prove": lambda what, folder, data, tmp: ["prove", folder, "--out", tmp / "proof.json"],
    "serve": lambda what, folder, data, tmp: ["serve", folder],
    "data show": lambda what, folder, data, tmp: ["data", "show", folder],
    "data doctor": lambda what, folder, data, tmp: ["data", "doctor", folder],
    "doctor": lambda what, folder, data, tmp: ["doctor", folder],
}
WITHOUT_FOLDER = ("demo", "reproduce", "recipes", "data list")
WHATS = ("encoder", "classes", "tags", "masked words", "answers", "vectors", "image encoder", "image classes")


def every(said: str, **other: str | None) -> dict[str, str]:
    """The same line for every kind but those that are named; None: it works."""
    return {what: line for what in WHATS if (line := other.get(what.replace(" ", "_"), said)) is not None}


NO_RUN = every("is not a run folder: it has no config.toml")
NO_HEAD = "the model has no head for classes. Open it with load_pretrained, or fine-tune it with"
NO_DATA = every("is a saved model, not data. To inspect the model: glassformer doctor")
NOT_EXAMINED = every(
    "but this command is for classifiers and regressors",
    classes=None,
    image_classes=None,
    encoder=NO_HEAD,
    image_encoder=NO_HEAD,
)
# Verb -> kind -> the line with which it ends; a kind that is not named works.
ENDS: dict[str, dict[str, str]] = {
    "train": {},
    "new": every("is a saved model, not data"),
    "evaluate": NO_RUN,
    "predict": {
        "encoder": NO_HEAD,
        "image encoder": NO_HEAD,
        "masked words": "contains a MaskedLM, which predicts no labels. Use glassformer fill",
        "vectors": "contains an Embedder, which predicts no labels. Use glassformer similar",
    },
    "calibrate": NO_RUN,
    "compare": NO_RUN,
    "audit": NOT_EXAMINED,
    "diff": NOT_EXAMINED,
    "cross-validate": NO_DATA,
    "review-labels": NO_DATA,
    "report": every(
        "there is nothing to report: the folder has none of results.json, metrics.json, review.json"
    ),
    "vectors": every("has no word vectors"),
    "translate": every(
        "which cannot translate. Name a run of a Translator", encoder=NO_HEAD, image_encoder=NO_HEAD
    ),
    "embed": {
        "encoder": "has no modules.json, which defines the sentence embedding",
        "tags": "a TokenTagger, which cannot embed texts",
        "answers": "a QuestionAnswerer, which cannot embed texts",
        "masked words": "a MaskedLM, which cannot embed texts",
        "image encoder": "cannot embed texts",
    },
    "similar": {"image encoder": "is not an encoder of texts", "image classes": "is not an encoder of texts"},
    "search": {"image encoder": "is not an encoder of texts", "image classes": "is not an encoder of texts"},
    "fill": every(
        "which cannot fill. Name a run of a MaskedLM",
        masked_words=None,
        encoder=NO_HEAD,
        image_encoder=NO_HEAD,
    ),
    "explain": {
        "encoder": NO_HEAD,
        "image encoder": NO_HEAD,
        "masked words": "contains a MaskedLM, which does not predict labels. Use glassformer fill",
    },
    "export": {
        "encoder": NO_HEAD,
        "image encoder": NO_HEAD,
        "masked words": "contains a MaskedLM; only classifiers, regressors, taggers, question answerers and embedders can be exported",
    },
    "prove": {},
    "serve": {
        "encoder": NO_HEAD,
        "image encoder": NO_HEAD,
        "masked words": "question answerers can be served",
    },
    "data show": NO_DATA,
    "data doctor": NO_DATA,
    "doctor": {},
}


def test_every_verb_and_every_kind_has_its_place():
    assert {name for name, _ in leaves(typer.main.get_command(build_app()))} == {*CALLS, *WITHOUT_FOLDER}
    assert ENDS.keys() == CALLS.keys()
    assert {what_of(*kind) for kind in [*KINDS, SENTENCES]} == {*WHATS}


def check(verb: str, kind: tuple[str, str], folder: Path, data: Path, tmp: Path, monkeypatch: Any) -> None:
    what = what_of(*kind)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    started: list[Any] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda self, **options: started.append(options))
    monkeypatch.chdir(tmp)
    done = call(*CALLS[verb](what, folder, data, tmp))
    said = ENDS[verb].get(what)
    assert "Traceback" not in done.err
    assert "run with --debug" not in done.err
    if said is None:
        assert done.code == 0, done.err
        assert bool(started) == (verb == "serve")
    else:
        assert done.code == 2
        assert said in done.err
        assert sum(line.startswith("error: ") for line in done.err.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("kind", FIRST, ids="-".join)
def test_it_works_or_says_in_one_line_what_to_do(verb, kind, folder, data, tmp_path, monkeypatch):
    check(verb, kind, folder(*kind), data, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FIRST], ids="-".join)
def test_so_do_the_other_families(verb, kind, folder, data, tmp_path, monkeypatch):
    check(verb, kind, folder(*kind), data, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", of_what("classes", "tags", "answers", "vectors"), ids="-".join)
def test_all_that_can_be_is_exported_to_onnx(kind, folder, tmp_path):
    pytest.importorskip("onnxruntime")
    done = call("export", folder(*kind), "--to", "onnx", "--out", tmp_path / "out", "--check", 3)
    assert (done.code, "run.py runs it without glassformer" in done.out) == (0, True), done.err


# --- the server ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [kind for kind in FIRST if what_of(*kind) not in ENDS["serve"]], ids="-".join
)
def test_the_server_answers_as_the_model(kind, folder, data):
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    ((served, calibrated),) = load_models([folder(*kind)], Limits(), threads=1, precision="fp32")
    model, what = gf.load(folder(*kind)).set_params(precision="fp32"), what_of(*kind)
    assert not calibrated
    if what == "image classes":
        file = data / "images" / "good" / "0.png"
        content = io.BytesIO(file.read_bytes()).getvalue()
        items = [
            served.inputs.decode(
                served.inputs.open_base64(base64.b64encode(content).decode(), "images[0]")[0], "images[0]"
            )
        ]
        (found,) = served.response(items, served.compute(items))["predictions"]
        assert list(found["probabilities"].values()) == pytest.approx(
            model.predict_proba([file])[0].tolist(), **NEAR
        )
        return
    items = served.prepare([(QUESTION, CONTEXT)] if what == "answers" else [A])
    answers = served.check_outputs(served.compute(items))
    if what == "classes":
        (found,) = served.response(items, answers)["predictions"]
        assert list(found["probabilities"].values()) == pytest.approx(
            model.predict_proba([A])[0].tolist(), **NEAR
        )
    elif what == "tags":
        assert served.response(items, answers)["sentences"][0]["tags"] == model.predict([A])[0]
    elif what == "answers":
        assert (
            served.response(items, answers)["answers"][0]["answer"] == model.predict([(QUESTION, CONTEXT)])[0]
        )
    else:
        np.testing.assert_allclose(answers, model.encode([A]), atol=2e-5)


def test_what_cannot_be_opened_says_so_in_python_too(folder):
    for family, head in (("bert", "None"), ("vit", "None")):
        with pytest.raises(InputError, match="without a head for classes"):
            gf.load(folder(family, head))
