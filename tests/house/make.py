"""Made the folders below ``saved``: finished models and stopped runs of every kind, as a released version left them.

    python tests/house/make.py FOLDER [KIND ...]

They are never made again by a later version, for then they would not show that it reads what an earlier one wrote. A
new kind gets a folder of its own beside them. The script stays for what it says about how they came about.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import glassformer as gf

FIT = ["threads=1", "precision=fp32", "seed=3", "checkpoint_every=5"]
SMALL = ["d_model=16", "num_layers=2", "num_heads=2", "d_ff=24"]
SHOWN = ["baselines=false", "bootstrap=20"]
EUROPE = ["limit=211", "min_count=1", "max_length=24", "sentences=[]", *SHOWN]
# kind -> (recipe, settings): each takes some seconds, so that it can be stopped on the way
KINDS: dict[str, tuple[str, list[str]]] = {
    "masked": (
        "europe-mlm",
        ["limit=241", "validation_size=41", "vocab_size=60", *SMALL, "epochs=60", "sentences=[]"],
    ),
    "text": (
        "europe",
        [
            *EUROPE,
            "model=encoder-small",
            *SMALL,
            "epochs=60",
            "dropout=0.1",
            "batch_size=13",
            "average=0.9",
            "word_dropout=0.1",
            "early_stopping=200",
            "maps=1",
        ],
    ),
    "lora": (
        "europe",
        [
            *EUROPE,
            "model=runs/masked/model",
            "lora_rank=3",
            "epochs=60",
            "batch_size=13",
            "maps=1",
            "tokenizer=auto",
            "pooling=mean",
        ],
    ),
    "lstm": ("europe", [*EUROPE, "model=lstm", "d_model=12", "epochs=60", "batch_size=13", "maps=0"]),
    "textcnn": ("europe", [*EUROPE, "model=textcnn", "d_model=12", "epochs=90", "batch_size=7", "maps=0"]),
    "pictures": (
        "digits",
        ["limit=151", *SMALL, "epochs=40", "batch_size=13", "lr=2e-3", "augment=light", *SHOWN],
    ),
    "translation": (
        "multi30k-rnn-additive",
        [
            "d_model=12",
            "vocab_size=270",
            "max_length=16",
            "epochs=60",
            "batch_tokens=200",
            "beam=2",
            "sentences=[]",
        ],
    ),
    "transformer": (
        "multi30k-transformer",
        [
            "d_model=16",
            "num_layers=1",
            "num_heads=2",
            "d_ff=24",
            "vocab_size=270",
            "max_length=16",
            "epochs=60",
            "batch_tokens=200",
            "beam=2",
            "sentences=[]",
        ],
    ),
    "vectors": ("countries-word2vec", ["dim=11", "epochs=400", "checkpoint_every=1", "seed=3"]),
}
TEXTS = ["The capital of France is Paris .", "The capital of Japan is Tokyo .", "germany uses the euro"]
PAIRS = ["the dog runs", "a small cat"]
WORDS = ["france", "paris", "king"]


def write_pairs(path: Path) -> None:
    """Sentences and what a word-by-word translator makes of them."""
    rng = random.Random(3)
    words = {
        "the": "der",
        "a": "ein",
        "dog": "Hund",
        "cat": "Katze",
        "small": "klein",
        "runs": "läuft",
        "big": "groß",
        "sees": "sieht",
        "house": "Haus",
        "man": "Mann",
    }
    rows = ["en,de"]
    for _ in range(173):
        chosen = rng.choices(list(words), k=rng.randint(2, 7))
        rows.append(",".join([" ".join(chosen), " ".join(words[w] for w in chosen)]))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def command(kind: str, out: str) -> list[str]:
    recipe, settings = KINDS[kind]
    fit = [s for s in FIT if not (kind == "vectors" and s.startswith(("precision", "seed", "checkpoint")))]
    words = [sys.executable, "-m", "glassformer", "train", recipe, "--out", out]
    if recipe.startswith("multi30k"):
        words += ["--data", "pairs.csv", "--set", "validation_size=23", "--set", "test_size=29"]
    for setting in [*fit, *settings]:
        words += ["--set", setting]
    return words


def answers(kind: str, folder: Path) -> dict:
    """What a saved model says to a few inputs."""
    model = gf.load(folder)
    if kind == "vectors":
        return {
            "nearest": [[w for w, _ in model.most_similar(word)[:3]] for word in WORDS],
            "norms": [float((model.vectors_[i] ** 2).sum() ** 0.5) for i in range(5)],
        }
    if kind == "masked":
        return {"fill": model.fill("[MASK] is the capital of France .", top=3)}
    if kind in ("translation", "transformer"):
        return {"translations": model.translate(PAIRS)}
    if kind == "pictures":
        from sklearn.datasets import load_digits

        pictures = [p.astype("uint8") * 15 for p in load_digits().images[:3]]
        return {"labels": model.classes_.tolist(), "probabilities": model.predict_proba(pictures).tolist()}
    return {"labels": model.classes_.tolist(), "probabilities": model.predict_proba(TEXTS).tolist()}


def progress_of(folder: Path) -> int:
    """Records of the history; of word vectors, whose history is written at the end, the step of the checkpoint."""
    history = folder / "history.jsonl"
    records = history.read_bytes().count(b"\n") if history.exists() else 0
    return max([records, *(int(p.name[5:]) for p in (folder / "checkpoints").glob("step-????????"))])


def main(folder: Path, kinds: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder / "pairs.csv")
    os.chdir(folder)
    for kind in kinds or KINDS:
        out = Path("runs") / kind
        subprocess.run(command(kind, str(out)), check=True)
        stopped = Path("stopped") / kind
        process = subprocess.Popen(command(kind, str(stopped)))
        half = progress_of(out) // 2
        while process.poll() is None and progress_of(stopped) < half // 2:
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        assert code == 130, f"{kind}: ended with {code}"
        assert any((stopped / "checkpoints").iterdir()), f"{kind}: stopped before its first checkpoint"
        config = stopped / "config.toml"
        config.write_text(config.read_text(encoding="utf-8").replace(f"{folder}/", ""), encoding="utf-8")
        for older in sorted((stopped / "checkpoints").glob("step-*"))[:-1]:
            shutil.rmtree(older)
        history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
        expected = {"answers": answers(kind, out / "model"), "records": len(history)}
        expected["losses"] = [r["loss"] for r in history if r.get("kind") == "step"]
        (out / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")
        for name in (
            "checkpoints",
            "report.html",
            "doctor.json",
            "maps.json",
            "predictions.csv",
            "rejected.jsonl",
            "adapter",
            "figures",
            "history.jsonl",
        ):
            target = out / name
            if target.is_dir():
                shutil.rmtree(target)
            elif target.exists():
                target.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
