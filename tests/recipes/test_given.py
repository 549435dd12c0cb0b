"""Recipes as the documents set them are held to a table of facts; each fact's check notices another setting."""

from collections import Counter

import pytest

from glassformer.data.folders import find_data_file
from glassformer.report.published import published_rows
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.text_classification.estimator import example_sentences

from .built import built
from .facts import FACTS, Fact


@pytest.mark.parametrize("fact", FACTS, ids=str)
def test_a_fact_holds_in_what_is_built(fact: Fact):
    assert fact.look(built(fact.recipe)) == fact.wanted


@pytest.mark.parametrize("fact", FACTS, ids=str)
def test_a_fact_notices_another_setting(fact: Fact):
    assert fact.look(built(fact.recipe, fact.change)) != fact.wanted


def test_every_row_with_a_recipe_has_facts():
    known = Counter(fact.row for fact in FACTS)
    rows = [row for row in published_rows() if row.original_recipes]
    assert len(FACTS) > 100
    assert {row.number for row in rows} == set(known) == set(range(1, 14)) - {11}
    assert {fact.recipe for fact in FACTS} <= {name for row in rows for name in row.original_recipes}


def test_the_five_sentences_are_read_from_the_data_folder(tmp_path, monkeypatch):
    wanted = load_recipe("imdb-bert-given").evaluate
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert example_sentences(wanted) == []
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "d0-sentences.txt").write_text("Fine!\nPoor.\nSo so.\n")
    assert find_data_file("given/d0-sentences.txt") is not None
    assert example_sentences(wanted) == ["Fine!", "Poor.", "So so."]
