"""Settings of a checkpoint: values at their bounds, and those that cannot be, refused by name before a model is made."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.layout import (
    add_label_maps,
    check_tensors,
    count_outputs,
    create_on_meta,
    describe_outputs,
    first_line,
    model_from_state,
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
from glassformer.data.transform import ImageTransform
from glassformer.errors import CheckpointError, ConfigError, NewerFormatError
from glassformer.families.bert import bert
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.families.vit import vit
from glassformer.models.image import ImageEncoder as ViT
from glassformer.models.text import TextEncoder as Bert
from glassformer.tasks.estimator import FORMAT

TEXTS = ["a fine film", "a bad film", "bad , not fine", "a fine one"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    sizes = {"max_length": 13, "d_model": 6, "num_heads": 1, "num_layers": 1}
    clf = gf.TextClassifier("encoder-mini", min_count=1, epochs=1, **sizes)
    return clf.fit(TEXTS, ["good", "bad", "bad", "good"]).save(tmp_path_factory.mktemp("saved") / "model")


def altered(folder, target, name, **changes):
    """A copy whose file of settings has these values; None drops the key. Its manifest fits."""

    def write(fresh):
        shutil.copytree(folder, fresh, dirs_exist_ok=True, ignore=lambda *_: ["manifest.json"])
        settings = json.loads((fresh / name).read_text()) | changes
        kept = {key: value for key, value in settings.items() if value is not None}
        (fresh / name).write_text(json.dumps(kept))

    return write_folder(target, write)


def test_comparing_shapes_loads_no_compiler():
    """The first drawing of a number without memory makes torch import sympy and more: seconds at every start."""
    program = (
        "import sys; from glassformer.checkpoints.layout import create_on_meta\n"
        "from glassformer.families import FAMILIES\n"
        "from glassformer.models.seq2seq import TransformerSeq2Seq, transformer\n"
        "made = [(FAMILIES[name].model, FAMILIES[name].tiny()) for name in ('bert', 'vit')]\n"
        "made += [(TransformerSeq2Seq, transformer(7, 11, d_model=6, num_heads=1, num_layers=1, d_ff=5))]\n"
        "for model, config in made: create_on_meta(model, config, 99, 'x')\n"
        "print('sympy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


def test_no_memory_is_taken_and_no_number_drawn_to_compare_shapes():
    config = bert(10_000_000, 4096, 1, 1, 7, 11)  # 164 GB
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert {p.device.type for p in create_on_meta(Bert, config, 99, "x").parameters()} == {"meta"}
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(CheckpointError, match="missing tensors"):
        model_from_state(Bert, config, {f"{i}": torch.zeros(1) for i in range(3)}, "x")


@pytest.mark.parametrize("name", ["architecture", "init_std", "head"])
def test_architectures_of_our_own(tmp_path, name):
    whole = tmp_path / "whole"
    whole.mkdir()
    config = vit((8, 8), (4, 4), 6, 1, 1, 7)
    save_pretrained(ViT(replace(config, encoder=replace(config.encoder, norm="post"))), whole)
    settings = json.loads((whole / "config.json").read_text())
    assert settings["model_type"] == "glassformer-image"
    if name == "architecture":
        settings[name] = 3
    else:
        settings["architecture"][name] = {"init_std": -1.0, "head": [1]}[name]
    (whole / "config.json").write_text(json.dumps(settings))
    with pytest.raises((CheckpointError, ConfigError), match=rf"config\.json.*{name}|no model can be built"):
        load_pretrained(whole)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": None}, "'parameters' is missing or not an object"),
        ({"format": FORMAT + 1}, f"has format {FORMAT + 1}; this version reads up to.*update"),
        ({"parameters": {"epochs": "many"}}, "invalid parameter: .*epochs"),
        ({"format": "x"}, "format = 'x' is not a whole number"),
        ({"kind": ["a"]}, "kind = .* is not a text"),
        ({"kind": "Oracle"}, "has a 'Oracle', which this version does not know"),
        ({"classes": None}, "'classes' is missing"),
        ({"classes": ["a", "a"]}, "a label twice"),
        ({"classes": [["a"], ["b"]]}, "neither text nor a whole number but list"),
        ({"classes": ["a", "b", "c"]}, "3 classes, but the model has 2 outputs"),
        ({"temperature": "warm"}, "temperature = 'warm' is not between"),
        ({"temperature": 0}, "temperature = 0"),
        ({"temperature": 1e-320}, "temperature = .* is not between 0.001 and 1000"),
        ({"temperature": 1e300}, "temperature = 1e\\+300 is not between"),
        ({"temperature": float("nan")}, "temperature = nan is not between"),
        ({"threshold": 1e300}, "threshold = 1e\\+300 is not between 0 and 1"),
        ({"classes": ["a", "a\0"]}, r"classes\[1\]: the label contains a NUL"),
        ({"classes": ["a", "\ud800"]}, r"classes\[1\]: the label contains a lone surrogate"),
        ({"classes": ["a", "b\x1b[2J"]}, "control character U\\+001B"),
        ({"classes": [2**63, -1]}, "beyond 64 bits"),
        ({"classes": [True, 1]}, "is a number where the first is a truth value"),
        ({"classes": ["a", "b" * 1001]}, "1,001 characters"),
        ({"best_step": -1}, "best_step = -1"),
    ],
)
def test_settings_of_a_saved_classifier(saved, tmp_path, changes, said):
    assert gf.load(altered(saved, tmp_path / "same", "glassformer.json")).predict(TEXTS).shape == (4,)
    wanted = NewerFormatError if "has format" in said else CheckpointError
    with pytest.raises(wanted, match=said) as error:
        gf.load(altered(saved, tmp_path / "bad", "glassformer.json", **changes))
    assert str(tmp_path / "bad") in str(error.value)


def test_word_vectors(tmp_path):
    vectors = gf.Word2Vec(dim=5, min_count=1, epochs=1, threads=1).fit([text.split() for text in TEXTS])
    whole = vectors.save(tmp_path / "whole")
    counts = json.loads((whole / "words.json").read_text())["counts"]
    for i, (name, changes, said) in enumerate(
        (
            ("words.json", {"words": ["a"]}, "not lists of the same length"),
            ("words.json", {"counts": None}, "not lists"),
            ("words.json", {"words": ["a"] * len(counts)}, "a word twice"),
            ("words.json", {"counts": ["a"] * len(counts)}, "is not a count"),
            ("words.json", {"words": ["a"], "counts": [3]}, "not a table of 1 rows"),
            ("glassformer.json", {"norms": 3}, "'norms' is missing or not an object"),
            ("glassformer.json", {"parameters": {"window": "wide"}}, "invalid parameter"),
        )
    ):
        with pytest.raises(CheckpointError, match=said):
            gf.load(altered(whole, tmp_path / str(i), name, **changes))


def test_other_outputs_of_a_hub_folder_are_named_as_labels_are(tmp_path):
    hub = tmp_path / "hub"
    save_pretrained(Bert(bert(17, 6, 2, 3, 7, 11, head="classification", num_labels=5)), hub)
    for names, said in [
        (["a", "a\0", "b", "c", "d"], r"id2label\[1\]: the label contains a NUL"),
        (["a", "\ud800", "b", "c", "d"], r"id2label\[1\]: the label contains a lone surrogate"),
        (["a", "", "b", "c", "d"], r"id2label\[1\]: the label is missing"),
    ]:
        named = {str(i): name for i, name in enumerate(names)}
        folder = altered(hub, tmp_path / f"bad{len(said)}", "config.json", id2label=named)
        with pytest.raises(CheckpointError, match=said):
            gf.load(folder)


def test_what_a_folder_prepares_is_what_its_model_reads(saved, tmp_path):
    settings = json.loads((saved / "glassformer.json").read_text())
    parameters = settings["parameters"] | {"max_length": 99}
    folder = altered(saved, tmp_path / "long", "glassformer.json", parameters=parameters)
    config = json.loads((saved / "config.json").read_text())
    if config["architecture"]["embedding"]["positions"] == "learned":
        with pytest.raises(CheckpointError, match="max_length = 99 is more than the model's"):
            gf.load(folder)
    else:
        assert gf.load(folder).predict(["a film " * 70]).shape == (1,)
    pictures = torch.arange(4 * 3 * 8 * 8).remainder(251).to(torch.uint8).reshape(4, 3, 8, 8)
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 6, "num_heads": 1, "num_layers": 1, "d_ff": 5}
    clf = gf.ImageClassifier("vit-tiny", epochs=1, **sizes)
    whole = clf.fit(pictures, [0, 1, 0, 1]).save(tmp_path / "pictures")
    larger = ImageTransform((512, 512)).to_hub()
    with pytest.raises(CheckpointError, match="the image size or channels of the preprocessor differ"):
        gf.load(altered(whole, tmp_path / "larger", "preprocessor_config.json", **larger))


# --- values at their bounds, and what a missing one counts as -----------------------------------------


MOST = 10_000_000


def written(folder, settings) -> None:
    (folder / "glassformer.json").write_text(json.dumps(settings), encoding="utf-8")


READ = {
    get_size: (1, 2, MOST),
    get_number: (0, 0.0, 0.99, 2.5),
    get_count: (0, 1, 2**63 - 1),
    get_text: ("", "b"),
}


@pytest.mark.parametrize(
    ("read", "value"), [(read, value) for read, values in READ.items() for value in values]
)
def test_a_value_at_its_bounds_and_a_default(read, value):
    other = "c" if read is get_text else 5
    assert read({"a": value}, "a", "f", other) == value
    assert read({}, "a", "f", value) == value


@pytest.mark.parametrize(
    ("read", "values", "said"),
    [
        (get_size, [0, -1, MOST + 1, 2.0, True, "3", None, [3]], "f: a = .* is not a size"),
        (get_number, [-1e-9, math.inf, math.nan, True, "1"], "is not a number 0 or more"),
        (partial(get_number, below=1), [1, 1.5], "is not a number from 0 to 1"),
        (get_count, [-1, 2**63, 1.0, True, "1", None], "is not a whole number of 0 or more"),
        (get_text, [None, 3, ["x"]], "is not a text"),
    ],
)
def test_values_out_of_bounds(read, values, said):
    for value in values:
        with pytest.raises(CheckpointError, match=said):
            read({"a": value}, "a", "f", 5)


def test_values_that_are_not_there():
    assert get_number({"a": 0.99}, "a", "f", 0.5, 1) == 0.99
    assert get_count({}, "a", "f") == 0
    with pytest.raises(CheckpointError, match="f: missing key 'a'"):
        get_size({"b": 1}, "a", "f")
    assert get_section({"a": {}}, "a", "f") == {}
    for wrong in (None, 3, ["x"]):
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
    assert describe_outputs({}, 2) == ""
    assert describe_outputs({"problem_type": "single_label_classification"}, 1) == ""
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
