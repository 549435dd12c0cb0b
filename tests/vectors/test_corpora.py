"""A corpus on the disk: what is damaged, mixed or mapped elsewhere; and trainings that learn nothing."""

import json
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.commands import ok, values

import glassformer as gf
from glassformer import Word2Vec
from glassformer.checkpoints.native import newest_state
from glassformer.data.sentences import Corpus, read_corpus
from glassformer.errors import ConfigError, DataError, FewStepsWarning, GlassformerError
from glassformer.models.skipgram import NONE, count_contexts, draw_contexts
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.word2vec.estimator import load, load_texts

WORDS = ["a b c d e f"] * 7
OTHERS = [" ".join(f"w{i}" for i in range(j, j + 11)) for j in range(23)]


def test_a_second_corpus_in_the_folder_leaves_a_mapped_one_whole(tmp_path):
    first = read_corpus(WORDS, min_count=1, folder=tmp_path)
    before = np.array(first.ids)
    second = read_corpus(OTHERS, min_count=1, folder=tmp_path)
    assert (first.ids == before).all()
    assert Corpus.open(tmp_path).words == second.words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.npy", "starts.npy", "words.json"]


def at(place: int, value: int):
    """Arrays with another value at one place."""

    def changed(ids):
        ids = np.array(ids)
        ids[place] = value if value is not None else (ids[place] + 1) % 6
        return ids

    return changed


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("ids", at(17, value)) for value in (2_130_706_436, -1, None)),
        ("ids", lambda ids: ids.astype(np.int64)),
        ("ids", lambda ids: ids.reshape(2, -1)),
        ("starts", lambda starts: np.concatenate([[-(10**9)], starts[1:]])),
        ("starts", lambda starts: starts[[0, 2, 1, *range(3, len(starts))]]),
        ("starts", lambda starts: starts[:-1]),
        ("starts", lambda starts: starts[:0]),
        ("counts", lambda counts: [counts[0] + 1, counts[1] - 1, *counts[2:]]),
    ],
)
def test_a_damaged_corpus_is_refused(name, change, tmp_path):
    read_corpus(WORDS, min_count=1, folder=tmp_path)
    if name == "counts":
        about = json.loads((tmp_path / "words.json").read_text(encoding="utf-8"))
        (tmp_path / "words.json").write_text(json.dumps(about | {"counts": change(about["counts"])}))
    else:
        np.save(tmp_path / f"{name}.npy", change(np.load(tmp_path / f"{name}.npy")))
    with pytest.raises(DataError, match="are inconsistent"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ids", at(3, 97)),
        ("ids", lambda ids: ids.astype(np.int64)),
        ("starts", lambda starts: starts * 2),
        ("words", lambda words: words[:-1]),
        ("counts", lambda counts: counts + 1),
        ("counts", lambda counts: counts.tolist()),
    ],
)
def test_a_corpus_made_by_hand_is_looked_at(name, change):
    corpus = read_corpus(WORDS, min_count=1)
    assert replace(corpus).words == corpus.words
    with pytest.raises(DataError, match=r"are inconsistent\. Make it with read_corpus"):
        replace(corpus, **{name: change(getattr(corpus, name))})


@pytest.mark.parametrize("folder", [False, True])
def test_half_a_character_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="lone surrogate") as refused:
        read_corpus(["a b", "c \ud800d"], min_count=1, folder=tmp_path / "here" if folder else None)
    assert "\\ud800" in str(refused.value)


def test_words_with_line_ends_have_a_check_sum_of_their_own(tmp_path):
    cut = [read_corpus([words], min_count=1) for words in (["a\nb", "c"], ["a", "b\nc"])]
    assert cut[0].digest() != cut[1].digest()
    assert cut[0].digest() == read_corpus([["a\nb", "c"]], min_count=1).digest()
    # a file may have a line end in its name
    path = tmp_path / "two\nlines.txt"
    path.write_text("\n".join(OTHERS), encoding="utf-8")
    assert read_corpus(path, min_count=1).digest() == read_corpus(OTHERS, min_count=1).digest()


@pytest.mark.parametrize("checkpoints", [False, True])
def test_vectors_that_diverge_behind_the_loss_are_an_error(checkpoints, tmp_path):
    # one window in 32 has its loss looked at, and 20 words have one such; the rest overflows after it
    folder = tmp_path / "saved" if checkpoints else None
    vectors = gf.Word2Vec(dim=16, min_count=1, epochs=1, threads=1, subsample=0.0, lr=10.0, negative=40)
    said = r"vectors are no longer finite after round 1: lower lr \(now 10"
    with pytest.raises(GlassformerError, match=said), np.errstate(all="ignore"):
        vectors.fit([[f"w{i % 3}" for i in range(20)]], checkpoints=folder)
    assert folder is None or not newest_state(folder)


def test_a_training_without_a_pair_says_that_nothing_was_learned():
    few = gf.Word2Vec(dim=7, min_count=1, epochs=1, threads=1)
    with pytest.warns(FewStepsWarning, match="subsampling removed all pairs of words") as told:
        few.fit(["a b"] * 3)
    assert Path(told[0].filename).name == Path(__file__).name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few.set_params(subsample=0.0).fit(["a b"] * 3)
    assert few.history_[-1]["pairs"] > 0


