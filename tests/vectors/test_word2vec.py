"""gf.Word2Vec: training, resuming, looking up, files."""

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import glassformer as gf
from glassformer.data.corpus import countries_sentences
from glassformer.data.sentences import Corpus, read_corpus
from glassformer.errors import CheckpointError, ConfigError, DataError, InputError
from glassformer.tasks.word2vec.estimator import UnknownWord

SENTENCES = [s.lower() for s in countries_sentences(700)]
SMALL = dict(dim=13, min_count=2, epochs=3, threads=1)


@pytest.fixture(scope="module")
def vectors() -> gf.Word2Vec:
    return gf.Word2Vec(**SMALL).fit(SENTENCES)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_thread_gives_the_same_vectors_and_the_loss_falls(optimizer):
    settings = SMALL | {"optimizer": optimizer, "lr": 0.01 if optimizer == "adam" else None, "epochs": 2}
    one, two = (gf.Word2Vec(**settings).fit(SENTENCES) for _ in range(2))
    other = gf.Word2Vec(**settings, seed=1).fit(SENTENCES)
    assert np.array_equal(one.vectors_, two.vectors_)
    assert not np.array_equal(one.vectors_, other.vectors_)
    losses = [r["loss"] for r in one.history_ if r["kind"] == "step"]
    third = max(1, len(losses) // 3)
    assert np.mean(losses[-third:]) < np.mean(losses[:third])
    assert one.norms_["before"]["max"] < 0.5 < one.norms_["after"]["mean"]


def test_threads_learn_the_same_thing():
    vectors = gf.Word2Vec(**SMALL | {"threads": 3, "epochs": 6}).fit(SENTENCES)
    alone = gf.Word2Vec(**SMALL | {"epochs": 6}).fit(SENTENCES)
    assert np.isfinite(vectors.vectors_).all()
    assert vectors.history_[-1]["loss"] == pytest.approx(alone.history_[-1]["loss"], rel=0.05)


# --- the corpus -------------------------------------------------------------------------------


def test_texts_words_and_files_are_the_same_corpus(tmp_path, monkeypatch):
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    one = read_corpus(SENTENCES, min_count=2)
    for other in (read_corpus([s.split() for s in SENTENCES], min_count=2), read_corpus(file, min_count=2)):
        assert other.digest() == one.digest()
    assert read_corpus((s.split() for s in SENTENCES), min_count=2).digest() == one.digest()  # read once
    mapped = read_corpus(file, min_count=2, folder=tmp_path / "mapped")
    assert isinstance(mapped.ids, np.memmap)
    assert Corpus.open(tmp_path / "mapped").digest() == one.digest()
    assert np.array_equal(gf.Word2Vec(**SMALL).fit(mapped).vectors_, gf.Word2Vec(**SMALL).fit(one).vectors_)
    assert one.raw_words == sum(len(s.split()) for s in SENTENCES)
    assert list(one.counts) == sorted(one.counts, reverse=True)
    assert read_corpus(SENTENCES, min_count=2, max_words=11).words == one.words[:11]
    # in several parts
    given = [*SENTENCES, "", "seldom", *SENTENCES[:5]]
    whole = read_corpus(given, min_count=2)
    monkeypatch.setattr("glassformer.data.sentences.CHUNK_SENTENCES", 7)
    assert len(given) > 3 * 7
    assert read_corpus(given, min_count=2).digest() == whole.digest()
    folder = tmp_path / "parts"
    assert read_corpus(given, min_count=2, folder=folder).digest() == whole.digest()
    assert sorted(path.name for path in folder.iterdir()) == ["ids.npy", "starts.npy", "words.json"]
    with pytest.raises(DataError, match="sentence 17 is neither"):
        read_corpus([["fine"]] * 16 + [["fine", 3]])


FEW = "Give sentences of several words"
NEITHER = "is neither a text nor a list of words"


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([], "no sentence has a word"),
        (["", "  "], "no sentence has a word"),
        (None, "nothing where a list of sentences is expected"),
        (
            pd.DataFrame({"id": 1, "text": SENTENCES}),
            "a table with 2 columns .* Give the column of sentences",
        ),
        (["one", "two", "two", "one"], f"one sentence. {FEW}$"),
        (["one", "two", "two", "one and"], f"{FEW}, or lower min_count$"),
        (["each word once only"], "fewer than two of 4 words occur 2 times. Lower min_count to 1 or less"),
        (["one one", "one"], "the only word is 'one', and one word has no neighbors. Give sentences of diff"),
        ([["fine"], [3]], f"sentence 2 {NEITHER}"),
        ([["fine"], ["fine", ["fine"]]], f"sentence 2 {NEITHER}"),
        (["fine words", ["fine"], 3], f"sentence 3 {NEITHER}"),
        (Path("nowhere.txt"), "no such file of sentences"),
    ],
)
def test_sentences_that_cannot_be_used(sentences, message):
    with pytest.raises(DataError, match=message):
        gf.Word2Vec(**SMALL).fit(sentences)


