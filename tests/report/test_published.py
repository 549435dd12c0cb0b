"""The table of published systems: what is read from result files and run folders, and what is said of the rest."""

import json
import re

import pytest

from glassformer.errors import ConfigError
from glassformer.report.charts import curves
from glassformer.report.published import (
    check,
    duration,
    duration_range,
    find_row,
    finding_script,
    headline,
    page,
    pages,
    published_rows,
    read_finding,
    read_recipe_results,
    runs_on_random_weights,
    seed_rows,
)

from ..benchmark_tools import BENCHMARKS, benchmark

SEARCHED = {"greedy": {"bleu": 30.0}, "beam": {"bleu": 31.25}}


def write_result(folder, name, accuracies, **more):
    about = {"machine": {"cpu": "X", "threads": 2}, "date": "2026-01-02T03:04:05"}
    runs = [
        about | {"test": {"accuracy": a}, "seconds": {"train": 60.0 * (i + 1)}}
        for i, a in enumerate(accuracies)
    ]
    (folder / f"recipe-{name}.json").write_text(json.dumps({"runs": runs} | more), encoding="utf-8")


@pytest.mark.parametrize(
    ("fastest", "slowest", "told"),
    [
        (720, 1860, "12 to 31 min"),
        (600, 659, "10 min"),  # less than a tenth apart: the mean
        (600, 670, "10 to 11 min"),
        (3.0, 3.4, "3 s"),  # more than a tenth, and the same in words
        (10, 23, "10 to 23 s"),
        (60, 120, "60 s to 2 min"),
        (4680, 7200, "78 min to 2 h 0 min"),
        (5400, 7200, "1 h 30 min to 2 h 0 min"),
    ],
)
def test_durations_of_one_and_of_several_runs(fastest, slowest, told):
    assert [duration(s) for s in (5, 95, 3600, 7260)] == ["5 s", "2 min", "60 min", "2 h 1 min"]
    assert duration_range(fastest, slowest, (fastest + slowest) / 2) == told


IN_FORM = {
    "recipe": "cifar10-vit-base", "layout": "vit-base-patch16-224-in21k", "parameters": 85_806_346,
    "examples": {"train": 256, "judged": 250, "split": "test"}, "steps": 8, "seconds": {"total": 95.0},
    "accuracy": 0.112, "chance": 0.104, "files": ["grid.png", "report.html"], "overrides": ["limit=256"],
    "grid": {"rows": 2, "columns": 5}, "machine": {"cpu": "X", "threads": 2}, "date": "2026-01-02T03:04:05",
}  # fmt: skip


def test_a_run_on_random_weights_says_so(tmp_path):
    assert runs_on_random_weights(tmp_path) == {}
    (tmp_path / "in-form.json").write_text(json.dumps({"recipes": [IN_FORM]}), encoding="utf-8")
    made = pages(lambda name: None, dry_runs=runs_on_random_weights(tmp_path))
    assert "(results/in-form.md)" in made["results.md"]
    cells = "our recipe | not measured (only [test-run with random weights](in-form.md)) |"
    assert f"| [`cifar10-vit-base`](#cifar10-vit-base) | {cells}" in made["results/row-02.md"]
    text = made["results/in-form.md"]
    assert "The accuracies do not show how good a recipe is" in text
    row = "| [2](row-02.md) | `cifar10-vit-base` | 256, 8 | 2 min | 11.2% of 250 | 10.4% | 2026-01-02 |"
    assert row in text
    assert "| `vit-base-patch16-224-in21k` | 85,806,346 | limit=256 | X, threads: 2 |" in text
    assert "`grid.png`, `report.html`; the grid shows one image per class (2 × 5)" in text
    assert "results/in-form.md" not in pages(lambda name: None)


@pytest.mark.parametrize(
    ("named", "told"), [("vit-base-patch16-224-in21k", False), ("vit-base-patch16-224", True)]
)
def test_a_run_with_the_layout_of_other_weights_is_named(tmp_path, named, told):
    (tmp_path / "in-form.json").write_text(json.dumps({"recipes": [IN_FORM]}), encoding="utf-8")
    toml = f'[model]\nmodel = "{named}"\n'
    made = pages(lambda name: None, dry_runs=runs_on_random_weights(tmp_path), settings=lambda name: toml)
    text = made["results/in-form.md"]
    assert (f"`cifar10-vit-base` (`{named}`)." in text) is told


