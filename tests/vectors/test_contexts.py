"""Positives drawn with replacement from all contexts of a word, against counting by hand."""

from collections import Counter

import numpy as np
import pytest

from glassformer import Word2Vec
from glassformer.errors import ConfigError
from glassformer.models.skipgram import NONE, count_contexts, draw_contexts

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
    settings = {
        "optimizer": "adam",
        "centers": "words",
        "subsample": 0.0,
        "min_count": 1,
        "dim": 11,
        "threads": 1,
    }
    vectors = Word2Vec(**settings, epochs=300, lr=0.01).fit(texts)
    assert [r["tokens"] for r in vectors.history_ if r["kind"] == "step"][:3] == [6, 6, 6]
    assert len(vectors.history_) > 300
    assert vectors.similarity("cat", "dog") > vectors.similarity("cat", "bus")
    with pytest.raises(ConfigError, match="centers = places"):
        Word2Vec(centers="words", epochs=1).fit(texts)
