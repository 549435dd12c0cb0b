"""recipe.py: what a recipe can say, and how it is found."""

import dataclasses
import tomllib
import typing
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from glassformer import TextClassifier
from glassformer.config import INF, RANGES, build, to_toml
from glassformer.errors import ConfigError
from glassformer.tasks import catalog
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.text_classification.recipe import Recipe

SECTIONS = {
    f.name: typing.get_type_hints(Recipe)[f.name]
    for f in dataclasses.fields(Recipe)
    if dataclasses.is_dataclass(typing.get_type_hints(Recipe)[f.name])
}
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def strategy(hint: object, name: str = "") -> st.SearchStrategy:
    """Any value that a field with this type hint, and the range of its name, takes."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        fields = {f.name: strategy(hints[f.name], f.name) for f in dataclasses.fields(hint)}

        def made(**values: object) -> object:
            try:
                return hint(**values)  # type: ignore[operator]
            except ConfigError:  # keys that do not go together
                reject()

        return st.builds(made, **fields)  # type: ignore[arg-type]
    low, high = RANGES.get(name, (None, None))
    high = None if high == INF else high
    if name == "betas":
        return st.tuples(st.floats(0, 1), st.floats(0, 1))
    if name == "lora_targets":
        names = st.sampled_from(["q", "k", "v", "o", "up", "down", "all-linear"])
        return st.one_of(st.lists(names, min_size=1, max_size=3).map(tuple), names)
    if typing.get_origin(hint) is tuple:
        return st.lists(strategy(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if options := [option for option in typing.get_args(hint) if isinstance(option, type)]:
        return st.one_of([strategy(option, name) for option in options])
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    plain = {
        str: text,
        bool: st.booleans(),
        int: st.integers(-(2**40) if low is None else int(low), 2**40 if high is None else int(high)),
        float: st.floats(low, high, allow_nan=False),
        type(None): st.none(),
        dict: st.dictionaries(text, st.floats(0, 10), min_size=1, max_size=3),
    }
    return plain[hint]  # type: ignore[index]


@given(strategy(Recipe))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_any_recipe_survives_its_file(recipe: Recipe):
    assert build(Recipe, tomllib.loads(to_toml(recipe))) == recipe


def test_no_key_stands_in_two_sections():
    keys = [f.name for section in SECTIONS.values() for f in dataclasses.fields(section)]
    assert len(keys) == len(set(keys))


def test_every_default_fits_its_own_type():
    assert build(Recipe, tomllib.loads(to_toml(Recipe()))) == Recipe()


def test_fit_parameters_are_the_three_sections_in_order():
    parameters = TextClassifier.defaults()
    wanted = [f.name for name in ("text", "model", "train") for f in dataclasses.fields(SECTIONS[name])]
    assert list(parameters) == wanted
    assert parameters["lr"] == Recipe().train.lr
    assert parameters["max_length"] == Recipe().text.max_length


# --- finding and loading --------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe folder of the test's own in place of the package's."""
    folder = tmp_path / "recipes"
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "porridge.toml").write_text('summary = "Oats"\n[train]\nepochs = 4\n')
    monkeypatch.setattr("glassformer.tasks.catalog.RECIPES", folder)
    return folder


def test_load_by_name_and_by_path(shelf: Path):
    by_name = load_recipe("porridge")
    assert by_name.name == "porridge"
    assert by_name.train.epochs == 4
    assert by_name.train.lr == Recipe().train.lr
    assert load_recipe(shelf / "text" / "porridge.toml") == by_name
    assert load_recipe(str(shelf / "text" / "porridge.toml")) == by_name


def test_overrides_are_laid_over_the_file(shelf: Path):
    recipe = load_recipe("porridge", ["epochs=7", "train.seed=3", "source=oats.csv", "max_length=96"])
    assert (recipe.train.epochs, recipe.train.seed) == (7, 3)
    assert (recipe.data.source, recipe.text.max_length) == ("oats.csv", 96)


def test_unknown_recipe_names_the_nearest(shelf: Path):
    with pytest.raises(ConfigError, match=r"no recipe 'poridge'\. Did you mean 'porridge'\?"):
        load_recipe("poridge")
    with pytest.raises(ConfigError, match="no such recipe file"):
        load_recipe(shelf / "poridge.toml")


def test_unknown_keys_name_file_section_and_nearest(shelf: Path):
    (shelf / "text" / "burnt.toml").write_text("[train]\nepoch = 4\n")
    with pytest.raises(
        ConfigError, match=r"burnt\.toml, \[train\]: unknown key 'epoch'\. Did you mean 'epochs'\?"
    ):
        load_recipe("burnt")
    (shelf / "text" / "burnt.toml").write_text("[trian]\nepochs = 4\n")
    with pytest.raises(ConfigError, match=r"burnt\.toml: unknown key 'trian'\. Did you mean 'train'\?"):
        load_recipe("burnt")


ODD = [1, -1, 1.5, 10**400, True, "x", "", [], [1], [[1]], [{}], {}, {"a": [1]}, date(2020, 1, 1)]


@pytest.mark.parametrize("task", catalog.recipe_classes())
def test_a_value_of_a_wrong_type_is_refused_by_its_key(task: str):
    """In every table of every kind of recipe: the value is taken, or the line names the key."""
    cls = catalog.recipe_classes()[task]
    hints = typing.get_type_hints(cls)
    refused = []
    for field in dataclasses.fields(cls):
        inner = dataclasses.fields(hints[field.name]) if dataclasses.is_dataclass(hints[field.name]) else ()
        for path in [(field.name,), *((field.name, key.name) for key in inner)]:
            for odd in ODD:
                values = {path[0]: odd if len(path) == 1 else {path[1]: odd}}
                try:
                    recipe = catalog.build_recipe({"task": task} | values, "mine.toml")
                except ConfigError as error:
                    refused.append((path, str(error)))
                else:
                    assert tomllib.loads(to_toml(recipe))["task"] == task
    assert len(refused) > 100
    for path, line in refused:
        assert any(name in line for name in path), line
        assert "\n" not in line