def test_run_folders_count_where_there_is_no_file(tmp_path):
    for seed, value in ((0, 0.25), (1, 0.75)):
        folder = tmp_path / "runs" / f"imdb-mlm-seed{seed}"
        folder.mkdir(parents=True)
        (folder / "metrics.json").write_text(json.dumps({"masked": {"accuracy": value}}), encoding="utf-8")
    other = tmp_path / "runs" / "imdb-mlm-minilm"  # begins like it and is another recipe
    other.mkdir()
    (other / "metrics.json").write_text(json.dumps({"masked": {"accuracy": 0.9}}), encoding="utf-8")
    found = read_recipe_results("imdb-mlm", tmp_path, tmp_path / "runs")
    assert found is not None
    assert found.score == "50.0% of masked words (25.0% to 75.0%)"
    assert read_recipe_results("imdb-bert", tmp_path, tmp_path / "runs") is None


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"test": {"accuracy": 0.5}, "validation": {"accuracy": 0.9}}, "50.00%"),
        ({"test": None, "validation": {"accuracy": 0.9}}, "90.00% (validation)"),
        (
            {"judged": "test", "scores": {"validation": {"beam": {"bleu": 40.0}}, "test": SEARCHED}},
            "31.2 BLEU",
        ),
        ({"tests": {"countries": {"accuracy": 0.125}}}, "12.5% of analogies"),
    ],
)
def test_each_task_has_its_figure(metrics, told):
    value, form = headline(metrics)
    assert form.format(value) == told


