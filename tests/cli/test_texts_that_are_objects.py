"""A column of texts that holds objects or lists: one line, the same for every verb, and no row is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .tiny import sentences, settings

VERBS = [
    ["train", "--text", "FILE", "--out", "new", *settings()],
    ["evaluate", "RUN", "FILE"],
    ["calibrate", "RUN", "--data", "FILE"],
    ["predict", "RUN", "FILE"],
    ["predict", "RUN", "FILE", "--out", "answers.csv"],
    ["embed", "RUN", "FILE", "--out", "vectors.npy"],
    ["data", "doctor", "FILE"],
    ["data", "show", "FILE"],
    ["cross-validate", "--text", "FILE", "--out", "new", *settings()],
    ["review-labels", "--text", "FILE", "--out", "new", *settings()],
    ["train", "europe-mlm", "--data", "FILE", "--out", "new"],
]
KINDS = {
    "an object ('en', 'de')": lambda text: {"en": text, "de": text},
    "an object ('en')": lambda text: {"en": text},
    "a list": lambda text: [text],
}


def write(file: Path, make, which) -> Path:
    rows = [
        {"text": make(text) if which(i) else text, "label": label}
        for i, (text, label) in enumerate(sentences(41))
    ]
    if file.suffix == ".parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text(json.dumps(rows) if file.suffix == ".json" else "\n".join(map(json.dumps, rows)))
    return file


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words[:2]))
def test_every_verb_names_file_and_row(refused, run, tmp_path, words):
    for ending in ("jsonl", "json", "parquet"):
        for said, make in KINDS.items():
            for first, which in ((1, lambda i: True), (5, lambda i: i == 4)):
                if ending == "parquet" and first == 5:
                    continue  # a column of it has one kind
                if words[0] == "data" and first == 5:
                    continue  # these count such rows and show the others
                file = write(tmp_path / f"t.{ending}", make, which)
                line = refused(*({"FILE": file, "RUN": run}.get(word, word) for word in words))
                where = (
                    f"t.{ending}, row {first}" if "no row" not in line else "no row can be used; the first"
                )
                assert f"{where}: the text is not a string but {said}" in line
                assert f"t.{ending}" in line
                assert "Write the text itself in its place" in line
    assert not Path("new").exists()


def test_such_rows_are_left_out_where_asked(gf, run, tmp_path):
    file = write(tmp_path / "t.jsonl", KINDS["an object ('en')"], lambda i: i == 4)
    result = gf("evaluate", run, file, "--on-bad-row", "skip", "--json")
    assert json.loads(result.out)["n"] == 40
    result = gf("predict", run, file, "--on-bad-row", "skip", "--json")
    assert result.code == 0
    answers = json.loads(result.out)["answers"]
    assert [bool(a.get("error")) for a in answers].count(True) == 1
    assert "not a string but an object ('en')" in answers[4]["error"]
