"""Masked patches: equal to transformers' ViTMAE, hidden patches are never read, and what is learned goes on."""

import logging

import numpy as np
import pytest
import torch
from PIL import Image
from tests.shaken import shaken

import glassformer as gf
from glassformer.checkpoints.files import read_json
from glassformer.data.image_batching import draw_visible_patches
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.families.vit import vit
from glassformer.models.masked_patches import DecoderSizes, MaskedAutoencoder
from glassformer.nn.patches import cut_patches, join_patches, sinusoidal_2d
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.masked_patches.estimator import load
from glassformer.tasks.run import evaluate_task, run_task

from ..checkpoints.test_settings import altered

SIZE, PATCH, GRID = (12, 20), (4, 4), (3, 5)
SEEN = 4  # of 15 patches


def autoencoder(seed: int = 3, size: tuple[int, int] = SIZE) -> MaskedAutoencoder:
    torch.manual_seed(seed)
    return shaken(MaskedAutoencoder(vit(size, PATCH, 15, 2, 3, 23), DecoderSizes(12, 1, 2)), 0.1)


def pictures(count: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, *SIZE, generator=torch.Generator().manual_seed(seed))


def seen_of(count: int = 7) -> torch.Tensor:
    return torch.from_numpy(draw_visible_patches(count, 15, SEEN, [5]))


# --- the oracle -----------------------------------------------------------------------------------


def as_theirs(model: MaskedAutoencoder) -> dict[str, torch.Tensor]:
    """Our weights under the names of transformers' ViTMAEForPreTraining."""
    own, out = model.state_dict(), {}
    layers = {f"encoder.layers.{i}": f"vit.layers.{i}" for i in range(2)}
    layers["patch_decoder.encoder.layers.0"] = "decoder.decoder_layers.0"
    parts = {"attention.out": "attention.o_proj", "norm1": "layernorm_before", "norm2": "layernorm_after"}
    parts |= {"feed_forward.up": "mlp.fc1", "feed_forward.down": "mlp.fc2"}
    names = {f"{ours}.{a}": f"{theirs}.{b}" for ours, theirs in layers.items() for a, b in parts.items()}
    names |= {"encoder.final_norm": "vit.layernorm", "patch_decoder.enter": "decoder.decoder_embed"}
    names["patch_decoder.encoder.final_norm"] = "decoder.decoder_norm"
    for kind in ("weight", "bias"):
        out |= {f"{theirs}.{kind}": own[f"{ours}.{kind}"] for ours, theirs in names.items()}
        for ours, theirs in layers.items():
            for part, name in zip(own[f"{ours}.attention.qkv.{kind}"].chunk(3), "qkv", strict=True):
                out[f"{theirs}.attention.{name}_proj.{kind}"] = part
        # A patch is (channel, row, column) here and (row, column, channel) there.
        rows = own[f"patch_decoder.out.{kind}"]
        rest = rows.shape[1:]
        out[f"decoder.decoder_pred.{kind}"] = rows.view(3, *PATCH, *rest).movedim(0, 2).reshape(48, *rest)
    out["vit.embeddings.cls_token"] = own["embeddings.cls"][None, None]
    out["vit.embeddings.position_embeddings"] = own["embeddings.positions"][None]
    projection = own["embeddings.projection.weight"].view(15, 3, *PATCH)
    out["vit.embeddings.patch_embeddings.projection.weight"] = projection
    out["vit.embeddings.patch_embeddings.projection.bias"] = own["embeddings.projection.bias"]
    out["decoder.mask_token"] = own["patch_decoder.hidden"][None, None]
    out["decoder.decoder_pos_embed"] = torch.cat([torch.zeros(1, 12), sinusoidal_2d((5, 5), 12)])[None]
    return out


