"""Word vectors asked as gensim's are: equal answers, and its names answered with ours."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

import glassformer as gf
from glassformer.checkpoints.word2vec import write_word2vec_format
from glassformer.data import sentences
from glassformer.data.sentences import read_corpus
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.evaluate.vectors import read_pairs
from glassformer.tasks.word2vec.estimator import GENSIM_NAMES

WORDS = tuple(f"w{i}" for i in range(53))
D = 7


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    table = np.random.default_rng(0).normal(size=(len(WORDS), D)).astype(np.float32)
    return write_word2vec_format(tmp_path_factory.mktemp("vectors") / "vectors.bin", WORDS, table)


@pytest.fixture
def vectors(path):
    return gf.Word2Vec.load(path)


@pytest.fixture(scope="module")
def theirs(path):
    return pytest.importorskip("gensim.models").KeyedVectors.load_word2vec_format(path, binary=True)


@pytest.mark.parametrize(
    ("positive", "negative"),
    [(["w1"], []), (["w1", "w2"], []), (["w3", "w5"], ["w7"]), (["w3", "w3"], ["w7", "w11"])],
)
def test_words_added_and_taken_away(vectors, theirs, positive, negative):
    ours = vectors.most_similar(positive, 60, negative=negative)
    wanted = theirs.most_similar(positive=positive, negative=negative, topn=60)
    assert [word for word, _ in ours] == [word for word, _ in wanted]
    np.testing.assert_allclose([c for _, c in ours], [c for _, c in wanted], atol=1e-5)


def test_an_analogy_is_words_added_and_taken_away(vectors):
    ours, wanted = vectors.most_similar(["w3", "w5"], negative="w7"), vectors.analogy("w3", "w7", "w5")
    assert [word for word, _ in ours] == [word for word, _ in wanted]
    assert tuple(vectors) == WORDS
    assert vectors
    assert not gf.Word2Vec()
    # a table that is put there is seen
    vectors.vectors_ = vectors.vectors_ - vectors.vectors_.mean(0)
    a, b = vectors.vectors_[:2]
    assert vectors.similarity("w0", "w1") == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_its_names_are_answered_with_ours(vectors):
    for name, ours in GENSIM_NAMES.items():
        with pytest.raises(AttributeError) as told:
            getattr(vectors, name)
        assert str(told.value) == f"'Word2Vec' object has no attribute '{name}'. Here: {ours}"
    with pytest.raises(AttributeError, match=r"has no attribute 'frobnicate'$"):
        vectors.frobnicate  # noqa: B018
    for copy in (deepcopy(vectors), pickle.loads(pickle.dumps(vectors))):
        assert copy.most_similar("w1", 3) == vectors.most_similar("w1", 3)
    # settings that there are not here
    for name in ("sentences", "corpus_file", "sg", "min_alpha", "shrink_windows", "batch_words"):
        with pytest.raises(TypeError) as told:
            gf.Word2Vec(**{name: 1})
        assert "Known" not in str(told.value)
        assert "Did you mean" not in str(told.value)
    with pytest.raises(TypeError, match="Pass the training data to fit"):
        gf.Word2Vec([["a", "b"]])


@pytest.mark.parametrize("binary", [True, False])
def test_the_first_words_of_a_file_alone(vectors, binary, tmp_path):
    file = vectors.save_word2vec_format(tmp_path / "v", binary)
    few = gf.Word2Vec.load(file, limit=11)
    assert few.words_ == WORDS[:11]
    assert np.array_equal(few.vectors_, vectors.vectors_[:11])
    assert gf.Word2Vec.load(file, limit=10_007).words_ == WORDS
    for wrong in (0, 2.5, "3"):
        with pytest.raises(ConfigError, match=f"limit: {wrong!r} words"):
            gf.Word2Vec.load(file, limit=wrong)
    with pytest.raises(ConfigError, match="limit is not supported for folders"):
        gf.Word2Vec.load(tmp_path, limit=3)


@pytest.mark.parametrize("name", ["v.txt.gz", "v.zip"])
def test_a_name_of_a_packed_file_is_refused(vectors, name, tmp_path):
    with pytest.raises(CheckpointError, match="compressed files are not supported"):
        vectors.save_word2vec_format(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_corpus_on_one_line_is_cut(monkeypatch, tmp_path):
    monkeypatch.setattr(sentences, "MAX_SENTENCE_WORDS", 11)
    words = [f"w{i % 5}" for i in range(31)]
    corpus = read_corpus([words, words[:11], ["w0"]], min_count=1)
    assert np.diff(corpus.starts).tolist() == [11, 11, 9, 11, 1]
    whole = np.concatenate([corpus.ids[a:b] for a, b in zip(corpus.starts, corpus.starts[1:], strict=False)])
    assert [corpus.words[i] for i in whole] == [*words, *words[:11], "w0"]
    assert corpus.raw_words == 43
    # a packed corpus says so
    file = tmp_path / "c.txt.gz"
    file.write_bytes(b"\x1f\x8b\x08\x00\xff\xff")
    with pytest.raises(DataError, match=r"is compressed with gzip\. Unpack it: gunzip -c"):
        read_corpus(file)


def test_pairs_with_and_without_a_header(tmp_path):
    file = tmp_path / "pairs.tsv"
    lines = ["Love\tsex\t6.77", "tiger\tcat\t7.35"]
    for before in ([], ["Word 1\tWord 2\tHuman (mean)"], ["# a set", "# word\tword\t1"]):
        file.write_text("\n".join([*before, *lines]))
        assert [(p.first, p.second, p.score) for p in read_pairs(file)] == [
            ("love", "sex", 6.77),
            ("tiger", "cat", 7.35),
        ]
    assert read_pairs(file, lowercase=False)[0].first == "Love"
    file.write_text("# nothing")
    with pytest.raises(DataError, match="no pairs"):
        read_pairs(file)


def test_pairs_are_judged_as_gensim_judges_them(theirs, vectors, tmp_path):
    rng = np.random.default_rng(1)
    file = tmp_path / "pairs.tsv"
    pairs = [(*rng.choice(WORDS, 2, replace=False), float(rng.uniform(0, 10))) for _ in range(41)]
    file.write_text("\n".join(f"{a}\t{b}\t{score:.2f}" for a, b, score in pairs))
    found = vectors.judge([str(file)])[str(file)]
    assert found["known"] == 41
    _, spearman, missing = theirs.evaluate_word_pairs(str(file))
    assert missing == 0
    assert found["spearman"] == pytest.approx(spearman[0])


def test_pairs_keep_their_capitals_where_the_words_have_some(tmp_path, vectors, monkeypatch):
    file = tmp_path / "pairs.tsv"
    file.write_text("Rome\tItaly\t9\nrome\titaly\t1\nItaly\tParis\t2\nParis\tRome\t5\n")
    table = np.random.default_rng(2).normal(size=(3, D)).astype(np.float32)
    path = write_word2vec_format(tmp_path / "v.txt", ["Rome", "Italy", "Paris"], table)
    assert gf.Word2Vec.load(path).judge([str(file)])[str(file)]["known"] == 3
    # named tests are looked for in the data folder
    folder = tmp_path / "word-vectors"
    folder.mkdir()
    (folder / "wordsim353.tab").write_text("Word 1\tWord 2\tHuman (mean)\nw1\tw2\t3\nw3\tw4\t5\nw5\tw6\t1\n")
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    assert vectors.judge("wordsim353")["wordsim353"]["known"] == 3
