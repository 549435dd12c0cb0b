"""The kill, early-stopping and damage tests on Hugging Face's Trainer: a tiny BERT, saved every step.

The training has the shape of ours in ``kill_tests``: dropout, an evaluation every few steps, early stopping. It is
resumed the documented way, ``trainer.train(resume_from_checkpoint=True)``.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.harness.processes import answered, ended, forked, scratch
from benchmarks.reliability.bad_files import DAMAGES, damage

STEPS, PATIENCE, EVERY = 40, 3, 3


def trainer(folder: Path, patience: int = 0, scores: Any = None, stop_at: int = 0) -> Any:
    """A Trainer on 80 random texts; with ``scores`` evaluation ``i`` has the accuracy ``scores(i)``."""
    transformers.set_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20,
        max_position_embeddings=16, num_labels=2,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    rows = [{"input_ids": rng.integers(5, 31, 9).tolist(), "labels": int(rng.integers(2))} for _ in range(80)]
    rows = [row | {"attention_mask": [1] * 9} for row in rows]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=8, learning_rate=3e-3, save_steps=1,
        save_total_limit=2, logging_steps=1, eval_steps=EVERY, report_to=[],
        eval_strategy="steps" if patience else "no",
        disable_tqdm=True, use_cpu=True, seed=0, dataloader_pin_memory=False, metric_for_best_model="eval_score",
        greater_is_better=True, load_best_model_at_end=False, dataloader_num_workers=0,
    )  # fmt: skip

    class Stop(transformers.TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if stop_at and state.global_step == stop_at:
                os.kill(os.getpid(), signal.SIGKILL)

    calls: list[Any] = [Stop()]
    if patience:
        calls.append(transformers.EarlyStoppingCallback(patience))
    made = transformers.Trainer(
        transformers.BertForSequenceClassification(config), arguments, train_dataset=rows, eval_dataset=rows[:9],
        callbacks=calls, compute_metrics=lambda _: {"score": scores(made.state.global_step) if scores else 0.0},
    )  # fmt: skip
    made.remove_callback(transformers.PrinterCallback)
    return made


def train(folder: Path, resume: bool, **options: Any) -> tuple[str, int]:
    """Train to the end: the digest of what the training ended with, and its steps."""
    made = trainer(folder, **options)
    made.train(resume_from_checkpoint=True if resume else None)
    h = hashlib.sha256()
    for tensor in made.model.state_dict().values():
        h.update(tensor.contiguous().numpy())
    for state in made.optimizer.state_dict()["state"].values():
        h.update(state["exp_avg"].numpy())
    losses = [record["loss"] for record in made.state.log_history if "loss" in record]
    h.update(json.dumps(losses).encode())
    return h.hexdigest(), made.state.global_step


def finish(folder: Path, resume: bool, **options: Any) -> list:
    """[digest, steps] of a training run to its end in a process of its own; the digest is "" if it failed."""
    with open(os.devnull, "wb") as quiet:
        streams = quiet.fileno(), quiet.fileno()
        code, found = answered(lambda: train(folder, resume, **options), *streams)
    return found if code == 0 and found else ["", 0]


def warm() -> None:
    """Import here what every forked process will need."""
    torch.set_num_threads(1)
    with scratch() as home:
        train(home / "run", False)


def kills(count: int, first: int = 0) -> list[dict]:
    """Killed at a random instant, every second time inside a save; resumed, and compared bit for bit."""
    out = []
    with scratch() as home:
        started = time.perf_counter()
        wanted = finish(home / "whole", False)
        seconds = 0.9 * (time.perf_counter() - started)
    for i in range(first, first + count):
        rng = random.Random(i)
        while True:
            with scratch() as home:
                folder = home / "run"
                pid = forked(lambda folder=folder: train(folder, False) and None)
                if i % 2 == 0:
                    wait_for_save(folder, rng.randint(1, 25), pid)
                    time.sleep(rng.uniform(0, 0.01))
                else:
                    time.sleep(rng.uniform(0, seconds))
                os.kill(pid, signal.SIGKILL)
                if ended(pid) != -signal.SIGKILL:
                    continue
                begun = folder.is_dir() and any(p.name.startswith("checkpoint-") for p in folder.iterdir())
                found = finish(folder, begun)
                out.append({"resumed": bool(found[0]), "passed": found == wanted})
                break
    return out


def wait_for_save(folder: Path, number: int, pid: int) -> None:
    """Until the folder of that checkpoint appears, or the process has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (folder / f"checkpoint-{number}").exists():
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.0005)


def early_stops(count: int) -> list[dict]:
    """Stopped cleanly (by a kill just after a save) while patience is being spent, and resumed: the same last step?"""
    out = []

    def scores(step: int) -> float:  # better until step 12, never after: patience ends the run
        return step / 100 if step <= 12 else 0.0

    with scratch() as home:
        wanted = finish(home / "whole", False, patience=PATIENCE, scores=scores)
    for i in range(count):
        at = 13 + i % 8
        with scratch() as home:
            finish(home / "run", False, patience=PATIENCE, scores=scores, stop_at=at)
            found = finish(home / "run", True, patience=PATIENCE, scores=scores)
            about = {"stopped at": at, "ended at": found[1], "wanted": wanted[1]}
            out.append(about | {"passed": found == wanted})
    return out


def damages(count: int) -> list[dict]:
    """A file of the newest checkpoint damaged, then resumed: refused, right all the same, or silently another model?"""
    out = []
    with scratch() as home:
        wanted = finish(home / "whole", False)
        finish(home / "begun", False, stop_at=30)
        newest = max((home / "begun").glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
        files = sorted(p.name for p in newest.iterdir() if p.name != "training_args.bin")
        for i in range(count):
            rng, name, kind = random.Random(i), files[i % len(files)], DAMAGES[i // len(files) % len(DAMAGES)]
            copy = home / "copy"
            shutil.copytree(home / "begun", copy)
            damage(copy / newest.name / name, kind, rng, copy / newest.name / files[(i + 1) % len(files)])
            found = finish(copy, True)
            answer = "refused" if not found[0] else "same" if found == wanted else "another model"
            out.append({"file": name, "damage": kind, "answer": answer, "passed": answer != "another model"})
            shutil.rmtree(copy)
    return out
