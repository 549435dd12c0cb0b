"""Amounts as people write prices, and numbers far from all others: what is read, left out and said."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.tiny import sets as settings

from glassformer.cli.app import main
from glassformer.data.numbers import (
    ambiguous_values,
    amount_setting,
    amount_value,
    amounts_message,
    are_outliers,
    check_numbers,
)
from glassformer.data.sources import load_text_dataset
from glassformer.errors import DataError

TINY = ["--model", "encoder-mini", *settings("target=number", "epochs=2", "batch_size=5", "min_count=1")]
TINY += settings("d_model=14", "num_layers=1", "num_heads=2", "d_ff=11", "baselines=false", "bootstrap=20")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("EUR 41.00", 41.0),
        ("€74", 74.0),
        ("11,00", 11.0),
        ("1.234,50", 1234.5),
        ("$5", 5.0),
        ("1,234.50", 1234.5),
        ("12 €", 12.0),
        ("5 $US", 5.0),
        ("1.234.567", 1234567.0),
        ("1 234,5 kr", 1234.5),
        ("1'234.50 CHF", 1234.5),
        ("-€3.50", -3.5),
        ("5,-", 5.0),
        ("US$7", 7.0),
        ("0.125", 0.125),
        ("17", 17.0),
        (".5", 0.5),
    ],
)
def test_amounts_are_read_as_they_are_meant(text: str, value: float):
    assert amount_value(text) == value
    assert check_numbers([text], form="amount") == [value]


@pytest.mark.parametrize(
    "text",
    [
        "VB",
        "n/a",
        "2 or 3",
        "EUR",
        "12,34,5",
        "1.2.3",
        "5 kg",
        "2024-05-01",
        "€5 $5",
        "1e3",
        "12 €M",
        "12 €K",
        "5 €/kg",
        "£5k",
    ],
)
def test_what_is_no_amount_is_none(text: str):
    assert amount_value(text) is None


def test_a_mark_before_three_digits_is_not_guessed():
    assert ambiguous_values("1.234") == "1234 or 1.234"
    for text in ("1.234", "€1,234"):
        assert amount_value(text) is None
        with pytest.raises(
            DataError, match=r"it could be 1234 or 1\.234|it could be 1\.234 or 1234"
        ) as error:
            check_numbers([text], form="amount")
        assert "number_format=point or number_format=comma" in error.value.fix
    assert check_numbers(["1.234", "€1,234"], form="point") == [1.234, 1234.0]
    assert check_numbers(["1.234", "1,234"], form="comma") == [1234.0, 1.234]
    assert check_numbers(["1.234", 1.234]) == [1.234, 1.234]  # plain, as ever


def test_plain_reading_names_the_way_out():
    with pytest.raises(DataError, match="looks like an amount") as error:
        check_numbers(["€74"])
    assert "number_format=amount" in error.value.fix


BOTH = "could be {}: name the decimal mark with number_format=comma or number_format=point"


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["3,5", "1,000"], "read amounts with number_format=comma"),
        (["3,5", "7"], "read amounts with number_format=comma"),
        (["1,234.50", "1,000"], "read amounts with number_format=point"),
        (["€74", "5,-"], "read amounts with number_format=amount"),
        (["3,5", "1,234.50"], "read amounts with number_format=amount"),
        (["1,000", "2,000"], "'1,000' " + BOTH.format("1 or 1000")),
        (["n/a", "3,5"], "read amounts with number_format=comma"),
    ],
)
def test_the_setting_that_reads_a_column_of_amounts(cells, told):
    assert amount_setting(cells) == told


@pytest.mark.parametrize("named", [False, True])
def test_a_column_of_amounts_is_named_with_the_setting_that_reads_it(named, tmp_path, capsys):
    table = tmp_path / "t.csv"
    rows = "".join(f'"the lamp {i}";"{i % 3},5"\n' for i in range(31))
    table.write_text(f"text;Score\n{rows}", encoding="utf-8")
    command = ["train", "--text", str(table), "--set", "target=number", "--model", "tfidf"]
    command += ["--label-column", "Score"] if named else []
    assert main([*command, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    if named:
        assert (
            "row 2: '0,5' is not a number that can be learned; it looks like an amount (30 more rows" in err
        )
        assert "or read amounts with --set number_format=comma" in err
    else:
        assert "no column holds plain numbers: 'Score' holds amounts such as '0,5'. " in err
        assert "Read amounts with --set number_format=comma" in err


@pytest.mark.parametrize(
    "skip", [(), ("--on-bad-row", "skip"), ("--label-column", "score", "--on-bad-row", "skip")]
)
def test_other_data_with_amounts_are_read_with_an_option(skip, tmp_path, capsys):
    rows = [f"the {('good', 'bad', 'fine')[i % 3]} lamp {i},{1000 + 1000 * (i % 3)}" for i in range(31)]
    (tmp_path / "plain.csv").write_text("text,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    fast = ["--set", "target=number", "--set", "baselines=false", "--set", "bootstrap=20", "--model", "tfidf"]
    run = str(tmp_path / "run")
    assert main(["train", "--text", str(tmp_path / "plain.csv"), *fast, "--out", run]) == 0
    other = prices(tmp_path / "other.csv", ["1,000", "2,000", "3,000"] * 3)
    other.write_text(other.read_text().replace("text,price", "text,score"))
    capsys.readouterr()
    assert main(["evaluate", run, str(other), *skip]) == 2
    err = capsys.readouterr().err
    assert "the decimal mark" in err
    assert "--number-format comma or --number-format point" in err
    assert "Correct the table" not in err
    assert main(["evaluate", run, str(other), *skip, "--number-format", "point", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mae"] < 1000
    assert found["seen_in_training"] >= 7  # whose texts the run has learned from, in its own format
    assert main(["evaluate", run, str(other), "--number-format", "poin"]) == 2
    assert "--number-format: 'poin' is not a choice. Did you mean 'point'?" in capsys.readouterr().err


def test_plain_numbers_that_the_format_reads_otherwise_are_told():
    assert amounts_message(["8.500", "7"], "comma") == "1 cells are read as amounts ('8.500' as 8500)"
    assert amounts_message(["8.500", "7"], "point") == ""


def prices(path: Path, cells: list[str]) -> Path:
    rows = [f'"the {("good", "bad", "fine")[i % 3]} lamp {i}","{cell}"' for i, cell in enumerate(cells)]
    path.write_text("text,price\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


CELLS = [str(10 + 10 * (i % 3) + i / 100) for i in range(59)]


def test_a_table_of_prices_says_what_it_leaves_out_and_reads(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = prices(tmp_path / "p.csv", [*CELLS, "EUR 41.00", "$74", "n/a"])
    given = {"numbers": True, "on_bad_row": "skip"}
    kept = load_text_dataset(str(file), number_format="amount", **given)
    assert kept.splits["train"].labels[-2:] == [41.0, 74.0]
    assert "2 cells are read as amounts ('EUR 41.00' as 41, '$74' as 74)" in kept.messages[-1]
    assert "several currencies are read as one: EUR, USD" in kept.messages[-1]
    assert [row.row for row in kept.rejected] == [63]
    assert main(["train", "--text", str(file), "--on-bad-row", "skip", *TINY, "--out", "run"]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert (
        "2 of 3 rows left out look like amounts ('EUR 41.00', '$74'): --set number_format=amount reads"
        in said
    )


def test_a_number_far_from_all_others_does_not_choose_in_silence(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "lamps"
    folder.mkdir()
    prices(folder / "train.csv", [*CELLS, "88888"])
    prices(folder / "validation.csv", [*CELLS[:11], "99999"])
    prices(folder / "test.csv", [*CELLS[:7], "77777"])
    assert main(["train", "--text", str(folder), *TINY, "--out", "run"]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert (
        "depends on a validation number far from all others (99999), which causes 100% of the validation loss"
        in said
    )
    assert "far_numbers=skip" in said
    assert json.loads(Path("run/metrics.json").read_text())["numbers"]["far"]["count"] == 1
    assert main(["train", "--text", str(folder), *TINY, "--set", "far_numbers=skip", "--out", "other"]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "left out: 1 of 60 train numbers (88888), 1 of 12 validation numbers (99999)" in said
    assert "the choice of" not in said
    metrics = json.loads(Path("other/metrics.json").read_text())
    assert (metrics["validation"]["n"], metrics["test"]["n"]) == (11, 8)  # what is judged stays whole
    assert "far" not in metrics["numbers"]


def test_plain_numbers_with_three_decimals_are_no_amounts():
    assert amounts_message(["3.5", "3.815"], "plain") == ""
    assert "'3.815' as 3815" in amounts_message(["3.5", "3.815"], "comma")


def test_far_is_far_from_the_middle_half():
    numbers = np.arange(13.0)
    assert are_outliers(np.array([5.0, 44.0, 46.0, -34.0]), numbers).tolist() == [False, False, True, True]
    assert not are_outliers(np.array([99.0]), np.ones(7)).any()