def test_nothing_measured_is_said_plainly():
    made = pages(lambda name: None)
    text = made["results.md"]
    rows = [line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len([line for line in rows if line.count("|") == 8]) == len(published_rows()) == 13
    assert text.count("| not measured | not measured |") == 12  # row 11 is figures
    assert f"0 of {sum(len(r.recipes) for r in published_rows())} recipes" in text
    rows = [f"results/row-{row.number:02d}.md" for row in published_rows()]
    assert [name for name in made if name.endswith(".md")] == ["results.md", *rows]
    assert headline({}) is None
    with pytest.raises(ConfigError, match="lab 4"):  # a row that is figures says where they are
        find_row("11")


def test_the_pages_have_what_was_measured(tmp_path):
    changed = ["threads=1", "epochs=2", "evaluate.baselines=false", "train.lr=0.1"]
    write_result(tmp_path, "imdb-minilm-best", [0.9], overrides=changed)
    read = lambda name: read_recipe_results(name, tmp_path, tmp_path)  # noqa: E731
    made = pages(read, settings=lambda name: f"# of {name}", stem="table")
    row = next(line for line in made["table.md"].splitlines() if line.startswith("| 1 |")).split(" | ")
    assert row[1] == "[BERT fine-tuning for sentiment](table/row-01.md)"
    assert row[4:6] == ["not measured", "90.00% (1 seed)"]
    text = made["table/row-01.md"]
    assert "Source: `recipe-imdb-minilm-best.json`; settings changed: epochs=2, train.lr=0.1." in text
    assert "```toml\n# of imdb-bert-given\n```" in text


def test_several_recipes_as_given_are_named_by_what_tells_them_apart(tmp_path):
    write_result(tmp_path, "ntc-lstm", [0.8, 0.9])
    row = page(lambda name: read_recipe_results(name, tmp_path, tmp_path)).split("\n| 3 |")[1].split(" | ")
    assert row[3] == "encoder: not measured<br>lstm: 85.00% (2 seeds)<br>textcnn: not measured"


def test_recipes_stand_once_in_a_row():
    for row in published_rows():
        assert len(set(row.recipes)) == len(row.recipes)
        assert not set(row.other_recipes) & {*row.original_recipes, row.best}
        assert row.note


def test_what_answers_a_question_of_a_row_stands_on_its_page(tmp_path):
    row = next(row for row in published_rows() if "few-labels" in row.findings)
    name = row.findings[0]
    page_of = f"results/row-{row.number:02d}.md"
    script = f"`benchmarks/quality/{name.replace('-', '_')}.py`"
    assert f"Not measured: {script}." in pages(lambda name: None)[page_of]
    scripts = {finding_script(name).split()[0] for row in published_rows() for name in row.findings}
    assert all((BENCHMARKS / "quality" / script).is_file() for script in scripts)
    assert finding_script("precision-imdb-own-bert-given") == "precision.py imdb-own-bert-given"
    found = {
        "title": "Few sentences",
        "verdict": "A is 3.0 points ahead (1.0 to 5.0).",
        "seeds": [0, 1, 2],
        "machine": {"cpu": "X", "threads": 1},
        "date": "2026-01-02T03:04:05",
        "tables": [{"title": "Right", "columns": ["Arm", "20 labels"], "rows": [["A", "70.0%"]]}],
    }
    (tmp_path / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")
    told = pages(lambda name: None, read_finding=lambda name: read_finding(name, tmp_path))[page_of]
    assert f"\n## Few sentences\n\n{found['verdict']}\n" in told
    assert "Right:\n\n| Arm | 20 labels |\n|---|---|\n| A | 70.0% |\n" in told
    assert f"3 seeds; X, threads: 1, 2026-01-02. {script} measures it" in told


def test_a_long_history_is_thinned_to_its_ends(monkeypatch):
    thinned = benchmark("recipes").thinned
    records = [{"step": i} for i in range(1_009)]
    kept = [r["step"] for r in thinned(records, 11)]
    assert (len(kept), kept[0], kept[5], kept[-1]) == (11, 0, 504, 1_008)
    assert thinned(records[:7], 7) == records[:7]


def test_curves_are_drawn_to_scale():
    points = re.findall(r'points="(.*?)"', curves({"loss": {"a": [0.0, 1.0, 0.5], "b": [1.0, 1.0, 1.0]}}))
    first, second = ([tuple(map(float, p.split(","))) for p in line.split()] for line in points)
    assert [x for x, _ in first] == [44.0, 166.0, 288.0]
    assert [y for _, y in first] == [156.0, 30.0, 93.0]  # the floor, the top, half way
    assert {y for _, y in second} == {30.0}


@pytest.mark.parametrize(
    ("found", "told", "verdict"),
    [(0.8941, 0.8941, "confirmed"), (0.885, 0.8941, "confirmed"), (0.9, 0.8941, "confirmed"),
     (0.86, 0.8941, "not reached"), (0.93, 0.8941, "above it")],
)  # fmt: skip
def test_a_figure_beside_the_published_one(found, told, verdict):
    (line,) = check({"test": {"accuracy": found, "n": 25_000}}, told)
    assert line.startswith(
        f"{found:.2%} here, {told:.2%} published, tolerance 1.0"
    )  # 0.54 of chance, half a point of seed
    assert line.endswith(f"(n = 25,000): {verdict}")


def test_figures_of_epochs_and_none():
    epochs = [{"accuracy": a} for a in (0.9, 0.978, 0.98)]
    metrics = {"test": {"accuracy": 0.98, "n": 10_000}, "epochs": epochs}
    lines = check(metrics, [0.974, 0.978, 0.9796])
    assert [line[:8] for line in lines] == ["epoch 1:", "epoch 2:", "epoch 3:"]
    assert [line.split(": ")[-1] for line in lines] == ["not reached", "confirmed", "confirmed"]
    assert check(metrics, [0.974]) == ["no verdict: 3 epochs were evaluated, but the publication has 1"]
    none = ["no accuracy was published, so there is nothing to compare with"]
    assert check(metrics, None) == check({"tests": {}}, 0.5) == none
    told = {name for row in published_rows() for name in row.accuracies}
    assert told == {name for row in published_rows() for name in row.original_recipes if name in told}


# --- seeds ------------------------------------------------------------------------------------------


def test_a_translators_seeds_say_each_search(tmp_path):
    greedy = {"bleu": 30.0, "bleu_tokenised": 31.04}
    beam = {"bleu": 31.26, "bleu_tokenised": 32.0, "width": 7}
    run = {"seed": 0, "judged": "test", "scores": {"test": {"greedy": greedy, "beam": beam}}}
    (tmp_path / "recipe-mine.json").write_text(json.dumps({"runs": [run]}), encoding="utf-8")
    found = read_recipe_results("mine", tmp_path, tmp_path)
    assert found is not None
    (line,) = seed_rows(found)
    assert (line["Score"], line["Greedy"]) == ("31.3 BLEU", "30.0 BLEU, tokenized 31.0")
    assert line["Beam of 7"] == "31.3 BLEU, tokenized 32.0"


def test_times_of_a_shared_gpu_are_left_out_where_others_are_known_and_told_else(tmp_path):
    def written(*runs):
        one = lambda s, n: {"seconds": {"train": s}, "test": {"accuracy": 0.5}} | ({"beside": n} if n else {})  # noqa: E731
        records = [{"seed": i} | one(*run) for i, run in enumerate(runs)]
        (tmp_path / "recipe-mine.json").write_text(json.dumps({"runs": records}), encoding="utf-8")
        found = read_recipe_results("mine", tmp_path, tmp_path)
        assert found is not None
        return found.time.replace("\u2009", " ").replace("\u202f", " ")

    assert written((600, 0), (60, 20), (60, 3)) == "10 min (1 of 3 seeds)"
    assert written((60, 20), (60, 3)) == "60 s, with up to 20 other trainings on the GPU"
    assert written((600, 0), (600, 0)) == "10 min"
