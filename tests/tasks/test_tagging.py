"""``TokenTagger``: what it learns, answers, keeps and refuses; its runs from files to report."""

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.commands import as_json, ok, refused
from tests.tables import read_csv

import glassformer as gf
from glassformer.data.tagged import format_conll, load_tagged
from glassformer.errors import CheckpointError, DataError, InputError, MalformedTagsWarning
from glassformer.tasks.task import TINY

NAMES = {"a": ("Ann", "Bo", "Cleo"), "b": ("Rome", "New York", "The Hague")}
FORMS = ("{a} lives in {b} now", "In {b} we met {a}", "{a} and {c} left {b} .", "nobody came")


def sentences(letters: str = "BI") -> tuple[list[list[str]], list[list[str]]]:
    """Whether a name is a person's or a place's is known by the word."""
    X, y = [], []
    for i in range(23):
        words, tags = [], []
        for part in FORMS[i % 4].split():
            kind = "place" if part == "{b}" else "person"
            place = {"{a}": i, "{c}": i + 1, "{b}": i + 2}.get(part)
            name = part if place is None else NAMES["b" if kind == "place" else "a"][place % 3]
            own = name.split()
            for j, word in enumerate(own):
                letter = "BI"[min(j, 1)]
                if letters == "BIES" and j == len(own) - 1:
                    letter = "E" if j else "S"
                words.append(word)
                tags.append("O" if place is None else f"{letter}-{kind}")
        X.append(words)
        y.append(tags)
    return X, y


SETTINGS = {**TINY, "max_length": 17, "min_count": 1, "epochs": 40, "lr": 0.01, "batch_size": 5}


@pytest.fixture(scope="module")
def tagger() -> gf.TokenTagger:
    return gf.TokenTagger("encoder-mini", **SETTINGS).fit(*sentences())


def test_it_learns_names_and_says_where_they_stand(tagger):
    X, y = sentences()
    assert tagger.predict(X) == y
    assert tagger.score(X, y) == 1.0
    assert tagger.classes_.tolist() == ["O", "B-person", "I-person", "B-place", "I-place"]
    (spans,) = tagger.spans(["Ann  lives in New York now"])  # two blanks, which count
    assert [(s.text, s.kind, s.start, s.end, s.first, s.last) for s in spans] == [
        ("Ann", "person", 0, 3, 0, 1),
        ("New York", "place", 14, 22, 3, 5),
    ]
    shares = tagger.predict_proba([["Ann", "lives", "in", "New", "York", "now"]])[0]
    assert shares.shape == (6, 5)
    assert np.allclose(shares.sum(1), 1)
    assert spans[1].probability == pytest.approx(shares[3:5, 3:].sum(1).min())


def test_an_answer_does_not_depend_on_the_company_and_survives_the_folder(tagger, tmp_path):
    X, _ = sentences()
    alone = [tagger.logits([x])[0] for x in X[:5]]
    for a, b in zip(alone, tagger.logits(X)[:5], strict=True):
        assert np.abs(a - b).max() < 1e-5
    again = gf.load(tagger.save(tmp_path / "model"))
    assert again.predict(X) == tagger.predict(X)
    assert (again.scheme_, again.length_, again.repaired_) == ("BIO", 17, 0)


def test_a_long_sentence_is_read_in_windows_and_every_word_is_answered_once(tagger):
    X, y = sentences()
    words, tags = [*itertools.chain(*X)], [*itertools.chain(*y)]
    assert len(words) > 5 * tagger.length_
    found = tagger.predict([words])[0]
    assert len(found) == len(words)
    assert np.mean([a == b for a, b in zip(found, tags, strict=True)]) > 0.9
    rows = tagger.encode([words, X[0]])
    assert rows.table.lengths.max() <= 17
    assert rows.counts.tolist() == [len(words), len(X[0])]
    ids = {word: tagger.tokenizer_.token_to_id(word) for word in words}
    assert None not in ids.values()
    assert rows.table.ids[rows.first].tolist() == [ids[word] for word in (*words, *X[0])]
    assert len(set(rows.first.tolist())) == len(rows.first)


