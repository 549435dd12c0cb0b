"""What a stranger types: slips, flags of other tools, data for a recipe; and what a message offers can be typed."""

import csv
import io
import json
import re
import shutil
from inspect import signature
from pathlib import Path

import pytest
from sklearn.base import clone

from glassformer import ImageClassifier, MaskedLM, TextClassifier, Word2Vec
from glassformer.cli.app import main
from glassformer.cli.options import all_keys, guess_data_option, suggest_option, use_option_names
from glassformer.cli.own_data import choose_recipe
from glassformer.cli.stopping import INTERRUPTED
from glassformer.config import override
from glassformer.config.synonyms import KEYS, KEYS_BY_NAME
from glassformer.errors import ConfigError
from glassformer.tasks.catalog import recipe_classes, recipe_names

from .tiny import sentences, settings, write_csv

SLIPS = [
    (("--label-column", "abuot"), "no column 'abuot'. Did you mean 'about'?"),
    (("--text-column", "coment"), "no column 'coment'. Did you mean 'comment'?"),
    (("--set", "class_wieght=balanced"), "unknown key 'class_wieght'"),
    (("--set", "class_weight=balancd"), "'balancd' is not valid. Did you mean 'balanced'?"),
    (("--set", "merge_labels=speling"), "'speling' is not a way to merge labels"),
    (("--set", "epochs=many"), "got 'many'"),
    (("--model", "minlm"), "no model 'minlm'. Did you mean 'minilm'?"),
    (("--model", "bert-base"), "no model 'bert-base'. Did you mean 'bert-base-uncased'?"),
    (("--model", "all-minilm-l6"), "no model 'all-minilm-l6'. Did you mean 'all-minilm-l6-v2'?"),
]


@pytest.mark.parametrize(("slip", "said"), SLIPS)
def test_a_slip_goes_before_the_folder_and_the_data(refused, run, tmp_path, slip, said):
    table = tmp_path / "reviews.csv"
    table.write_text("comment,about\nno,such,table\n")
    shutil.copytree(run, tmp_path / "runs" / "reviews")
    assert said in refused("train", "--text", "reviews.csv", *slip)
    assert said in refused("train", "--text", "reviews.csv", "--out", "elsewhere", *slip)
    assert "the output folder contains a finished run" in refused("train", "--text", "reviews.csv")
    if not slip[0].endswith("column"):
        assert said in refused("train", "imdb-textcnn", "--out", "elsewhere", *slip)
    if "--model" not in slip:
        assert said in refused("review-labels", "--text", "reviews.csv", *slip)


def test_an_option_for_a_table_of_another_program(refused):
    assert "No such option: --csv. For a table of texts write --text a.csv" in refused(
        "train", "--csv", "a.csv"
    )
    assert "(Possible options: --image" in refused("train", "--img", "a")


def test_pictures_too(refused, tmp_path):
    (tmp_path / "a.csv").write_text("image,label\nno,such,table\n")
    assert "no column 'lable'" in refused("train", "--images", "a.csv", "--label-column", "lable")
    assert "no model 'vit-bse'. Did you mean" in refused("train", "--images", "a.csv", "--model", "vit-bse")


def test_a_header_in_another_encoding_is_not_taken_for_a_slip(refused, tmp_path):
    (tmp_path / "a.csv").write_text("comment,about\na,b\n", encoding="utf-16")
    assert "--encoding utf-16" in refused("train", "--text", "a.csv", "--label-column", "about")


UNREADABLE = [
    ("nwe.csv", "no such file"),
    ("pic.png", "an image, and this model reads texts"),
    ("a.xlsx", "Save the sheet as CSV"),
    ("gaps.csv", "row 22: the text is empty"),
    ("", "the text is empty"),
]


