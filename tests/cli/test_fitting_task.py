"""``train --text`` with data of another task: the kind is recognized, and the fitting recipe is taken."""

import json
import random
from pathlib import Path

import pytest

from glassformer.cli.own_data import RECIPES_BY_KIND, RecipeRequest, choose_recipe, resolve_request
from glassformer.data.kinds import detect_kind
from glassformer.tasks.catalog import load_recipe

from .every import SMALL
from .tiny import pictures, sets, settings

NAMES, TOWNS = ("Ann", "Bob", "Cy", "Dee"), ("Rome", "Oslo", "Bern", "Hanoi")


def squad(count: int, rng: random.Random) -> str:
    data = []
    for i in range(count):
        name, town = rng.choice(NAMES), rng.choice(TOWNS)
        context = f"{name}, number {i}, was born in {town} and lived there."
        answer = {"text": town, "answer_start": context.index(town)}
        qa = {"id": f"q{i}", "question": f"Where was {name} born?", "answers": [answer]}
        data.append({"title": str(i), "paragraphs": [{"context": context, "qas": [qa]}]})
    return json.dumps({"version": "1.1", "data": data}, indent=1)


def conll(count: int, rng: random.Random, between: str = "\t") -> str:
    lines = [(rng.choice(NAMES), "B-per", "saw", rng.choice(TOWNS), "B-loc", i) for i in range(count)]
    return "".join(
        f"{a}{between}{b}\n{c}{between}O\n{d}{between}{e}\n{i}{between}O\n\n" for a, b, c, d, e, i in lines
    )


def table(names: list[str], between: str, *columns) -> str:
    lines = [between.join(names)] if names else []
    rows = [between.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([*lines, *rows]) + "\n"


def files() -> dict[str, tuple[str, str]]:
    """Name of a file -> what it holds, and its kind."""
    rng = random.Random(0)
    one = [f"{rng.choice(NAMES)} was in {rng.choice(TOWNS)} on day {i}" for i in range(30)]
    two = [f"{rng.choice(NAMES)} war in {rng.choice(TOWNS)} am Tag {i}" for i in range(30)]
    label = [rng.choice(["yes", "no"]) for _ in range(30)]
    score = [f"{5 * rng.random():.2f}" for _ in range(30)]
    bits = [[rng.randrange(2) for _ in range(30)] for _ in range(3)]
    tags = ["B-per", "O", "O"]
    words = [{"tokens": [rng.choice(NAMES), "saw", str(i)], "ner_tags": tags} for i in range(30)]
    rome = {"answers": {"text": ["Rome"], "answer_start": [10]}}
    flat = [{"question": f"Where was {i}?", "context": f"It was in Rome, {i}."} | rome for i in range(30)]
    lines = lambda rows: "\n".join(map(json.dumps, rows))  # noqa: E731
    return {
        "squad.json": (squad(30, rng), "answers"),
        "squad.jsonl": (lines(flat), "answers"),
        "flat.json": (json.dumps(flat), "answers"),
        "a.conll": (conll(30, rng), "tags"),
        "conll.txt": (conll(30, rng), "tags"),
        "blanks.txt": ("-DOCSTART- O\n\n" + conll(30, rng, " "), "tags"),
        "words.jsonl": (lines(words), "tags"),
        "sts.csv": (table(["sentence1", "sentence2", "score"], ",", one, two, score), "scored pairs"),
        "sts.tsv": (table(["a", "b", "similarity"], "\t", one, two, score), "scored pairs"),
        "translations.tsv": (table(["en", "de"], "\t", one, two), "pairs"),
        "translations.csv": (table(["source", "target"], ",", one, two), "pairs"),
        "nli.csv": (table(["premise", "hypothesis", "label"], ",", one, two, label), "texts"),
        "labels.csv": (table(["text", "label"], ",", one, label), "texts"),
        "other.csv": (table(["comment on it", "mood"], ",", one, label), "texts"),
        "bits.csv": (table(["text", "joy", "anger", "fear"], ",", one, *bits), "texts"),
        "tabs.txt": (table([], "\t", label, one), "texts"),
        "texts.txt": ("\n".join(one), "texts"),
    }


FILES = files()


@pytest.fixture
def written(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, (content, _) in FILES.items():
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_the_kind_and_its_recipe(written, capsys, name):
    kind = FILES[name][1]
    assert detect_kind(name) == kind
    found = resolve_request(RecipeRequest(text=name), "train", "--text FILE")
    if kind == "texts":
        assert (found.text, found.recipe, found.own_data) == (name, None, True)
        return
    fitting = RECIPES_BY_KIND[kind].recipe
    assert (found.text, found.recipe, found.data, found.own_data) == (None, fitting, name, False)
    assert f"running glassformer train {fitting} --data {name}" in capsys.readouterr().err
    by_word = resolve_request(RecipeRequest(name), "train", "--text FILE")
    assert (by_word.recipe, by_word.data) == (fitting, name)
    recipe = choose_recipe(None, name)
    assert recipe.task == load_recipe(fitting).task
    assert recipe.data.source == str(written / name)
    assert recipe.name == Path(name).stem
    assert (recipe.data.validation_size, recipe.data.test_size) == (0.1, 0.1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sts.csv", ["target=number"]),
        ("sts.csv", ["label_column=score", "pair_column=sentence2"]),
        ("translations.csv", ["label_column=target"]),
    ],
)
def test_what_is_said_of_columns_goes_before(written, name, settings):
    assert resolve_request(RecipeRequest(text=name, settings=tuple(settings)), "train", "").text == name


def test_a_folder_of_images_as_text(written, capsys):
    pictures(written / "images", {"dark": 3, "light": 3})
    found = resolve_request(RecipeRequest(text="images"), "train", "")
    assert (found.text, found.images) == (None, "images")
    assert "read as --images images" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["conll.txt", "bits.csv", "tabs.txt"])
def test_it_is_trained(as_json, ok, written, name):
    small = settings() if FILES[name][1] == "texts" else sets(*SMALL, "min_count=1")
    model = [] if FILES[name][1] == "texts" else ["--model", "encoder-base"]
    option = [] if name == "conll.txt" else ["--text"]  # a word that is no recipe is taken for data
    result = ok("train", *option, name, "--out", "new", *model, *small)
    metrics = json.loads(Path("new/metrics.json").read_text())
    assert metrics["test"] is not None
    if name == "bits.csv":
        assert metrics["label_names"] == ["anger", "fear", "joy"]
        assert "multi-label, detected by content: joy, anger, fear" in result.out + result.err
        ok("evaluate", "new", "bits.csv", "--json")
        told = as_json("predict", "new", "bits.csv")
        assert told["classes"] == ["anger", "fear", "joy"]
        found = as_json("data", "doctor", "bits.csv")
        assert {"anger", "fear", "joy"} <= {*found["figures"]["splits"]["train"]["classes"]}
    if name == "tabs.txt":
        assert "tabs.txt is read as a table: 2 columns with tabs between them" in result.out + result.err
        assert as_json("evaluate", "new", "tabs.txt")["n"] == 30
        told = as_json("predict", "new", "tabs.txt")
        assert told["answers"][0]["text"] == FILES[name][0].splitlines()[0].split("\t")[1]
