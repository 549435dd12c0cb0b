"""Inputs of another kind in Python: the error says what was given and what takes it."""

import numpy as np
import pytest

import glassformer as gf
from glassformer import errors
from glassformer.errors import CheckpointError, DataError

X = [f"visit {i} was {'great' if i % 2 else 'bad'}" for i in range(20)]
Y = ["p" if i % 2 else "n" for i in range(20)]


@pytest.fixture(scope="module")
def clf():
    return gf.TextClassifier("tfidf").fit(X, Y)


@pytest.mark.parametrize("rows", [[[1, 0], [0, 1]], [(1, 0), (1, 1)], [np.array([0, 1]), np.array([1, 0])]])
def test_lists_of_0_and_1_may_be_a_matrix_and_are_not_guessed(rows):
    with pytest.raises(
        DataError, match=r"all rows are lists of 0s and 1s of the same length.*np\.array\(y\)"
    ):
        gf.TextClassifier("tfidf").fit(X, rows * 10)
    matrix = gf.TextClassifier("tfidf").fit(X, np.array([[1, 0], [0, 1]] * 10))
    with pytest.raises(DataError, match="all rows are lists of 0s and 1s"):
        matrix.score(X, rows * 10)
    assert matrix.score(X, np.array([[1, 0], [0, 1]] * 10)) == 1


@pytest.mark.parametrize("rows", [[[0, 1], [0]], [[0, 2], [1, 2]], [{0, 1}, {1}], [["0", "1"], ["1", "0"]]])
def test_sets_of_labels_that_are_numbers_stay_sets(rows):
    found = gf.TextClassifier("tfidf").fit(X, rows * 10)
    assert len(found.classes_) == len({label for row in rows for label in row})


PIXELS = np.zeros((2, 8, 8, 3), np.uint8)
WEIGHTED = gf.TextClassifier("tfidf", class_weight="balance")
OF_IMAGES, IMAGES = gf.TextClassifier("vit-tiny"), gf.ImageClassifier("vit-tiny")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda c: c.fit(X, Y[1:]), errors.UnequalLengthsError, "Give lists of equal length"),
        (lambda c: c.fit("one", "p"), errors.WrongInputError, "Give two lists of equal length, examples and"),
        (lambda c: c.predict([b"a"]), errors.MissingValueError, r"bytes. Decode it: text.decode\(\)"),
        (lambda c: c.predict(PIXELS), errors.WrongInputError, "For images use ImageClassifier"),
        (
            lambda c: c.predict(np.array([["a", "b"]])),
            errors.WrongInputError,
            r"2 columns \(0, 1\), expected one",
        ),
        (lambda c: c.explain(["great", "bad"]), errors.WrongInputError, "got a list of 2. Use explain_many"),
        (lambda c: c.explain("a", method="lime"), errors.BadValueError, "For this model: weights, occlusion"),
        (lambda c: WEIGHTED.fit(X, Y), errors.BadValueError, "Did you mean 'balanced'"),
        (
            lambda c: OF_IMAGES.fit(X, Y),
            errors.NotForThisModelError,
            "reads images, and this is a model of te",
        ),
        (lambda c: IMAGES.fit(X, Y), errors.NoSuchFileError, "no such image file.*use TextClassifier"),
        (lambda c: gf.load("nothing"), errors.NoSuchModelError, "no such folder. Give a folder that save"),
        (lambda c: gf.load("bert-base-uncased"), errors.NoSuchModelError, "open it with load_pretrained"),
    ],
)
def test_what_is_given_is_named_and_what_takes_it(clf, call, error, said):
    with pytest.raises(error, match=said):
        call(clf)


def test_a_folder_says_what_it_holds(clf, tmp_path):
    clf.save(tmp_path / "m")

    with pytest.raises(CheckpointError, match="contains a TextClassifier, not an Embedder"):
        gf.Embedder.load(tmp_path / "m")
    (tmp_path / "run").mkdir()
    (tmp_path / "m").rename(tmp_path / "run" / "model")
    with pytest.raises(
        CheckpointError, match=r"run.model: contains a TextClassifier, not an Embedder. Open it with"
    ):
        gf.Embedder.load(tmp_path / "run")
    # models of images are not known to a text classifier
    with pytest.raises(errors.UnknownModelError, match="no model 'zzzz'") as error:
        gf.TextClassifier("zzzz").fit(X, Y)
    assert "bert-base-uncased" in str(error.value)
    assert "vit" not in str(error.value)
    assert "dinov2" not in str(error.value)