def test_malformed_tags_are_mended_and_counted():
    X, y = sentences()
    bad = [[tag.replace("B-place", "I-place") for tag in own] for own in y]
    count = sum(
        tag == "I-place" and (i == 0 or own[i - 1][2:] != "place") for own in bad for i, tag in enumerate(own)
    )
    tagger = gf.TokenTagger("encoder-mini", **SETTINGS | {"epochs": 1})
    with pytest.warns(MalformedTagsWarning, match=rf"{count} of \d+ tags are malformed BIO"):
        tagger.fit(X, bad)
    assert tagger.repaired_ == count > 5
    assert tagger.classes_.tolist() == ["O", "B-person", "I-person", "B-place", "I-place"]


def test_other_schemes_and_texts_are_taken_as_they_are():
    X, y = sentences("BIES")
    small = SETTINGS | {"epochs": 1}
    recurrent = {k: v for k, v in small.items() if k not in ("num_heads", "d_ff")}
    of_four = gf.TokenTagger("lstm", **recurrent).fit(X, y)
    assert of_four.scheme_ == "BIOES"
    assert {tag[0] for tag in of_four.classes_} == set("OBIES")
    plain = [[tag[2:] or "O" for tag in own] for own in y]
    texts = [" ".join(words) for words in X]
    given = {k: small[k] for k in ("max_length", "min_count", "seed", "threads", "precision", "epochs")}
    tagger = gf.TokenTagger("textcnn", **given).fit(texts, plain, validation=(texts[:3], plain[:3]))
    assert (tagger.scheme_, tagger.classes_.tolist()) == ("plain", ["O", "person", "place"])
    judged = next(r for r in tagger.history_ if r["kind"] == "evaluation")
    assert {"entity_f1", "accuracy", "loss"} <= judged.keys()


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([["a", "b"], []], [["O", "O"], []], r"sentences\[1\]: the sentence has no words"),
        ([["a", "b"], ["c", ""]], [["O", "O"], ["O", "O"]], r"sentences\[1\]: word 2 is empty"),
        ([["a", "b"], ["c"]], [["O", "O"], ["O", "B-x"]], r"tags\[1\]: 1 word and 2 tags"),
        ([["a", "b"]], [["O", None]], r"tags\[0\]: tag 2 is None"),
        ([["a", "b"]], [["O", "O"]], "every word has the tag 'O'"),
        ([["a", "b"]], None, "the tags are missing"),
        ("a text", [["O", "O"]], "one string where a list of sentences is expected"),
        ([["a", 3]], [["O", "B-x"]], "word 2 is 3, not a text"),
        ([["a", "b", "c"]], [["B-x", "I-x", "x"]], "tag 'x' is neither O nor one with B- or I-"),
    ],
)
def test_what_cannot_be_used_is_named(X, y, said):
    with pytest.raises(DataError, match=said):
        gf.TokenTagger("encoder-mini", **SETTINGS).fit(X, y)


# --- why ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["occlusion", "integrated_gradients", "gradient_x_input", "gim", "decomposition", "attention", "rollout"],
)
def test_a_words_tag_is_explained_by_every_method(tagger, method):
    e = tagger.explain(["Ann", "lives", "in", "New", "York"], word="York", method=method)
    assert e.label == "I-place"
    assert len(e.scores) == len(e.tokens) == 7
    assert [word for word, _ in e.words()] == ["Ann", "lives", "in", "New", "York"]
    assert "word 5 of 5, 'York': I-place" in e.notes[0]
    if method == "occlusion":
        assert max(e.words(), key=lambda pair: pair[1])[0] in ("New", "York")
    if method == "attention":
        assert e.scores.sum() == pytest.approx(1, abs=1e-5)  # one row of the last layer
    if method == "integrated_gradients":
        assert e.error < 1e-2


