"""Low-rank updates beside PEFT's, on every linear layer of every family that the Hub can express."""

import json

import numpy as np
import pytest
import torch
from tests.shaken import shaken

import glassformer as gf
from glassformer.checkpoints.names_lora import QKV, QKV_PARTS, ROOT, load_adapter, save_adapter
from glassformer.checkpoints.tensors import write_tensors
from glassformer.data.text import word_tokenizer
from glassformer.errors import CheckpointError, ConfigError
from glassformer.families import FAMILIES, hub_names
from glassformer.families.modernbert import modernbert
from glassformer.families.pretrained import add_adapter, head_in_hub_format, save_pretrained
from glassformer.nn.feedforward import GatedFeedForward
from glassformer.nn.lora import ALL_PARTS, LowRank, adapter, add_lora, merge, select_parts

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

OF_THE_HUB = [name for name, family in FAMILIES.items() if family.hub is not None]
TARGETS = [*ALL_PARTS, ("q", "v"), ("k", "o", "down"), "all-linear"]
RANK, ALPHA = 2, 5.0


@pytest.fixture(scope="module", params=OF_THE_HUB)
def base(request, tmp_path_factory):
    """A tiny classifier of the family in the Hub's layout."""
    family, folder = FAMILIES[request.param], tmp_path_factory.mktemp(request.param)
    torch.manual_seed(11)
    save_pretrained(shaken(family.model(family.tiny()), 0.2), folder)
    return folder


def theirs(folder):
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return getattr(transformers, settings["architectures"][0]).from_pretrained(folder).eval()


def given(model):
    """Inputs for ours and for theirs."""
    g = torch.Generator().manual_seed(5)
    if model.reads == "images":
        pixels = torch.rand(3, 3, 8, 8, generator=g)
        return (pixels,), {"pixel_values": pixels}
    ids = torch.randint(5, 31, (3, 7), generator=g)
    mask = (torch.arange(7) < torch.tensor([[7], [3], [5]])).long()
    return (ids, mask), {"input_ids": ids, "attention_mask": mask}


def add(model, targets) -> None:
    """Add updates; networks with two layers in the place of ``up`` refuse some, which ends the test."""
    is_gated = isinstance(getattr(model.encoder.layers[0], "feed_forward", None), GatedFeedForward)
    if is_gated and model.config.encoder.norm == "post" and {"up", "down"} & {*select_parts(targets)}:
        with pytest.raises(ConfigError, match="in this gated feed-forward network"):
            add_lora(model, RANK, ALPHA, targets)
        pytest.skip("refused, as it should be")
    add_lora(model, RANK, ALPHA, targets)


def drawn(model) -> None:
    """The second matrices begin at 0, which would hide the first."""
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if (".up." in name and "parametrizations" in name and "original" not in name) or "lora_B" in name:
                p.normal_(std=0.3, generator=g)


