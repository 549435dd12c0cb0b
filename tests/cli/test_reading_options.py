"""``--encoding``, ``--header`` and ``--quoting`` at every verb that reads a table, and as keys that a run remembers."""

import csv
from pathlib import Path

import pytest

from glassformer.cli.own_data import choose_recipe
from glassformer.config import read_toml
from glassformer.data.files import reading, reading_setting
from glassformer.process import ENCODING_VARIABLE
from glassformer.tasks.catalog import TASKS, load_recipe

from .tiny import sentences, settings, write_csv


@pytest.fixture
def headless(tmp_path: Path) -> Path:
    """A table whose first row is one of the others."""
    rows = sentences(24, seed=1)
    return write_csv(tmp_path / "headless.csv", rows[1:], header=",".join(rows[0]))


@pytest.fixture
def swallowing(tmp_path: Path) -> Path:
    """A table with a quote in line 3 that closes in line 7."""
    rows = [list(row) for row in sentences(24, seed=1)]
    rows[1][0], rows[5][0] = '"' + rows[1][0], rows[5][0] + '"'
    return write_csv(tmp_path / "swallowing.csv", rows)


VERBS = {
    "train": ["train", "--text", "TABLE", "--out", "new"],
    "new": ["new", "a.toml", "--text", "TABLE"],
    "cross-validate": ["cross-validate", "--text", "TABLE", "--out", "new"],
    "compare": "compare --text TABLE --model encoder-mini --model textcnn --out new".split(),
    "review-labels": ["review-labels", "--text", "TABLE", "--out", "new"],
    "data doctor": ["data", "doctor", "TABLE"],
    "data show": ["data", "show", "TABLE"],
    "predict": ["predict", "RUN", "TABLE"],
    "predict --keep-table": ["predict", "RUN", "TABLE", "--keep-table", "--out", "out.csv"],
    "evaluate": ["evaluate", "RUN", "TABLE"],
    "evaluate --by": ["evaluate", "RUN", "TABLE", "--by", "label"],
    "calibrate": ["calibrate", "RUN", "--data", "TABLE"],
    "embed": ["embed", "RUN", "TABLE", "--out", "out.npy"],
}


def words(verb: str, table: Path, run: Path) -> list[str]:
    names = {"TABLE": str(table), "RUN": str(run)}
    return [names.get(word, word) for word in VERBS[verb]]


@pytest.mark.parametrize("verb", VERBS)
def test_a_table_without_a_header_at_every_verb(refused, headless, run, verb):
    said = refused(*words(verb, headless, run))
    assert "headless.csv, row 1: the first row looks like data, not like a header" in said
    assert "--header no" in said
    assert "--header yes" in said
    assert not Path("new").exists()


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not verb.startswith("data")])
def test_swallowed_rows_at_every_verb(refused, swallowing, run, verb):
    said = refused(*words(verb, swallowing, run))
    assert "swallowing.csv, row 3: a double quote opens in line 3 and closes in line 7" in said
    assert "--quoting none" in said
    assert "--quoting csv" in said
    assert not Path("new").exists()


def test_the_doctor_names_swallowed_rows(as_json, swallowing):
    found = as_json("data", "doctor", swallowing)
    rows = next(f for f in found["findings"] if f["code"] == "bad-rows")
    assert "a double quote opens in line 3 and closes in line 7" in rows["message"]
    assert "--quoting none" in rows["fix"]
    assert found["figures"]["splits"]["train"]["rows"] == 23


def test_predict_with_the_way_that_is_named(as_json, headless, swallowing, run):
    assert as_json("predict", run, headless, "--header", "no")["examples"] == 24
    assert as_json("predict", run, headless, "--header=yes")["examples"] == 23
    assert as_json("--quoting", "none", "predict", run, swallowing)["examples"] == 24
    assert as_json("predict", run, swallowing, "--quoting", "csv")["examples"] == 20
    done = as_json("evaluate", run, headless, "--header", "no")
    assert done["n"] == 24
    assert (
        reading_setting("header") == reading_setting("quoting") == ""
    )  # nothing stays behind in this process