def test_which_word_is_asked_of_and_what_cannot_be(tagger, monkeypatch):
    words = ["In", "Rome", "we", "met", "Ann"]
    assert tagger.explain(words).name == "Rome (B-place)"
    assert tagger.explain(words, word=-1, target="O", method="occlusion").target == "O"
    for asked, said in (
        ({"word": "Paris"}, "no word 'Paris'"),
        ({"word": 7}, "no word 7"),
        ({"method": "lime"}, "unknown method"),
        ({"method": "occlusion", "by": "delete"}, "by=mask"),
    ):
        with pytest.raises(InputError, match=said):
            tagger.explain(words, **asked)
    monkeypatch.setattr(tagger, "temperature_", 3.0)
    judged = tagger.explain(words, trust=True)
    assert judged.trust["deletion"][0] == pytest.approx(judged.probability, abs=1e-3)


# --- folders of others ----------------------------------------------------------------------------


def test_a_folder_of_transformers_becomes_a_tagger_and_back(tagger, tmp_path):
    transformers = pytest.importorskip("transformers")
    settings = {
        k: SETTINGS[k] for k in ("epochs", "lr", "batch_size", "seed", "precision", "threads", "max_length")
    }
    base = gf.MaskedLM(**TINY, max_length=16, min_count=1, vocab_size=90, max_positions=17)
    base.fit([" ".join(x) for x in sentences()[0]]).save(tmp_path / "base")
    ours = gf.TokenTagger(str(tmp_path / "base"), **settings | {"epochs": 2, "max_length": None}).fit(
        *sentences()
    )
    ours.save(tmp_path / "ours")
    peer = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "ours").eval()
    peer.save_pretrained(tmp_path / "theirs")
    ours.tokenizer_.save(str(tmp_path / "theirs" / "tokenizer.json"))
    again = gf.load(tmp_path / "theirs").set_params(precision="fp32")
    assert type(again) is gf.TokenTagger
    assert again.classes_.tolist() == ours.classes_.tolist()
    X, _ = sentences()
    rows = ours.encode(X[:1])
    with torch.no_grad():
        theirs = peer(torch.from_numpy(rows.table.ids.astype(np.int64))[None]).logits[0].numpy()
    assert np.abs(again.logits(X[:1])[0] - theirs[rows.first]).max() <= 1e-5
    about = json.loads((tmp_path / "ours" / "glassformer.json").read_text())
    with pytest.raises(CheckpointError, match="has no head for token classification"):
        ours.restore(tmp_path / "ours", about | {"classes": ["O", "B-x"]})


# --- files and runs -------------------------------------------------------------------------------


def write(folder: Path) -> None:
    X, y = sentences()
    folder.mkdir()
    (folder / "train.conll").write_text(format_conll(X, y), encoding="utf-8")
    rows = [{"tokens": x, "tags": t} for x, t in zip(X[:7], y[:7], strict=True)]
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "test.conll").write_text(format_conll(X[3:9], y[3:9]), encoding="utf-8")


