"""``data doctor --set KEY=VALUE``: a table is examined as a recipe with these settings reads it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from glassformer.cli.app import main

THINGS = {"pen": 2.0, "lamp": 40.0, "car": 9000.0}


@pytest.fixture
def prices(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        f'"a {thing} for sale in town {i}",€{value + i}'
        for i, (thing, value) in enumerate([*THINGS.items()] * 13)
    ]
    (tmp_path / "prices.csv").write_text("\n".join(["advert,price", *rows, "a mug,0", "a cup,-3"]) + "\n")
    return "prices.csv"


def asked(capsys, *words: str) -> dict:
    assert main(["data", "doctor", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def codes(report: dict) -> list[str]:
    return [finding["code"] for finding in report["findings"]]


def test_numbers_are_looked_at_as_they_will_be_learned(prices, capsys):
    as_amounts = [prices, "--set", "target=number", "--set", "number_format=amount"]
    report = asked(capsys, *as_amounts)
    assert "balance" not in codes(report)  # no classes
    assert {"numbers", "bad-rows"} & {*codes(report)} == {"numbers"}
    assert sum(split["rows"] for split in report["figures"]["splits"].values()) == 41
    logs = asked(capsys, *as_amounts, "--set", "number_scale=log")
    (bad,) = [finding for finding in logs["findings"] if finding["code"] == "bad-rows"]
    assert bad["count"] == 2
    assert "not above 0" in bad["message"]
    assert main(["data", "doctor", *as_amounts, "--set", "number_scale=log"]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert (
        "--set target=number --set number_format=amount --set number_scale=log --on-bad-row skip" in command
    )


def test_settings_of_classes_change_what_is_found(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"a {word} film {i} to see,{label}"
        for i, (word, label) in enumerate([("fine", "good"), ("dull", "bad")] * 9)
    ]
    (tmp_path / "films.csv").write_text(
        "\n".join(["text,label", *rows, "a fine film of old,Good", rows[0]]) + "\n"
    )
    assert {"twin-classes", "duplicates"} <= {
        f["code"] for f in asked(capsys, "films.csv")["findings"] if f["severity"] == "warning"
    }
    mended = ["films.csv", "--set", "merge_labels=spelling", "--set", "drop_duplicates=true"]
    assert not {"twin-classes", "duplicates"} & {
        f["code"] for f in asked(capsys, *mended)["findings"] if f["severity"] == "warning"
    }
    held = asked(capsys, *mended, "--set", "test_size=0.3")
    assert {*held["figures"]["splits"]} == {"train", "test"}


def test_pairs_with_numbers_are_texts_then(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"a dog runs {i},an animal moves {i},{i % 5}.5" for i in range(29)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n")
    report = asked(capsys, "pairs.csv", "--set", "target=number")
    assert "numbers" in codes(report)
    assert report["figures"]["splits"]["train"]["rows"] == 29


def test_pictures_with_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(23):
        Image.fromarray(np.full((8, 8, 3), 10 * i, np.uint8)).save(tmp_path / f"{i}.png")
    rows = [f"{i}.png,{i / 2}" for i in range(23)]
    (tmp_path / "bright.csv").write_text("\n".join(["image,brightness", *rows]) + "\n")
    report = asked(capsys, "bright.csv", "--set", "target=number")
    assert "numbers" in codes(report)


def test_what_cannot_be_set_is_named(prices, capsys):
    assert main(["data", "doctor", prices, "--set", "target=number", "--set", "max_lenght=5"]) == 2
    assert "max_length" in capsys.readouterr().err
    assert main(["data", "doctor", "facts", "--set", "limit=3"]) == 2
    assert (
        "--set: belongs to texts, images and tagged words, and these are answers" in capsys.readouterr().err
    )
    with open(prices, encoding="utf-8") as given, open("plain.csv", "w", encoding="utf-8") as plain:
        plain.write(given.read().replace("€", "") + "a jar,0.5\n")
    assert main(["data", "doctor", "plain.csv"]) == 0
    assert "--set target=number looks at them here" in capsys.readouterr().out
