"""Recipes whose pre-trained weights could not be had, end to end on random weights of the same size: in form only.

    .venv/bin/python -m benchmarks.quality.in_form [imdb-bert flowers-pretrained] [--limit 256] [--set epochs=1]

Writes random checkpoints as the Hub lays them out (bert-base-uncased with its vocabulary, vit-base-patch16-224 with its
head of 1,000 classes, vit-base-patch16-224-in21k with its pooler, both with their preprocessor), trains the recipes on them for a few steps by the ordinary road (``run_task`` with ``model`` set
to the folder), judges the saved model once more from disk, and notes what came out. The accuracy says nothing about a
recipe; that every file comes out does. Figures go to ``benchmarks/results/in-form.json``, a record a recipe; those of
other recipes stay. Needs transformers, the real data sets, and 2 GB of disk a recipe; a run that was stopped goes on.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from benchmarks.harness.command import command
from benchmarks.harness.options import SETTINGS
from benchmarks.harness.results import environment, kept, write_result
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.errors import CheckpointError
from glassformer.evaluate.predictions import read_predictions
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.run import check_folder, evaluate_task, run_task
from glassformer.tasks.task import write_json

ACROSS = 5  # pictures in a row of the grid figure
# What google/vit-base-patch16-224-in21k says of its pictures.
PREPROCESSOR = {
    "do_normalize": True, "do_resize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2,
    "size": 224,
}  # fmt: skip


def write_bert(folder: Path, **sizes: int) -> None:
    """A folder as the Hub has bert-base-uncased: pre-training heads, norms under their old names, its vocabulary.

    ``sizes`` stand in place of BERT-base's, as those of the other writers in place of ViT-B's.
    """
    from transformers import BertConfig, BertForPreTraining

    BertForPreTraining(BertConfig(**sizes)).save_pretrained(folder)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    for now, before in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        tensors = {name.replace(now, before): tensor for name, tensor in tensors.items()}
    save_file(tensors, weights, {"format": "pt"})
    vocabulary = resolve_checkpoint("all-minilm-l6-v2").path  # the 30,522 pieces of bert-base-uncased
    for name in ("vocab.txt", "tokenizer.json"):
        shutil.copyfile(vocabulary / name, folder / name)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 512})


def write_vit(folder: Path, **sizes: int) -> None:
    """A folder like the Hub's vit-base-patch16-224-in21k: an encoder with a pooler, and how pictures are scaled."""
    from transformers import ViTConfig, ViTModel

    ViTModel(ViTConfig(**sizes), add_pooling_layer=True).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)


def write_vit_1k(folder: Path, **sizes: int) -> None:
    """A folder as the Hub has vit-base-patch16-224: no pooler, and the head of ImageNet's 1,000 classes."""
    from transformers import ViTConfig, ViTForImageClassification

    ViTForImageClassification(ViTConfig(num_labels=1_000, **sizes)).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)


@dataclass(frozen=True)
class Layout:
    """A checkpoint of the Hub, and who writes a random one like it."""

    name: str
    write: Callable[..., None]


BERT = Layout("bert-base-uncased", write_bert)
VIT = Layout("vit-base-patch16-224-in21k", write_vit)
VIT_1K = Layout("vit-base-patch16-224", write_vit_1k)
RUNGS = ("baseline", "light", "medium", "strong", "strong-given", "mix", "mix-given")
LAYOUTS = {
    "imdb-bert": BERT, "imdb-bert-given": BERT, "imdb-bert-15k": BERT,
    "cifar10-vit-base": VIT_1K, "cifar10-vit-base-given": VIT_1K, "hotdog-head": VIT_1K, "hotdog-head-given": VIT_1K,
    "flowers-pretrained": VIT, **{f"hotdog-{rung}": VIT_1K for rung in RUNGS},
}  # fmt: skip


def random_checkpoint(layout: Layout, root: Path, seed: int) -> Path:
    """The folder of a random checkpoint below ``root``; one that is there whole is kept, so that runs can go on."""
    folder = root / f"{layout.name}-seed{seed}"
    if not folder.is_dir():
        draft = folder.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        torch.manual_seed(seed)
        layout.write(draft)
        draft.rename(folder)
    return folder


