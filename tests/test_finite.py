"""JSON without NaN, written in one place; reasons beside metrics that are not defined."""

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.sources import PACKAGE, modules, tree_of

from glassformer.cli.output import print_json
from glassformer.errors import NotFiniteError
from glassformer.finite import finite, json_text, with_undefined
from glassformer.targets.multiclass import Classes
from glassformer.targets.multilabel import LabelSets
from glassformer.targets.regression import Numbers
from glassformer.tasks.task import write_json

# Between processes of one program, never a file: the writer itself, a trial of a pattern, ranks.
MAY_DUMP = {"finite.py", "data/tokenizer_checks.py", "train/distributed.py"}
NAN, INF = float("nan"), float("inf")


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("make", [np.array, np.float32, torch.tensor], ids=["array", "number", "tensor"])
def test_outputs_are_finite_or_an_error(make, bad):
    good = make(1.5)
    assert finite(good) is good
    with pytest.raises(NotFiniteError, match="the model's logits are not finite: its weights have diverged"):
        finite(make(bad), "logits")


def test_numbers_that_are_not_finite_become_null_with_their_reason():
    value = {"a": 1.0, "b": [1, NAN], "c": {"d": -INF, "e": "é"}, "f": (INF,), "g": 2}
    assert strict(json_text(value)) == {
        "a": 1.0,
        "b": [1, None],
        "c": {"d": None, "e": "é", "not_finite": {"d": "-inf"}},
        "f": [None],
        "g": 2,
        "not_finite": {"b": "nan", "f": "inf"},
    }


def test_what_is_finite_is_written_as_python_does():
    value = {"b": [1.25, None, True], "a": "é\x9b\n"}
    assert json_text(value, indent=1) == json.dumps(value, indent=1, ensure_ascii=False)
    assert json_text(value, sort_keys=True, ascii=True) == json.dumps(value, sort_keys=True)


def test_numbers_of_numpy_are_looked_at_too():
    value = {"x": np.array([1.0, NAN]), "y": np.float32(INF), "z": np.float64(NAN), "n": np.int64(3)}
    found = strict(json_text(value, default=lambda one: one.tolist()))
    wanted = {"x": [1.0, None], "y": None, "z": None, "n": 3}
    assert found == wanted | {"not_finite": {"x": "nan", "y": "inf", "z": "nan"}}


def test_standard_output_and_files_of_a_run_go_through_it(capsys, tmp_path):
    print_json({"loss": NAN, "where": Path("a")})
    assert strict(capsys.readouterr().out) == {"loss": None, "where": "a", "not_finite": {"loss": "nan"}}
    write_json(tmp_path / "metrics.json", [{"loss": INF}])
    assert strict((tmp_path / "metrics.json").read_text()) == [{"loss": None, "not_finite": {"loss": "inf"}}]


def test_nothing_else_writes_json():
    found = set()
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("dump", "dumps")
                and ast.unparse(node.value) == "json"
            ):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == MAY_DUMP


# --- metrics that are not defined -------------------------------------------------------------------


def test_a_reason_stands_beside_what_is_null_and_nowhere_else():
    assert with_undefined({"a": None, "b": 1.0}, {"a": "why", "b": "why", "c": "why"}) == {
        "a": None,
        "b": 1.0,
        "undefined": {"a": "why"},
    }
    assert with_undefined({"a": 1.0}, {"a": "why"}) == {"a": 1.0}


def test_one_class_has_no_curve():
    p, names = np.array([[0.2, 0.8], [0.4, 0.6], [0.9, 0.1]]), ["no", "yes"]
    found = Classes().score(p[:2], np.array([1, 1]), names, bootstrap=0)
    assert (found["accuracy"], found["roc_auc"], found["average_precision"]) == (1.0, None, None)
    same = "all examples have the same label"
    assert found["undefined"] == {"roc_auc": same, "average_precision": same}
    assert "undefined" not in Classes().score(p, np.array([1, 1, 0]), names, bootstrap=0)


def test_a_label_that_all_have_has_no_curve():
    p, y = np.array([[0.9, 0.8], [0.7, 0.3]]), np.array([[1, 1], [1, 0]])
    first, second = LabelSets().score(p, y, ["a", "b"], bootstrap=0)["per_class"]
    assert first["undefined"] == {"average_precision": "all examples have it, or none"}
    assert "undefined" not in second


@pytest.mark.parametrize(
    ("found", "true", "wanted"),
    [
        (
            [1.0, 2.0],
            [3.0, 3.0],
            dict.fromkeys(("r2", "pearson", "spearman"), "all true numbers are the same"),
        ),
        ([1.0], [3.0], dict.fromkeys(("r2", "pearson", "spearman"), "there is one example")),
        (
            [1.0, 1.0],
            [3.0, 4.0],
            dict.fromkeys(("pearson", "spearman"), "all predicted numbers are the same"),
        ),
        ([1.0, 2.0], [3.0, 4.0], None),
    ],
)
def test_numbers_say_why_a_correlation_is_null(found, true, wanted):
    result = Numbers(0.0, 1.0).score(np.array(found), np.array(true), bootstrap=0)
    assert result.get("undefined") == wanted
    assert [key for key in ("r2", "pearson", "spearman") if result[key] is None] == list(wanted or ())
