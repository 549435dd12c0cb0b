"""``QuestionAnswerer``: what it learns, answers, keeps and refuses. The texts are generated."""

import copy
import csv
import io
import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.cli.predictions import Answers as Predicted
from glassformer.cli.predictions import Writer
from glassformer.data.batching import pack_texts
from glassformer.data.questions import Answers, check_answers, check_questions
from glassformer.data.text import TokenTable, row_starts
from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import extend_over_accents
from glassformer.data.windows import QuestionWindows
from glassformer.errors import CheckpointError, ConfigError, DataError, InputError
from glassformer.inputs.questions import Questions
from glassformer.inputs.rows import InputRequest, Row, detect_layout
from glassformer.targets.answer_span import answer_metrics
from glassformer.tasks.task import TINY
from glassformer.train.objectives import AnswerSpans

PEOPLE, CITIES = ("Ann", "Bo", "Cleo", "Dan"), ("Rome", "New York", "Oslo")


def facts(none: bool = False) -> tuple[list[tuple[str, str]], list[dict | None]]:
    """Where somebody lives stands in the text behind the name; with ``none`` of a third it does not."""
    X, y = [], []
    for i in range(24):
        person, city = PEOPLE[i % 4], CITIES[i % 3]
        if none and i % 3 == 2:
            X.append((f"where does {person} live ?", f"{person} has a dog ."))
            y.append(None)
            continue
        context = f"{person} lives in {city} now ."
        X.append((f"where does {person} live ?", context))
        y.append({"text": [city], "answer_start": [context.index(city)]})
    return X, y


SETTINGS = {**TINY, "max_length": 19, "min_count": 1, "epochs": 30, "lr": 0.02, "batch_size": 5}


@pytest.fixture(scope="module")
def model() -> gf.QuestionAnswerer:
    X, y = facts(none=True)
    return gf.QuestionAnswerer("encoder-mini", **SETTINGS).fit(X, y, validation=(X[:6], y[:6]))


def test_it_learns_answers_says_where_they_stand_and_when_there_is_none(model, tmp_path):
    X, y = facts(none=True)
    assert model.predict(X) == [own["text"][0] if own else "" for own in y]
    assert model.score(X, y) == 1.0
    ((best, second),) = model.answers([("where does Bo live ?", "Bo lives in New York now .")], n_best=2)
    assert (best.text, best.start, best.end) == ("New York", 12, 20)
    assert 1 >= best.probability > second.probability > 0
    (none,) = model.answers([{"question": "where does Bo live ?", "context": "Bo has a dog ."}])[0]
    assert (none.text, none.start, none.end) == ("", 0, 0)
    assert isinstance(model.threshold_, float)
    folder = model.save(tmp_path / "model")
    assert json.loads((folder / "glassformer.json").read_text())["kind"] == "TextAnswerer"  # the old name
    assert gf.TextAnswerer is gf.QuestionAnswerer
    again = gf.load(folder)
    assert again.answers(X, 3) == model.answers(X, 3)
    assert (again.threshold_, again.length_) == (model.threshold_, 19)
    model.set_params(precision="bf16")
    try:
        assert model.score(X, y) > 0.9
    finally:
        model.set_params(precision="fp32")


def test_an_answer_does_not_depend_on_the_company(model):
    X, _ = facts(none=True)
    alone = [model.outputs([x])[0] for x in X[:4]]
    for a, b in zip(alone, model.outputs(X)[:4], strict=True):
        assert [span[1:] for span in a.spans[:3]] == [span[1:] for span in b.spans[:3]]
        assert np.abs(np.array([s for s, _, _ in a.spans]) - [s for s, _, _ in b.spans]).max() < 1e-5
        assert a.null == pytest.approx(b.null, abs=1e-5)


