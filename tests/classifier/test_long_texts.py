"""Documents longer than the model: windows that lose no token, and pooling that leaves short texts as they are."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.data.text import encode, encode_windows, window_starts, word_tokenizer
from glassformer.errors import ConfigError
from glassformer.evaluate.predict import pool_windows, softmax

WORDS = [f"w{i}" for i in range(53)]


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer([" ".join(WORDS)], min_count=1)


@pytest.mark.parametrize(
    ("length", "size", "stride"), [(7, 5, 2), (7, 5, 5), (53, 11, 3), (53, 11, 11), (12, 11, 7)]
)
def test_windows_cover_every_token_and_are_full(length, size, stride):
    starts = window_starts(length, size, stride)
    covered = {t for start in starts for t in range(start, start + size)}
    assert covered == set(range(length))
    assert starts == sorted(set(starts))
    assert max(np.diff(starts), default=0) <= stride


@pytest.mark.parametrize("frame", [True, False])
def test_windows_are_pieces_of_the_text_in_its_frame(tokenizer, frame):
    texts = ["w1 w2", " ".join(WORDS), "", " ".join(WORDS[:9]), " ".join(WORDS[:10])]
    found = encode_windows(tokenizer, texts, max_length=11, stride=4, add_special_tokens=frame)
    whole = encode(tokenizer, texts, max_length=997, add_special_tokens=frame)
    inside = slice(1, -1) if frame else slice(None)
    for i in range(len(texts)):
        rows = [found.table[w] for w in np.flatnonzero(found.text_of_window == i)]
        if len(whole[i]) <= 11:
            assert [row.tolist() for row in rows] == [whole[i].tolist()]
            continue
        assert {len(row) for row in rows} == {11}
        assert {t for row in rows for t in row[inside].tolist()} == set(whole[i][inside].tolist())
        if frame:
            assert all(row[0] == whole[i][0] and row[-1] == whole[i][-1] for row in rows)
    assert not found.table.truncated.any()
    texts = ["w1 w2", "w5", "w7 w8 w9"]
    found = encode_windows(tokenizer, texts, max_length=11)
    assert found.text_of_window is None
    assert found.table.ids.tolist() == encode(tokenizer, texts, max_length=11).ids.tolist()


def test_pooling_by_hand():
    rows = np.array([[1.0, 4.0], [3.0, 0.0], [5.0, 7.0]], np.float32)
    owners = np.array([0, 0, 1])
    assert pool_windows(rows, owners, 2, "mean").tolist() == [[2.0, 2.0], [5.0, 7.0]]
    assert pool_windows(rows, owners, 2, "max").tolist() == [[3.0, 4.0], [5.0, 7.0]]


@pytest.fixture
def windowed(fitted, tmp_path):
    """``windowed("mean", 5)``: the shared classifier with windows."""
    folder = fitted.save(tmp_path / "model")
    return lambda how, stride=None: gf.load(folder).set_params(long_texts=how, window_stride=stride)


@pytest.mark.parametrize("how", ["mean", "max"])
def test_equal_to_plain_prediction_for_short_texts(fitted, windowed, data, how):
    texts, clf = data[0][:37], windowed(how, fitted.window_stride)
    assert np.array_equal(clf.predict_proba(texts), fitted.predict_proba(texts))
    long = " ".join(["the film was"] * 40)  # beside a long one too, then in batches of another shape
    np.testing.assert_allclose(clf.logits([*texts, long])[:-1], fitted.logits(texts), atol=1e-5)


@pytest.mark.parametrize(("how", "pool"), [("mean", np.mean), ("max", np.max)])
def test_a_long_text_is_the_pool_of_its_windows(fitted, windowed, how, pool):
    clf, text = (
        windowed(how, 5),
        "the film was dull and its story clumsy with a cast that seemed rather superb " * 3,
    )
    words = text.split()
    starts = window_starts(len(words), 14, 5)  # max_length 16 with [CLS] and [SEP]
    pieces = [" ".join(words[s : s + 14]) for s in starts]
    wanted = pool(fitted.logits(pieces), axis=0)
    np.testing.assert_allclose(clf.logits([text])[0], wanted, atol=1e-5)
    assert clf.predict_proba([text])[0] == pytest.approx(softmax(wanted[None])[0], abs=1e-5)
    assert clf.embed([text]).shape == fitted.embed(pieces[:1]).shape
    opening = "the film and its story with a cast " * 4  # the word that decides stands behind the limit
    late = [opening + word for word in ("superb", "awful")]
    cut, whole = (np.ptp(model.logits(late), 0).max() for model in (fitted, clf))
    assert cut == 0.0
    assert whole > (0.1 if how == "max" else 0)


def test_a_stride_that_leaves_tokens_out_is_refused(windowed):
    with pytest.raises(ConfigError, match="skips tokens between windows"):
        windowed("mean", 15).predict(["the film"])
    with pytest.raises(ConfigError, match="long_texts"):
        gf.TextClassifier("encoder-mini", long_texts="middle").fit(["a", "b"], ["x", "y"])


def test_windows_also_judge_the_validation_data(small, data, held):
    long = [f"{'the film and its story with a cast ' * 3}{text}" for text in held[0]]
    clf = small(long_texts="mean", epochs=1).fit(*data, validation=(long, held[1]))
    last = [r for r in clf.history_ if r["kind"] == "evaluation"][-1]
    assert last["accuracy"] == pytest.approx(clf.score(long, held[1]))
