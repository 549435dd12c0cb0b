"""A Hub that sends other files than it announces, path traversal in names, or too much."""

import pytest

from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.tensors import read_tensors
from glassformer.errors import CheckpointError

from .fake_hub import NEW, OLD, checkpoint


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
@pytest.mark.parametrize("kind", ["changed", "page", "longer"])
def test_a_file_that_is_not_the_announced_one_is_refused_and_leaves_the_cache(tmp_path, fake_hub, name, kind):
    files = checkpoint(tmp_path / "src", 2.0)
    good = files[name]
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    fake_hub.repos["org/tiny"] = {NEW: files}
    fake_hub.sent[name] = {"changed": flipped, "page": b"<html>404</html>", "longer": good + b"x"}[kind]
    with pytest.raises(CheckpointError, match="org/tiny") as caught:
        resolve_checkpoint("org/tiny")
    assert "\n" not in str(caught.value)
    fake_hub.sent.clear()
    assert read_tensors(resolve_checkpoint("org/tiny").path)["weight"].item() == 2.0


def test_sums_are_said_to_differ(tmp_path, fake_hub):
    files = checkpoint(tmp_path / "src", 2.0)
    fake_hub.repos["org/tiny"] = {NEW: files}
    fake_hub.sent["model.safetensors"] = files["model.safetensors"][:-1] + b"\7"
    with pytest.raises(CheckpointError, match="not the file that the Hub announced: its checksum differs"):
        resolve_checkpoint("org/tiny")


@pytest.mark.parametrize(
    "name", ["model-../../../../escaped.safetensors", "model-/etc/x.safetensors", "model-..\\x.safetensors"]
)
def test_names_that_lead_out_are_refused_before_anything_is_fetched(tmp_path, fake_hub, name):
    fake_hub.repos["org/tiny"] = {NEW: checkpoint(tmp_path / "src", 2.0) | {name: b"!"}}
    with pytest.raises(CheckpointError, match=r"names a file 'model-.*, which does not belong to a model"):
        resolve_checkpoint("org/tiny")
    assert not any("/resolve/" in path for path in fake_hub.requests)
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize(("name", "size"), [("model.safetensors", 2**40), ("config.json", 2**30)])
def test_too_much_is_refused_before_anything_is_fetched(tmp_path, fake_hub, name, size):
    fake_hub.repos["org/tiny"] = {NEW: checkpoint(tmp_path / "src", 2.0)}
    fake_hub.sizes[name] = size
    with pytest.raises(CheckpointError, match=f"the file {name} has .* bytes; at most .* are downloaded"):
        resolve_checkpoint("org/tiny")
    assert not any("/resolve/" in path for path in fake_hub.requests)


def test_a_pinned_commit_is_the_one_that_comes(tmp_path, fake_hub):
    fake_hub.repos["org/tiny"] = {NEW: checkpoint(tmp_path / "src", 2.0)}
    fake_hub.commit = OLD
    with pytest.raises(CheckpointError, match="is pinned to a commit, but the Hub sent '1111"):
        resolve_checkpoint("org/tiny", NEW)
    fake_hub.commit = "../../../../escaped"
    with pytest.raises(CheckpointError, match=r"sent '[./]*escaped' as the commit"):
        resolve_checkpoint("org/tiny", NEW)
    assert not list(tmp_path.rglob("*escaped*"))