def test_files_of_three_kinds_say_the_same(tmp_path):
    write(tmp_path / "own")
    X, y = sentences()
    data = load_tagged(tmp_path / "own")
    assert {k: len(v) for k, v in data.splits.items()} == {"train": 23, "validation": 7, "test": 6}
    assert (data.splits["train"].words, data.splits["train"].tags) == (X, y)
    assert data.splits["validation"].words == X[:7]
    names = ["O", "B-person", "I-person", "B-place", "I-place"]
    feature = {"names": names, "_type": "ClassLabel"}
    info = {"info": {"features": {"ner_tags": {"feature": feature, "_type": "Sequence"}}}}
    table = pa.table({"tokens": X, "ner_tags": [[names.index(t) for t in own] for own in y]})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(info)}), tmp_path / "x.parquet")
    of_table = load_tagged(tmp_path / "x.parquet").splits["train"]
    assert (of_table.words, of_table.tags) == (X, y)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.conll", "Ann B-x\nRome\n\nok O\n", "line 2: 1 column where the sentence's first word has 2"),
        ("a.conll", "Ann\nRome\n", "line 1: a word without a tag"),
        (
            "a.jsonl",
            '{"tokens": ["a"], "tags": ["O", "O"]}\n{"tokens": ["b"], "tags": ["O"]}',
            "row 1: 1 word and 2 tags",
        ),
        ("a.jsonl", '{"x": ["a"], "y": ["O"]}\n', "no column of words"),
        ("a.xml", "<a/>", "files of type '.xml' are not supported"),
    ],
)
def test_a_faulty_file_is_named_with_its_row_and_can_be_passed_over(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        load_tagged(tmp_path / name)
    if "ok O" in text or '"b"' in text:
        data = load_tagged(tmp_path / name, on_bad_row="skip")
        assert len(data.splits["train"]) == len(data.rejected) == 1


def test_comments_and_documents_of_conll_are_passed_over(tmp_path):
    (tmp_path / "a.conllu").write_text(
        "-DOCSTART- -X- O\n\n# text = Ann left\n1\tAnn\tB-x\n2\tleft\tO\n\n1\t#\tO\n2\t# is\tO\n"
    )
    split = load_tagged(tmp_path / "a.conllu", words_column="2").splits["train"]
    assert split.words == [["Ann", "left"], ["#", "# is"]]
    assert list(split.rows) == [4, 7]
    with pytest.raises(DataError, match="columns of CoNLL have no names"):
        load_tagged(tmp_path / "a.conllu", words_column="tokens")


def test_wnut17_is_what_it_says(data_root):
    data = load_tagged("wnut17")
    assert {name: len(split) for name, split in data.splits.items()} == {
        "train": 3394,
        "validation": 1009,
        "test": 1287,
    }
    kinds = {tag[2:] for tags in data.splits["train"].tags for tag in tags} - {""}
    assert kinds == {"person", "location", "corporation", "product", "creative-work", "group"}


def test_every_verb_that_asks_a_tagger(tagger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tagger.save("model")
    Path("gaps.txt").write_text("nobody came\n\nAnn left Rome\n", encoding="utf-8")
    Path("gaps.jsonl").write_text('{"words": ["Ann"]}\n{"words": []}\n{"words": ["Rome"]}\n')
    skip = ("--on-bad-row", "skip")
    for name in ("gaps.txt", "gaps.jsonl"):
        told = as_json("predict", "model", name, *skip)
        assert [(one["row"], one["error"] is None) for one in told] == [(1, True), (2, False), (3, True)]
        assert told[2]["spans"][-1]["text"] == "Rome"
        lines = ok("predict", "model", name, *skip).out.split("\n")
        assert lines[1] == "\t"
        assert "Rome (place " in lines[2]
        ok("predict", "model", name, *skip, "--out", f"{name}.csv")
        table = read_csv(f"{name}.csv")
        assert [row["row"] for row in table if row["error"]] == ["2"]
        assert (table[-1]["row"], table[-1]["text"]) == ("3", "Rome")
    Path("texts.txt").write_text("Ann left Rome\nnobody came\n", encoding="utf-8")
    ok("predict", "model", "texts.txt", "gaps.txt", *skip, "--out", "two.csv")
    places = {(row["file"], row["row"]) for row in read_csv("two.csv")}
    assert places == {("texts.txt", "1"), ("gaps.txt", "2"), ("gaps.txt", "3")}
    assert as_json("predict", "model", "=Ann left Rome", "--out", "f.csv")["spans"] >= 1
    assert read_csv("f.csv")[0]["sentence"] == "'=Ann left Rome"
    for option in (["--coverage", "0.5"], ["--labels", "a,b"], ["--template", "{}"], ["--engine", "ray"]):
        assert f"{option[0]}: is for " in refused("predict", "model", "a", *option)
    for word in ("\u00b3", "Paris"):
        assert "no word" in refused("explain", "model", "Ann left Rome", "--word", word)
    assert "JSON Lines, CSV or CoNLL" in refused("predict", "model", "a", "--out", "out.parquet")
    write(tmp_path / "own")
    bad = Path("own/train.conll").read_text().replace("B-place", "I-place")
    Path("own/train.conll").write_text(bad)
    found = as_json("data", "doctor", "own")["findings"]
    codes = {finding["code"] for finding in found if finding["severity"] == "warning"}
    assert {"malformed-tags", "contradictions", "leaks"} <= codes