def test_packed_is_padded_and_every_parameter_learns(model):
    X, y = facts(none=True)
    rows = model.encode(check_questions(X[:3]))
    batch = pack_texts(rows.table, np.arange(len(rows.table)))
    packed = model.model_(batch.ids, token_type_ids=batch.segments, packing=batch.packing).logits
    longest = int(rows.table.lengths.max())
    ids, mask, kinds = torch.zeros(3, len(rows.table), longest, dtype=torch.long)
    for i in range(len(rows.table)):
        own = slice(*rows.table.starts[i : i + 2].tolist())
        n = own.stop - own.start
        ids[i, :n], mask[i, :n] = torch.from_numpy(rows.table.ids[own].astype(np.int64)), 1
        kinds[i, :n] = torch.from_numpy(rows.table.segments[own].astype(np.int64))
    assert (model.model_(ids, mask, kinds).logits[mask.bool()] - packed).abs().max() < 1e-5
    network = copy.deepcopy(model.model_)  # in evaluation mode: nothing is dropped
    targets = rows.targets(check_answers(y[:3], check_questions(X[:3])))
    out = AnswerSpans(targets)(network, batch)
    logits = network(ids, mask, kinds).logits.where(mask.bool()[..., None], -1e9)
    wanted = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets), reduction="sum") / 2
    assert out.loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    out.loss.backward()
    assert [n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()] == []


def test_a_long_context_is_read_in_windows(model):
    filler = "a dog has a dog . " * 9
    context = f"{filler}Cleo lives in New York now . {filler}"
    (question,) = check_questions([("where does Cleo live ?", context)])
    rows = model.encode([question])
    assert len(rows.table) > 3
    assert rows.table.lengths.max() == 19
    start = context.index("New York")
    targets = rows.targets([Answers(("New York",), (start,))])
    inside = np.flatnonzero(targets.any(1))
    assert len(inside) >= 1
    window = rows.table.starts[inside[0]]
    first, last = rows.offsets[window + targets[inside[0]]]
    assert (first[0], last[1]) == (start, start + 8)
    assert model.predict([question]) == ["New York"]
    covered = {i for a, b in rows.offsets[rows.sides == 1] for i in range(a, b)}
    assert covered >= {i for i, letter in enumerate(context) if letter != " "}


@pytest.mark.parametrize("method", "integrated_gradients occlusion gradient_x_input gim rollout".split())
def test_an_answer_is_explained_over_question_and_context(model, method):
    e = model.explain(("where does Ann live ?", "Ann lives in Rome now ."), method=method)
    assert e.label == "Rome"
    assert [word for word, _ in e.words_of(0)] == ["where", "does", "Ann", "live", "?"]
    assert [word for word, _ in e.words_of(1)] == ["Ann", "lives", "in", "Rome", "now", "."]
    if method == "integrated_gradients":
        assert e.error < 2e-2
    if method == "occlusion":
        assert max(e.words(), key=lambda pair: pair[1])[0] in ("Rome", "lives", "in", "where", "live")
        assert model.explain(e.text.split("\n"), method=method, target="no answer").target == "no answer"


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([("q", "a b"), ("q", "")], ["a", "b"], r"questions\[1\]: the context is empty"),
        ([("q", "a b"), ("q",)], ["a", "b"], r"questions\[1\]: not a question with its context"),
        ([{"question": "q"}], ["a"], "no 'context'"),
        ("text", ["a"], "a str is not a list of questions"),
        ([("q", "a b")], ["c"], r"answers\[0\]: the answer 'c' is not in the context"),
        ([("q", "a b a")], ["a"], "occurs 2 times in the context"),
        (
            [("q", "a b")],
            [{"text": ["b"], "answer_start": [1]}],
            "is not at character 1.*first occurs at 2",
        ),
        ([("q", "a b")], [{"text": ["b"], "answer_start": []}], "1 answer and 0 positions"),
        ([("q", "a b")], None, "the answers are missing"),
        ([("q", "a b")], [None], "no question has an answer"),
        ([("q", "a b")], ["a", "b"], "1 question and 2 answers"),
    ],
)
def test_what_cannot_be_used_is_named(X, y, said):
    with pytest.raises(DataError, match=said):
        gf.QuestionAnswerer("encoder-mini", **SETTINGS).fit(X, y)