@pytest.mark.parametrize(("given", "said"), UNREADABLE)
def test_predict_looks_at_its_input_before_the_model(refused, run, tmp_path, given, said):
    (tmp_path / "pic.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos"), *sentences(3), ("", "neg")])
    (run / "model" / "model.safetensors").write_bytes(b"damaged")
    found = refused("predict", run, given)
    assert said in found
    if given == "gaps.csv":
        assert "(1 more row cannot be used)" in found
    elif given != "a.xlsx":
        assert said in refused("explain", run, given)
    assert "damaged" in refused("predict", run, "a text") or "model" in refused("predict", run, "a text")


def test_predict_says_that_the_run_was_trained_without_such_rows(ok, refused, run, tmp_path):
    write_csv(tmp_path / "gaps.csv", [*sentences(5), ("", "pos")])
    assert "so this run was trained" not in refused("predict", run, "gaps.csv")
    config = run / "config.toml"
    text = config.read_text()
    assert 'on_bad_row = "refuse"' in text
    config.write_text(text.replace('on_bad_row = "refuse"', 'on_bad_row = "skip"'))
    assert "--on-bad-row skip (this run was trained with it)" in refused("predict", run, "gaps.csv")
    ok("predict", run, "gaps.csv", "--on-bad-row", "skip")


def test_rows_in_another_encoding_are_not_lost_without_a_word(ok, run, tmp_path):
    rows = ["text", *(text for text, _ in sentences(7)), "un café", "", "une idée"]
    (tmp_path / "new.csv").write_bytes(("\n".join(rows) + "\n").encode("cp1252"))
    result = ok("predict", run, "new.csv", "--on-bad-row", "skip")
    assert "2 of them are not UTF-8: read it with --encoding cp1252, or save it as UTF-8" in result.err


