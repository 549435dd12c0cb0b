"""What the Hub's config.json has no key for comes back from a folder all the same, and other readers pass over it."""

import json
from dataclasses import replace

import pytest
import torch

from glassformer.errors import GlassformerError
from glassformer.families import FAMILIES
from glassformer.families.pretrained import EXTRA_KEY, load_pretrained, save_pretrained

ON_THE_HUB = [name for name, family in FAMILIES.items() if family.hub]


def unusual(family):
    config = family.tiny()
    patches = {"patch_dropout": 0.375} if hasattr(config.embedding, "patch_dropout") else {}
    return replace(
        config,
        embedding=replace(config.embedding, **patches),
        encoder=replace(config.encoder, stochastic_depth=0.125, zero_init=True),
        head_dropout=0.25,
    )


@pytest.mark.parametrize("kind", ON_THE_HUB)
def test_it_comes_back(kind, tmp_path):
    family = FAMILIES[kind]
    config = unusual(family)
    model = family.model(config).eval()
    for folder, changes in (
        ("whole", {}),
        ("beside", {"pooling": "mean", "head_type": "mlp", "head_hidden": 5}),
    ):
        other = model.with_head(**changes)
        save_pretrained(other, tmp_path / folder)
        settings = json.loads((tmp_path / folder / "config.json").read_text())
        assert settings["model_type"] in (kind, *family.aliases)
        assert ("glassformer" in settings) is (folder == "beside")
        assert settings[EXTRA_KEY]["encoder"] == {"stochastic_depth": 0.125, "zero_init": True}
        assert load_pretrained(tmp_path / folder).config == other.config


@pytest.mark.parametrize("kind", ON_THE_HUB)
def test_nothing_is_written_where_the_hub_has_a_key_for_all(kind, tmp_path):
    family = FAMILIES[kind]
    save_pretrained(family.model(family.tiny()), tmp_path)
    assert EXTRA_KEY not in json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize("kind", ON_THE_HUB)
def test_transformers_passes_over_it(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip("a kind that transformers does not know")
    family = FAMILIES[kind]
    torch.manual_seed(3)
    model = family.model(unusual(family)).eval()
    save_pretrained(model, tmp_path)
    auto = {"texts": "AutoModelForSequenceClassification", "images": "AutoModelForImageClassification"}
    peer = getattr(transformers, auto[model.reads]).from_pretrained(tmp_path).eval()
    if model.reads == "texts":
        asked = torch.tensor([[5, 7, 11, 13]])
    else:
        asked = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(peer(asked).logits, model(asked).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("much", "'glassformer_settings' is missing or not an object"),
        ({"encoder": {"speed": 3}}, "unknown key 'speed'"),
        ({"encoder": {"stochastic_depth": "deep"}}, "got 'deep'"),
        ({"encoder": {"stochastic_depth": 7.0}}, "stochastic_depth must be in"),
        ({"encoder": {"num_layers": 10**9}}, "num_layers = 1000000000"),
        ({"encoder": 7}, "got 7"),
    ],
)
def test_a_stranger_s_values_are_checked(value, said, tmp_path):
    save_pretrained(FAMILIES["roberta"].model(FAMILIES["roberta"].tiny()), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {EXTRA_KEY: value}))
    with pytest.raises(GlassformerError, match=said):
        load_pretrained(tmp_path)
