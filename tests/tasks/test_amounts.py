"""Amounts as people write prices, and numbers far from all others: what is read, left out and said."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.tiny import sets
from tests.commands import as_json, ok, refused

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

SIZES = "model=encoder-mini epochs=2 batch_size=5 min_count=1 d_model=14 num_layers=1 num_heads=2 d_ff=11"
FAST = ["--set", "target=number", *sets("baselines=false", "bootstrap=20")]
TINY = [*FAST, *sets(*SIZES.split())]
AMOUNTS = """EUR 41.00 = 41; €74 = 74; 11,00 = 11; 1.234,50 = 1234.5; $5 = 5; 1,234.50 = 1234.5; 12 € = 12;
    5 $US = 5; 1.234.567 = 1234567; 1 234,5 kr = 1234.5; 1'234.50 CHF = 1234.5; -€3.50 = -3.5; 5,- = 5;
    US$7 = 7; 0.125 = 0.125; 17 = 17; .5 = 0.5"""
NOT_AMOUNTS = "VB|n/a|2 or 3|EUR|12,34,5|1.2.3|5 kg|2024-05-01|€5 $5|1e3|12 €M|12 €K|5 €/kg|£5k"


@pytest.mark.parametrize("amount", AMOUNTS.split(";"), ids=str.strip)
def test_amounts_are_read_as_they_are_meant(amount: str):
    text, value = amount.strip().split(" = ")
    assert amount_value(text) == float(value)
    assert check_numbers([text], form="amount") == [float(value)]


@pytest.mark.parametrize("text", NOT_AMOUNTS.split("|"))
def test_what_is_no_amount_is_none(text: str):
    assert amount_value(text) is None


def test_a_mark_before_three_digits_is_not_guessed():
    assert ambiguous_values("1.234") == "1234 or 1.234"
    for text, said in (("1.234", "it could be 1234 or 1.234"), ("€1,234", "it could be 1.234 or 1234")):
        assert amount_value(text) is None
        with pytest.raises(DataError) as error:
            check_numbers([text], form="amount")
        assert said in error.value.what
        assert "number_format=point or number_format=comma" in error.value.fix
    assert check_numbers(["1.234", "€1,234"], form="point") == [1.234, 1234.0]
    assert check_numbers(["1.234", "1,234"], form="comma") == [1234.0, 1.234]
    assert check_numbers(["1.234", 1.234]) == [1.234, 1.234]  # plain, as ever
    with pytest.raises(DataError, match="looks like an amount") as error:
        check_numbers(["€74"])
    assert "number_format=amount" in error.value.fix


EITHER = "'1,000' could be 1 or 1000: name the decimal mark with number_format=comma or number_format=point"


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("3,5 1,000", "read amounts with number_format=comma"),
        ("n/a 3,5 7", "read amounts with number_format=comma"),
        ("1,234.50 1,000", "read amounts with number_format=point"),
        ("€74 5,-", "read amounts with number_format=amount"),
        ("3,5 1,234.50", "read amounts with number_format=amount"),
        ("1,000 2,000", EITHER),
    ],
)
def test_the_setting_that_reads_a_column_of_amounts(cells, told):
    assert amount_setting(cells.split()) == told


def test_cells_that_a_format_reads_otherwise_are_told():
    assert amounts_message(["8.500", "7"], "comma") == "1 cells are read as amounts ('8.500' as 8500)"
    for form in ("point", "plain"):
        assert amounts_message(["8.500", "7"], form) == ""


@pytest.mark.parametrize("named", [False, True])
def test_a_column_of_amounts_is_named_with_the_setting_that_reads_it(named, tmp_path):
    table = tmp_path / "t.csv"
    rows = "".join(f'"the lamp {i}";"{i % 3},5"\n' for i in range(31))
    table.write_text(f"text;Score\n{rows}", encoding="utf-8")
    column = ["--label-column", "Score"] if named else []
    err = refused("train", "--text", table, *FAST, "--model", "tfidf", *column, "--out", tmp_path / "run")
    if named:
        assert "row 2: '0,5' is not a number that can be learned; it looks like an amount (30 more" in err
        assert "or read amounts with --set number_format=comma" in err
    else:
        assert "no column contains plain numbers: 'Score' contains amounts such as '0,5'. " in err
        assert "Read amounts with --set number_format=comma" in err


def prices(path: Path, cells: list[str], column: str = "price") -> Path:
    rows = [f'"the {("good", "bad", "fine")[i % 3]} lamp {i}","{cell}"' for i, cell in enumerate(cells)]
    path.write_text("\n".join([f"text,{column}", *rows, ""]), encoding="utf-8")
    return path


def test_other_data_with_amounts_are_read_with_an_option(tmp_path):
    run, point = tmp_path / "run", ("--number-format", "point")
    plain = prices(tmp_path / "plain.csv", [str(1000 + 1000 * (i % 3)) for i in range(31)], "score")
    other = prices(tmp_path / "other.csv", ["1,000", "2,000", "3,000"] * 3, "score")
    ok("train", "--text", plain, *FAST, "--model", "tfidf", "--out", run)
    skip = ("--on-bad-row", "skip")
    for more in ((), skip, ("--label-column", "score", *skip)):
        err = refused("evaluate", run, other, *more)
        assert "the decimal mark" in err
        assert "--number-format comma or --number-format point" in err
        assert "Correct the table" not in err
        found = as_json("evaluate", run, other, *more, *point)
        assert found["mae"] < 1000
        assert found["seen_in_training"] >= 7  # whose texts the run has learned from, in its own format
    assert "'poin' is not a choice. Did you mean 'point'?" in refused(
        "evaluate", run, other, point[0], "poin"
    )


CELLS = [str(10 + 10 * (i % 3) + i / 100) for i in range(59)]


def test_a_table_of_prices_says_what_it_leaves_out_and_reads(tmp_path: Path):
    file = prices(tmp_path / "p.csv", [*CELLS, "EUR 41.00", "$74", "n/a"])
    kept = load_text_dataset(str(file), number_format="amount", numbers=True, on_bad_row="skip")
    assert kept.splits["train"].labels[-2:] == [41.0, 74.0]
    assert "2 cells are read as amounts ('EUR 41.00' as 41, '$74' as 74)" in kept.messages[-1]
    assert "several currencies are read as one: EUR, USD" in kept.messages[-1]
    assert [row.row for row in kept.rejected] == [63]
    done = ok("train", "--text", file, "--on-bad-row", "skip", *TINY, "--out", tmp_path / "run")
    said = " ".join((done.out + done.err).split())
    assert "2 of 3 rows left out look like amounts ('EUR 41.00', '$74')" in said
    assert "--set number_format=amount reads" in said


def test_a_number_far_from_all_others_does_not_choose_in_silence(tmp_path: Path):
    lamps = tmp_path / "lamps"
    lamps.mkdir()
    for name, cells in {"train": [*CELLS, "88888"], "validation": [*CELLS[:11], "99999"]}.items():
        prices(lamps / f"{name}.csv", cells)
    prices(lamps / "test.csv", [*CELLS[:7], "77777"])

    def trained(name: str, *more: str) -> tuple[str, dict]:
        done = ok("train", "--text", lamps, *TINY, *more, "--out", tmp_path / name)
        return " ".join((done.out + done.err).split()), json.loads(
            (tmp_path / name / "metrics.json").read_text()
        )

    said, metrics = trained("run")
    assert "depends on a validation number far from all others (99999), which causes 100% of the v" in said
    assert "far_numbers=skip" in said
    assert metrics["numbers"]["far"]["count"] == 1
    said, metrics = trained("other", "--set", "far_numbers=skip")
    assert "left out: 1 of 60 train numbers (88888), 1 of 12 validation numbers (99999)" in said
    assert "the choice of" not in said
    assert (metrics["validation"]["n"], metrics["test"]["n"]) == (11, 8)  # what is judged stays whole
    assert "far" not in metrics["numbers"]


def test_far_is_far_from_the_middle_half():
    numbers = np.arange(13.0)
    assert are_outliers(np.array([5.0, 44.0, 46.0, -34.0]), numbers).tolist() == [False, False, True, True]
    assert not are_outliers(np.array([99.0]), np.ones(7)).any()
