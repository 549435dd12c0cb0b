"""A corpus on the disk: what is damaged, mixed or mapped elsewhere; and trainings that learn nothing."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.checkpoints.native import newest_state
from glassformer.data.sentences import Corpus, read_corpus
from glassformer.errors import ConfigError, DataError, FewStepsWarning, GlassformerError

WORDS = ["a b c d e f"] * 7
OTHERS = [" ".join(f"w{i}" for i in range(j, j + 11)) for j in range(23)]


def test_a_second_corpus_in_the_folder_leaves_a_mapped_one_whole(tmp_path):
    first = read_corpus(WORDS, min_count=1, folder=tmp_path)
    before = np.array(first.ids)
    second = read_corpus(OTHERS, min_count=1, folder=tmp_path)
    assert (first.ids == before).all()
    assert Corpus.open(tmp_path).words == second.words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.npy", "starts.npy", "words.json"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ids", lambda ids: np.where(np.arange(len(ids)) == 17, 2_130_706_436, ids).astype(np.int32)),
        ("ids", lambda ids: np.where(np.arange(len(ids)) == 17, -1, ids).astype(np.int32)),
        ("ids", lambda ids: np.where(np.arange(len(ids)) == 17, (ids + 1) % 6, ids).astype(np.int32)),
        ("ids", lambda ids: ids.astype(np.int64)),
        ("ids", lambda ids: ids.reshape(2, -1)),
        ("starts", lambda starts: np.concatenate([[-(10**9)], starts[1:]])),
        ("starts", lambda starts: starts[[0, 2, 1, *range(3, len(starts))]]),
        ("starts", lambda starts: starts[:0]),
    ],
)
def test_a_damaged_corpus_is_refused(name, change, tmp_path):
    read_corpus(WORDS, min_count=1, folder=tmp_path)
    file = tmp_path / f"{name}.npy"
    np.save(file, change(np.load(file)))
    with pytest.raises(DataError, match="are inconsistent"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: {"ids": np.where(np.arange(len(c.ids)) == 3, 97, c.ids).astype(np.int32)},
        lambda c: {"ids": c.ids.astype(np.int64)},
        lambda c: {"starts": c.starts * 2},
        lambda c: {"words": c.words[:-1]},
        lambda c: {"counts": c.counts + 1},
        lambda c: {"counts": c.counts.tolist()},
    ],
)
def test_a_corpus_made_by_hand_is_looked_at(change):
    corpus = read_corpus(WORDS, min_count=1)
    assert replace(corpus).words == corpus.words
    with pytest.raises(DataError, match=r"are inconsistent\. Make it with read_corpus"):
        replace(corpus, **change(corpus))


def test_files_of_two_corpora_are_refused(tmp_path):
    read_corpus(["a b c"] * 4, min_count=1, folder=tmp_path)
    other = read_corpus(["d e f", "d e g", "d h i", "j k l"], min_count=1)
    np.save(tmp_path / "ids.npy", other.ids)  # as many, of other words
    with pytest.raises(DataError, match="are inconsistent"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize("folder", [False, True])
def test_half_a_character_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="lone surrogate") as refused:
        read_corpus(["a b", "c \ud800d"], min_count=1, folder=tmp_path / "here" if folder else None)
    assert "\\ud800" in str(refused.value)


def test_words_with_line_ends_have_a_check_sum_of_their_own():
    cut = [read_corpus([words], min_count=1) for words in (["a\nb", "c"], ["a", "b\nc"])]
    assert cut[0].digest() != cut[1].digest()
    assert cut[0].digest() == read_corpus([["a\nb", "c"]], min_count=1).digest()


@pytest.mark.parametrize("checkpoints", [False, True])
def test_vectors_that_diverge_behind_the_loss_are_an_error(checkpoints, tmp_path):
    # one window in 32 has its loss looked at, and 20 words have one such; the rest overflows after it
    folder = tmp_path / "saved" if checkpoints else None
    vectors = gf.Word2Vec(dim=16, min_count=1, epochs=1, threads=1, subsample=0.0, lr=10.0, negative=40)
    with (
        pytest.raises(
            GlassformerError, match=r"vectors are no longer finite after round 1: lower lr \(now 10"
        ),
        np.errstate(all="ignore"),
    ):
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


def test_counts_of_another_corpus_are_refused(tmp_path):
    read_corpus(WORDS, min_count=1, folder=tmp_path)
    about = json.loads((tmp_path / "words.json").read_text(encoding="utf-8"))
    about["counts"][0] += 1
    about["counts"][1] -= 1
    (tmp_path / "words.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(DataError, match="are inconsistent"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize("text", ["a b\nc d\n" * 7, "word " * 101])
def test_a_text_in_the_place_of_a_path_is_told_in_short(text):
    with pytest.raises(DataError, match=r"Put a single text into a list: \[text\]") as error:
        read_corpus(text, min_count=1)
    assert len(str(error.value)) < 200
    assert f"{len(text):,} characters" in str(error.value)


def test_a_file_may_have_a_line_end_in_its_name(tmp_path):
    path = tmp_path / "two\nlines.txt"
    path.write_text("\n".join(OTHERS), encoding="utf-8")
    assert read_corpus(path, min_count=1).digest() == read_corpus(OTHERS, min_count=1).digest()


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
