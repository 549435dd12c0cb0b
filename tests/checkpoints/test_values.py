"""Values of settings files at their bounds, what a missing one counts as, and configs that come back as they were."""

import json
import math

import pytest
import torch

from glassformer.checkpoints.layout import (
    add_label_maps,
    check_tensors,
    count_outputs,
    describe_outputs,
    first_line,
)
from glassformer.checkpoints.names import list_names
from glassformer.checkpoints.settings import (
    get_count,
    get_number,
    get_section,
    get_size,
    get_text,
    read_metadata,
    shorten,
)
from glassformer.errors import CheckpointError, NewerFormatError

MOST = 10_000_000


def written(folder, settings) -> None:
    (folder / "glassformer.json").write_text(json.dumps(settings), encoding="utf-8")


@pytest.mark.parametrize("value", [1, 2, MOST])
def test_sizes(value):
    assert get_size({"a": value}, "a", "f") == value
    assert get_size({}, "a", "f", value) == value


@pytest.mark.parametrize("value", [0, -1, MOST + 1, 2.0, True, "3", None, [3]])
def test_no_sizes(value):
    with pytest.raises(CheckpointError, match=r"f: a = .* is not a size"):
        get_size({"a": value}, "a", "f", 5)


def test_a_size_without_a_default_must_be_there():
    with pytest.raises(CheckpointError, match="f: missing key 'a'"):
        get_size({"b": 1}, "a", "f")


@pytest.mark.parametrize("value", [0, 0.0, 0.99, 2.5])
def test_numbers_and_rates(value):
    assert get_number({"a": value}, "a", "f", 0.5) == value
    assert get_number({}, "a", "f", value) == value
    if value < 1:
        assert get_number({"a": value}, "a", "f", 0.5, 1) == value


@pytest.mark.parametrize(
    ("value", "below", "bounds"),
    [
        (-1e-9, math.inf, "0 or more"),
        (math.inf, math.inf, "0 or more"),
        (math.nan, math.inf, "0 or more"),
        (True, math.inf, "0 or more"),
        ("1", math.inf, "0 or more"),
        (1, 1, "from 0 to 1"),
        (1.5, 1, "from 0 to 1"),
    ],
)
def test_no_numbers(value, below, bounds):
    with pytest.raises(CheckpointError, match=f"is not a number {bounds}"):
        get_number({"a": value}, "a", "f", 0.5, below)


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1])
def test_counts(value):
    assert get_count({"a": value}, "a", "f") == value
    assert get_count({}, "a", "f") == 0
    assert get_count({}, "a", "f", 3) == 3


@pytest.mark.parametrize("value", [-1, 2**63, 1.0, True, "1", None])
def test_no_counts(value):
    with pytest.raises(CheckpointError, match="is not a whole number of 0 or more"):
        get_count({"a": value}, "a", "f")


def test_texts_and_sections():
    assert get_text({"a": ""}, "a", "f", "b") == ""
    assert get_text({}, "a", "f", "b") == "b"
    assert get_section({"a": {}}, "a", "f") == {}
    for wrong in (None, 3, ["x"]):
        with pytest.raises(CheckpointError, match="is not a text"):
            get_text({"a": wrong}, "a", "f", "b")
        with pytest.raises(CheckpointError, match="f: 'a' is missing or not an object"):
            get_section({"a": wrong}, "a", "f")


def test_values_in_messages_are_short():
    assert shorten("x" * 78) == repr("x" * 78)
    assert shorten("x" * 79) == "'" + "x" * 76 + "..."
    assert shorten(10**30 - 1) == str(10**30 - 1)
    assert shorten(10**30) == shorten(-(10**30)) == "a number of more than 30 digits"
    assert shorten(True) == "True"
    assert list_names("odd", list("gfedcba")) == "odd: a, b, c, d, e, f and 1 more"
    assert list_names("odd", list("fedcba")) == "odd: a, b, c, d, e, f"
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError("")) == "ValueError"
    assert len(first_line(ValueError("x" * 300))) == 200


def test_what_glassformer_json_does_not_say_has_a_value(tmp_path):
    written(tmp_path, {"parameters": {"a": 1}, "more": 2})
    assert read_metadata(tmp_path, 3) == {
        "parameters": {"a": 1}, "more": 2, "kind": "TextClassifier", "weights_source": "unknown", "best_step": 0,
        "train_seconds": 0.0, "truncated": 0, "chunks": 0, "chosen": {},
    }  # fmt: skip
    written(tmp_path, {"parameters": {}, "format": 3, "best_step": 7})
    assert read_metadata(tmp_path, 3)["best_step"] == 7
    with pytest.raises(NewerFormatError, match=r"has format 3; this version reads up to 2"):
        read_metadata(tmp_path, 2)
    written(tmp_path, {"format": 1})
    with pytest.raises(CheckpointError, match="'parameters' is missing"):
        read_metadata(tmp_path, 3)


def test_what_a_head_is_for():
    assert (
        describe_outputs({}, 2) == describe_outputs({"problem_type": "single_label_classification"}, 1) == ""
    )
    assert describe_outputs({}, 1).startswith("regression")
    assert describe_outputs({"problem_type": "regression"}, 5).startswith("regression")
    assert describe_outputs({"problem_type": "multi_label_classification"}, 5).startswith("multi-label")
    for wrong in ("poetry", ["regression"], 3):
        with pytest.raises(CheckpointError, match=r"problem_type = .* is not known"):
            describe_outputs({"problem_type": wrong}, 2)
    assert count_outputs(torch.zeros(5, 7), "f") == 5
    with pytest.raises(CheckpointError, match=r"the head's weight is \(5,\), not a matrix"):
        count_outputs(torch.zeros(5), "f")
    settings = {}
    add_label_maps(settings, ())
    assert settings == {}
    add_label_maps(settings, ("b", "a"))
    assert settings == {"id2label": {"0": "b", "1": "a"}, "label2id": {"b": 0, "a": 1}}


def test_tensors_that_do_not_fit_are_named():
    own = {"a": torch.zeros(2, 3), "b": torch.zeros(5)}
    check_tensors(own, dict(own), "f")
    with pytest.raises(CheckpointError, match="f: missing tensors: b"):
        check_tensors(own, {"a": own["a"]}, "f")
    with pytest.raises(CheckpointError, match="f: unexpected tensors: c"):
        check_tensors(own, own | {"c": own["b"]}, "f")
    with pytest.raises(CheckpointError, match=r"b is \(7,\), but config.json requires \(5,\)"):
        check_tensors(own, own | {"b": torch.zeros(7)}, "f")