@pytest.mark.parametrize("text", ["a b\nc d\n" * 7, "word " * 101])
def test_a_text_in_the_place_of_a_path_is_told_in_short(text):
    with pytest.raises(DataError, match=r"Put a single text into a list: \[text\]") as error:
        read_corpus(text, min_count=1)
    assert len(str(error.value)) < 200
    assert f"{len(text):,} characters" in str(error.value)


@pytest.mark.parametrize("folder", ["", 5, b"x", ["x"]])
def test_a_folder_that_is_no_path_is_refused(folder):
    with pytest.raises(ConfigError, match=r"^folder: .* is not a path"):
        read_corpus(WORDS, min_count=1, folder=folder)


def test_arrays_of_words_are_sentences():
    lists = [line.split() for line in OTHERS]
    arrays = read_corpus([np.array(line, object) for line in lists], min_count=1)
    fixed = read_corpus((np.array(line) for line in lists), min_count=1)
    assert arrays.digest() == fixed.digest() == read_corpus(lists, min_count=1).digest()
    with pytest.raises(DataError, match="sentence 1 is neither"):
        read_corpus([np.ones((2, 3))], min_count=1)
    with pytest.raises(DataError, match="sentence 2 is neither"):
        read_corpus([["a", "b"], np.ones(3)], min_count=1)


# --- tables of texts ------------------------------------------------------------------------------


def recipe(path: Path, *settings: str):
    given = [f"source={path}", "exclude=[]", "tests=[]", "analogies=[]", "neighbours=[]", "min_count=1"]
    return load_recipe(
        "imdb-word2vec", ["splits=['train']", *given, "epochs=1", "threads=1", "dim=5", *settings]
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [f"the dog {i} runs,{'ab'[i % 2]}" for i in range(9)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["text,label", *lines[:3], "a good text without a label,", *lines[3:], ""]))
    return path


def test_rows_without_a_text_are_told_and_listed(table, tmp_path):
    table.write_text(table.read_text() + ",a\n   ,b\n")
    with pytest.raises(DataError, match="row 12: the text is empty"):
        load_texts(recipe(table).data)
    words = recipe(table, "on_bad_row=skip")
    assert [row.row for row in load(words).rejected] == [12, 13]
    (tmp_path / "r.toml").write_text(
        f'name = "mine"\ntask = "word2vec"\ndata = {{ source = "{table}", on_bad_row = "skip", exclude = [] }}\n'
        "vectors = { dim = 5, min_count = 1, epochs = 1, threads = 1 }\njudge = { tests = [] }\n"
    )
    done = ok("train", tmp_path / "r.toml", "--out", tmp_path / "run", "--set", "splits=['train']")
    assert "2 rows" in done.out
    lines = (tmp_path / "run" / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == [12, 13]


def test_texts_are_counted_and_not_their_pieces(tmp_path, table):
    path = tmp_path / "long.csv"
    long = " ".join(["the dog runs far"] * 6_000)
    path.write_text("\n".join(["text", f"{long}", "the dog runs", "rare words alone", ""]))
    found = load(recipe(path, "min_count=2"))
    assert len(found.sentences) == 3
    assert len(found.corpus) > 3
    # labels are not read
    assert len(load_texts(recipe(table).data).sentences) == 10


# --- contexts of words ----------------------------------------------------------------------------


SENTENCES = [[0, 1, 2, 1], [3], [2, 0, 0], [4, 1]]
IDS = np.array([word for s in SENTENCES for word in s])
STARTS = np.cumsum([0, *map(len, SENTENCES)])


@pytest.mark.parametrize("window", [1, 2, 5])
def test_contexts_are_counted(window):
    wanted: Counter[int] = Counter()
    for s in SENTENCES:
        for i, center in enumerate(s):
            wanted.update(center * 7 + s[j] for j in range(len(s)) if i != j and abs(i - j) <= window)
    pairs, counts = count_contexts(IDS, STARTS, 7, window)
    assert dict(zip(pairs.tolist(), counts.tolist(), strict=True)) == wanted
    assert pairs.tolist() == sorted(wanted)


def test_draws_weigh_as_the_contexts_do():
    pairs, counts = count_contexts(IDS, STARTS, 7, 2)
    centres = np.array([0, 3, 1, 6, 4])
    drawn = draw_contexts(pairs, counts, 7, centres, 20_000, np.random.default_rng(0))
    assert (drawn[1] == NONE).all()  # stands alone
    assert (drawn[3] == NONE).all()  # is nowhere, and behind all others
    for row, center in ((0, 0), (2, 1), (4, 4)):
        own = {int(p % 7): int(c) for p, c in zip(pairs, counts, strict=True) if p // 7 == center}
        found = Counter(drawn[row].tolist())
        assert found.keys() == own.keys()
        for word, count in own.items():
            assert found[word] / 20_000 == pytest.approx(count / sum(own.values()), abs=0.02)


def test_a_step_meets_each_word_once_and_learns():
    texts = [["big", "cat"], ["big", "dog"], ["red", "car"], ["red", "bus"], ["lone"]] * 3
    settings = values(
        "optimizer=adam centers=words subsample=0.0 min_count=1 dim=11 threads=1 epochs=300 lr=0.01"
    )
    vectors = Word2Vec(**settings).fit(texts)
    assert [r["tokens"] for r in vectors.history_ if r["kind"] == "step"][:3] == [6, 6, 6]
    assert len(vectors.history_) > 300
    assert vectors.similarity("cat", "dog") > vectors.similarity("cat", "bus")
    with pytest.raises(ConfigError, match="centers = places"):
        Word2Vec(centers="words", epochs=1).fit(texts)
