"""Names of tensors, ours and the Hub's, both ways; low-rank updates in PEFT's layout."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.names_lora import load_adapter, save_adapter
from glassformer.checkpoints.tensors import write_tensors
from glassformer.errors import CheckpointError
from glassformer.families import vit as names_vit
from glassformer.families.bert import NAMES as BERT
from glassformer.families.vit import NAMES as VIT
from glassformer.families.vit import vit

D = 5


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


OURS = {
    "embeddings.tokens.weight": draw(7, D),
    "embeddings.norm.bias": draw(D),
    "encoder.layers.0.attention.qkv.weight": draw(3 * D, D),
    "encoder.layers.11.attention.qkv.bias": draw(3 * D),
    "encoder.layers.11.feed_forward.up.weight": draw(11, D),
    "pooling.dense.bias": draw(D),
    "mlm.bias": draw(7),
    "head.out.weight": draw(2, D),
}
THEIRS = {
    "bert.embeddings.word_embeddings.weight",
    "bert.embeddings.LayerNorm.bias",
    *(f"bert.encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key", "value")),
    *(f"bert.encoder.layer.11.attention.self.{part}.bias" for part in ("query", "key", "value")),
    "bert.encoder.layer.11.intermediate.dense.weight",
    "bert.pooler.dense.bias",
    "cls.predictions.bias",
    "classifier.weight",
}


@pytest.mark.parametrize("prefix", [True, False])
def test_names_of_bert_both_ways(prefix):
    theirs = BERT.to_hub(OURS, prefix)
    assert set(theirs) == (THEIRS if prefix else {name.removeprefix("bert.") for name in THEIRS})
    start = "bert." if prefix else ""
    query = theirs[f"{start}encoder.layer.0.attention.self.query.weight"]
    assert torch.equal(query, OURS["encoder.layers.0.attention.qkv.weight"][:D])
    value = theirs[f"{start}encoder.layer.11.attention.self.value.bias"]
    assert torch.equal(value, OURS["encoder.layers.11.attention.qkv.bias"][2 * D :])
    again = BERT.from_hub(theirs, "f")
    assert again.keys() == OURS.keys()
    assert all(torch.equal(again[name], OURS[name]) for name in OURS)


def test_old_names_of_norms_and_what_is_left_out():
    names = "LayerNorm.gamma", "LayerNorm.beta", "position_ids", "word_embeddings.weight"
    tensors = draw(D), draw(D), torch.arange(7), draw(7, D)
    theirs = {f"bert.embeddings.{name}": tensor for name, tensor in zip(names, tensors, strict=True)}
    predictions = {"decoder.weight": draw(7, D), "decoder.bias": draw(7), "bias": draw(7)}
    theirs |= {f"cls.predictions.{name}": tensor for name, tensor in predictions.items()}
    found = BERT.from_hub(theirs, "f")
    ours = {f"embeddings.{name}" for name in ("norm.weight", "norm.bias", "tokens.weight")}
    assert set(found) == ours | {"mlm.bias"}
    for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        with pytest.raises(CheckpointError, match=f"f: {name} differs from .*: untied heads"):
            BERT.from_hub(theirs | {name: theirs[name] + 1}, "f")
    BERT.from_hub({"cls.predictions.decoder.weight": draw(7, D)}, "f")  # no twin to compare with


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(
            (x, f"unexpected tensors: {x}")
            for x in ("bert.poem.weight", "bert.embeddings.word_embeddings.scale")
        ),
        ("weight", "unexpected tensors: weight"),
        ("encoder.layer.0.attention.self.query.weight", "missing tensor: the key of .*0.attention.qkv.w"),
        ("encoder.layer.3.attention.self.key.bias", "missing tensor: the query of .*3.attention.qkv.bias"),
    ],
)
def test_names_that_are_not_explained_and_parts_that_lack(name, said):
    with pytest.raises(CheckpointError, match=f"f: {said}"):
        BERT.from_hub({name: draw(D, D)}, "f")


def test_thirds_that_do_not_fit_together():
    parts = {f"encoder.layer.0.attention.self.{part}.weight": draw(D, D) for part in ("query", "key")}
    with pytest.raises(CheckpointError, match="missing tensor: the value of"):
        BERT.from_hub(parts, "f")
    parts["encoder.layer.0.attention.self.value.weight"] = draw(D, 7)
    with pytest.raises(
        CheckpointError, match=r"f: query, key and value of .*qkv.weight have different shapes"
    ):
        BERT.from_hub(parts, "f")


def test_shapes_of_a_vit_both_ways():
    made = vit((3, 8), (3, 4), D, 1, 1, 7)
    config = replace(made, embedding=replace(made.embedding, channels=2))
    ours = {
        "embeddings.cls": draw(D),
        "embeddings.positions": draw(7, D),
        "embeddings.projection.weight": draw(D, 2 * 3 * 4),
        "encoder.layers.2.attention.qkv.weight": draw(3 * D, D),
        "encoder.layers.2.attention.qkv.bias": draw(3 * D),
        "head.out.bias": draw(3),
    }
    theirs = names_vit.to_hub(ours, True, config)
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.items() if "attention" not in name}
    assert shapes == {
        "vit.embeddings.cls_token": (1, 1, D), "vit.embeddings.position_embeddings": (1, 7, D),
        "vit.embeddings.patch_embeddings.projection.weight": (D, 2, 3, 4), "classifier.bias": (3,),
    }  # fmt: skip
    again = names_vit.from_hub(theirs, "f")
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)
    assert names_vit.to_hub(ours, False, config).keys() == {k.removeprefix("vit.") for k in theirs}
    parts = "query.bias", "key.bias", "value.bias"
    bare = {name: tensor for name, tensor in theirs.items() if not name.endswith(parts)}
    bias = names_vit.from_hub(bare, "f")["encoder.layers.2.attention.qkv.bias"]
    assert torch.equal(bias, torch.zeros(3 * D))
    flat = {"embeddings.cls_token": draw(D), "embeddings.position_embeddings": draw(7, D)}
    both = [[t.ndim for t in read(flat, "f").values()] for read in (VIT.from_hub, names_vit.from_hub)]
    assert both[0] == both[1]


def updates(layers: int) -> dict[str, torch.Tensor]:
    return {
        f"{i}.{part}.{side}": draw(*((3, D) if side == "A" else (D, 3))) + i
        for i in range(layers)
        for part in ("query", "value")
        for side in "AB"
    }


@pytest.mark.parametrize(
    ("table", "start", "stem", "newer"),  # newer: what transformers 5 calls them
    [
        (BERT, "bert.", "attention.self.query", []),
        (VIT, "vit.", "attention.attention.query", ["q_proj", "v_proj"]),
    ],
)
@pytest.mark.parametrize("prefix", [True, False])
def test_an_adapter_comes_back_from_pefts_layout(tmp_path, table, start, stem, newer, prefix):
    folder = tmp_path / "new" / "adapter"
    save_adapter(folder, table, updates(12), 3, 5.0, with_prefix=prefix)
    low = load_adapter(folder, table)
    assert (low.rank, low.alpha, low.scale, low.head) == (3, 5.0, 5 / 3, {})
    assert low.updates.keys() == updates(12).keys()
    assert all(torch.equal(low.updates[name], tensor) for name, tensor in updates(12).items())
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    wanted = {"peft_type": "LORA", "r": 3, "lora_alpha": 5.0, "lora_dropout": 0.0, "bias": "none"}
    wanted |= {"target_modules": ["query", "value", *newer], "modules_to_save": None, "inference_mode": True}
    assert {key: settings[key] for key in wanted} == wanted
    assert settings["fan_in_fan_out"] is False
    full = f"base_model.model.{start if prefix else ''}encoder.layer.11.{stem}.lora_A.weight"
    assert full in load_file(folder / "adapter_model.safetensors")


def test_other_adapters_are_refused(tmp_path):
    def adapter(name: str, tensors: dict[str, torch.Tensor], **changes):
        save_adapter(tmp_path / name, BERT, tensors, 3, 5.0)
        file = tmp_path / name / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")
        return tmp_path / name

    for i, (changes, said) in enumerate(
        (
            ({"peft_type": "IA3"}, "only plain LORA is supported, not peft_type = 'IA3'"),
            ({"peft_type": None}, "not peft_type = None"),
            ({"use_dora": True}, "not use_dora = True"),
            ({"rank_pattern": {"query": 7}}, "not rank_pattern = {'query': 7}"),
            ({"bias": "all"}, "not bias = 'all'"),
            ({"r": 0}, "r = 0 is not a size"),
            ({"r": "3"}, "r = '3' is not a size"),
            ({"r": 5}, r"updates of 0\.\w+ are \(3, 5\) and \(5, 3\), but the rank is 5"),
            ({"lora_alpha": float("nan")}, "lora_alpha = nan is not a number"),
            ({"lora_alpha": float("inf")}, "lora_alpha = inf is not a number"),
            ({"lora_alpha": None}, "lora_alpha = None is not a number"),
        )
    ):
        with pytest.raises(CheckpointError, match=said):
            load_adapter(adapter(f"kind{i}", updates(1), **changes), BERT)
    assert load_adapter(adapter("root", updates(1), use_rslora=True), BERT).scale == 5 / 3**0.5
    for name, said in (("nowhere", "no such folder"), ("bare", "adapter_config.json: is missing")):
        (tmp_path / "bare").mkdir(exist_ok=True)
        with pytest.raises(CheckpointError, match=said):
            load_adapter(tmp_path / name, BERT)
    holed = updates(3)
    del holed["1.value.B"]
    with pytest.raises(CheckpointError, match=r"missing tensor: lora_B of 1\.value"):
        load_adapter(adapter("holed", holed), BERT)
    with pytest.raises(CheckpointError, match=r"unexpected tensors: base_model\.model\.encoder\.layer\.0\."):
        load_adapter(adapter("other", updates(1)), VIT)
    assert load_adapter(adapter("empty", {}), BERT).updates == {}
    folder = adapter("more", updates(1))
    write_tensors(
        folder, load_file(folder / "adapter_model.safetensors") | {"poem": draw(3)}, name="adapter_model"
    )
    with pytest.raises(CheckpointError, match="more: unexpected tensors: poem"):
        load_adapter(folder, BERT)
    root, low = "base_model.model.", "encoder.layer.0.attention.self.query.lora_A.weight"
    for i, (more, said) in enumerate(
        (
            (
                {f"{root}embeddings.LayerNorm.weight": draw(D)},
                "encoder are not supported: embeddings.norm.weight",
            ),
            ({f"{root}poem.weight": draw(3)}, "unexpected tensors: poem.weight"),
            ({f"{root}{low}".replace(".0.", ".x."): draw(3, D)}, "unexpected tensors"),
            ({f"{root}{low}".replace("lora_A", "lora_C"): draw(3, D)}, "unexpected tensors"),
            ({f"{root}{low}": draw(3)}, r"updates of 0.query are \(3,\)"),
            ({f"{root}{low}": draw(3, D).int()}, "unexpected tensors"),
            ({f"{root}bert.{low}": draw(3, D) + 7}, r"has two different updates of 0\.query\.A"),
            ({f"{root}classifier.weight": draw(3, D)}, ""),
        )
    ):
        folder = adapter(f"more{i}", updates(1))
        tensors = load_file(folder / "adapter_model.safetensors") | more
        write_tensors(folder, tensors, name="adapter_model")
        if said:
            with pytest.raises(CheckpointError, match=said):
                load_adapter(folder, BERT)
        else:
            assert load_adapter(folder, BERT).head.keys() == {"head.out.weight"}


def test_targets_are_named_by_ends_that_mean_nothing_else(tmp_path):
    def targets(table: NameTable, *parts: str) -> list[str]:
        sides = {f"{i}.{part}.{side}": draw(3, 3) for i in (0, 1) for part in parts for side in "AB"}
        save_adapter(tmp_path, table, sides, 3, 5.0)
        return json.loads((tmp_path / "adapter_config.json").read_text(encoding="utf-8"))["target_modules"]

    assert targets(BERT, "key", "out", "up") == ["key", "attention.output.dense", "intermediate.dense"]
    assert targets(BERT, "down") == ["encoder.layer.0.output.dense", "encoder.layer.1.output.dense"]
    assert targets(BERT, "out", "down") == ["output.dense"]  # ends both
    assert targets(VIT, "up") == ["intermediate.dense", "fc1"]


def test_a_layer_s_number_may_stand_anywhere():
    table = NameTable(
        "moon.",
        {"encoder.layers.{i}.norm1": "blocks.{i}.first", "encoder.final_norm": "tail.2.norm"},
        {"encoder.layers.{i}.attention.qkv": tuple(f"blocks.{{i}}.mix.{part}" for part in "qkv")},
        {"head.out": "answer.0"},
    )
    ours = {
        "encoder.layers.11.norm1.weight": torch.randn(3),
        "encoder.final_norm.bias": torch.randn(3),
        "encoder.layers.2.attention.qkv.weight": torch.randn(6, 2),
        "head.out.weight": torch.randn(5, 3),
    }
    theirs = table.to_hub(ours, True)
    assert {"moon.blocks.11.first.weight", "moon.tail.2.norm.bias", "moon.blocks.2.mix.k.weight"} <= {*theirs}
    back = table.from_hub(theirs, "x")
    assert {*back} == {*ours}
    assert all(back[name].equal(tensor) for name, tensor in ours.items())
    with pytest.raises(CheckpointError, match=r"unexpected tensors: moon\.blocks\.x\.first"):
        table.from_hub({"moon.blocks.x.first.weight": torch.ones(1)}, "x")
