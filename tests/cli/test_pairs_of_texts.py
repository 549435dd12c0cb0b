"""Pairs of texts from the command line: trained, judged, answered, looked into, exported; from tables as people have them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.tables import write_csv

import glassformer as gf
from glassformer.cli.app import main
from glassformer.cli.output import next_step
from glassformer.evaluate.predictions import read_predictions
from glassformer.tasks.run import Run, read_run_recipe

from .tiny import sets

COLORS = ("red", "blue", "green", "white")
ROWS = [
    (i, f"the {a} one {i}", f"a {b} one here {i % 7}", "same" if a == b else "other", "x")
    for i, (a, b) in enumerate([(a, b) for a in COLORS for b in COLORS] * 5)
]
TINY = """
    model=encoder-mini d_model=22 num_heads=2 d_ff=31 num_layers=1 epochs=1 min_count=1 max_length=19
    precision=fp32 threads=1 batch_size=8 bootstrap=20
""".split()
SET = sets(*TINY)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    table = write_csv(folder / "own.csv", ["id", "claim", "evidence", "verdict", "note"], ROWS)
    columns = ["--text-column", "claim", "--pair-column", "evidence", "--label-column", "verdict"]
    assert main(["train", "--text", str(table), *columns, *SET, "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_the_next_command_has_both_texts(run):
    said = next_step(Run.of(run), read_run_recipe(run))
    assert said.startswith(f'next: glassformer predict {run} "A TEXT OF YOUR OWN" "ITS SECOND TEXT"')


def test_a_file_of_pairs_without_texts_or_in_another_encoding_is_told_so(run, tmp_path, capsys):
    for content, said in ((b"\n \n", "the file has no texts"), (b"caf\xe9\tx\n", "not UTF-8")):
        (tmp_path / "a.txt").write_bytes(content)
        for skip in ((), ("--on-bad-row", "skip")):
            assert main(["predict", str(run), str(tmp_path / "a.txt"), *skip]) == 2
            assert said in capsys.readouterr().err
    (tmp_path / "a.csv").write_text("claim,evidence\na,b,c\nd,e,f\n")
    assert main(["predict", str(run), str(tmp_path / "a.csv"), "--on-bad-row", "skip"]) == 2
    assert "row 2: no row can be used; 3 fields where the header has 2" in capsys.readouterr().err


def test_two_arguments_and_two_columns_are_answered(run, tmp_path, capsys):
    pair = ("the red one 3", "a red one here 2")
    assert main(["predict", str(run), *pair]) == 0
    label, share, *_ = capsys.readouterr().out.split("\t")
    clf = gf.load(run)
    assert label == clf.predict([pair])[0]
    assert float(share) == pytest.approx(clf.predict_proba([pair]).max(), abs=1e-4)
    pairs = [(a, b) for _, a, b, _, _ in ROWS[:5]]
    table = write_csv(tmp_path / "t.csv", ["evidence", "id", "claim"], [(b, 7, a) for a, b in pairs])
    assert main(["predict", str(run), str(table), "--out", str(tmp_path / "out.csv")]) == 0
    read = list(read_predictions(tmp_path / "out.csv"))
    assert [row.text.sides for row in read] == pairs
    wanted = clf.predict(pairs).tolist()
    assert [row.predicted for row in read] == wanted
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    capsys.readouterr()
    assert main(["predict", str(run), str(lines)]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == wanted


def test_bad_rows_of_a_table_are_marked(run, tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", ["claim", "evidence"], [("a", "b"), ("c", ""), ("d", "e")])
    assert main(["predict", str(run), str(table)]) == 2
    assert "row 3: the second text is empty" in capsys.readouterr().err
    assert main(["predict", str(run), str(table), "--on-bad-row", "skip"]) == 0
    out, err = capsys.readouterr()
    assert [bool(line.split("\t")[0]) for line in out.splitlines()] == [True, False, True]
    assert "1 row was not predicted" in err
    table.write_text(table.read_text() + "f\n")  # a row without the second column
    assert main(["predict", str(run), str(table), "--on-bad-row", "skip"]) == 0
    assert "2 rows were not predicted" in capsys.readouterr().err


def test_a_large_table_is_answered_piece_by_piece(run, tmp_path, capsys):
    firsts, seconds = [a for _, a, *_ in ROWS[:9]], [row[2] for row in ROWS[:9]]
    table, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    parquet.write_table(pa.table({"claim": [*firsts, None], "evidence": [*seconds, "x"]}), table)
    assert main(["predict", str(run), "--data", str(table), "--out", str(out)]) == 0
    found = parquet.read_table(out).to_pydict()
    clf = gf.load(run)
    assert found["label"][:9] == clf.predict(list(zip(firsts, seconds, strict=True))).tolist()
    assert found["error"][9] == "the first text is missing"


def test_a_run_from_before_there_were_pairs_reads_one_text_a_row(run, tmp_path):
    config = (run / "config.toml").read_text()
    assert read_run_recipe(run).data.pair_column == "evidence"
    assert 'pair_column = "evidence"' in config
    (tmp_path / "config.toml").write_text(config.replace('pair_column = "evidence"\n', ""))
    assert read_run_recipe(tmp_path).data.pair_column == "none"


# --- other names than the training's ------------------------------------------------------------

BOTH = "Name the column of the first texts with --text-column, the column of the second with --pair-column"
LACKS = f"in training from 'premise' and 'hypothesis', but the table lacks 'premise' and 'hypothesis'. {BOTH}: hypo, prem"
LAST = ("a red one here 6", "the red one 6")  # second, first: of a row whose columns are in the other order


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Path:
    """A run whose columns of texts were found: the model alone keeps their names."""
    folder = tmp_path_factory.mktemp("quick")
    table = write_csv(folder / "own.csv", ["premise", "hypothesis", "label"], [row[1:4] for row in ROWS])
    fast = ["--model", "tfidf", "--set", "baselines=false", "--set", "bootstrap=20"]
    assert main(["train", "--text", str(table), *fast, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def nameless(tmp_path_factory) -> Path:
    """A model that was fitted on lists, as those of earlier versions were saved."""
    folder = tmp_path_factory.mktemp("nameless") / "model"
    clf = gf.TextClassifier("tfidf", min_count=1)
    clf.fit([(a, b) for _, a, b, _, _ in ROWS], [row[3] for row in ROWS]).save(folder)
    return folder


def sides_answered(model: Path, table: Path, *options: str) -> list[tuple[str, str]]:
    out = table.with_name("out.csv")
    assert main(["predict", str(model), str(table), "--out", str(out), *options]) == 0
    return [row.text.sides for row in read_predictions(out)]


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (("hypothesis", "premise"), (), ""),
        (("Hypothesis", "Premise"), (), ""),
        (("hypo", "premise"), (), "the only other column"),
        (("sentence2", "sentence1"), (), "by their usual names"),
        (("hypo", "prem"), ("--text-column", "prem"), "the only other column"),
        (("hypo", "prem"), ("--text-column", "prem", "--pair-column", "hypo"), ""),
        (("premise", "hypothesis"), ("--text-column", "hypothesis", "--pair-column", "premise"), ""),
    ],
)
def test_columns_are_read_by_the_names_of_the_training(names, options, said, quick, tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", list(names), [LAST])
    assert sides_answered(quick, table, *options) == [LAST[::-1]]
    err = capsys.readouterr().err
    assert ("is read as the first text" in err) is bool(said)
    assert said in err


@pytest.mark.parametrize("verb", ["predict", "explain", "evaluate", "calibrate", "parquet", "keep-table"])
def test_columns_under_other_names_end_every_verb_with_what_names_them(verb, quick, tmp_path, capsys):
    labelled = verb in ("evaluate", "calibrate")
    rows, names = [(*LAST, "same")] * 7, ["hypo", "prem", "label"]
    table = write_csv(tmp_path / "t.csv", names[: 2 + labelled], [row[: 2 + labelled] for row in rows])
    more = []
    if verb == "parquet":
        table = tmp_path / "t.parquet"
        parquet.write_table(pa.table({"hypo": [LAST[0]], "prem": [LAST[1]]}), table)
        more = ["--out", str(tmp_path / "out.parquet")]
    elif verb == "keep-table":
        more = ["--out", str(tmp_path / "out.csv"), "--keep-table"]
    command = "predict" if verb in ("parquet", "keep-table") else verb
    assert main([command, str(quick), "--data", str(table), *more]) == 2
    assert LACKS in capsys.readouterr().err
    if verb == "evaluate":
        named = ["--text-column", "prem", "--pair-column", "hypo", "--json"]
        assert main([command, str(quick), "--data", str(table), *named]) == 0
        assert json.loads(capsys.readouterr().out)["n"] == len(rows)


def test_other_data_are_judged_by_the_names_of_the_training(quick, tmp_path, capsys):
    rows = [(b, a, verdict) for _, a, b, verdict, _ in ROWS[:11]]
    table = write_csv(tmp_path / "t.csv", ["hypothesis", "premise", "label"], rows)
    assert main(["evaluate", str(quick), str(table), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pairs = [(a, b) for _, a, b, _, _ in ROWS[:11]]
    assert found["accuracy"] == gf.load(quick).score(pairs, [row[3] for row in ROWS[:11]])


def test_a_model_without_names_reads_by_the_order_and_says_so(nameless, tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", ["prem", "hypo", "label"], [(*LAST[::-1], "same")])
    assert sides_answered(nameless, table) == [LAST[::-1]]
    said = "note: 'prem' is read as the first text and 'hypo' as the second, by their order; set --text-column and"
    assert said in capsys.readouterr().err
    table = write_csv(tmp_path / "u.csv", ["prem", "hypo", "more"], [(*LAST, "same")])
    assert main(["predict", str(nameless), str(table)]) == 2
    said = f"it is unclear which two columns have the texts. {BOTH}: prem, hypo, more"
    assert said in capsys.readouterr().err


def test_a_table_without_a_header_is_read_by_its_order(quick, tmp_path, capsys):
    table = write_csv(tmp_path / "t.csv", list(LAST[::-1]), [LAST[::-1]])
    assert sides_answered(quick, table, "--header", "no") == [LAST[::-1]] * 2
    assert "'column1' is read as the first text and 'column2' as the second" in capsys.readouterr().err


def test_pairs_of_the_command_line_are_marked(nameless, capsys):
    assert main(["predict", str(nameless), "the red one", "a red one", "c", "", "--on-bad-row", "skip"]) == 0
    out, err = capsys.readouterr()
    assert [bool(line.split("\t")[0]) for line in out.splitlines()] == [True, False]
    assert err == "note: 1 row was not predicted: the second text is empty (row 2)\n"
