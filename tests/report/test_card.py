"""Model cards, read back by the Hub's own parser: what they say, what they leave blank, and what cannot get in."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData
from markdown_it import MarkdownIt
from scipy.stats import binomtest

import glassformer as gf
from glassformer.checkpoints.files import (
    GENERATED_README,
    MANIFEST,
    README,
    add_card_checksum,
    is_unedited_card,
)
from glassformer.report.card import LoadingInfo, Model, base_of, code, escaped, model_card, without_paths
from glassformer.tasks.card import build_card, find_run_folder, write_card
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.load import load

RUNS = Path(__file__).parents[1] / "house" / "saved" / "0.1.0" / "runs"
HOSTILE = (
    "a`b``: {x} | <script>alert(1)</script> [l](http://evil.example)\n---\nlicense: mit\n# h *b* _i_ @me"
)


def parsed(text: str) -> ModelCardData:
    """The metadata as the Hub reads it, and that a second reading gives the same."""
    data = ModelCard(text).data
    assert isinstance(data, ModelCardData)
    assert ModelCardData(**yaml.safe_load(data.to_yaml())).to_dict() == data.to_dict()
    return data


@pytest.fixture(scope="module")
def fitted():
    texts = ["the dog runs", "a small cat", "a dog", "the cat", "small dog", "a cat runs", "dog dog"]
    labels = ["dog", "cat", "dog", "cat", "dog", "cat", "dog"]
    how = {"epochs": 2, "batch_size": 3, "max_length": 11, "threads": 1, "seed": 3, "precision": "fp32"}
    return gf.TextClassifier("textcnn", **how).fit(texts, labels, validation=(texts[:5], labels[:5]))


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task_saves_a_card_that_the_hub_reads(task, tmp_path):
    estimator, data = TASKS[task].example_fixture()
    folder = estimator.fit(*data).save(tmp_path / "model")
    card = ModelCard.load(folder / README)
    assert card.data.library_name == "glassformer"
    assert task in card.data.tags
    assert card.data.pipeline_tag == TASKS[task].recipe.CARD[0]
    assert card.data.license is None
    assert "- license:" in card.text.split("## Blanks")[1]
    assert type(estimator).__name__ in card.text
    assert is_unedited_card(folder / README)
    assert README not in json.loads((folder / MANIFEST).read_text())["files"]
    assert load(folder).RECIPE.task == task  # as before


@pytest.mark.parametrize("kind", sorted(p.name for p in RUNS.iterdir()))
def test_a_runs_figures_stand_in_its_card(kind, tmp_path):
    run = RUNS / kind
    metrics = json.loads((run / "metrics.json").read_text())
    text = build_card(load(run), run)
    data = parsed(text)
    results = {(r.metric_type, r.metric_name): r.metric_value for r in data.eval_results}
    assert {r.dataset_split for r in data.eval_results} != {None}
    if metrics.get("test"):
        low, high = metrics["test"]["accuracy_interval"]
        assert results["accuracy", "accuracy"] == metrics["test"]["accuracy"]
        assert results["f1", "macro-F1"] == metrics["test"]["macro_f1"]
        line = next(row for row in text.splitlines() if row.startswith("| this model") and "accuracy" in row)
        assert f"{low:.4f} to {high:.4f}" in line
        for name, scores in metrics["baselines"].items():
            assert f"| `{name}` | `{metrics['judged']}` | accuracy | {scores['accuracy']:.4f}" in text
    elif "scores" in metrics:
        assert results["bleu", "BLEU"] == metrics["scores"]["validation"]["greedy"]["bleu"]
    elif "masked" in metrics:
        assert results["perplexity", "perplexity"] == metrics["masked"]["perplexity"]
    else:
        assert 0.12 in results.values()
    assert f"Seed {metrics['seed']};" in text
    assert str(run) not in text


def test_what_is_known_of_named_data_goes_into_the_metadata():
    config = {"name": "films", "data": {"source": "imdb", "split_seed": 5}}
    model = Model("TextClassifier", "text-classification", source="package w (org/base, SHA)")
    data = parsed(model_card(model, config))
    assert (data.language, data.datasets, data.base_model) == (["en"], ["stanfordnlp/imdb"], "org/base")
    config = {"data": {"source": "multi30k", "source_column": "de", "target_column": "fr"}}
    assert parsed(model_card(Model("Translator"), config)).language == ["de", "fr"]


def test_paths_of_the_machine_do_not_get_in():
    source = "local folder /home/me/secret/bert: encoder; adapter ./mine/lora"
    text = model_card(Model("TextClassifier", source=source), {"data": {"source": "/home/me/reviews.csv"}})
    assert "Trained on `reviews.csv`" in text
    assert "local folder bert: encoder; adapter lora" in text
    assert "/home" not in text
    assert "secret" not in text
    assert without_paths("org/name at revision 1") == "org/name at revision 1"


@pytest.mark.parametrize(
    ("source", "base"),
    [
        ("random (x, from scratch)", None),
        ("local folder /a/b: encoder", None),
        ("package minilm (org/mini-lm, SHA-256 checked): encoder", "org/mini-lm"),
        ("org/bert at revision abc: encoder and mlm head", "org/bert"),
        ("org/bert at its default revision: encoder", "org/bert"),
    ],
)
def test_a_base_model_is_named_where_the_hub_has_it(source, base):
    assert base_of(source) == base


def test_names_from_data_cannot_break_the_metadata_or_the_page():
    scores = {"n": 7, "accuracy": 0.5, "accuracy_interval": [0.1, 0.9]}
    about = {"labels": (HOSTILE, "|"), "source": HOSTILE, "settings": {"seed": 3}}
    config = {"name": HOSTILE, "summary": HOSTILE, "data": {"source": HOSTILE, "split_seed": HOSTILE}}
    metrics = {"test": scores, "judged": HOSTILE, "baselines": {HOSTILE: scores}, "openings": {HOSTILE: 1}}
    found = {"findings": [{"severity": "warning", "message": HOSTILE}]}
    text = model_card(Model("TextClassifier", "text-classification", **about), config, metrics, found)
    data = parsed(text)
    assert data.license is None
    assert data.model_name.startswith("a`b``: {x} |")
    assert data.eval_results[0].metric_value == 0.5
    body = text.split("\n---\n", 1)[1]
    assert "\n---\n" not in body
    assert "\nlicense: mit" not in body
    assert "\n# h" not in body
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    for tag in ("<script", "<a ", "<h1>h", "<img", "<em>i", "<strong>b"):
        assert tag not in page
    assert "&lt;script&gt;" in page
    cells = {row.count("<td") for row in page.split("<tr>") if "0.5000" in row}
    assert cells == {6}


def test_code_and_text_show_what_they_were_given():
    assert code("a|b") == "`a\\|b`"
    assert code("`x`") == "`` `x` ``"
    assert code("") == "`  `"
    assert escaped("a_b <i> x://y") == "a\\_b &lt;i&gt; x:\\//y"
    assert escaped("two\n lines") == "two lines"


def test_a_plain_fit_says_what_it_was_judged_on_and_that_it_chose(fitted):
    text = build_card(fitted)
    best = next(r for r in fitted.history_ if r.get("step") == fitted.best_step_ and "accuracy" in r)
    assert f"| this model | `validation` | accuracy | {best['accuracy']:.4f} |" in text
    assert "These also chose which weights to keep" in text
    assert "| `train` | 7 |" in text
    assert "| `validation` | 5 |" in text
    k = round(best["accuracy"] * 5)
    low, high = binomtest(k, 5).proportion_ci(method="wilson")
    assert f"{low:.4f} to {high:.4f}" in text
    assert "datasets: what it was trained on" in text


def test_examples_are_counted_and_kept(fitted, tmp_path):
    assert fitted.examples_ == {"train": 7, "validation": 5}
    again = load(fitted.save(tmp_path / "m"))
    assert again.examples_ == {"train": 7, "validation": 5}
    about = json.loads((tmp_path / "m" / "glassformer.json").read_text())
    assert about["examples"] == {"train": 7, "validation": 5}


def test_a_card_that_somebody_has_edited_stays(fitted, tmp_path):
    folder = fitted.save(tmp_path / "m")
    fitted.save(folder, overwrite=True)
    assert is_unedited_card(folder / README)
    assert not (folder / GENERATED_README).exists()
    (folder / README).write_text((folder / README).read_text() + "My words.\n")
    np.testing.assert_array_equal(load(folder).predict(["a dog"]), fitted.predict(["a dog"]))  # undamaged
    fitted.save(folder, overwrite=True)
    assert (folder / README).read_text().endswith("My words.\n")
    assert is_unedited_card(folder / GENERATED_README)
    before = (folder / README).read_bytes()
    assert write_card(folder, fitted).name == GENERATED_README
    assert (folder / README).read_bytes() == before
    (folder / README).unlink()
    assert write_card(folder, fitted).name == README


def test_a_signature_is_of_every_character(tmp_path):
    file = tmp_path / README
    file.write_text(add_card_checksum("# a\n"))
    assert is_unedited_card(file)
    for other in (file.read_text().replace("# a", "# b"), "# a\n", add_card_checksum("# a") + "\nx", ""):
        file.write_text(other)
        assert not is_unedited_card(file)
    file.write_bytes(b"\xff\xfe")
    assert not is_unedited_card(file)
    assert not is_unedited_card(tmp_path)


def test_the_form_of_the_hub_says_how_transformers_opens_it():
    model = Model("TextClassifier", "text-classification")
    whole = model_card(model, loading=LoadingInfo("transformers", "BertForSequenceClassification", True))
    assert parsed(whole).library_name == "transformers"
    assert 'pipeline("text-classification", model=".")' in whole
    part = model_card(model, loading=LoadingInfo("transformers", "BertModel", False))
    assert parsed(part).pipeline_tag is None
    assert "python run.py" in part


def test_a_run_is_found_by_its_folder_or_its_model(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUNS / "text", run)
    assert find_run_folder(run) == find_run_folder(run / "model") == run
    shutil.copytree(RUNS / "text" / "model", tmp_path / "alone")
    assert find_run_folder(tmp_path / "alone") is None
    (run / "doctor.json").write_text("{")  # a damaged file is left out
    (run / "metrics.json").write_text("[")
    assert "Trained on" in build_card(load(run), run)
