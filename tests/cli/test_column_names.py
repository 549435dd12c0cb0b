"""The columns of a table that a model of single texts reads: by the name of the training's, never as pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import glassformer
from glassformer.cli.app import main

from .tiny import sentences, write_csv


@pytest.fixture(scope="module")
def of_bodies(tmp_path_factory) -> Path:
    """A run whose column of texts was found by what it holds."""
    folder = tmp_path_factory.mktemp("bodies")
    table = write_csv(folder / "own.csv", sentences(41), header="body,label")
    fast = ["--set", "baselines=false", "--set", "bootstrap=20"]
    assert main(["train", "--text", str(table), "--model", "tfidf", *fast, "--out", str(folder / "run")]) == 0
    return folder / "run"


OTHERS = [(text[::-1], text, label) for text, label in sentences(11, seed=3)]


def test_the_column_of_the_training_is_read_among_others(of_bodies, gf, tmp_path):
    table = write_csv(tmp_path / "t.csv", OTHERS, header="text,body,label")
    wanted = glassformer.load(of_bodies).predict([text for _, text, _ in OTHERS]).tolist()
    found = gf("predict", of_bodies, table)
    assert [line.split("\t")[0] for line in found.out.splitlines()] == wanted
    figures = json.loads(gf("evaluate", of_bodies, table, "--json").out)
    assert figures["accuracy"] == sum(a == b[2] for a, b in zip(wanted, OTHERS, strict=True)) / 11


@pytest.mark.parametrize("verb", ["evaluate", "predict", "calibrate"])
@pytest.mark.parametrize("names", ["title,content_of_it,label", "premise,hypothesis,label"])
def test_a_model_of_single_texts_reads_no_pairs(verb, names, of_bodies, refused, tmp_path):
    table = write_csv(tmp_path / "t.csv", OTHERS, header=names)
    said = refused(verb, of_bodies, "--data", table)
    assert "several columns look like texts: " in said
    assert said.endswith("Name one with --text-column")