@pytest.mark.parametrize(
    ("context", "answer", "places"),
    [
        ("Oslofjord and Oslo", "Oslo", [14]),  # whole words first
        ("His nan lives there.", "nan", [4]),  # of a table, where an empty cell is NaN too
        *((context, "nan", []) for context in ("Nobody knows.", "in finance", "Bananas", "nan or nan")),
    ],
)
def test_where_an_answer_stands(context, answer, places):
    found = check_answers([answer], check_questions([("who ?", context)]))
    assert found == [Answers((answer,) * len(places), tuple(places))]


def test_what_cannot_be_asked_is_said_in_a_line(model, tmp_path):
    with pytest.raises(InputError, match="n_best = 0"):
        model.answers([("q", "c")], n_best=0)
    with pytest.raises(InputError, match="unknown method"):
        model.explain(("q", "c"), method="lime")
    with pytest.raises(ConfigError, match="'lstm' is not a Transformer"):
        gf.QuestionAnswerer("lstm", max_length=19, min_count=1).fit(*facts())
    model.save(tmp_path / "m")
    about = json.loads((tmp_path / "m" / "glassformer.json").read_text())
    with pytest.raises(CheckpointError, match="threshold = 'x' is not a number"):
        model.restore(tmp_path / "m", about | {"threshold": "x"})


def test_a_folder_of_transformers_is_opened_and_opens_ours(tmp_path):
    transformers = pytest.importorskip("transformers")
    X, y = facts()
    base = gf.MaskedLM(**TINY, max_length=16, min_count=1, vocab_size=90, max_positions=29)
    base.fit([" ".join(x) for x in X]).save(tmp_path / "base")
    given = {k: SETTINGS[k] for k in ("epochs", "lr", "batch_size", "seed", "precision", "threads")}
    ours = gf.QuestionAnswerer(str(tmp_path / "base"), **given | {"epochs": 2}).fit(X, y)
    assert ours.threshold_ is None  # every question has an answer: it always gives one
    assert all(ours.predict(X))
    ours.save(tmp_path / "ours")
    peer = transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "ours").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    read = tokenizer(*X[0], return_tensors="pt")
    rows = ours.encode(check_questions(X[:1]))
    assert read["input_ids"][0].tolist() == rows.table.ids.tolist()
    assert read["token_type_ids"][0].tolist() == rows.table.segments.tolist()
    with torch.no_grad():
        theirs = peer(**read)
    own = ours.token_logits(ours.model_, rows, torch.device("cpu"))
    assert np.abs(own[:, 0] - theirs.start_logits[0].numpy()).max() <= 1e-5
    assert np.abs(own[:, 1] - theirs.end_logits[0].numpy()).max() <= 1e-5
    peer.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    again = gf.load(tmp_path / "theirs").set_params(precision="fp32")
    assert type(again) is gf.QuestionAnswerer
    assert again.predict(X) == ours.predict(X)
    tuned = gf.QuestionAnswerer(str(tmp_path / "theirs"), **given | {"lr": 1e-6, "epochs": 1}).fit(X, y)
    assert "new (random)" not in tuned.weights_source_  # its head is kept


# --- what tokenizers drop ---------------------------------------------------------------------------