def test_paintings_and_loss_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    peer = vitmae(transformers)
    if "vit.layers.0.attention.q_proj.weight" not in dict(peer.named_parameters()):
        pytest.skip("this transformers names the layers otherwise")
    model = autoencoder(size=(20, 20))  # theirs reads square pictures only
    x = torch.randn(7, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    seen = torch.from_numpy(draw_visible_patches(7, 25, SEEN, [5]))
    peer.load_state_dict(as_theirs(model))
    noise = (1 + torch.arange(25) / 100).expand(7, -1)  # the lowest are seen; no ties
    noise = noise.scatter(1, seen, torch.arange(SEEN).float().expand(7, -1) / 100)
    with torch.no_grad():
        theirs = peer(x, noise=noise)
        ours = model.losses(x, seen)
        painted = model.reconstruct(x, seen).view(7, 25, 3, 16).movedim(2, 3).reshape(7, 25, 48)
    assert float((painted - theirs.logits).abs().max()) < 1e-5
    assert float((ours.mean() - theirs.loss).abs()) < 1e-5


def vitmae(transformers):
    sizes = {"hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 23}
    decoder = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    sizes |= {f"decoder_{name}": value for name, value in decoder.items()}
    sizes |= {"image_size": 20, "patch_size": 4}
    rest = {"mask_ratio": 1 - SEEN / 25, "norm_pix_loss": True, "layer_norm_eps": 1e-12}
    model = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**sizes, **rest)).eval()
    for module in model.decoder.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    return model


# --- what the model reads -------------------------------------------------------------------------


def test_hidden_pixels_change_no_painting_and_seen_ones_do():
    model, x, seen = autoencoder(), pictures(), seen_of()
    rows = cut_patches(x, PATCH)
    assert torch.equal(join_patches(rows, GRID, PATCH, 3), x)  # sewn as they were cut
    hidden = torch.ones(7, 15, 1, dtype=torch.bool).scatter(1, seen[:, :, None], False)
    noise = torch.randn_like(rows)
    with torch.no_grad():
        before = model.reconstruct(x, seen)
        other = join_patches(torch.where(hidden, noise, rows), GRID, PATCH, 3)
        assert torch.equal(model.reconstruct(other, seen), before)
        other = join_patches(torch.where(hidden, rows, noise), GRID, PATCH, 3)
        assert (model.reconstruct(other, seen) - before).abs().amin((1, 2)).max() > 0


def test_a_picture_does_not_see_its_neighbors_in_the_batch():
    model, x, seen = autoencoder(), pictures(), seen_of()
    with torch.no_grad():
        alone = torch.cat([model.losses(x[i : i + 1], seen[i : i + 1]) for i in range(len(x))])
        assert torch.allclose(model.losses(x, seen), alone, atol=1e-6)


def test_a_gray_answer_has_the_loss_one_and_a_flat_patch_no_infinite_one():
    model, x, seen = autoencoder(), pictures(), seen_of()
    with torch.no_grad():
        model.patch_decoder.out.weight.zero_()
        model.patch_decoder.out.bias.zero_()
        assert torch.allclose(model.losses(x, seen), torch.full((7,), 47 / 48), atol=1e-4)  # Bessel's
        assert float(model.losses(torch.zeros_like(x), seen).abs().max()) == 0.0


def test_every_weight_learns_and_bf16_is_near():
    model, x, seen = autoencoder(), pictures(), seen_of()
    model.losses(x, seen).sum().backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not still
    with torch.no_grad():
        exact = model.losses(x, seen)
        near = autoencoder().set_compute_dtype(torch.bfloat16).losses(x, seen)
    assert float((near - exact).abs().max()) < 0.05


def test_what_is_seen_follows_from_the_seeds_alone():
    first = draw_visible_patches(5, 15, SEEN, [1, 2, 3])
    assert np.array_equal(first, draw_visible_patches(5, 15, SEEN, [1, 2, 3]))
    assert not np.array_equal(first, draw_visible_patches(5, 15, SEEN, [1, 2, 4]))
    assert first.shape == (5, SEEN)
    assert (np.diff(first, axis=1) > 0).all()
    counts = np.bincount(draw_visible_patches(3000, 15, SEEN, [0]).ravel(), minlength=15)
    assert counts.min() > 0.85 * counts.max()


# --- the estimator --------------------------------------------------------------------------------

SETTINGS = {
    "image_size": 8, "patch_size": 2, "channels": 1, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32,
    "decoder_width": 16, "decoder_layers": 1, "decoder_heads": 2, "precision": "fp32", "threads": 1, "seed": 5,
}  # fmt: skip


def stripes(count: int, seed: int = 0) -> list[np.ndarray]:
    """Pictures whose hidden patches follow from any that is seen: one phase, repeated."""
    rng = np.random.default_rng(seed)
    waves = np.sin(2 * np.pi * (np.arange(8)[None] / 4 + rng.random((count, 1))))
    return list(np.repeat((127 + 120 * waves).astype(np.uint8)[:, None], 8, 1)[..., None])