def run_in_form(name: str, weights: Path, folder: Path, overrides: list[str], say: Callable) -> dict:
    """Run a recipe on a checkpoint's folder; an error where the saved model judges otherwise."""
    recipe = load_recipe(name, [*overrides, f"model={weights}"])
    check_folder(folder, recipe, resume=folder.exists())  # a finished run of other settings is not taken over
    if not (folder / "metrics.json").is_file():
        run_task(recipe, folder, resume=folder.exists(), log=say)
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    judged = metrics["test"]
    again = evaluate_task(folder)["accuracy"]
    if again != judged["accuracy"]:
        what = f"judged again from disk: accuracy {again}, not {judged['accuracy']}"
        raise CheckpointError(what, where=str(folder / "model"))
    with open(folder / "history.jsonl", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    steps = max(r["step"] for r in records if r["kind"] == "step")
    labels = Counter(row.label for row in read_predictions(folder / "predictions.csv"))
    train = len(TASKS[recipe.task].load(recipe).train)
    return {
        "recipe": name, "overrides": overrides, "weights_source": metrics["weights_source"],
        "parameters": metrics["parameters"], "steps": steps,
        "examples": {"train": train, "judged": judged["n"], "split": metrics["judged"]},
        "seconds": {k: round(v, 1) for k, v in metrics["seconds"].items()},
        "peak_memory_mb": metrics["peak_memory_mb"], "accuracy": judged["accuracy"],
        "accuracy_interval": judged["accuracy_interval"], "chance": max(labels.values()) / judged["n"],
        "accuracy_judged_again": again,
        "files": sorted(p.name + "/" * p.is_dir() for p in folder.iterdir()),
        "model_files": sorted(p.name for p in (folder / "model").iterdir()),
        "grid": grid_of(folder),
    }  # fmt: skip


def grid_of(folder: Path) -> dict[str, Any] | None:
    """What the figure with one picture a class shows; None: the run has no such figure."""
    if not (folder / "grid.png").is_file():
        return None
    examples = json.loads((folder / "pictures.json").read_text(encoding="utf-8"))["examples"]
    return {
        "rows": -(-len(examples) // ACROSS), "columns": min(ACROSS, len(examples)),
        "pictures": [{"label": e["label"], "predicted": e["predicted"]} for e in examples],
    }  # fmt: skip


def merged(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The result file's content with this record in the place of the recipe's older one."""
    known = kept(path).get("recipes", [])
    records = {r["recipe"]: r for r in known} | {record["recipe"]: record}
    return {
        "about": "random weights of the real sizes in the Hub's layout: shows that a recipe runs, not what it reaches",
        "recipes": [records[name] for name in sorted(records)],
    }  # fmt: skip


@command(
    None,
    ("recipes", dict(nargs="*", metavar="RECIPE", help=f"of {', '.join(LAYOUTS)}; default: all")),
    out="in-form",
    packages=("transformers", "safetensors", "pillow"),
    limit=(256, "examples of every split"),
    seed=(0, "of the random checkpoints"),
    runs=Path("runs") / "in-form",
    overrides=SETTINGS | {"default": ["epochs=1"]},
)
def main(args: Any) -> None:
    console = Console(stderr=True)
    if strange := [name for name in args.recipes if name not in LAYOUTS]:
        args.error(f"no recipe {strange[0]!r} here; give some of {', '.join(LAYOUTS)}")
    overrides = [f"limit={args.limit}", *args.overrides]
    for name in args.recipes or LAYOUTS:
        layout = LAYOUTS[name]
        console.print(f"== {name} on random weights in the layout of {layout.name}")
        weights = random_checkpoint(layout, args.runs.resolve(), args.seed)
        record = run_in_form(name, weights, args.runs / name, overrides, console.print)
        source = f"random (seed {args.seed}), in the layout of {layout.name}"
        record["weights_source"] = record["weights_source"].replace(f"local folder {weights}", source)
        files = sorted(p.name for p in weights.iterdir())
        record |= {"layout": layout.name, "layout_files": files, "seed": args.seed}
        record |= environment("transformers", "safetensors", "pillow")
        write_result(args.out, merged(args.out, record))
        console.print(
            f"{name}: {record['steps']} steps, {record['seconds']['total']:.0f} s, accuracy "
            f"{record['accuracy']:.1%} where chance is {record['chance']:.1%}; {', '.join(record['files'])}"
        )
