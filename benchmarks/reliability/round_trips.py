"""Random models of ``transformers`` opened here, written here and opened there again: equal answers each time.

python -m benchmarks.reliability.round_trips 24          prints one JSON object a model, for a caller with another interpreter
"""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

import glassformer as gf
from benchmarks.harness.processes import scratch
from glassformer.families import FAMILIES

TOLERANCE = 1e-5  # of the largest answer, where that is above 1: the rounding of fp32 grows with it
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
BERTS = ("BertModel", "BertForSequenceClassification", "BertForMaskedLM", "BertForPreTraining")
# Of every other text family: class of transformers -> model_type.
OTHERS = {
    name: kind
    for kind, family in FAMILIES.items()
    if family.hub and family.model.reads == "texts" and family.hub.classes[None] != BERTS[0]
    for name in family.hub.classes.values()
}
KINDS = (*BERTS, "ViTModel", "ViTForImageClassification", *OTHERS)
ANSWERS = ("logits", "prediction_logits", "seq_relationship_logits", "last_hidden_state", "pooler_output")


def random_model(kind: str, rng: random.Random) -> Any:
    """One of prime sizes, so that no axis can be taken for another; norms and biases moved off 1 and 0."""
    heads = rng.choice(PRIMES[:6])
    sizes = {
        "hidden_size": heads * rng.choice((3, 5, 7)), "num_attention_heads": heads,
        "num_hidden_layers": rng.choice((1, 2, 3, 5)), "intermediate_size": rng.choice((23, 29, 31, 37)),
        "initializer_range": 0.2, "layer_norm_eps": rng.choice((1e-12, 1e-6)),
        "hidden_act": rng.choice(("gelu", "relu", "gelu_new")), "num_labels": rng.choice((2, 3, 5)),
    }  # fmt: skip
    fixed = OTHERS.get(kind) == "distilbert"  # which has no pooler, and names its sizes otherwise
    options = {"add_pooling_layer": rng.random() < 0.5} if kind.endswith("Model") and not fixed else {}
    if kind in BERTS:
        config = transformers.BertConfig(
            vocab_size=rng.choice((101, 103, 107)), max_position_embeddings=rng.choice((17, 19, 23)),
            type_vocab_size=rng.choice((2, 3)), **sizes,
        )  # fmt: skip
    elif fixed:
        config = transformers.DistilBertConfig(
            vocab_size=rng.choice((101, 103, 107)), max_position_embeddings=rng.choice((17, 19, 23)),
            sinusoidal_pos_embds=rng.random() < 0.3, dim=sizes["hidden_size"], n_heads=heads,
            n_layers=sizes["num_hidden_layers"], hidden_dim=sizes["intermediate_size"], initializer_range=0.2,
            activation=rng.choice(("gelu", "relu")), num_labels=sizes["num_labels"],
        )  # fmt: skip
    elif kind in OTHERS:
        config = transformers.CONFIG_MAPPING[OTHERS[kind]](
            vocab_size=rng.choice((101, 103, 107)), max_position_embeddings=rng.choice((19, 23)),
            type_vocab_size=rng.choice((1, 2)), pad_token_id=rng.randrange(4), **sizes,
        )  # fmt: skip
    else:
        high, wide = rng.choice((3, 5)), rng.choice((2, 7))
        config = transformers.ViTConfig(
            image_size=(high * rng.choice(PRIMES[:4]), wide * rng.choice(PRIMES[:4])), patch_size=(high, wide),
            num_channels=rng.choice((1, 3)), **sizes,
        )  # fmt: skip
    made = getattr(transformers, kind)(config, **options)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if not (getattr(config, "sinusoidal_pos_embds", False) and "position_embeddings" in name):
                weight.add_(0.1 * torch.randn_like(weight))
    return made.eval()


def questions(config: Any, rng: random.Random) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
    """Random input, for texts with padding, and the mask of its real tokens."""
    if config.model_type == "vit":
        return {"pixel_values": torch.randn(3, config.num_channels, *config.image_size)}, None
    ids = torch.randint(0, config.vocab_size - 1, (5, 13))
    ids += ids >= config.pad_token_id  # which a text does not hold
    mask = (torch.arange(13) < torch.tensor([13, 1, 7, 11, rng.randint(2, 12)])[:, None]).long()
    given = {"input_ids": torch.where(mask.bool(), ids, config.pad_token_id), "attention_mask": mask}
    if (kinds := getattr(config, "type_vocab_size", 0)) > 0:
        given["token_type_ids"] = torch.randint(0, kinds, (5, 13))
    return given, mask.bool()


def difference(ours: Any, theirs: Any, mask: torch.Tensor | None) -> tuple[float, float]:
    """The largest one among all that both answer, padding aside; and as a share of the largest answer above 1."""
    most, share = 0.0, -1.0
    for name in ANSWERS:
        wanted = getattr(theirs, name, None)
        if wanted is None:
            continue
        found = getattr(ours, "logits" if name == "prediction_logits" and not hasattr(ours, name) else name)
        if mask is not None and wanted.shape[:2] == mask.shape:
            found, wanted = found[mask], wanted[mask]
        assert found.shape == wanted.shape, f"{name}: {found.shape} and {wanted.shape}"
        apart = float((found - wanted).abs().max())
        most, share = max(most, apart), max(share, apart / max(1.0, float(wanted.abs().max())))
    assert share >= 0, "nothing to compare"
    return most, share


def round_trips(count: int, other: str | None = None) -> list[dict]:
    """``count`` models under the ``transformers`` of this interpreter, and as many under that of ``other``."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    out = []
    for i in range(count):
        rng, kind = random.Random(i), KINDS[i % len(KINDS)]
        torch.manual_seed(i)
        with scratch() as home, torch.no_grad():
            theirs = random_model(kind, rng)
            given, mask = questions(theirs.config, rng)
            wanted = theirs(**given)
            theirs.save_pretrained(home / "theirs")
            ours = gf.load_pretrained(home / "theirs")
            there = difference(ours(**given), wanted, mask)
            (home / "ours").mkdir()
            gf.save_pretrained(ours, home / "ours")
            again = getattr(transformers, kind).from_pretrained(home / "ours").eval()
            back = difference(again(**given), wanted, mask)
        most, share = map(max, there, back)
        under = f"transformers {transformers.__version__}"
        about = {"kind": kind, "difference": most, "share": share, "answer": under}
        out.append(about | {"passed": share <= TOLERANCE})
    if other is not None:
        command = [other, "-m", "benchmarks.reliability.round_trips", str(count)]
        place = Path(__file__).parents[2]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        out += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return out


if __name__ == "__main__":
    for found in round_trips(int(sys.argv[1])):
        print(json.dumps(found))
