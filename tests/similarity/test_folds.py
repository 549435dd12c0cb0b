"""Cosines in folds and beside each other: every pair is judged once by a model new to its first text."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.cli.tiny import sets
from tests.commands import ok, refused
from tests.tables import read_csv, write_csv

from glassformer.errors import ConfigError, DataError
from glassformer.study.compare import compare_runs
from glassformer.study.folds import cross_validate
from glassformer.study.results import read_run_predictions
from glassformer.study.review import review
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task

KEYS = ["d_model=14", "num_layers=1", "num_heads=2", "d_ff=11", "min_count=1", "batch_size=3", "bootstrap=23"]
KEYS += ["model=encoder-mini", "threads=1", "precision=fp32", "maps=0"]
ANIMALS = ("dog", "cat", "car")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Each first text stands in two rows; a pair is alike where both name one thing."""
    rows = []
    for i in range(34):
        one, other = ANIMALS[i // 2 % 3], ANIMALS[(i // 2 + i % 2) % 3]
        rows.append((f"a {one} {i // 2}", f"the {other} {i}", 5 * (one == other)))
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    return write_csv(path, ("sentence1", "sentence2", "score"), rows)


def recipe(table: Path, *more: str):
    given = [f"source={table}", "test_size=0.3", "validation_size=5", *KEYS, "epochs=2", *more]
    return load_recipe("stsb-minilm", given)


@pytest.fixture(scope="module")
def folded(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds") / "folds"
    return folder, cross_validate(recipe(table, "test_size=none", "validation_size=none"), folder, 3)


def rows_of(folder: Path) -> list[dict[str, str]]:
    return read_csv(folder / "pairs.csv")


def test_every_pair_has_one_cosine_from_a_model_new_to_its_first_text(folded):
    folder, metrics = folded
    rows = rows_of(folder)
    numbers = json.loads((folder / "folds.json").read_text())["assignment"]
    assert len(rows) == len(numbers) == 34 == metrics["test"]["pairs"]
    folds_of: dict[str, set[int]] = {}
    for row, fold in zip(rows, numbers, strict=True):
        folds_of.setdefault(row["first"], set()).add(fold)
    assert all(len(own) == 1 for own in folds_of.values())
    scores, cosines = (np.array([float(row[key]) for row in rows]) for key in ("score", "cosine"))
    assert metrics["test"]["spearman"] == pytest.approx(spearmanr(scores, cosines).statistic, abs=1e-4)
    for fold in metrics["folds"]:
        own = np.array(numbers) == fold["fold"]
        assert fold["spearman"] == pytest.approx(spearmanr(scores[own], cosines[own]).statistic, abs=1e-4)
    assert "Cross-validation folds" in (folder / "report.html").read_text()


def test_a_finished_fold_stays_and_a_review_of_labels_is_refused(folded, table):
    folder, metrics = folded
    kept = (folder / "fold-0" / "fold.json").stat().st_mtime_ns
    (folder / "fold-1" / "fold.json").unlink()
    again = cross_validate(recipe(table, "test_size=none", "validation_size=none"), folder, 3)
    assert again["test"] == metrics["test"]
    assert (folder / "fold-0" / "fold.json").stat().st_mtime_ns == kept
    with pytest.raises(ConfigError, match=r"pairs\.csv"):
        review(folder)


def test_pairs_without_scores_are_judged_by_whether_partners_are_found(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [f"source={table}", "score=none", "test_size=none", "validation_size=none", *KEYS, "epochs=1"]
    done = ok("cross-validate", "stsb-minilm", *sets(*given), "--folds", "2", "--out", "folds")
    assert "Partner is the nearest" in done.out
    metrics = json.loads(Path("folds/metrics.json").read_text())
    assert metrics["measure"] == "found"
    means = [fold["found"] for fold in metrics["folds"]], [fold["n"] for fold in metrics["folds"]]
    assert metrics["test"]["found"] == pytest.approx(np.average(means[0], weights=means[1]))


def test_runs_are_compared_by_their_ranks_on_the_same_pairs(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, more in (("one", ()), ("other", ("epochs=3", "lr=0.01"))):
        run_task(recipe(table, *more), Path(name))
    results = compare_runs([Path("one"), Path("other")], bootstrap=29)
    assert results["measure"] == "spearman"
    for arm in results["arms"]:
        rows = rows_of(Path(arm["name"]))
        wanted = spearmanr(*zip(*((float(r["score"]), float(r["cosine"])) for r in rows), strict=True))
        assert arm["spearman"]["mean"] == pytest.approx(wanted.statistic, abs=1e-4)
        assert "r2" not in arm
    assert results["arms"][1]["test"] == "permutation"
    assert "TF-IDF cosine" in results["baselines"]
    assert "Spearman" in ok("compare", "one", "other", "--out", "both").out
    assert "Spearman" in Path("both/report.html").read_text()
    assert "have no metric 'r2'" in refused("compare", "one", "other", "--measure", "r2")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("1,much", r"pairs.csv, row 2: a score or cosine is not a number"),
        (",0.5", "the pairs have no scores"),
    ],
)
def test_a_damaged_table_is_named(cells, said, tmp_path):
    (tmp_path / "pairs.csv").write_text(f"first,second,score,cosine\na,b,{cells}\n")
    with pytest.raises(DataError, match=said):
        read_run_predictions(tmp_path)