@pytest.mark.parametrize("targets", TARGETS, ids=str)
def test_values_and_gradients_are_pefts(base, tmp_path, targets):
    ours = gf.load_pretrained(base)
    table = hub_names(ours.config)
    add(ours, targets)
    drawn(ours)
    save_adapter(tmp_path, table, adapter(ours), RANK, ALPHA, with_prefix=True)
    peer = peft.PeftModel.from_pretrained(theirs(base), tmp_path, is_trainable=True).eval()
    mine, other = given(ours)
    before = gf.load_pretrained(base)(*mine).logits
    found, wanted = ours(*mine).logits, peer(**other).logits
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert (found - before).abs().max() > 0.01
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(7))
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    learning = {n: p for n, p in peer.named_parameters() if p.requires_grad}
    parts, layers = select_parts(targets), len(ours.encoder.layers)
    fused = QKV in table.encoder
    thirds = [part for part in parts if part in QKV_PARTS]
    modules = len(parts) - fused * max(len(thirds) - 1, 0)
    assert len(learning) == 2 * layers * modules  # the same layers, and no others
    with torch.no_grad():
        for module in ours.encoder.modules():
            if isinstance(module, LowRank):
                for p in module.parameters():
                    p.copy_(p.grad)
    grads = adapter(ours)
    saved = tmp_path / "gradients"  # the names of theirs, sorted out as an adapter's
    named = {n.removeprefix(ROOT).replace(".default", ""): p.grad for n, p in learning.items()}
    saved.mkdir()
    (saved / "adapter_config.json").write_text((tmp_path / "adapter_config.json").read_text())
    write_tensors(saved, {ROOT + n: g for n, g in named.items()}, name="adapter_model")
    peers = load_adapter(saved, table).updates
    assert peers.keys() >= grads.keys()
    for slot, gradient in grads.items():
        _, part, matrix = slot.split(".")
        at = RANK * thirds.index(part) if fused and part in thirds else 0  # its block of the fused update
        peer_gradient = peers[slot].narrow("AB".index(matrix), at, RANK)
        torch.testing.assert_close(gradient, peer_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("targets", TARGETS, ids=str)
def test_what_peft_saves_becomes_part_of_our_weights(base, tmp_path, targets):
    ours = gf.load_pretrained(base)
    add(ours, targets)
    save_adapter(tmp_path / "names", hub_names(ours.config), adapter(ours), RANK, ALPHA, with_prefix=True)
    settings = json.loads((tmp_path / "names" / "adapter_config.json").read_text(encoding="utf-8"))
    merge(ours)
    whole = {name.rpartition(".")[0] for name in head_in_hub_format(ours)}
    config = peft.LoraConfig(
        r=RANK,
        lora_alpha=ALPHA,
        target_modules=settings["target_modules"],
        use_rslora="o" in targets,
        modules_to_save=sorted(name.removeprefix(hub_names(ours.config).prefix) for name in whole),
    )
    peer = peft.get_peft_model(theirs(base), config)
    drawn(peer)
    with torch.no_grad():
        for name, p in peer.named_parameters():
            if "modules_to_save" in name:
                p.add_(0.5)
    peer.save_pretrained(tmp_path / "peft")
    tuned = gf.load_pretrained(base, adapter=tmp_path / "peft")
    assert "adapter" in tuned.weights_source
    mine, other = given(ours)
    with torch.no_grad():
        wanted = peer.eval()(**other).logits
        torch.testing.assert_close(tuned(*mine).logits, wanted, rtol=1e-5, atol=1e-5)
        assert (gf.load_pretrained(base)(*mine).logits - wanted).abs().max() > 0.01


def test_an_adapter_of_another_model_changes_nothing(base, tmp_path):
    ours = gf.load_pretrained(base)
    table, before = hub_names(ours.config), {n: t.clone() for n, t in ours.state_dict().items()}
    d, last = ours.config.encoder.d_model, len(ours.encoder.layers) - 1
    out = f"{table.heads.get('head.out', 'classifier')}.weight"
    good = {"0.query.A": torch.ones(2, d), "0.query.B": torch.ones(d, 2)}
    for name, updates, head, said in (
        (
            "wide",
            {**good, f"{last}.key.A": torch.ones(2, d + 1), f"{last}.key.B": torch.ones(d, 2)},
            {},
            rf"the update of {last}\.\w+ has shape",
        ),
        (
            "deep",
            {**good, "7.key.A": torch.ones(2, d), "7.key.B": torch.ones(d, 2)},
            {},
            f"but the model has {last + 1} layers",
        ),
        ("none", {}, {}, "the adapter has no updates"),
        ("classes", good, {out: torch.ones(5, d)}, r"head.out.weight is \(5, "),
    ):
        save_adapter(tmp_path / name, table, updates, 2, 4.0, head=head)
        with pytest.raises(CheckpointError, match=said):
            add_adapter(ours, tmp_path / name)
    assert all(before[name].equal(tensor) for name, tensor in ours.state_dict().items())


TEXTS = ["a warm film", "dull film", "funny and warm", "endless and dull", "warm , wise", "a dull story"] * 3
LABELS = ["good", "bad", "good", "bad", "good", "bad"] * 3


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
def test_a_classifier_saves_and_loads_its_adapter_with_its_head(tmp_path):
    options = {
        "model": "encoder-mini", "max_length": 11, "min_count": 1, "epochs": 3, "lr": 0.02, "precision": "fp32",
        "d_model": 12, "num_heads": 3, "d_ff": 17,
    }  # fmt: skip
    gf.TextClassifier(**{**options, "norm": "post"}).fit(TEXTS, LABELS).save(tmp_path / "base")
    tuned = {
        "model": str(tmp_path / "base"),
        "max_length": 11,
        "lora_rank": 2,
        "lora_targets": "all-linear",
        "lr": 0.05,
    }
    tuned |= {"epochs": 3, "precision": "fp32", "pooling": "first"}
    start = gf.TextClassifier(**{**tuned, "lr": 0.0}).fit(TEXTS, LABELS)
    clf = gf.TextClassifier(**tuned).fit(TEXTS, LABELS)
    assert len(clf.adapter_) == 2 * len(ALL_PARTS)
    clf.save_adapter(tmp_path / "updates")
    clf.set_params(lora_rank=5, lora_alpha=64.0).save_adapter(tmp_path / "later")  # of another fit to come
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "later" / name).read_bytes() == (tmp_path / "updates" / name).read_bytes()
    start.calibrate(TEXTS, LABELS, threshold="accuracy", abstain_below=0.6).save(tmp_path / "start")
    again = gf.load(tmp_path / "start").load_adapter(tmp_path / "updates")
    for name, tensor in again.model_.state_dict().items():
        if name.startswith("encoder."):
            torch.testing.assert_close(tensor, clf.model_.state_dict()[name])
    assert "adapter" in again.weights_source_
    assert (again.temperature_, again.threshold_, again.abstain_below_) == (
        1.0,
        None,
        None,
    )  # of other weights
    again.save(tmp_path / "again")
    np.testing.assert_allclose(
        gf.load(tmp_path / "again").predict_proba(TEXTS), again.predict_proba(TEXTS), atol=1e-6
    )
    with pytest.raises(ConfigError, match="head: transformers has no class with this pooling and head"):
        clf.save_adapter(tmp_path / "whole", head=True)
    with pytest.raises(CheckpointError, match="no such folder"):
        again.load_adapter(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="does not support LoRA adapters"):
        gf.TextClassifier("lstm", epochs=1, min_count=1).fit(TEXTS, LABELS).load_adapter(tmp_path / "updates")


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
def test_a_classifier_of_the_hub_and_peft_exchange_adapters_with_heads(tmp_path):
    settings = {
        "min_count": 1,
        "tokenizer": "word",
        "max_length": 11,
        "d_model": 12,
        "num_layers": 2,
        "num_heads": 3,
    }
    gf.MaskedLM(**settings, d_ff=17, max_positions=11, epochs=1).fit(TEXTS).save(tmp_path / "body")
    options = {
        "model": str(tmp_path / "body"),
        "max_length": 11,
        "pooling": "pooler",
        "precision": "fp32",
        "seed": 3,
    }
    options |= {"lora_rank": 2, "lora_targets": ("q", "down"), "epochs": 3}
    start = gf.TextClassifier(**options, lr=0.0).fit(TEXTS, LABELS)
    start.save(tmp_path / "start")
    clf = gf.TextClassifier(**options, lr=0.05).fit(TEXTS, LABELS)
    clf.save_adapter(tmp_path / "whole", head=True)
    again = gf.load(tmp_path / "start").load_adapter(tmp_path / "whole")
    np.testing.assert_allclose(again.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-5)
    assert np.abs(start.predict_proba(TEXTS) - clf.predict_proba(TEXTS)).max() > 0.01
    peer = peft.PeftModel.from_pretrained(theirs(tmp_path / "start"), tmp_path / "whole").eval()
    ids = [clf.tokenizer_.encode(text).ids for text in TEXTS[:3]]
    with torch.no_grad():
        logits = torch.cat([peer(input_ids=torch.tensor([row])).logits for row in ids])
    np.testing.assert_allclose(logits.numpy(), clf.logits(TEXTS[:3]), atol=1e-5)


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
def test_peft_opens_the_adapter_of_a_fitted_modernbert(tmp_path):
    torch.manual_seed(11)
    tokenizer = word_tokenizer(TEXTS, vocab_size=31, min_count=1)
    save_pretrained(FAMILIES["modernbert"].model(modernbert(31, 12, 2, 3, 17, 11, 2, 2)), tmp_path / "body")
    tokenizer.save(str(tmp_path / "body" / "tokenizer.json"))
    options = {"max_length": 11, "pooling": "first", "head": "mlp", "precision": "fp32", "epochs": 3}
    start = gf.TextClassifier(str(tmp_path / "body"), lr=0.0, **options).fit(TEXTS, LABELS)
    start.save(tmp_path / "start")
    tuned = {"lr": 0.05, "lora_rank": RANK, "lora_targets": "all-linear"}
    clf = gf.TextClassifier(str(tmp_path / "start"), **options, **tuned).fit(TEXTS, LABELS)
    clf.save_adapter(tmp_path / "adapter", head=True)
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert (settings["r"], settings["target_modules"]) == (3 * RANK, ["Wqkv", "Wo", "Wi"])
    again = gf.load(tmp_path / "start").load_adapter(tmp_path / "adapter")
    np.testing.assert_allclose(again.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-5)
    peer = peft.PeftModel.from_pretrained(theirs(tmp_path / "start"), tmp_path / "adapter").eval()
    ids = [clf.tokenizer_.encode(text).ids for text in TEXTS[:6]]
    with torch.no_grad():
        logits = torch.cat([peer(input_ids=torch.tensor([row])).logits for row in ids])
    np.testing.assert_allclose(logits.numpy(), clf.logits(TEXTS[:6]), atol=1e-5)
    assert np.abs(start.logits(TEXTS[:6]) - clf.logits(TEXTS[:6])).max() > 0.1
