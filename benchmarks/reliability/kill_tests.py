"""Our trainings, killed: at a random instant, inside a save, at every call to the disk, by signals, on a full disk.

Each training runs in a process of its own, forked from this one, so that a run costs a second and not the import of
torch. What a training ends with is one digest: every tensor of its last checkpoint (weights, optimiser, running means,
random generators), its final weights and its history without the clock.
"""

import hashlib
import itertools
import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from benchmarks.harness.processes import answered, ended, forked, scratch
from glassformer.checkpoints.native import list_states, load_state, save_state
from glassformer.data.corpus import countries_sentences
from glassformer.errors import CheckpointError
from glassformer.train import word_vectors
from glassformer.train.callbacks import Callback, Interrupted, StopOnSignal

WORDS = ["a", "film", "story", "plot", "good", "bad", "dull", "fine", "very", "not"]
KINDS = ("text", "image", "word2vec", "pretraining")
NOISY = {"precision": "fp32", "threads": 1, "checkpoint_every": 1, "dropout": 0.2, "lr": 3e-3, "average": 0.9}
SIZES = {"d_model": 12, "num_layers": 1, "num_heads": 2, "d_ff": 20}


def texts(count: int, seed: int = 1) -> tuple[list[str], list[int]]:
    """Short reviews that a small model can learn."""
    rng = np.random.default_rng(seed)
    found = [" ".join(rng.choice(WORDS, rng.integers(2, 12))) for _ in range(count)]
    return found, [int("good" in text or "fine" in text) for text in found]


def fit(kind: str, folder: Path, callbacks: tuple = (), seed: int = 0) -> Any:
    """One small training with all that is random switched on, from its newest checkpoint if there is one."""
    where: dict[str, Any] = {"checkpoints": folder, "resume": True, "callbacks": list(callbacks)}
    if kind == "text":
        options = {"early_stopping": 4, "monitor": "loss", "evaluate_every": 3, "accumulate": 2}
        options |= {"word_dropout": 0.1, "min_count": 1, "epochs": 6, "batch_size": 6}
        clf = gf.TextClassifier("encoder-small", seed=seed, **NOISY, **SIZES, **options)
        return clf.fit(*texts(83), validation=texts(29, 2), **where)
    if kind == "image":
        rng = np.random.default_rng(1)
        labels = rng.integers(0, 3, 48)
        pictures = [rng.integers(0, 80 * (c + 1), (8, 8, 3), np.uint8) for c in labels]
        options = {"image_size": 8, "patch_size": 4, "augment": "light", "mix": "both", "evaluate_every": 4}
        clf = gf.ImageClassifier("vit-tiny", epochs=6, batch_size=8, seed=seed, **NOISY, **SIZES, **options)
        split = [(pictures[part], labels[part].tolist()) for part in (slice(36), slice(36, None))]
        return clf.fit(*split[0], validation=split[1], **where)
    if kind == "word2vec":
        word_vectors.ROUND = 1_000  # words between two checkpoints
        model = gf.Word2Vec(dim=11, min_count=2, epochs=3, threads=1, checkpoint_every=1, seed=seed)
        return model.fit([s.lower() for s in countries_sentences(500)], **where)
    options = {"vocab_size": 60, "max_length": 16, "max_positions": 20, "tokenizer": "word", "min_count": 1}
    model = gf.MaskedLM(epochs=6, batch_size=8, seed=seed, **NOISY, **SIZES, **options)
    return model.fit(texts(60)[0], validation=texts(20, 2)[0], **where)


def digest(kind: str, folder: Path, fitted: Any) -> str:
    """SHA-256 of all that a training ends with, the clock aside."""
    found = load_state(folder)
    h = hashlib.sha256()
    for name, tensor in sorted(found.tensors.items()):
        if name == "history/seconds":
            continue
        h.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        h.update(tensor.contiguous().flatten().view(torch.uint8).numpy())
    state = {k: v for k, v in found.state.items() if k not in ("seconds", "history", "elapsed")}
    history = [{k: v for k, v in r.items() if "seconds" not in k} for r in fitted.history_]
    if kind == "word2vec":
        h.update(fitted.vectors_.tobytes())
    else:
        for w in fitted.model_.state_dict().values():
            h.update(w.numpy().tobytes())
    h.update(json.dumps([without_clock(state), history], sort_keys=True).encode())
    return h.hexdigest()


