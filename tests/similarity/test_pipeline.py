"""``Embedder`` as a step of scikit-learn's pipelines."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import glassformer as gf

from .tiny import checkpoint

TEXTS = [
    f"{text} number {i}" for i in range(11) for text in ("a warm and wise film", "a dull and endless film")
]
LABELS = [f"{i % 2}" for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint"))


def test_a_pipeline_trains_what_follows_and_not_the_encoder(folder):
    vectors = gf.Embedder(folder).encode(TEXTS)
    pipeline = make_pipeline(gf.Embedder(folder), LogisticRegression(C=7)).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(pipeline[0].transform(TEXTS), vectors)
    wanted = LogisticRegression(C=7).fit(vectors, LABELS)
    np.testing.assert_array_equal(pipeline.predict_proba(TEXTS), wanted.predict_proba(vectors))
    assert cross_val_score(pipeline, TEXTS, LABELS, cv=3).shape == (3,)
    # an encoder that was trained stays so
    tuned = gf.Embedder(folder, epochs=1, batch_size=4, threads=1).fit(TEXTS, LABELS)
    vectors = tuned.encode(TEXTS)
    pipeline = make_pipeline(tuned, LogisticRegression()).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(pipeline[0].transform(TEXTS), vectors)
    assert not np.array_equal(vectors, gf.Embedder(folder).encode(TEXTS))
    # classifiers give what their head reads
    clf = gf.TextClassifier(folder, epochs=1, batch_size=4, threads=1, lr=1e-3, max_length=13).fit(
        TEXTS, LABELS
    )
    np.testing.assert_array_equal(clf.transform(TEXTS), clf.embed(TEXTS))