def test_places_of_what_is_dropped():
    text = "\u200fBogota\u0301\u0323 Paris\u200b y\u0301"
    found = extend_over_accents(text, [(1, 4), (4, 7), (7, 7), (10, 15), (17, 18)])
    assert [text[a:b] for a, b in found] == ["Bog", "ota\u0301\u0323", "", "Paris", "y\u0301"]
    assert extend_over_accents("a b", [(0, 1), (2, 3)]) == [(0, 1), (2, 3)]
    assert extend_over_accents("ab", [(0, 2), (0, 1)]) == [(0, 2), (0, 1)]
    assert extend_over_accents("a\u0301", [(0, 1), (1, 2)]) == [(0, 1), (1, 2)]
    assert extend_over_accents("\u0301", []) == []
    # an answer between what is dropped has its place in the first and the last window
    table = TokenTable(np.arange(6, dtype=np.int32), row_starts(np.array([3, 3])), None, np.zeros(2, bool))
    sides = np.array([-1, 1, 1, -1, 1, 1], np.int8)
    offsets = np.array([(0, 0), (1, 4), (5, 8), (0, 0), (5, 8), (9, 12)], np.int32)
    rows = QuestionWindows(table, np.array([0, 0]), sides, offsets)
    text = "-one two six-"
    for answer, wanted in (("-one", [[1, 1], [0, 0]]), ("six-", [[0, 0], [2, 2]]), ("two", [[2, 2], [1, 1]])):
        found = rows.targets([Answers((answer,), (text.index(answer),))])
        assert found.tolist() == wanted


def test_answers_in_decomposed_letters_are_learned_and_given_whole(tmp_path):
    cities = ("Bogota\u0301", "Para\u0301", "Macapa\u0301")
    X = [
        (f"where does {PEOPLE[i % 4]} live ?", f"{PEOPLE[i % 4]} lives in {cities[i % 3]}") for i in range(24)
    ]
    y = [cities[i % 3] for i in range(24)]
    model = gf.QuestionAnswerer("encoder-mini", **SETTINGS, strip_accents=True).fit(X, y)
    assert model.predict(X) == y
    assert model.score(X, y) == 1.0


def written(rows: list[Row], out: Path, answer: str) -> str:
    """The file of these questions, each with the same answer."""

    class Same(Predicted):
        def predict(self, inputs, progress):
            for q in inputs:
                found = {"question": q.first, "context": q.second, "answer": answer}
                yield found | {"start": 0, "end": 7, "probability": 0.5}

    writer = Writer(Same(SimpleNamespace(NOUN="questions"), detect_layout(rows)), out)
    with writer.open():
        writer.add(rows, lambda done: None)
    return out.read_text()


def test_answers_in_a_table_cannot_be_formulas(tmp_path):
    row = Row(TextPair("=cmd|' /C calc'!A0", "-1+1"), 2)
    line = written([row], tmp_path / "o.csv", "@SUM(1)").splitlines()[1]
    assert line == "2,'=cmd|' /C calc'!A0,'@SUM(1),0,7,0.5,'-1+1,"


def test_contexts_are_told_apart_without_a_table_as_wide_as_the_longest():
    contexts = ["a" * 200_003, *(f"text {i % 7}" for i in range(499))]
    tracemalloc.start()
    found = answer_metrics([Answers()] * 500, [""] * 500, contexts, bootstrap=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["contexts"] == 8
    assert peak < 5e6  # bytes; one of 4 a letter for each question would be 400 million


def test_answers_keep_their_files_and_columns(tmp_path):
    X, _ = facts()
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file in files:
        rows = [
            {"id": f"{file.stem}{i}", "question": x[0], "context": x[1], "answer": "kept"}
            for i, x in enumerate(X[:2])
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    readers = {".csv": lambda text: csv.DictReader(io.StringIO(text))}
    readers[".jsonl"] = lambda text: map(json.loads, text.splitlines())
    for ending, read in readers.items():
        text = written(Questions().rows(InputRequest([*map(str, files)])), tmp_path / f"out{ending}", "x")
        found = [*read(text)]
        places = [(Path(one["file"]).stem, int(one["row"]), one["id"]) for one in found]
        assert places == [("a", 1, "a0"), ("a", 2, "a1"), ("b", 1, "b0"), ("b", 2, "b1")]
        assert {(one["answer"], one["given:answer"]) for one in found} == {("x", "kept")}
    text = written(Questions().rows(InputRequest([*X[0]])), tmp_path / "one.csv", "x")
    assert text.splitlines()[0] == ",".join(Predicted.HEADER)
