"""What a study's file may say, and what comes of it, before anything is run."""

import tomllib
from pathlib import Path

import pytest

from glassformer.config import build, to_dict, to_toml
from glassformer.errors import ConfigError
from glassformer.study.grid import Study, expand, folder_name, load_study


@pytest.fixture
def study(base: Path, tmp_path: Path):
    """Writes a study's file beside a copy of the base recipe."""
    (tmp_path / "tiny.toml").write_bytes(base.read_bytes())

    def write(text: str, recipe: str = 'recipe = "tiny.toml"') -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(f"{recipe}\n{text}", encoding="utf-8")
        return path

    return write


def test_every_combination_and_every_named_arm(study):
    grid = "[grid]\nlr=[0.1, 1e-3]\npooling=['max', 'first']\n"
    arms = expand(load_study(study(f"seeds=[3, 5]\n[set]\nepochs = 4\n{grid}[arms.wide]\nd_ff = 13\n")))
    values = [(lr, pooling) for lr in (0.1, 1e-3) for pooling in ("max", "first")]
    assert [a.name for a in arms] == [*(f"lr={lr}, pooling={pooling}" for lr, pooling in values), "wide"]
    assert [(a.recipe.train.lr, a.recipe.model.pooling) for a in arms[:4]] == values
    assert all(a.recipe.train.epochs == 4 and a.recipe.evaluate.split == "validation" for a in arms)
    assert (arms[4].recipe.model.d_ff, arms[0].recipe.model.d_ff) == (13, 11)
    assert arms[4].with_seed(5).train.seed == 5


def test_settings_are_laid_over_the_file(study):
    asked = load_study(study("[set]\nepochs = 4\n[grid]\nlr = [0.1, 0.2]\n"))
    assert {a.recipe.train.epochs for a in expand(asked, {"epochs": 7})} == {7}


def test_an_arm_may_have_another_base(study):
    text = 'split = "test"\n[arms.a]\n[arms.b]\nlr = 0.3\n'
    one, other = (expand(load_study(study(own)))[1] for own in (text, text + 'recipe = "tiny.toml"\n'))
    assert one.recipe == other.recipe


def test_a_study_survives_its_file(study):
    asked = load_study(study("seeds = [0, 2]\n[grid]\nlr = [0.1, 0.2]\n[arms.'x y']\nepochs = 3\n"))
    assert to_dict(build(Study, tomllib.loads(to_toml(asked)))) == to_dict(asked)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "two arms or more"),
        ("[arms.one]\nlr = 0.1", "two arms or more"),
        ("[grid]\nlr = 0.1", "not a list"),
        ("[grid]\nlr = []", "not a list"),
        ("[grid]\nlearning_rate = [0.1, 0.2]", "unknown key 'learning_rate'"),
        ("[grid]\nlr = [0.1, 'high']", "got 'high'"),
        ("[grid]\nlr = [0.1, -1.0]", "out of range"),
        ("[grid]\nlr = [0.1, 0.1]", "two arms are called"),
        ("[arms.a]\n[arms.b]", "the same recipe"),
        ("[arms]\na = 3\nb = 4", "is not a table"),
        ("[grid]\nseed = [0, 1]", "List them in seeds"),
        ("seeds = [1, 1]\n[grid]\nlr = [0.1, 0.2]", "not distinct seeds"),
        ("seeds = []\n[grid]\nlr = [0.1, 0.2]", "not distinct seeds"),
        ("baseline = 'lr=1'\n[grid]\nlr = [0.1, 0.2]", r"no arm 'lr=1'\. Did you mean 'lr=0.1'"),
        ("ladder = ['lr=0.1', 'lr=1']\n[grid]\nlr = [0.1, 0.2]", r"no arm 'lr=1'"),
        ("[grid]\nlimit = [10, 20]", "evaluated on the same examples"),
        ("[grid]\nsplit_seed = [1, 2]", "evaluated on the same examples"),
        ("[grid]\non_bad_row = ['refuse', 'skip']", "evaluated on the same examples"),
        ("[gird]\nlr = [1]", r"unknown key 'gird'\. Did you mean 'grid'"),
        ("bootstrap = 3\n[grid]\nlr = [0.1, 0.2]", "too few"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(study, text, message):
    with pytest.raises(ConfigError, match=message):
        expand(load_study(study(text)))


def test_no_such_study_or_base(study, tmp_path):
    grid = "[grid]\nlr=[1.0,2.0]"
    for asked, said in (
        (lambda: "europe-poling", r"no study 'europe-poling'\. Did you mean 'europe-pooling'"),
        (lambda: tmp_path / "none.toml", "no such recipe file"),
        (lambda: study(grid, recipe=""), "no base recipe"),
        (lambda: study(grid, recipe='recipe = "europa"'), "no recipe 'europa'"),
    ):
        with pytest.raises(ConfigError, match=said):
            expand(load_study(asked()))


def test_folders_are_safe_and_distinct():
    names = ["lr=0.1", "a b", "a_b", "../../etc", "..", "ä", "ö", "x" * 200, "x" * 201, "p=1, q=2"]
    folders = [folder_name(name) for name in names]
    assert len({f.lower() for f in folders}) == len(names)
    assert folders[0] == "lr=0.1"
    assert all("/" not in f and not f.startswith(".") and len(f) < 100 and f.isascii() for f in folders)
