"""``glassformer prove``: equal for what ``transformers`` writes, 3 for what differs, honest without ``transformers``."""

import json
import shutil
from functools import cache

import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer.checkpoints.files import file_sha256
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.cli.app import main
from glassformer.cli.export import certificate_path
from glassformer.export import proof
from glassformer.families import FAMILIES

transformers = pytest.importorskip("transformers")

from . import record  # noqa: E402  # both import transformers
from .hub_folders import KINDS, SENTENCES, make  # noqa: E402

transformers.logging.set_verbosity_error()


def certificate(capsys, *words, code=0):
    """The certificate that is printed."""
    assert main(["prove", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", record.KINDS)
def test_recorded_outputs_are_those_of_transformers_and_ours(kind):
    recorded = load_file(proof.RECORDED / f"{kind}.safetensors")
    for number, (head, draw) in enumerate(record.cases_of(kind)):
        for name, found in record.outputs_of(kind, head, draw)[1].items():
            torch.testing.assert_close(recorded.pop(f"{number}.{name}"), found, rtol=1e-5, atol=1e-5)
    assert not recorded
    found = proof.compare_recorded(kind)
    assert found is not None
    assert found["within"]
    assert found["configurations"] >= 4


def test_every_family_of_the_hub_has_recorded_outputs():
    assert {file.stem for file in proof.RECORDED.iterdir()} == {k for k, f in FAMILIES.items() if f.hub}


FIRST = [kind for kind in KINDS if kind[0] == "bert" or kind[1] == "classification"] + [SENTENCES]
REST = [pytest.param(*kind, marks=pytest.mark.slow) for kind in KINDS if kind not in FIRST]
recorded_once = cache(proof.compare_recorded)


@pytest.mark.parametrize(("family", "head"), [*FIRST, *REST])
def test_the_hubs_folders_are_equal_both_ways(family, head, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(proof, "compare_recorded", recorded_once)
    folder = make(tmp_path, family, head)
    found = certificate(capsys, folder)
    assert found["verdict"] == "equal"
    assert found["weights"] == {"model.safetensors": file_sha256(folder / "model.safetensors")}
    assert json.loads((folder / "proof.json").read_text()) | {"out": str(folder / "proof.json")} == found
    for way in ("opened", "exported"):
        names = {one["output"] for one in found["outputs"] if one["way"] == way}
        assert names >= {"hidden states", "last hidden state"}
        assert ("logits" in names) == (head not in ("None", "sentences"))
    if FAMILIES[family].model.reads == "texts":
        assert found["inputs"]["token_ids"] == "equal"
        assert max(found["inputs"]["lengths"]) > 3 * min(found["inputs"]["lengths"])


def test_what_differs_ends_with_3(tmp_path, capsys, monkeypatch):
    folder, ours = make(tmp_path, "bert", "classification"), proof.Batch.ours

    def wrong(self, model):
        found = ours(self, model)
        return found if "logits" not in found else found | {"logits": 1.01 * found["logits"]}

    monkeypatch.setattr(proof.Batch, "ours", wrong)
    found = certificate(capsys, folder, code=3)
    assert found["verdict"] == "different"
    assert {one["output"] for one in found["outputs"] if not one["within"]} == {"logits"}
    assert not found["recorded"]["within"]
    monkeypatch.setattr(proof.Batch, "ours", ours)
    monkeypatch.setattr(proof, "encode", lambda *given, **options: proof_table())
    found = certificate(capsys, folder, code=3)
    assert found["inputs"]["token_ids"] == "different"
    assert all(one["within"] for one in found["outputs"])


def proof_table():
    from glassformer.data.text import TokenTable

    return TokenTable.of([[2, 5, 3], [2, 3]])


def test_an_export_that_differs_ends_with_3(tmp_path, capsys, monkeypatch):
    folder, save = make(tmp_path, "vit", "classification"), proof.save_pretrained

    def wrong(model, path):
        save(model, path)
        write_tensors(path, {name: tensor * 1.01 for name, tensor in read_tensors(path).items()})

    monkeypatch.setattr(proof, "save_pretrained", wrong)
    assert main(["prove", str(folder)]) == 3
    out = capsys.readouterr().out
    assert "different: transformers" in out
    found = json.loads((folder / "proof.json").read_text())
    assert {one["way"] for one in found["outputs"] if not one["within"]} == {"exported"}


def test_without_transformers_the_weights_are_not_compared(tmp_path, capsys, monkeypatch):
    folder = make(tmp_path, "vit", "classification")
    monkeypatch.setattr(proof.importlib.util, "find_spec", lambda name: None)
    assert main(["prove", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "weights not compared: transformers is not installed" in said
    assert "pip install transformers" in said
    found = json.loads((folder / "proof.json").read_text())
    assert found["verdict"] == "weights not compared"
    assert "outputs" not in found
    assert found["recorded"]["within"]
    random_tensor = proof.random_tensor
    monkeypatch.setattr(proof, "random_tensor", lambda *given: 1.01 * random_tensor(*given))
    assert certificate(capsys, folder, code=3)["verdict"] == "different"


def test_a_folder_of_pickles_is_compared_and_nothing_is_unpickled(tmp_path, capsys, monkeypatch):
    folder = make(tmp_path, "bert", "tokens")
    torch.save(read_tensors(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(torch, "load", lambda *given, **options: pytest.fail("unpickled"))
    found = certificate(capsys, folder)
    assert found["verdict"] == "equal"
    assert [*found["weights"]] == ["pytorch_model.bin"]


def saved(folder, **options):
    texts, labels = ["a warm film", "a dull film"] * 6, ["good", "bad"] * 6
    clf = gf.TextClassifier(
        make(folder.parent / f"{folder.name}-from", "bert", "None"), epochs=1, seed=0, max_length=9, **options
    )
    clf.fit(texts, labels).save(folder)
    return clf


def test_the_card_shows_a_certificate_of_these_weights_only(tmp_path, capsys):
    folder = tmp_path / "model"
    clf = saved(folder, pooling="pooler")
    for _ in range(2):  # the second replaces the first
        assert certificate(capsys, folder)["opens_as"] == "BertForSequenceClassification"
        card = (folder / "README.md").read_text()
        assert card.count("## Compared with transformers\n\n- equal: transformers") == 1
        assert not (folder / "README.generated.md").exists()
    gf.tasks.card.write_card(folder, clf)
    assert (folder / "README.md").read_text() == card
    assert gf.load(folder).predict(["a warm film"]).shape == (1,)  # the manifest still holds
    with torch.no_grad():
        clf.model_.head.out.bias += 1
    clf.save(folder, overwrite=True)
    gf.tasks.card.write_card(folder, clf)
    assert (folder / "proof.json").is_file()  # of the old weights
    assert "Compared with" not in (folder / "README.md").read_text()


def test_an_edited_card_stays_and_a_head_of_ours_is_left_out(tmp_path, capsys):
    folder = tmp_path / "model"
    saved(folder, pooling="mean")
    (folder / "README.md").write_text("mine")
    found = certificate(capsys, folder)
    assert (found["verdict"], found["opens_as"]) == ("equal", "BertModel")
    assert sorted(found["weights"]) == ["head.safetensors", "model.safetensors"]
    assert "logits" not in {one["output"] for one in found["outputs"]}
    assert (folder / "README.md").read_text() == "mine"


def test_where_a_certificate_goes(tmp_path, capsys, monkeypatch):
    folder, out = make(tmp_path, "vit", "classification"), tmp_path / "own.json"
    assert certificate(capsys, folder, "--out", out)["out"] == str(out)
    assert not (folder / "proof.json").exists()
    assert main(["prove", str(folder), "--out", str(out)]) == 2
    assert "the output file exists" in capsys.readouterr().err
    cached = tmp_path / "models--org--Name" / "snapshots" / "Abc"
    shutil.copytree(folder, cached)
    monkeypatch.chdir(tmp_path)
    assert certificate(capsys, cached)["out"] == "abc-proof.json"
    assert not (cached / "proof.json").exists()
    assert str(certificate_path("org/Name", folder)) == "name-proof.json"


def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path, capsys):
    gf.save_pretrained(FAMILIES["glassformer-text"].model(FAMILIES["glassformer-text"].tiny()), tmp_path)
    assert main(["prove", str(tmp_path)]) == 2
    assert "only exists in glassformer, so transformers cannot open it" in capsys.readouterr().err