def test_it_learns_what_can_be_known_and_a_classifier_goes_on_from_it(tmp_path):
    X, held = stripes(96), stripes(32, seed=1)
    learner = gf.MaskedPatches(**SETTINGS, epochs=30, lr=5e-3, batch_size=16).fit(X, validation=held)
    losses = [h["loss"] for h in learner.history_ if h["kind"] == "evaluation"]
    assert losses[-1] < 0.55 < losses[0]
    assert learner.score(held) == pytest.approx(1 - min(losses), abs=1e-5)

    again = gf.load(learner.save(tmp_path / "model"))
    assert again.judge(held) == learner.judge(held)
    assert np.array_equal(again.embed(held), learner.embed(held))
    painting = again.paint(held[:3])[1]
    assert painting.hidden.sum() == 12
    seen = np.kron(~painting.hidden, np.ones((2, 2), bool))[..., None]
    assert np.abs(painting.painted.astype(int) - painting.picture)[seen].max() <= 1  # rounding
    off, gray = 0.0, 0.0
    for one in again.paint(held):
        tiles = one.picture.reshape(4, 2, 4, 2).astype(float)
        flat = (tiles - tiles.mean((1, 3), keepdims=True)).reshape(8, 8, 1)
        where = np.kron(one.hidden, np.ones((2, 2), bool))
        off += np.square(one.painted.astype(float) - one.picture)[where].sum()
        gray += np.square(flat)[where].sum()
    assert off < 0.75 * gray

    labels = [int(x[0, 0, 0] > 127) for x in X]
    clf = gf.ImageClassifier(str(tmp_path / "model"), epochs=1, threads=1, seed=0).fit(X, labels)
    assert "new (solved): classification head" in clf.weights_source_
    sizes = {"decoder_width": 16, "decoder_layers": 1, "decoder_heads": 2, "precision": "fp32"}
    start = {**sizes, "epochs": 1, "lr": 5e-3, "batch_size": 16, "threads": 1, "seed": 0}
    other = gf.MaskedPatches(str(tmp_path / "model"), **start).fit(X, validation=held)
    assert "new (random): decoder" in other.weights_source_
    assert other.judge(held)["loss"] < losses[0]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"mask_share": 0.0}, "mask_share = 0.0"),
        ({"mask_share": 0.99}, "leaves 0 visible patches"),
        ({"mask_share": 0.01}, "leaves 16 visible patches"),
        ({"patch_size": 1}, "a patch has only one value"),
        ({"model": "no-such"}, "no model 'no-such'"),
        ({"batch_size": 0}, "batch_size"),
        ({"decoder_heads": 3}, "num_heads"),
    ],
)
def test_what_cannot_be_is_named(settings, match):
    with pytest.raises(ConfigError, match=match):
        gf.MaskedPatches(**{**SETTINGS, "epochs": 1, **settings}).fit(stripes(4))


def test_a_damaged_decoder_is_named(tmp_path):
    folder = gf.MaskedPatches(**SETTINGS, epochs=1).fit(stripes(8)).save(tmp_path / "model")
    parameters = read_json(folder / "glassformer.json")["parameters"] | {"decoder_width": 8}
    with pytest.raises(CheckpointError):
        gf.load(altered(folder, tmp_path / "bad", "glassformer.json", parameters=parameters))


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_reads_flat_folders_and_leaves_a_page_with_paintings(tmp_path):
    flat = tmp_path / "photos"
    flat.mkdir()
    for i, picture in enumerate(stripes(20)):
        Image.fromarray(picture[..., 0]).save(flat / f"{i:02}.png")
    sets = ["epochs=1", "num_layers=1", "threads=1", "validation_size=5", "also=[]"]
    recipe = load_recipe("digits-patches", [f"source={flat}", *sets])
    folder = run_task(recipe, tmp_path / "run")
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert metrics["pictures"] == {str(flat): 20, "validation": 5 - 1}  # a fifth at most
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count('alt="reconstructed"') == 4
    again = evaluate_task(tmp_path / "run")
    assert again["hidden"] == pytest.approx(metrics["hidden"])
    assert folder is not None


def test_sources_are_joined_and_labels_not_needed(tmp_path):
    recipe = load_recipe("digits-patches", ['also=["digits"]', "limit=50", "validation_size=0.2"])
    data = load(recipe)
    assert len(data.train) + len(data.validation) == 100
    assert data.train.labels is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images"):
        load(load_recipe("digits-patches", [f"source={tmp_path / 'empty'}"]))