def test_an_onnx_export_is_no_run(refused, tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    for name in ("onnx.json", "run.py", "model.onnx"):
        (folder / name).write_text("{}")
    for verb in (
        ("predict", "exported", "a text"),
        ("evaluate", "exported"),
        ("explain", "exported", "a text"),
    ):
        said = refused(*verb)
        assert "is an ONNX export" in said
        assert "python exported/run.py" in said


def test_show_passes_over_rows_that_cannot_be_used(as_json, ok, tmp_path):
    table = write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos"), ("a text", "")])
    result = ok("data", "show", table)
    assert "2 rows left out; the first:" in result.out
    assert "row 22: the text is empty" in result.out
    notes = as_json("data", "show", table)["notes"]
    assert any("2 rows left out" in note for note in notes)
    tags = tmp_path / "tags.conll"
    tags.write_text("Ann B-PER\ncame O\n\nonly\n\nBob B-PER\nleft O\n")
    result = ok("data", "show", tags)
    assert "1 row left out" in result.out


def test_a_verb_without_the_option_does_not_offer_it(gf, tmp_path):
    table = write_csv(tmp_path / "pairs.csv", [("a text", "b text"), ("", "c text")], header="first,second")
    result = gf("similar", table)  # a note on the columns stands before the error
    said = result.err
    assert result.code == 2
    assert "row 3" in said
    assert "on_bad_row" not in said
    assert "on-bad-row" not in said


# --- what a message offers --------------------------------------------------------------------------


def test_bad_rows_are_answered_by_an_option_of_the_verb(refused, run, tmp_path):
    gaps = write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos")])
    for command in (("train", "--text", gaps, "--out", "x"), ("evaluate", run, "--data", gaps)):
        said = refused(*command)
        assert "or leave such rows out with --on-bad-row skip" in said
        assert "on_bad_row" not in said
    said = refused("explain", run, gaps)  # which has no such option
    assert "row 22: the text is empty" in said
    assert "on-bad-row" not in said


def test_a_setting_without_its_option_is_named(refused, reviews):
    said = refused("train", "--text", reviews, "on_bad_row=skip")
    assert "both a recipe (on_bad_row=skip) and --text are given" in said
    assert "a setting needs --set: --set on_bad_row=skip" in said


def test_a_finished_run_in_the_way_is_said_before_the_data_are_read(gf, refused, run, reviews, tmp_path):
    shutil.copytree(run, tmp_path / "runs" / "reviews")
    broken = tmp_path / "reviews.csv"
    broken.write_text("no table at all\n")
    said = refused("train", "--text", broken)
    assert (
        "runs/reviews: the output folder contains a finished run. Choose another: --out runs/reviews-2"
        in said
    )
    write_csv(broken, [*sentences(20), *sentences(20)])
    last = gf("data", "doctor", "reviews.csv").out.splitlines()[-1]
    assert last.endswith("train --text reviews.csv --set drop_duplicates=true --out runs/reviews-2")


def test_what_a_resumed_run_has_otherwise_is_said(refused, run, tmp_path):
    data = run / "config.toml"
    source = next(line for line in data.read_text().splitlines() if line.startswith("source"))
    source = source.partition("=")[2].strip().strip('"')
    said = refused("train", "--text", source, "--out", run, "--resume", *settings("epochs=7"))
    assert "contains a run of another recipe (train.epochs is 1 there and 7 here)" in said


def test_a_run_that_is_not_there_has_a_neighbor(refused, run):
    for command in (("predict", "rnu", "a film"), ("train", "--resume", "--out", "rnu")):
        assert "rnu: no such run folder. Did you mean 'run'?" in refused(*command)


def test_an_encoding_is_refused_before_the_model_is_loaded(refused, run, tmp_path):
    (tmp_path / "new.csv").write_bytes("text\nun café\n".encode("cp1252"))
    shutil.rmtree(run / "model")
    assert "--encoding cp1252" in refused("predict", run, "new.csv")


def test_a_training_ends_with_what_comes_next_and_with_how_many_warnings(ok, tmp_path):
    table = write_csv(tmp_path / "twice.csv", [*sentences(40), *sentences(20)])
    result = ok("train", "--text", table, "--out", "run", *settings())
    assert '"A TEXT OF YOUR OWN", or a table: FILE.csv --out PREDICTIONS.csv' in result.out
    warned = re.search(r"note: (\d+ warnings?) about the data: above, and in the report", result.err)
    assert warned is not None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f'<a href="#data">{warned[1]} about the data</a>' in page


def test_a_server_that_is_stopped_is_no_error(monkeypatch, capsys):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("glassformer.cli.app._run_command", stopped)
    assert main(["serve", "run"]) == INTERRUPTED
    assert capsys.readouterr().err == "stopped\n"
    assert main(["evaluate", "run"]) == INTERRUPTED
    assert capsys.readouterr().err.startswith("error: interrupted")


def test_the_help_begins_with_where_to_begin(gf):
    panels = gf("--help").out
    assert panels.index("Start here") < panels.index("Train and compare") < panels.index("Use a model")
    assert "glassformer data doctor FILE.csv, then glassformer train --text FILE.csv" in " ".join(
        panels.split()
    )
    for verb in ("predict", "train", "evaluate"):
        assert "--encoding cp1252" in gf(verb, "--help").out


# --- other tools, other places ----------------------------------------------------------------------


@pytest.fixture
def stdin(monkeypatch):
    def give(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The reviews with columns of other names, and a third one between them."""
    rows = [(text, "7", label) for text, label in sentences(23, seed=5)]
    return write_csv(tmp_path / "other.csv", rows, "comment,stars,emotion")


def test_evaluate_takes_the_columns_of_other_data(ok, refused, run, other):
    rows = other.read_text().splitlines()
    twice = [f"{row},{'mood' if i == 0 else row.rsplit(',', 1)[1]}" for i, row in enumerate(rows)]
    other.with_name("wider.csv").write_text("\n".join(twice))
    told = refused("evaluate", run, "--data", other.with_name("wider.csv"))
    assert "column" in told
    assert "label_column" not in told
    assert "--label-column" in told or "--text-column" in told
    columns = ("--text-column", "comment", "--label-column", "emotion")
    result = ok("evaluate", run, "--data", other, *columns, "--json")
    assert json.loads(result.out)["n"] == 23
    assert "has an effect only with --data" in refused("evaluate", run, *columns)
    assert "has no --source-column" in refused("evaluate", run, "--data", other, "--source-column", "a")
    calibrated = ok("calibrate", run, "--data", other, *columns, "--json")
    assert json.loads(calibrated.out)["chosen_by"].endswith("other.csv")
    assert "has an effect only with --data" in refused("calibrate", run, "--label-column", "emotion")


def test_a_table_in_the_place_of_a_recipe_is_taken_for_data(ok, refused, other, tmp_path):
    columns = ("--text-column", "comment", "--label-column", "emotion")
    flags = ("--epochs", 1, "--lr", 0.01, "--batch-size", 7, "--max-length", 13, "--seed", 5)
    result = ok("train", other, *columns, *flags, "--out", "run", *settings())
    assert f"{other} is not a recipe: read as data, --text {other}" in result.err
    config = (tmp_path / "run" / "config.toml").read_text()
    for line in ('text_column = "comment"', "lr = 0.01", "batch_size = 7", "seed = 5"):
        assert line in config
    told = refused("train", "run")
    assert "is a run folder, not a recipe" in told
    assert "glassformer train --resume --out run" in told


def test_pictures_in_the_place_of_a_recipe(gf, tmp_path):
    folder = tmp_path / "cats"
    (folder / "a").mkdir(parents=True)
    assert guess_data_option(str(folder)) is None
    (folder / "a" / "one.JPG").touch()
    (folder / "notes.txt").touch()
    (folder / "a" / "two.png").touch()
    assert guess_data_option(str(folder)) == "--images"
    result = gf("cross-validate", folder)
    assert result.code == 2
    assert f"{folder} is not a recipe: read as data, --images {folder}" in result.err
    (folder / "config.toml").touch()
    assert guess_data_option(str(folder)) is None
    assert guess_data_option("nowhere.jsonl") == "--text"
    assert guess_data_option("europe") is None


def test_an_unknown_recipe_is_no_list_of_all(refused):
    assert len(refused("train")) < 200
    with pytest.raises(ConfigError, match="no recipe 'zzzzzz'") as caught:
        choose_recipe("zzzzzz")
    assert len(str(caught.value)) < 200
    assert len(recipe_names()) > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "europe", "--learning-rate", "1e-3"], "Write --lr 1e-3"),
        (["train", "europe", "--num_train_epochs=2"], "Write --epochs 2"),
        (["train", "europe", "--per-device-train-batch-size", "8"], "Write --batch-size 8"),
        (["train", "europe", "--weight-decay", "0.1"], "Write --set weight_decay=0.1"),
        (["train", "europe", "--hidden_size", "--lr"], "Write --set d_model=VALUE"),
        (["cross-validate", "europe", "--lr", "1e-3"], "Write --set lr=1e-3"),
        (["compare", "europe-pooling", "--epochs", "2"], "Write --set epochs=2"),
        (["evaluate", "run", "--text_field", "a"], "Write --text-column a"),
    ],
)
def test_flags_of_other_tools_are_answered_with_ours(refused, words, said):
    assert f"No such option: {words[2].partition('=')[0]}. {said}" in refused(*words)


def test_a_flag_that_nobody_knows_is_refused_as_before(refused):
    assert "See 'glassformer train --help'" in refused("train", "europe", "--frobnicate")
    assert suggest_option("--frobnicate", ["--out"], {}) is None
    assert "Write" not in refused("predict", "run", "--lr", "1")


def test_keys_of_other_tools_are_answered_with_ours(refused):
    told = refused("train", "europe", "--set", "learning_rate=1e-3")
    assert told == "error: --set: unknown key 'learning_rate'. Here it is called 'lr'"
    assert "called 'epochs'" in refused("train", "europe", "--set", "train.num_train_epochs=3")
    assert "the option --out" in refused("train", "europe", "--set", "output_dir=here")
    assert "See all keys: 'glassformer train --help-keys'" in refused("train", "europe", "--set", "xyzzy=1")
    keys = {key for cls in recipe_classes().values() for key in vars(cls()) if not key.startswith("_")}
    assert set(KEYS) <= set(all_keys()) | keys
    assert set(KEYS_BY_NAME) & set(all_keys()) <= {
        "target_column"
    }  # of pairs; of labels it is another's name


def test_estimators_answer_names_of_other_tools_too():
    for cls in (TextClassifier, ImageClassifier, MaskedLM):
        with pytest.raises(
            TypeError, match=f"{cls.__name__} has no parameter 'learning_rate'. .* called 'lr'"
        ):
            cls(learning_rate=1e-3)
        with pytest.raises(TypeError, match=f"{cls.__name__} has no parameter 'frobnicate'. Known: accum"):
            cls(frobnicate=1)
        with pytest.raises(TypeError, match=r"has no parameter 'epoch'\. Did you mean 'epochs'"):
            cls(epoch=1)
        with pytest.raises(TypeError, match=r"has no parameter 'alpha'\. .* called 'weight_decay'"):
            cls(alpha=1)
        assert clone(cls(lr=1e-3)).lr == 1e-3
        assert next(iter(signature(cls).parameters)) == "model"


def test_word_vectors_answer_names_of_gensim():
    theirs = {
        "vector_size": "dim",
        "workers": "threads",
        "alpha": "lr",
        "sample": "subsample",
        "iter": "epochs",
    }
    theirs |= {"ns_exponent": "exponent", "max_final_vocab": "max_words"}
    for name, ours in theirs.items():
        with pytest.raises(
            TypeError, match=f"Word2Vec has no parameter '{name}'. Here it is called '{ours}'"
        ):
            Word2Vec(**{name: 1})


def test_a_recipe_file_with_keys_of_other_tools(refused, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "europe"\n[train]\nlearning_rate = 1e-3\n')
    assert "unknown key 'learning_rate'. Here it is called 'lr'" in refused("train", path)
    with pytest.raises(ConfigError, match="called 'd_model'"):
        override({}, {"hidden_size": 1}, recipe_classes()["text-classification"], "x")


def test_messages_speak_of_options_where_there_are_some():
    told = "no column 'label'. Name it with label_column"
    assert use_option_names(told, ["--label-column"]) == "no column 'label'. Name it with --label-column"
    assert use_option_names(told, ["--text-column"]) == told
    both = use_option_names(
        "Name both with text_column and label_column", ["--text-column", "--label-column"]
    )
    assert both == "Name both with --text-column and --label-column"


def test_a_dash_is_standard_input(gf, ok, refused, run, stdin, tmp_path):
    stdin("\ufeffa splendid film\n\na dreadful plot\r\n".encode())
    result = ok("predict", run, "-")
    texts = [line.split("\t")[2] if line.count("\t") > 1 else "" for line in result.out.splitlines()]
    assert texts == ["a splendid film", "", "a dreadful plot"]
    stdin("a great\u2028place\nslow\x0cfood\n".encode())
    assert gf("predict", run, "-").out.count("\n") == 2
    stdin(b"one\n\ntwo\n")
    ok("predict", run, "-", "--out", "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)][-1] == "two"
    stdin(b"one\n")
    assert gf("embed", run, "-", "and two", "--out", "out.npy").out.startswith("2 embeddings of dimension")
    stdin(b"\n \n")
    assert "standard input: there is no text" in refused("predict", run, "-")
    stdin(b"\xff\xfe")
    assert "standard input: not UTF-8" in refused("explain", run, "-")


def test_standard_input_is_bounded(refused, run, stdin, monkeypatch):
    monkeypatch.setattr("glassformer.inputs.rows.MAX_STDIN_BYTES", 5)
    stdin(b"123456")
    assert "standard input: more than" in refused("predict", run, "-")
