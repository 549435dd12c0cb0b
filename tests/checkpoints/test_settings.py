"""Settings of a checkpoint that cannot be: refused by name, before memory is taken or a model is made."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.layout import create_on_meta, model_from_state
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.transform import ImageTransform
from glassformer.errors import CheckpointError, ConfigError, NewerFormatError
from glassformer.families.bert import bert
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.families.vit import vit
from glassformer.models.image import ImageEncoder as ViT
from glassformer.models.text import TextEncoder as Bert

TEXTS = ["a fine film", "a bad film", "bad , not fine", "a fine one"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    save_pretrained(Bert(bert(17, 6, 2, 3, 7, 11, head="classification", num_labels=5)), folder)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    clf = gf.TextClassifier(
        "encoder-mini", min_count=1, max_length=13, d_model=6, num_heads=1, num_layers=1, epochs=1
    )
    return clf.fit(TEXTS, ["good", "bad", "bad", "good"]).save(tmp_path_factory.mktemp("saved") / "model")


def altered(folder, target, name, **changes):
    """A copy whose file of settings has these values; None drops the key. Its manifest fits."""

    def write(fresh):
        shutil.copytree(folder, fresh, dirs_exist_ok=True, ignore=lambda *_: ["manifest.json"])
        settings = json.loads((fresh / name).read_text()) | changes
        kept = {key: value for key, value in settings.items() if value is not None}
        (fresh / name).write_text(json.dumps(kept))

    return write_folder(target, write)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"vocab_size": 10_000_000, "hidden_size": 4096, "num_attention_heads": 1},
            "but config.json requires",
        ),
        ({"num_hidden_layers": 1_000_000}, "1,000,000 layers, but the weights have only"),
        ({"max_position_embeddings": 10_000_000}, "but config.json requires"),
        ({"max_position_embeddings": "9"}, "max_position_embeddings = '9' is not a size"),
        ({"type_vocab_size": -3}, "type_vocab_size = -3 is not a size"),
        ({"vocab_size": 10**60}, "vocab_size = a number of more than 30 digits is not a size"),
        ({"initializer_range": -1}, "initializer_range = -1 is not a number 0 or more"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps = nan is not a number"),
        ({"layer_norm_eps": 0}, "eps = 0 is not between 1e-30 and 1"),
        ({"layer_norm_eps": 1e-320}, "eps = .* is not between 1e-30 and 1"),
        ({"layer_norm_eps": 1e300}, r"eps = 1e\+300 is not between 1e-30 and 1"),
        ({"initializer_range": 1e300}, r"init_std = 1e\+300 is not between 0 and 1000"),
        ({"hidden_dropout_prob": 1}, "hidden_dropout_prob = 1 is not a number from 0 to 1"),
        ({"classifier_dropout": "much"}, "classifier_dropout = 'much'"),
        ({"hidden_act": ["gelu"]}, "hidden_act = .* is not supported"),
        ({"model_type": ["bert"]}, "model_type .* is not supported"),
        ({"glassformer": 3}, "'glassformer' is missing or not an object"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_before_a_model_is_made(
    hub, tmp_path, changes, said, monkeypatch
):
    folder = altered(hub, tmp_path / "bad", "config.json", **changes)
    monkeypatch.setattr(Bert, "load_state_dict", None)
    with pytest.raises(CheckpointError, match=said):
        load_pretrained(folder)


def test_comparing_shapes_loads_no_compiler():
    """The first drawing of a number without memory makes torch import sympy and more: seconds at every start."""
    program = (
        "import sys\n"
        "from glassformer.checkpoints.layout import create_on_meta\n"
        "from glassformer.models.text import TextEncoder as Bert\n"
        "from glassformer.families.bert import bert\n"
        "create_on_meta(Bert, bert(7, 6, 1, 1, 5, 11, head='mlm'), 99, 'x')\n"
        "from glassformer.models.seq2seq import TransformerSeq2Seq, transformer\n"
        "create_on_meta(TransformerSeq2Seq, transformer(7, 11, d_model=6, num_heads=1, num_layers=1, d_ff=5), 99, 'x')\n"
        "from glassformer.models.image import ImageEncoder as ViT\n"
        "from glassformer.families.vit import vit\n"
        "create_on_meta(ViT, vit((8, 8), (4, 4), 6, 1, 1, 7), 99, 'x')\n"
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
        ({"classes": ["a", "a\0"]}, r"classes\[1\]: the label holds a NUL"),
        ({"classes": ["a", "\ud800"]}, r"classes\[1\]: the label holds a lone surrogate"),
        ({"classes": ["a", "b\x1b[2J"]}, "control character U\\+001B"),
        ({"classes": [2**63, -1]}, "beyond 64 bits"),
        ({"classes": [True, 1]}, "is a number where the first is a truth value"),
        ({"classes": ["a", "b" * 1001]}, "1,001 characters"),
        ({"best_step": -1}, "best_step = -1"),
    ],
)
def test_settings_of_a_saved_classifier(saved, tmp_path, changes, said):
    assert gf.load(altered(saved, tmp_path / "same", "glassformer.json")).predict(TEXTS).shape == (4,)
    with pytest.raises(CheckpointError, match=said) as error:
        gf.load(altered(saved, tmp_path / "bad", "glassformer.json", **changes))
    assert str(tmp_path / "bad") in str(error.value)


def test_a_newer_format_is_told_apart(saved, tmp_path):
    with pytest.raises(NewerFormatError, match="has format 2"):
        gf.load(altered(saved, tmp_path / "new", "glassformer.json", format=2))


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"resample": [2]},
        {"rescale_factor": "no"},
        {"size": {"height": "a", "width": 3}},
        {"size": 10**9},
        {"size": -1},
        {"image_std": [float("nan")] * 3},
        {"image_mean": None},
    ],
)
def test_preprocessing(wrong):
    with pytest.raises(ConfigError, match=r"here\.json: "):
        ImageTransform.from_hub({"size": 7} | wrong, "here.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"do_flip_channel_order": True}, "do_flip_channel_order = True is not supported"),
        ({"do_pad": True}, "do_pad = True is not supported"),
        ({"crop_pct": 0.9}, "crop_pct = 0.9 is not supported"),
        ({"keep_aspect_ratio": True}, "keep_aspect_ratio = True is not supported"),
        (
            {"image_processor_type": "ConvNextImageProcessor"},
            "crop_pct, a step of ConvNextImageProcessor, is not supported",
        ),
        ({"image_processor_type": "LevitImageProcessor"}, "a scale of 256/224 before its crop"),
        (
            {"feature_extractor_type": "MobileViTFeatureExtractor", "image_processor_type": None},
            "do_flip_channel_order",
        ),
        ({"do_pad": False, "do_flip_channel_order": False, "crop_pct": None}, None),
        ({"image_processor_type": "ConvNextImageProcessor", "crop_pct": None}, None),
        ({"image_processor_type": "BitImageProcessor"}, None),
    ],
)
def test_steps_of_other_image_processors_are_named(changes, said):
    settings = ImageTransform((8, 8)).to_hub() | changes
    if said is None:
        assert ImageTransform.from_hub(settings) == ImageTransform((8, 8))
    else:
        with pytest.raises(ConfigError, match=said):
            ImageTransform.from_hub(settings)


def test_one_mean_and_spread_stand_for_all_channels():
    settings = ImageTransform((8, 8)).to_hub() | {"image_mean": 0.25, "image_std": 0.75}
    found = ImageTransform.from_hub(settings)
    assert (found.mean, found.std, found.channels) == ((0.25,) * 3, (0.75,) * 3, 3)


def test_special_tokens_may_be_objects(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfilm\n")
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": {"content": "[PAD]"}, "strip_accents": 1}')
    assert load_tokenizer(tmp_path).encode("film").tokens == ["[CLS]", "film", "[SEP]"]


def test_other_outputs_of_a_hub_folder_are_named_as_labels_are(hub, tmp_path):
    for names, said in [
        (["a", "a\0", "b", "c", "d"], r"id2label\[1\]: the label holds a NUL"),
        (["a", "\ud800", "b", "c", "d"], r"id2label\[1\]: the label holds a lone surrogate"),
        (["a", "", "b", "c", "d"], r"id2label\[1\]: the label is missing"),
    ]:
        named = {str(i): name for i, name in enumerate(names)}
        folder = altered(hub, tmp_path / f"bad{len(said)}", "config.json", id2label=named)
        with pytest.raises(CheckpointError, match=said):
            gf.load(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image_std": [0.5, 0.0, 0.5]}, "are out of range"),
        ({"image_std": [0.5, 1e-320, 0.5]}, "are out of range"),
        ({"image_mean": [0.5, 1e300, 0.5]}, "are out of range"),
        ({"image_mean": [0.5, float("nan"), 0.5]}, "are out of range"),
        ({"size": 5000}, "is not a size up to 4,096 pixels"),
        (
            {"size": {"shortest_edge": 4000}, "do_center_crop": True, "crop_size": 8},
            "a shorter side of 4,000 pixels",
        ),
    ],
)
def test_how_pictures_are_prepared_stays_within_bounds(changes, said):
    whole = ImageTransform((8, 8)).to_hub()
    assert ImageTransform.from_hub(whole) == ImageTransform((8, 8))
    with pytest.raises(ConfigError, match=said):
        ImageTransform.from_hub(whole | changes)


def test_what_a_folder_prepares_is_what_its_model_reads(saved, tmp_path):
    settings = json.loads((saved / "glassformer.json").read_text())
    folder = altered(
        saved, tmp_path / "long", "glassformer.json", parameters=settings["parameters"] | {"max_length": 99}
    )
    config = json.loads((saved / "config.json").read_text())
    if config["architecture"]["embedding"]["positions"] == "learned":
        with pytest.raises(CheckpointError, match="max_length = 99 is more than the model's"):
            gf.load(folder)
    else:
        assert gf.load(folder).predict(["a film " * 70]).shape == (1,)
    pictures = torch.arange(4 * 3 * 8 * 8).remainder(251).to(torch.uint8).reshape(4, 3, 8, 8)
    clf = gf.ImageClassifier(
        "vit-tiny", image_size=8, patch_size=4, d_model=6, num_heads=1, num_layers=1, d_ff=5, epochs=1
    )
    whole = clf.fit(pictures, [0, 1, 0, 1]).save(tmp_path / "pictures")
    larger = ImageTransform((512, 512)).to_hub()
    with pytest.raises(CheckpointError, match="the image size or channels of the preprocessor differ"):
        gf.load(altered(whole, tmp_path / "larger", "preprocessor_config.json", **larger))