@pytest.mark.parametrize("settings", [{"dim": 0}, {"optimizer": "adamw"}])
def test_settings_that_cannot_be(settings):
    """The ends of every range are in tests/test_settings_ranges.py."""
    with pytest.raises(ConfigError, match=next(iter(settings))):
        gf.Word2Vec(**settings).fit(SENTENCES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": "2"}, "min_count: '2' is not a number of words"),
        ({"max_words": -1}, "max_words: -1 is not a number of words"),
        ({"folder": "file"}, "file: there is a file of that name. Name a folder"),
    ],
)
def test_counts_and_a_place_that_cannot_be(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(ConfigError, match=message):
        read_corpus(SENTENCES, **options)


# --- looking up -------------------------------------------------------------------------------


def test_look_ups(vectors):
    assert vectors["paris"].shape == (13,)
    assert vectors[["paris", "rome"]].shape == (2, 13)
    assert "paris" in vectors
    assert "Paris" not in vectors
    assert len(vectors) == len(vectors.words_) == len(vectors.vectors_)
    near = vectors.most_similar("paris", 7)
    assert len(near) == 7
    assert "paris" not in dict(near)
    assert [c for _, c in near] == sorted((c for _, c in near), reverse=True)
    word, cosine = near[0]
    assert cosine == pytest.approx(vectors.similarity("paris", word), abs=1e-6)
    assert vectors.most_similar(vectors["paris"], 1)[0][0] == "paris"
    assert not {"king", "man", "woman"} & dict(vectors.analogy("king", "man", "woman", 5)).keys()
    assert len(vectors.most_similar("paris", 10**6)) == len(vectors) - 1
    vectors["paris"][:] = 0.0  # a copy
    assert vectors["paris"].any()


def test_an_unknown_word_names_the_nearest(vectors):
    with pytest.raises(UnknownWord, match=r"the word 'pariss' is not among the \d+ .* Did you mean 'paris'"):
        vectors["pariss"]
    with pytest.raises(KeyError):
        vectors.analogy("king", "man", "qqqqqq")
    with pytest.raises(ConfigError, match="no vectors yet"):
        gf.Word2Vec()["paris"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda v: v[3], "3 is not a word"),
        (lambda v: v.most_similar("Paris"), "Did you mean 'paris'"),
        (lambda v: v.most_similar(np.ones(3)), r"shape \(3,\), expected \(13,\)"),
        (lambda v: v.most_similar(["king", 3]), "neither words nor a vector"),
        (lambda v: v.most_similar([]), r"a vector of shape \(0,\)"),
        (lambda v: v.most_similar(v["king"], negative=["queen"]), "negative words cannot be combined with"),
        (lambda v: v.most_similar(np.zeros(13)), "without a direction"),
        (lambda v: v.most_similar(np.full(13, np.nan)), "without a direction"),
        *((lambda v, c=c: v.most_similar("king", c), f"count = {c!r}") for c in (0, 1.5, "3")),
        (lambda v: v.judge("nope"), "nope: no such test"),
    ],
)
def test_what_cannot_be_asked(vectors, ask, message):
    with pytest.raises(InputError, match=message):
        ask(vectors)


# --- files ------------------------------------------------------------------------------------


def test_a_folder_gives_the_vectors_back(vectors, tmp_path):
    vectors.save(tmp_path / "model")
    for path in (tmp_path / "model", tmp_path):
        again = gf.Word2Vec.load(path)
        assert again.words_ == vectors.words_
        assert np.array_equal(again.vectors_, vectors.vectors_)
        assert np.array_equal(again.contexts_, vectors.contexts_)
        assert again.norms_ == vectors.norms_
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="was changed: "):
        gf.Word2Vec.load(tmp_path)
    with pytest.raises(CheckpointError, match="no word vectors"):
        gf.Word2Vec.load(tmp_path / "..")
    # vectors of an earlier version began half as wide
    wide = vectors.untrained().vectors_
    before = vectors.norms_["before"]
    vectors.norms_["before"] = {key: length / 2 for key, length in before.items()}
    try:
        np.testing.assert_allclose(vectors.untrained().vectors_, wide / 2, rtol=1e-6)
    finally:
        vectors.norms_["before"] = before


