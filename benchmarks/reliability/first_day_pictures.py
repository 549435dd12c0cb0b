"""The first day with a folder of pictures: cut, grey, turned, huge, repeated and wrong ones."""

import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.reliability import first_day_steps as steps
from benchmarks.reliability.first_day_steps import Step, raw, settings, table

SMALL = settings(
    "image_size=16", "patch_size=8", "d_model=16", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1",
    "precision=fp32", "bootstrap=20", "baselines=false", "threads=1",
)  # fmt: skip


def picture_steps(home: Path) -> list[Step]:
    """All of them; the files are made in the folder where one is."""
    return [*first(), *doctored(), *broken(), *folders(), *tables()]


def scene(seed: int, width: int = 61, height: int = 47, tint: int = 0) -> Image.Image:
    """Smooth colors, so that it looks the same after a change of size; ``tint`` is what a class is told by."""
    small = np.random.default_rng(seed).integers(0, 180, (5, 7, 3))
    small[..., tint] += 70
    return Image.fromarray(small.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def fill(folder: str, count: int, seed: int = 0, kind: str = "png") -> None:
    """``count`` images of cats and of dogs."""
    for tint, label in ((0, "cat"), (2, "dog")):
        place = Path(folder, label)
        place.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            scene(seed + 1000 * tint + i, tint=tint).save(place / f"{i}.{kind}")


def encoded(image: Image.Image, kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def train(what: str, path: str, *told: str, sets: tuple[str, ...] = (), **more: Any) -> Step:
    return steps.train("pictures", what, f"--images {path}", f"{SMALL} {settings(*sets)}", *told, **more)


doctor = partial(steps.doctor, "pictures, data doctor")


def first() -> list[Step]:
    fill("good", 20)
    fill("jpg", 20, kind="jpg")
    return [
        doctor("a good folder", "good", "no image occurs twice", untold=("warning",)),
        train("a good folder", "good", "held out", out="run"),
        train("photographs", "jpg"),
        Step("pictures: data show", "data show good", ("cat: 20, dog: 20",)),
        Step("pictures: augmentations", "data show good --augment light --out sheet.png", (), made=("sheet.png",)),
        Step("pictures: predict a file", "predict run good/cat/0.png", ("cat|dog",)),
        Step("pictures: predict a folder", "predict run good/cat --out cats.csv", ("20 pictures",)),
        Step("pictures: predict what is not there", "predict run good/cow", ("no such image",), 2),
        Step("pictures: predict a sentence", "predict run 'a cat'", ("this model reads pictures",), 2),
        Step("pictures: evaluate", "evaluate run", ("accuracy",)),
        train("the folder is there", "good", "--resume", out="run", code=2),
    ]  # fmt: skip


def doctored() -> list[Step]:
    """Every kind of odd picture in one folder."""
    fill("messy", 9)
    raw("messy/cat/text.jpg", "this is not an image")
    raw("messy/cat/cut.jpg", encoded(scene(7))[:-150])
    raw("messy/cat/empty.png", b"")
    scene(31).convert("L").save("messy/cat/grey.png")
    scene(32).convert("CMYK").save("messy/cat/print.jpg")
    scene(33).convert("RGBA").save("messy/dog/clear.png")
    scene(34).save("messy/dog/moving.gif", save_all=True, append_images=[scene(35)])
    Image.new("1", (7001, 7001)).save("messy/dog/huge.png")
    shutil.copy("messy/dog/0.png", "messy/dog/same.png")
    shutil.copy("messy/cat/0.png", "messy/dog/torn.png")
    scene(3, 122, 94).save("messy/cat/again.jpg")
    scene(40, 500, 50).save("messy/cat/wide.png")
    read = [
        (
            "what cannot be read",
            ("4 of 30 images of train cannot", "is not an image", "no bytes", "damaged", "million"),
        ),
        ("how to leave them out", ("--set broken=skip", "text.jpg", "cut.jpg")),
        ("sizes", ("61 x 47 to 500 x 94 pixels",)),
        ("modes", ("1 CMYK", "1 RGBA", "1 L")),
        ("animations", ("several frames",)),
        ("repeats", ("duplicate images of train: 2", "same.png")),
        ("one picture in two classes", ("that occur with different labels: ", r"\(cat\) = .*\(dog\)")),
        ("near repeats", ("look nearly the same", "again.jpg")),
        ("what is stretched", ("stretched more than 1.5 times", "10.0 times at most")),
    ]
    return [*(doctor(what, "messy", *told) for what, told in read),
            train("a messy folder", "messy", "images that cannot be read: ", "broken=skip", code=2),
            train("a messy folder without what cannot be read", "messy", "left out", sets=("broken=skip",))]  # fmt: skip


def broken() -> list[Step]:
    """A picture of the test split is cut, before a training and after one."""
    fill("parts/train", 20, kind="jpg")
    fill("parts/test", 6, seed=500, kind="jpg")
    bad = Path("parts/test/dog/3.jpg")
    whole = bad.read_bytes()

    def write(content: bytes) -> Callable[[], str]:
        return lambda: f"{bad.write_bytes(content)} bytes"

    def judged() -> str:
        metrics = json.loads(Path("parts-run/metrics.json").read_text(encoding="utf-8"))
        return f"{metrics['test']['n']} judged"

    cut = whole[: len(whole) // 2]
    return [
        Step("an image of test is cut", write(cut), ("bytes",)),
        train("a cut picture of test", "parts", "dog/3.jpg", "damaged", "broken=skip", code=2),
        train("a cut picture of test left out", "parts", "1 image of test left out", sets=("broken=skip",)),
        Step("it is whole again", write(whole), ("bytes",)),
        train("a whole one", "parts", out="parts-run"),
        Step("it is cut after the training", write(cut), ("bytes",)),
        Step("pictures: evaluate with a cut one", "evaluate parts-run", ("dog/3.jpg", "--on-bad-row skip"), 2),
        Step("pictures: evaluate without it", "evaluate parts-run --on-bad-row skip", ("left out", "11 pictures|accuracy")),
        Step("pictures: go on", f"train --images parts --out parts-run --resume {SMALL}", ("broken=skip",), 2),
        Step("pictures: go on without it", f"train --images parts --out parts-run --resume {SMALL} --set broken=skip", ("1 image of test left out",)),
        Step("what was judged", judged, ("11 judged",)),
        Step("pictures: predict a cut one", f"predict run {bad}", ("damaged", "--on-bad-row skip"), 2),
        Step("pictures: predict it and others", "predict run parts/test/dog --on-bad-row skip", ("1 row has no answer", "damaged")),
    ]  # fmt: skip


def folders() -> list[Step]:
    """Folders as they should not be, splits that share pictures, classes out of balance."""
    fill("leaky/train", 12)
    fill("leaky/test", 4, seed=700)
    shutil.copy("leaky/train/cat/1.png", "leaky/test/cat/known.png")
    scene(2, 90, 70).save("leaky/test/cat/nearly.png")
    fill("hollow", 8)
    Path("hollow/cow").mkdir()
    fill("mixture/train", 5)
    fill("mixture", 5)
    raw("flat/readme.md", "no images")
    fill("lone", 9)
    shutil.rmtree("lone/dog")
    fill("skewed", 40)
    for i in range(2, 40):
        Path(f"skewed/dog/{i}.png").unlink()
    fill("twice", 20)
    for i in range(20):
        shutil.copy(f"twice/cat/{i}.png", f"twice/cat/copy-{i}.png")

    def torn() -> str:
        """How many images of the run's doctor report stand in two parts."""
        report = json.loads(Path("runs/repeated-pictures/doctor.json").read_text(encoding="utf-8"))
        return str([f["message"] for f in report["findings"] if f["code"] == "leak"])

    return [
        doctor("test pictures in training", "leaky", "images in both train and test: 1", "drop_duplicates=true"),
        doctor("nearly the same in training", "leaky", "nearly the same as one of test", "nearly.png"),
        train("test pictures in training", "leaky", "stand in train and in test"),
        train("test pictures taken out", "leaky", "drop_duplicates: 1 of 24 of train left out", sets=("drop_duplicates=true",)),
        train("an empty class", "hollow", "class 'cow' has no images", "Put images there", code=2),
        train("classes beside splits", "mixture", "look like splits", code=2),
        train("no folders of classes", "flat", "neither tables nor folders of pictures|no folders", code=2),
        train("one class of pictures", "lone", "one class", code=2),
        doctor("one class", "lone", "one class only"),
        doctor("a class of 5 %", "skewed", "always answering cat scores", "class_weight = balanced"),
        train("repeated pictures", "twice", "repeats"),
        Step("pictures: copies share a side", torn, ("no image is in two splits",)),
        train("a folder that is not there", "godo", "no file, folder or named data set 'godo'", code=2),
    ]  # fmt: skip


def tables() -> list[Step]:
    """Tables that name files of pictures."""
    names = [(f"good/{label}/{i}.png", label) for i in range(20) for label in ("cat", "dog")]
    table("usual.csv", ("file", "label"), names)
    table("own.csv", ("photo", "animal"), names)
    scores = [(name, f"{i * 0.37:.2f}") for i, (name, _) in enumerate(names)]
    several = [(n, f"{x}|pet" if i % 3 else x) for i, (n, x) in enumerate(names)]
    numbers, kinds = (
        table("numbers.csv", ("photo", "score"), scores),
        table("kinds.csv", ("photo", "kinds"), several),
    )
    new = ("good/cat/0.png", "good/cat/nowhere.png", "good/dog/1.png")
    table("new.csv", ("nr", "photo"), list(enumerate(new, 1)))
    table("missing.csv", ("file", "label"), [*names, ("good/cat/nowhere.png", "cat")])
    marked = "--on-bad-row skip --out new-out.csv"
    return [
        train("a table of files", "usual.csv"),
        train("a table of files with names of ones own", "own.csv", "labels in 'animal'"),
        train("a file that is not there", "missing.csv", "nowhere.png", "no such file", "broken=skip", code=2),
        doctor("a table of files", "missing.csv", "cannot be read", "no such file"),
        train("numbers for labels of pictures", numbers, "look like numbers", "target=number", code=2),
        doctor("several labels in a cell", kinds, "several labels per example", "label.separator"),
        Step("pictures: predict a table of files", "predict run new.csv", ("nowhere.png", "--on-bad-row skip"), 2),
        Step("pictures: predict a table and mark rows", f"predict run new.csv {marked}",
             ("3 pictures", "1 row has no answer: .* \\(row 3\\)")),
        Step("pictures: its own columns", lambda: Path("new-out.csv").read_text(encoding="utf-8"), ("nr",),
             made=("new-out.csv",)),
        Step("pictures: folds of a folder", f"cross-validate --images good --folds 2 --out folds {SMALL}",
             ("40 examples in 2 folds",)),
    ]  # fmt: skip
