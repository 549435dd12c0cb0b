"""``glassformer train`` when all is well, and what holds for every verb."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from glassformer import __version__
from glassformer.cli.folds import OPTIONS, recipe_for_folds
from glassformer.cli.options import recipe_keys
from glassformer.cli.own_data import choose_recipe, recipe_for_data
from glassformer.config import key_paths
from glassformer.errors import ConfigError
from glassformer.tasks.text_classification.recipe import Recipe

from .tiny import sentences, sets, settings, write_csv


def test_texts_without_a_word_are_judged_without_the_baseline_that_counts_words(ok, tmp_path: Path):
    rows = [(["\U0001f600", "\U0001f620"][i % 2] * (1 + i % 3), ["good", "bad"][i % 2]) for i in range(40)]
    table = write_csv(tmp_path / "faces.csv", rows)
    result = ok("train", "--text", table, "--out", "faces", *settings("baselines=true"))
    assert "left out: TF-IDF baseline: there are no words" in result.out + result.err
    metrics = json.loads((tmp_path / "faces" / "metrics.json").read_text())
    assert "mean bag of embeddings" in metrics["baselines"]
    assert not any("TF-IDF" in name for name in metrics["baselines"])
    assert (tmp_path / "faces" / "report.html").is_file()


def test_train_counts_the_texts_that_were_cut(gf, tmp_path: Path):
    rows = sentences(40)
    long = [(f"{text} and so on" + " and on" * 20, label) for text, label in rows[:7]]
    path = write_csv(tmp_path / "reviews.csv", [*long, *rows[7:]])
    result = gf("train", "--text", path, *settings())
    cut = [
        re.fullmatch(r"(\d+) of \d+ \w+ texts are longer than 16 tokens and were cut there", line)
        for line in result.out.splitlines()
    ]
    assert sum(int(m[1]) for m in cut if m) == 7
    metrics = json.loads(Path("runs/reviews/metrics.json").read_text(encoding="utf-8"))
    assert sum(count for count, _ in metrics["truncated"].values()) == 7


def test_train_on_a_few_of_the_texts(ok, reviews: Path):
    """The parts held out are those of what is left, not of the whole file."""
    result = ok("train", "--text", reviews, *settings("limit=10", "min_count=1"))
    assert "6 train, 2 validation, 2 test" in result.out


def test_train_a_recipe_file_on_other_data(ok, reviews: Path, tmp_path: Path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[data]\nsource = "nowhere.csv"\nvalidation_size = 0.2\n', encoding="utf-8")
    ok("train", recipe, "--data", reviews, "--model", "encoder-mini", "--out", "out", *settings())
    config = tomllib.loads(Path("out/config.toml").read_text(encoding="utf-8"))
    assert config["data"]["source"] == str(reviews)
    assert config["model"]["model"] == "encoder-mini"


def test_what_the_recipe_of_a_table_holds_out(tmp_path: Path):
    recipe = recipe_for_data(Recipe, str(write_csv(tmp_path / "reviews.csv", sentences(60))))
    assert recipe.data.validation_size == recipe.data.test_size == 0.1
    assert (recipe.evaluate.split, recipe.model.model) == ("test", "auto")
    rows = [(f"text number {i}", f"class {i % 4}") for i in range(16)]  # few: one of each class
    data = recipe_for_data(Recipe, str(write_csv(tmp_path / "few.csv", rows))).data
    assert data.validation_size == data.test_size == 4
    for name, n in (("train", 40), ("validation", 10), ("test", 10)):  # the splits that there are
        write_csv(tmp_path / "data" / f"{name}.csv", sentences(n, seed=n))
    recipe = recipe_for_data(Recipe, str(tmp_path / "data"), ["lr=0.5"])
    assert (recipe.data.validation_size, recipe.data.test_size, recipe.train.lr) == (None, None, 0.5)


def test_choose_recipe_wants_one_source_of_truth():
    said = "no recipe is given.* or give --text FILE or --images FOLDER"
    with pytest.raises(ConfigError, match=f"train: {said}"):
        choose_recipe(None)
    with pytest.raises(ConfigError, match=f"cross-validate: {said}$"):
        recipe_for_folds(None, dict.fromkeys(OPTIONS))
    assert choose_recipe("europe", settings=["seed=7"]).train.seed == 7


def test_keys_are_all_listed_with_their_meaning(ok):
    keys = list(recipe_keys())
    listed = {".".join(filter(None, (k.section, k.name))) for k in keys}
    assert listed == {".".join(path) for path in key_paths(Recipe).values()}
    by_name = {k.name: k for k in keys}
    assert by_name["warmup"].default == "none"
    assert by_name["warmup"].meaning.startswith("share of all steps in which the learning rate rises")
    assert by_name["optimizer"].meaning == (
        "adam: weight decay is part of the gradient; adamw-hat: adam_eps is added before bias correction "
        "(adamw | adam | muon | adamw-hat)"
    )
    result = ok("train", "--help-keys")
    assert all(k.name in result.out for k in keys)
    assert by_name["validation_size"].default == "none"
    assert by_name["positions"].default == "", "none is one of its choices"
    assert "--set KEY=none" in result.out


# --- the whole command ----------------------------------------------------------------------------


def test_version_and_help(gf, ok):
    assert gf("--version").out == f"glassformer {__version__}\n"
    result = ok("--help")
    for verb in ("demo", "train", "evaluate", "predict", "data", "doctor"):
        assert verb in result.out
        ok(verb, "--help")


@pytest.mark.parametrize("words", ["--debug train eurpe", "train eurpe --debug"])
def test_debug_shows_the_traceback(words: str, gf):
    result = gf(*words.split())
    assert result.code == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("error: no recipe 'eurpe'")


def test_unexpected_errors_are_one_line_too(gf, monkeypatch: pytest.MonkeyPatch):
    def explode(*args: object, **kwargs: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("glassformer.cli.train.train", explode)
    result = gf("train", "europe")
    assert result.code == 1
    assert (
        result.err == "error: RuntimeError: first second (run with --debug for the traceback) [unexpected]\n"
    )
    assert "Traceback" in gf("train", "europe", "--debug").err


def test_ctrl_c_outside_of_training(gf, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glassformer.cli.data.load_text_dataset", interrupt)
    result = gf("data", "show", "europe")
    assert (result.code, result.err) == (130, "error: interrupted; run the same command again\n")


def test_waiting_threads_sleep_unless_told_otherwise(gf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    gf("--version")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    gf("--version")
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("PASSIVE", "1000")


def test_a_text_after_two_dashes_may_be_an_option(ok, run: Path):
    result = ok("predict", run, "--", "--debug")
    assert result.out.endswith("\t--debug\n")


def test_main_reads_the_arguments_of_the_process():
    program = "import sys; from glassformer.cli.app import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "--version"]  # its signals are its own
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert __version__ in done.stdout


LINEAR = ["--model", "tfidf", *sets("baselines=false", "bootstrap=7")]


@pytest.mark.parametrize("name", ["eval.csv", "train2.csv", "holdout.tsv", "dev.csv"])
def test_tables_of_a_folder_that_are_no_split_are_named(ok, tmp_path: Path, name: str):
    for own in ("train-00000-of-00002.csv", "train-00001-of-00002.csv", name):
        write_csv(tmp_path / "mine" / own, sentences(40))
    said = ok("train", "--text", "mine", "--out", "run", *LINEAR).err
    assert (f"{name} in {tmp_path / 'mine'}: not read" in said) == ("not read" in said) == (name != "dev.csv")


def test_nothing_to_resume_is_a_new_run(ok, reviews: Path):
    result = ok("train", "--text", reviews, *LINEAR, "--resume", "--out", "new")
    assert "note: nothing to resume in new: a new run begins" in result.err
    assert "weights" in ok("explain", "new", "a film", "--target", "pos").out
    assert "tokens" not in ok("data", "doctor", reviews, "--model", "tfidf").out
    assert "weights for linear models" in " ".join(ok("explain", "--help").out.replace("│", " ").split())


@pytest.mark.filterwarnings("default")
def test_a_separator_that_no_cell_has_is_noted(ok, tmp_path: Path):
    rows = [(text, ["a|b", "b|c", "a|c"][i % 3]) for i, (text, _) in enumerate(sentences(60))]
    table = write_csv(tmp_path / "t.csv", rows)
    said = ok("train", "--text", table, *LINEAR, "--label-separator", ";", "--out", "run").err
    assert "note: no cell of 'label' has ';', but some have '|'" in said


def test_as_many_numbers_as_are_asked_for_are_enough_for_intervals(ok, tmp_path: Path):
    rows = [(text, str(i / 7)) for i, (text, _) in enumerate(sentences(60))]
    table = write_csv(tmp_path / "numbers.csv", rows, "text,score")
    for held, coverage in ((5, 0.83), (9, 0.9)):
        words = [*LINEAR, *sets("target=number", f"validation_size={held}")]
        ok("train", "--text", table, *words, "--out", f"run-{held}")
        ok("predict", f"run-{held}", table, "--coverage", coverage, "--out", f"{held}.csv")
        assert (tmp_path / f"{held}.csv").read_text().count("\n") == 61


def test_copies_only_cannot_be_held_out(ok, tmp_path: Path):
    (tmp_path / "a.conll").write_text("Ada B-PER\nis O\n\n" * 12)
    words = ["--model", "encoder-mini", "--epochs", 1, "--out", "out"]
    assert "test_size=0.1" not in ok("train", "wnut17-minilm", "--data", "a.conll", *words).out


def test_too_little_memory_is_one_line_with_its_own_code(gf, monkeypatch, reviews: Path):
    def train(*args, **kwargs):
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1920000000000 bytes."
        )

    monkeypatch.setattr("glassformer.cli.train.train", train)
    result = gf("train", "--text", reviews, "--model", "tfidf")
    assert result.code == 2
    assert result.err.startswith("error: not enough memory: a single allocation needs 1.9 TB. Use a smaller")
    assert result.err.endswith("[out-of-memory]\n")