@pytest.mark.slow
def test_capitals_currencies_and_the_queen():
    """The recipe countries-word2vec over seeds: seconds each."""
    sentences = [s.lower().replace(" ,", "").replace(" .", "") for s in countries_sentences()]
    for seed in range(3):
        settings = dict(dim=50, negative=15, min_count=1, add_contexts=True, epochs=30, threads=1)
        vectors = gf.Word2Vec(**settings, seed=seed).fit(sentences)
        sections = vectors.judge(["countries"])["countries"]["sections"]
        for name in ("country : capital", "country : currency"):
            assert sections[name]["known"] == sections[name]["questions"] > 70
            assert sections[name]["correct"] / sections[name]["known"] >= 0.95
        assert vectors.analogy("king", "man", "woman")[0][0] == "queen"


def test_accents_are_joined_to_their_letters(tmp_path):
    texts = ["món ăn ngon", unicodedata.normalize("NFD", "món ăn ngon")]
    for given in (texts, [text.split() for text in texts]):
        assert set(read_corpus(given, min_count=2).words) == {"món", "ăn", "ngon"}
    vectors = gf.Word2Vec(**SMALL).fit(["món ăn ngon", "món ăn rẻ"] * 5)
    apart = unicodedata.normalize("NFD", "món")
    assert vectors.number(apart) == vectors.number("món")
    assert apart in vectors
    assert 3 not in vectors
    (tmp_path / "v.txt").write_text(f"2 2\n{apart} 1 2\nb 3 4\n", encoding="utf-8")
    assert gf.Word2Vec.load(tmp_path / "v.txt")["món"].tolist() == [1, 2]


def test_an_epoch_that_subsampling_empties_is_passed_over():
    sentences = ["the cat sat on the mat", "the dog sat on the rug"]
    model = gf.Word2Vec(dim=5, min_count=1, optimizer="adam", threads=1).fit(sentences)
    assert np.isfinite(model.vectors_).all()
    assert len(model.history_) < model.epochs + 1
    with pytest.raises(DataError, match="subsampling leaves no pair"):
        gf.Word2Vec(dim=5, min_count=1, optimizer="adam", subsample=1e-9).fit(sentences)


def test_checkpoints_of_another_training_are_not_overwritten(tmp_path):
    sentences = ["the cat sat on the mat", "the dog sat on the rug"] * 20
    for optimizer in ("adam", "sgd"):
        options = dict(dim=5, min_count=1, optimizer=optimizer, threads=1, epochs=2)
        kept = {"checkpoints": tmp_path / optimizer}
        gf.Word2Vec(**options).fit(sentences, **kept)
        with pytest.raises(CheckpointError, match="Use resume=True"):
            gf.Word2Vec(**options).fit(sentences, **kept)
        with pytest.raises(CheckpointError, match="window = 5, now it is 3"):
            gf.Word2Vec(**options, window=3).fit(sentences, **kept, resume=True)
        with pytest.raises(CheckpointError, match="corpus_sha256"):
            gf.Word2Vec(**options).fit(sentences[:-1], **kept, resume=True)


@pytest.mark.slow  # compiles for half a minute
def test_compiled_loops_are_not_kept_on_disk(tmp_path):
    """Two processes with rows of different widths shared numba's cache, and one ran the other's code."""
    code = (
        "import glassformer as gf; words = ['red', 'green', 'blue', 'grey', 'white'] * 7\n"
        "for dim in (7, 23):\n"
        "    print(gf.Word2Vec(dim=dim, epochs=1, min_count=1, threads=1).fit([words] * 5).vectors_.shape)"
    )
    home = {
        "GLASSFORMER_KERNELS": "0",
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | home, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split("\n")[:2] == ["(5, 7)", "(5, 23)"], done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]


def test_the_vectors_before_the_training(vectors, tmp_path):
    before = vectors.untrained()
    assert before.words_ == vectors.words_
    assert 0.5 / 13 < np.abs(before.vectors_).max() <= 1.0 / 13
    assert float(np.linalg.norm(before.vectors_, axis=1).mean()) == pytest.approx(
        vectors.norms_["before"]["mean"]
    )
    assert before.most_similar("france", 3) != vectors.most_similar("france", 3)
    again = gf.Word2Vec.load(vectors.save(tmp_path / "saved")).untrained()
    assert np.array_equal(again.vectors_, before.vectors_)
    theirs = gf.Word2Vec.load(vectors.save_word2vec_format(tmp_path / "v.txt"))
    with pytest.raises(ConfigError, match="initial vectors are unknown"):
        theirs.untrained()
