"""Codes of errors and warnings: each class has one, the page explains each, and they arrive where users look."""

import importlib
import json
import pickle
import pkgutil
import runpy
from pathlib import Path

import pytest

import glassformer
from glassformer import errors
from glassformer.cli.app import main

MADE = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "messages.py"))
CLASSES = [cls for found in MADE["codes"]().values() for cls in found]


@pytest.fixture(scope="module")
def page() -> str:
    return MADE["page"]()


def subclasses(cls: type) -> set[type]:
    return {cls, *(deeper for one in cls.__subclasses__() for deeper in subclasses(one))}


def test_every_class_is_on_the_page():
    for module in pkgutil.walk_packages(glassformer.__path__, "glassformer."):
        if (
            not module.name.endswith(("__main__", "onnx_process", "plain_ngrams"))
            and ".scripts" not in module.name
        ):
            importlib.import_module(module.name)
    ours = {c for c in subclasses(errors.GlassformerError) if c.__module__.startswith("glassformer")}
    ours |= subclasses(errors.GlassformerWarning) - {errors.GlassformerWarning}
    with_own_code = {c for c in ours if "code" in vars(c)}
    inherited = {c.__name__ for c in ours - with_own_code}
    assert inherited == {"MissingSplitError"}
    assert {c.__name__ for c in with_own_code - {*CLASSES}} == {"RowError", "UndecodedRowError"}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_code_is_explained(cls, page):
    meaning, cause, fix = MADE["explanation"](cls)
    assert all(text.endswith(".") for text in (meaning, cause, fix)), cls
    assert f"### {cls.code}\n" in page
    assert cls.code == cls.code.lower().replace("_", "-")


def test_codes_without_a_class_are_explained():
    from glassformer.serve.problems import CODES

    known = {*MADE["WITHOUT_CLASS"], *MADE["codes"]()}
    assert {*CODES.values(), "bad-request", "usage", "unexpected"} <= known
    assert not {*MADE["WITHOUT_CLASS"]} & {*MADE["codes"]()}


def test_examples_are_those_of_the_source():
    found = MADE["messages"]()
    assert "there are no texts. Give at least one text" in found["MissingValueError"]
    assert len(found) > 40
    raised = {name for name in found if name.endswith("Error")}
    unused = {c.__name__ for c in CLASSES if c.__name__.endswith("Error")} - raised
    assert unused <= {
        "GlassformerError",
        "InputError",
        "CannotWriteError",
        "NotFiniteError",
        "NotDownloadedError",
    }


def test_a_code_survives_a_change_and_another_process():
    error = errors.NoSuchColumnError("no column 'x'", where="a.csv", fix="Did you mean 'y'?")
    assert str(error) == "a.csv: no column 'x'. Did you mean 'y'?"
    assert error.to_dict() == {
        "code": "no-such-column",
        "what": "no column 'x'",
        "where": "a.csv",
        "fix": "Did you mean 'y'?",
    }
    changed = pickle.loads(pickle.dumps(error.replace(where="b.csv")))
    assert (type(changed), str(changed)) == (type(error), "b.csv: no column 'x'. Did you mean 'y'?")
    lost = pickle.loads(pickle.dumps(errors.NotFiniteError("logits")))
    assert (lost.code, lost.where, lost.fix) == ("not-finite", None, None)
    assert lost.what == str(lost)


def test_json_of_an_error(capsys):
    assert main(["train", "europ", "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"] == {
        "code": "no-such-recipe",
        "what": "no recipe 'europ'",
        "where": None,
        "fix": "Did you mean 'europe'?",
    }
    assert shown.err == "error: no recipe 'europ'. Did you mean 'europe'? [no-such-recipe]\n"
    assert main(["train", "--nosuch", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_earlier_names_of_warnings():
    assert errors.NotKeptWarning is errors.UserFileLostWarning
    assert errors.OtherBitsWarning is errors.NotBitIdenticalWarning