def test_a_kept_table_without_a_header(ok, headless, run):
    ok("predict", run, headless, "--header", "no", "--keep-table", "--out", "out.csv")
    with Path("out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["column1", "column2", "predicted", "probability"]
    assert len(rows) == 25


@pytest.mark.parametrize("given", [("--header", "no"), ("--set", "header=no")])
def test_a_run_remembers_how_its_table_is_read(ok, headless, given):
    ok("train", "--text", headless, "--out", "new", *settings(), *given)
    assert read_toml(Path("new/config.toml"))["data"]["header"] == "no"
    ok("evaluate", "new")
    ok("train", "--resume", "--out", "new")
    # Other data say for themselves.
    ok("evaluate", "new", "--data", write_csv(Path("other.csv"), sentences(12, 2)))


def test_every_task_has_the_keys():
    for task in TASKS:
        data = TASKS.recipe(task)().data
        assert (data.quoting, data.header) == (None, None), task
        assert [*vars(data)][:4] == ["source", "encoding", "quoting", "header"]


def test_the_command_goes_before_the_recipe(monkeypatch, headless):
    with reading(header="no", quoting="none"):
        assert (reading_setting("header"), reading_setting("quoting")) == ("no", "none")
        monkeypatch.setenv("GLASSFORMER_HEADER", "yes")
        assert (reading_setting("header"), reading_setting("quoting")) == ("yes", "none")
    monkeypatch.delenv("GLASSFORMER_HEADER")
    assert choose_recipe(None, str(headless), settings=["header=no"]).data.header == "no"
    assert reading_setting("header") == ""


# --- the encoding -----------------------------------------------------------------------------------


def latin(path: Path, count: int = 60) -> Path:
    """A table with one text that is not UTF-8."""
    rows = [("a café – naïve film", "pos"), *sentences(count)]
    path.write_bytes("\n".join(["text,label", *(f"{text},{label}" for text, label in rows)]).encode("cp1252"))
    return path


@pytest.mark.parametrize("named", [("--set", "encoding=cp1252"), ("--encoding", "cp1252")])
def test_a_run_remembers_the_encoding_of_its_data(ok, refused, tmp_path, named):
    table = latin(tmp_path / "latin.csv")
    assert "--encoding cp1252" in refused("train", "--text", table, "--out", "run", *settings())
    ok("train", "--text", table, "--out", "run", *settings(), *named)
    assert read_toml(tmp_path / "run" / "config.toml")["data"]["encoding"] == "cp1252"
    ok("evaluate", "run")  # its own split, and no option
    other = latin(tmp_path / "other.csv", 20)
    ok("evaluate", "run", "--data", other)
    ok("train", "--resume", "--out", "run")
    assert reading_setting("encoding") == ""  # nothing stays behind in this process


def test_every_task_reads_its_table_so(tmp_path):
    table = latin(tmp_path / "latin.csv")
    for task in TASKS:
        assert "encoding" in vars(TASKS.recipe(task)().data), task
    recipe = load_recipe("europe-mlm", ["encoding=cp1252", "source=" + str(table)])
    assert "café" in str(TASKS["masked-lm"].load(recipe))


def test_the_command_goes_before_the_recipe_and_leaves_nothing_behind(monkeypatch, tmp_path):
    with reading("cp1252"):
        assert reading_setting("encoding") == "cp1252"
        with reading(None):
            assert reading_setting("encoding") == "cp1252"
        monkeypatch.setenv(ENCODING_VARIABLE, "mac_roman")
        assert reading_setting("encoding") == "mac_roman"
    monkeypatch.delenv(ENCODING_VARIABLE)
    assert reading_setting("encoding") == ""
    recipe = choose_recipe(None, str(latin(tmp_path / "a.csv")), settings=["encoding=cp1252"])
    assert recipe.data.encoding == "cp1252"
    assert reading_setting("encoding") == ""