def without_clock(value: Any) -> Any:
    """The same without any entry that tells the time."""
    if isinstance(value, dict):
        return {k: without_clock(v) for k, v in value.items() if "second" not in k and "speed" not in k}
    return [without_clock(v) for v in value] if isinstance(value, list) else value


# --- processes ----------------------------------------------------------------------------------------


def warm() -> None:
    """Import and compile here what every forked process will need."""
    torch.set_num_threads(1)
    for kind in KINDS:
        with scratch() as home:
            digest(kind, home, fit(kind, home))


def finish(kind: str, folder: Path, callbacks: tuple = (), seed: int = 0) -> str:
    """Train to the end in a process of its own; the digest, or what it died of."""
    code, found = answered(lambda: digest(kind, folder, fit(kind, folder, callbacks, seed)))
    return found if code == 0 else f"exit code {code}"


def tell_save(number: int, pipe: int) -> None:
    """From now on this process writes a byte when its save of that number begins."""
    left = [number]

    def hear(event: str, args: tuple) -> None:
        if event == "os.mkdir" and str(args[0]).endswith(".tmp"):
            left[0] -= 1
            if left[0] == 0:
                os.write(pipe, b"!")

    sys.addaudithook(hear)


def kill_and_resume(
    kind: str, rng: random.Random, seconds: float, saves: int, wanted: str, inside: bool
) -> dict:
    """One run: killed, resumed in another process to its end, and compared."""
    with scratch() as home:
        folder = home / "checkpoints"
        reader, writer = os.pipe()
        number = rng.randint(1, saves)
        pid = forked(lambda: (tell_save(number, writer), fit(kind, folder))[0])
        os.close(writer)
        if inside:
            os.read(reader, 1)  # ends too when the process does
            time.sleep(rng.uniform(0, 0.01))
        else:
            time.sleep(rng.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
        killed = ended(pid) == -signal.SIGKILL
        os.close(reader)
        names = os.listdir(folder) if folder.exists() else []
        half = any(name.endswith((".tmp", ".old")) for name in names)
        done = list_states(folder)[-1][0] if any(not n.startswith(".") for n in names) else 0
        found = finish(kind, folder)
        about = {"kind": kind, "killed": killed, "in a save": half, "step": done}
        return about | {"passed": found == wanted, "said": "" if found == wanted else found}


def kills(count: int, first: int = 0) -> list[dict]:
    """``count`` kills in turn over text, pictures, word vectors and pre-training; every second one inside a save."""
    out, whole = [], {}
    kinds = [KINDS[i % len(KINDS)] for i in range(first, first + count)]
    for kind in dict.fromkeys(kinds):
        with scratch() as home:
            finish(kind, home / "warm")
            started = time.perf_counter()
            wanted = finish(kind, home / "checkpoints")
            steps = list_states(home / "checkpoints")[-1][0]
            whole[kind] = (0.9 * (time.perf_counter() - started), steps, wanted)
            assert len(wanted) == 64, f"{kind}: {wanted}"
    for i, kind in enumerate(kinds, first):
        rng = random.Random(i)
        seconds, saves, wanted = whole[kind]
        for _ in range(20):  # until the kill comes before the end
            one = kill_and_resume(kind, rng, seconds, min(saves, 25), wanted, inside=i // len(KINDS) % 2 == 0)
            if one["killed"]:
                break
        out.append(one)
    return out


# --- every call to the disk ----------------------------------------------------------------------------


def equal(found: Any, *states: dict[str, torch.Tensor]) -> bool:
    """Whether a checkpoint has the tensors of its step, the first or the second."""
    return all(torch.equal(t, found.tensors[n]) for n, t in states[found.step - 1].items())


def crashes() -> list[dict]:
    """A save over an older checkpoint, its process killed at each of its calls to the disk, one after the other."""
    out = []
    old, new = ({"w": torch.full((50,), float(v)), "m": torch.arange(v * 100)} for v in (1, 2))
    for call in itertools.count(1):
        with scratch() as home:
            folder = home / "checkpoints"
            save_state(folder, 1, old, {"step": 1}, keep_last=1)
            code = ended(forked(lambda folder=folder, at=call: _save_and_die(folder, new, at)))
            try:
                found = load_state(folder)
                passed = not found.skipped and equal(found, old, new)
                passed = passed and (code == -signal.SIGKILL or found.step == 2)
            except CheckpointError:
                passed = False
        if code == 0:
            break
        out.append({"call": call, "passed": passed})
    return out


def _save_and_die(folder: Path, tensors: dict, at: int) -> None:
    left = [at]

    calls = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")

    def hear(event: str, args: tuple) -> None:
        if event in calls and str(folder) in str(args[0]):
            strike()

    def strike() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    synced = os.fsync

    def fsync(handle: Any) -> None:
        strike()
        synced(handle)

    os.fsync = fsync  # no audit event tells of it
    sys.addaudithook(hear)
    save_state(folder, 2, tensors, {"step": 2}, keep_last=1)


def full_disks(count: int, first: int = 0) -> list[dict]:
    """The system refuses bytes after a random number of them, as on a full disk: the older checkpoint stays whole."""
    out = []
    for i in range(first, first + count):
        rng = random.Random(i)
        with scratch() as home:
            folder = home / "checkpoints"
            old, new = ({"w": torch.full((2_000,), float(v)), "m": torch.arange(900.0)} for v in (1, 2))
            save_state(folder, 1, old, {"step": 1})
            limit = rng.randrange(0, 11_000)  # the larger file has 11.8 kB

            def save(folder: Path = folder, new: dict = new, limit: int = limit) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                save_state(folder, 2, new, {"step": 2})

            code = ended(forked(save))
            found = load_state(folder)
            clean = not any(name.startswith(".") for name in os.listdir(folder))
            passed = equal(found, old, new) and clean and code == 1
            out.append({"limit": limit, "step": found.step, "passed": passed})
    return out


def signals(count: int, first: int = 0) -> list[dict]:
    """SIGTERM or Ctrl-C at a random instant: exit code 130, everything saved, and the resumed run ends the same."""
    out, wanted, seconds = [], {}, {}
    for kind in ("text", "image", "pretraining"):
        with scratch() as home:
            started = time.perf_counter()
            wanted[kind] = finish(kind, home / "checkpoints")
            seconds[kind] = time.perf_counter() - started
    for i in range(first, first + count):
        rng = random.Random(i)
        kind, number = rng.choice(list(wanted)), (signal.SIGTERM, signal.SIGINT)[i % 2]
        while True:
            with scratch() as home:
                folder = home / "checkpoints"
                reader, writer = os.pipe()

                def begun(folder: Path = folder, writer: int = writer, kind: str = kind) -> None:
                    stop = StopOnSignal(folder)
                    started = stop.start
                    stop.start = lambda training: (started(training), os.write(writer, b"!"))[0]  # type: ignore[method-assign]
                    try:
                        fit(kind, folder, (stop,))
                    except Interrupted:
                        os._exit(130)

                pid = forked(begun)
                os.close(writer)
                os.read(reader, 1)
                os.close(reader)
                time.sleep(rng.uniform(0, seconds[kind] * 0.7))
                os.kill(pid, number)
                code = ended(pid)
                if code == 0:  # it had finished
                    continue
                whole = code == 130 and not load_state(folder).skipped
                found = finish(kind, folder)
                passed = whole and found == wanted[kind]
                out.append({"kind": kind, "signal": number.name, "code": code, "passed": passed})
                break
    return out


def pairs(count: int, first: int = 0) -> list[dict]:
    """The same seed twice, each in a process of its own."""
    out = []
    for i in range(first, first + count):
        kind, seed = KINDS[i % len(KINDS)], i // len(KINDS)
        with scratch() as home:
            one, two = (finish(kind, home / name, seed=seed) for name in ("one", "two"))
            out.append({"kind": kind, "seed": seed, "passed": one == two and len(one) == 64})
    return out


def resumes() -> list[dict]:
    """A run resumed at every one of its steps, early stopping included."""
    out = []
    with scratch() as home:
        kept = home / "kept"

        class Keep(Callback):
            def step(self, training: Any, info: Any) -> None:
                training.save(kept / f"{info.step:03d}", 1)

        whole = finish("text", home / "whole", (Keep(),))
        for at in sorted(kept.iterdir()):
            found = finish("text", at)
            out.append({"step": int(at.name), "passed": found == whole})
    return out
