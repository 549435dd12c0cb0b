"""A linear model as an ONNX folder: the same features in plain Python, the same labels without this package."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import glassformer as gf
from glassformer.checkpoints.ngrams import ngrams_metadata
from glassformer.data.ngrams import Ngrams
from glassformer.data.text_pairs import TextPair
from glassformer.errors import ConfigError
from glassformer.export.plain_ngrams import features, index_ngrams
from glassformer.tasks.task import export

TEXTS = """The ferry was late, and nobody said why!|ÉTÉ naïve Straße ΑΣ İstanbul <b>bold</b> &amp; more
don't  stop—at all|x|  two\tlines\\nhere_and_there |你好，世界 한국어|The tram was on time, and everybody said so."""
TEXTS = [text.replace("\\n", "\n") for text in TEXTS.replace("\n", "|").split("|")]
LABELS = ["late", "late", "on time", "on time", "late", "on time", "on time"]
NOISE = ["late late ferry", "nothing known: ЖЖ", "", "tram on time?"]


@pytest.mark.parametrize(
    "options",
    [{}, {"lowercase": False}, {"strip_accents": True}]
    + [{"clean": mode} for mode in ("html", "words", "syllables", "trim")],
    ids=str,
)
def test_plain_python_gives_the_same_features(options):
    ngrams, _ = Ngrams.fitted(TEXTS, min_count=1, **options)
    about = index_ngrams(ngrams_metadata(ngrams) | {"idf": ngrams.idf.tolist()})
    for text in [*TEXTS, *NOISE]:
        row = ngrams.rows([text])
        wanted = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        assert features(text, about) == pytest.approx(wanted, abs=1e-12)


def test_plain_python_gives_the_same_features_of_pairs():
    pairs = [TextPair(a, b) for a, b in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]
    ngrams, _ = Ngrams.fitted(pairs, min_count=1)
    about = index_ngrams(ngrams_metadata(ngrams) | {"idf": ngrams.idf.tolist()})
    for pair in pairs:
        row = ngrams.rows([pair]).toarray()[0]
        found = np.zeros(ngrams.width)
        for i, value in features(pair.sides, about).items():
            found[i] = value
        np.testing.assert_allclose(found, row, atol=1e-12)


def run(folder, *texts: str) -> list[list[str]]:
    """What run.py says of texts, without this package on its path."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, str(folder / "run.py"), *texts]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["classes", "several labels", "pairs", "numbers"])
def test_the_folder_answers_alone(kind, tmp_path, exporting):
    X, y, estimator = TEXTS * 3, LABELS * 3, gf.TextClassifier("tfidf", strip_accents=True)
    given = TEXTS[:3]
    if kind == "several labels":
        y = [{label, "short"} if len(text) < 20 else {label} for text, label in zip(X, y, strict=True)]
    if kind == "pairs":
        X = list(zip(X, [X[-1], *X[:-1]], strict=True))
        given = [side for pair in X[:3] for side in pair]
    if kind == "numbers":
        y, estimator = [float(len(text)) for text in X], gf.TextRegressor("tfidf")
    fitted = estimator.fit(X, y)
    found = export(fitted, "onnx", tmp_path / "onnx", X)
    assert found["largest_difference"] < 1e-5
    names = {file.name for file in (tmp_path / "onnx").iterdir()}
    assert names == {"model.onnx", "ngrams.json", "onnx.json", "run.py", "manifest.json"}
    about = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    assert about["inputs"] == {"ids": ["batch", "length"], "values": ["batch", "length"]}
    lines = run(tmp_path / "onnx", *given)
    outputs = fitted.outputs(X[:3])
    if kind == "numbers":
        assert [float(line[0]) for line in lines] == pytest.approx(outputs[:, 0].tolist(), rel=1e-4)
    elif kind == "several labels":
        assert [set(line[::2]) for line in lines] == [set(map(str, s)) for s in fitted.predict(X[:3])]
    else:
        assert [line[0] for line in lines] == fitted.predict(X[:3]).tolist()
        assert [float(line[1]) for line in lines] == pytest.approx(outputs.max(1).tolist(), abs=1e-4)


@pytest.mark.parametrize(("form", "options"), [("hf", {}), ("onnx", {"int8": True})])
def test_forms_of_networks_name_another_model(form, options, tmp_path):
    clf = gf.TextClassifier("tfidf").fit(TEXTS * 3, LABELS * 3)
    with pytest.raises(ConfigError, match="model=all-minilm-l6-v2"):
        export(clf, form, tmp_path / "out", TEXTS, **options)
    assert not (tmp_path / "out").exists()
