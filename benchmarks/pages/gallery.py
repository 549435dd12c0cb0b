"""The pictures of docs/gallery.md, each from a finished run folder; no training happens here.

    .venv/bin/python -m benchmarks.pages.gallery [--runs FOLDER ...] [--only NAME ...]

A run of RECIPE is looked for as ``FOLDER/RECIPE-seed0``, ``FOLDER/RECIPE`` and so on, an arm of a study, STUDY/ARM, in the study's folder;
what the result file of a published run holds is drawn from that. The pictures go to ``docs/gallery/``. On the page, what stands between ``<!-- picture: NAME -->``
and ``<!-- end -->`` is written anew: the picture, its words for those who cannot see it, and a caption with recipe, seed and
figure, all read from the files of the run.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, ROOT, kept
from glassformer.config import to_dict
from glassformer.data.augment import contact_sheet, sheet_columns
from glassformer.data.folders import data_folders
from glassformer.data.image_sources import ImageSplit
from glassformer.errors import GlassformerError, InputError
from glassformer.explain.alignment import picture as alignment_picture
from glassformer.explain.architecture import Block
from glassformer.explain.architecture import draw as draw_blocks
from glassformer.explain.svg_grids import heads, pictures, to_svg_file
from glassformer.report.charts import bar_panels, confusion_matrix, learning_curves
from glassformer.report.published import headline
from glassformer.report.tables import confusions
from glassformer.study.grid import folder_name
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run import Run, read_run_recipe

# Keys that decide how a run goes, not what comes out of it.
ASIDE = {"name", "summary", "expect", "seed", "threads", "verbose", "baselines", "device", "checkpoint_every"}


@dataclass(frozen=True)
class Drawn:
    """A picture with its words."""

    content: bytes
    alt: str  # for those who cannot see it
    caption: str


@dataclass(frozen=True)
class GalleryRun:
    """A finished run with its recipe."""

    folder: Path | None  # None: of a result file
    metrics: dict[str, Any]
    recipe: Any
    records: list[dict[str, Any]]  # of the training

    @classmethod
    def of(cls, folder: Path) -> GalleryRun:
        """The run in a folder; CheckpointError where there is none that has ended."""
        run = Run.of(folder)
        return cls(folder, run.metrics, read_run_recipe(folder), list(run.history))

    @classmethod
    def published(cls, name: str) -> GalleryRun:
        """The first run in the result file of a recipe; InputError where it has none."""
        file = RESULTS / f"recipe-{name}.json"
        if not (found := kept(file)):
            fix = f"benchmarks/quality/recipes.py {name}"
            raise InputError("no such result file", where=str(file), fix=fix)
        first = found["runs"][0]
        return cls(None, first, load_recipe(name, found["overrides"]), first["evaluations"])

    def file(self, name: str) -> Path:
        """A file of its folder; InputError where it has no such file."""
        if self.folder is None or not (self.folder / name).exists():
            raise InputError(f"the run has no {name}", where=str(self.folder or self.recipe.name))
        return self.folder / name

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == "evaluation"]

    def told(self) -> str:
        """Recipe, changed settings, seed and the run's own figure, in a sentence."""
        changed = ", ".join(f"`{key} = {value}`" for key, value in changed_settings(self.recipe).items())
        words = f"Recipe `{self.recipe.name}`" + (f" with {changed}" if changed else "")
        reached = f"this run reached {self.figure()} ({str(self.metrics.get('date', ''))[:10]})"
        return f"{words}, seed {self.metrics['seed']}; {reached}."

    def figure(self) -> str:
        """What the run is judged by, with the number of examples where it says so."""
        found = headline(self.metrics, self.recipe.name)
        if found is None:
            raise InputError("the run has no figure", where=str(self.folder or self.recipe.name))
        value, unit = found
        judged = self.metrics.get("judged", "")
        n = (self.metrics.get(judged) or {}).get("n")
        words = unit.format(value).removesuffix(" (validation)")
        return f"{words} on {n:,} {judged} examples" if n else words


def find_run(recipe: str, folders: Sequence[Path]) -> Path:
    """The folder of a finished run of a recipe, lowest seed first, or of an arm of a study (STUDY/ARM)."""
    study, _, arm = recipe.partition("/")
    for folder in folders:
        place = folder / study / "arms" / folder_name(arm) / "seed-0"
        if arm and (place / "metrics.json").is_file():
            return place
        for name in (*(f"{recipe}-seed{seed}" for seed in range(10)), recipe):
            if (folder / name / "metrics.json").is_file():
                return folder / name
    where = ", ".join(map(str, folders))
    raise InputError(f"no finished run of {recipe}", where=where, fix=f"glassformer train {recipe} --out ...")


def changed_settings(recipe: Any) -> dict[str, Any]:
    """Settings of a run that differ from those of its shipped recipe; of paths the last two names."""
    shipped, own = flat(to_dict(load_recipe(recipe.name))), flat(to_dict(recipe))
    changed = {key.rpartition(".")[2]: value for key, value in own.items() if shipped.get(key) != value}
    for key, value in changed.items():
        if isinstance(value, str) and value.startswith("/"):
            changed[key] = "/".join(Path(value).parts[-2:])
    return {key: value for key, value in changed.items() if key not in ASIDE}


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """``{"train": {"lr": 0.1}}`` as ``{"train.lr": 0.1}``."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return out


SENTENCE = "madrid is in spain while tokyo is in japan"  # words of the corpus, not a line of it
WORDS = ("france", "paris", "king")  # whose neighbors are shown
SHOWN = 5  # fills and neighbors
PHOTOS = 3
LEVEL = "strong"  # of the augmentation ladder
LICENCE = re.compile(r"^(\S+) CC-BY by (.*) - \S+$", re.MULTILINE)


def grid(run: GalleryRun) -> Drawn:
    """The first judged picture of each class under its true and its predicted label: the grid of the run."""
    file = run.file("grid.png")
    examples = json.loads(run.file("pictures.json").read_text(encoding="utf-8"))["examples"]
    right = sum(e["label"] == e["predicted"] for e in examples)
    wrong = [f"{e['label']} predicted as {e['predicted']}" for e in examples if e["label"] != e["predicted"]]
    told = f"{right} of {len(examples)} predictions are correct"
    told += f"; wrong: {', '.join(wrong)}" if wrong else ""
    return Drawn(file.read_bytes(), f"{len(examples)} small images, one per class, with true and predicted label: {told}",
                 f"{told}. {run.told()}")  # fmt: skip


def confusion(run: GalleryRun) -> Drawn:
    """The confusion matrix of the judged split."""
    scores = run.metrics[run.metrics["judged"]]
    pairs = [f"{p['label']} predicted as {p['predicted']} ({p['count']})" for p in confusions(scores)[:3]]
    most = f"Most frequent errors: {', '.join(pairs)}" if pairs else "Two classes"
    content = confusion_matrix(scores["labels"], scores["confusion"])
    return Drawn(content.encode(), f"A table of {len(scores['labels'])} by {len(scores['labels'])} counts. {most}",
                 f"{most}. {run.told()}")  # fmt: skip


def curves(run: GalleryRun) -> Drawn:
    """Loss and accuracy over the epochs; the judged split too, where the weights of each epoch were judged."""
    epochs = run.metrics.get("epochs") or []
    drawn = learning_curves(run.evaluations, epochs)
    if not drawn:
        raise InputError("fewer than two evaluations", where=run.recipe.name)
    told = ""
    if epochs:
        each = ", ".join(f"{e['accuracy']:.1%}" for e in epochs)
        told = f"Test accuracy after each epoch: {each}. "
        told += "The weights of each epoch were kept and evaluated at the end; no epoch was selected by these scores. "
    return Drawn(drawn.encode(), f"Two panels: loss and accuracy over {len(run.evaluations)} epochs. {told}".strip(),
                 f"{told}{run.told()}")  # fmt: skip


def architecture(run: GalleryRun) -> Drawn:
    """The model from tokens to logits, layers open."""
    blocks = [Block.from_dict(block) for block in run.metrics["architecture"]]
    names = ", ".join(f"{b.repeat} times {b.name}" if b.repeat > 1 else b.name for b in blocks)
    total = sum(b.parameters for b in blocks)
    content = to_svg_file(draw_blocks(blocks, "layers"))
    return Drawn(content.encode(), f"Boxes from input to output: {names}; {total:,} parameters", run.told())


def maps(run: GalleryRun) -> Drawn:
    """The attention maps of the last layer, a head each, for one sentence."""
    e = load(run.file("model")).explain(SENTENCE, method="attention", maps=True)
    strongest = max(e.words(), key=lambda word: word[1])
    last = e.maps[-1][:, 0]  # [H, T]: what each head's [CLS] reads
    most = [(e.tokens[int(row.argmax())], row.max()) for row in last]
    each = "; ".join(f"head {i} reads *{token}* most ({x:.0%})" for i, (token, x) in enumerate(most, 1))
    said = {"1": "yes", "0": "no"}[str(e.label)]  # whether a European country is named
    told = f"“{SENTENCE}”: the prediction is {said} (label {e.label}) with probability {e.probability:.1%}. From [CLS], {each}."
    alt = f"{len(last)} square maps of {len(e.tokens)} tokens; of the words, [CLS] reads {strongest[0]} most"
    return Drawn(heads(e).encode(), alt, f"{told} {run.told()}")


def alignment(run: GalleryRun) -> Drawn:
    """What each word of the first example's translation was read from."""
    example = json.loads(run.file("alignments.json").read_text(encoding="utf-8"))["examples"][0]
    content = to_svg_file(alignment_picture(example["source"], example["target"], example["weights"]))
    text, said = " ".join(str(example["text"]).split()), " ".join(str(example["translation"]).split())
    alt = "A table with a row for each token of the German translation and a column for each token of the English text, dark near a diagonal"
    return Drawn(content.encode(), alt, f"“{text}” → “{said}”. {run.told()}")


def augmentation(run: GalleryRun) -> Drawn:
    """What each step of the ladder and both ways to mix make of some training pictures."""
    split, rows = _firsts(TASKS[run.recipe.task].load(run.recipe).train)
    sheet = contact_sheet([split.images[i] for i in rows], LEVEL, split.origin)
    file = io.BytesIO()
    sheet.quantize(64).save(file, "PNG", optimize=True)
    names = ", ".join(sheet_columns(LEVEL))
    told = f"Columns: {names}; with one fixed seed, for training images of `{run.recipe.data.source}`."
    return Drawn(file.getvalue(), f"{len(rows)} photos in rows, changed from left to right: {names}",
                 f"{told}{_credits(split, rows)}")  # fmt: skip


def before_and_after(before: GalleryRun, after: GalleryRun) -> Drawn:
    """Rollout and occlusion of the same pictures: a head on frozen weights, then all weights fine-tuned."""
    said = (
        "Before fine-tuning {} of these {} validation images are classified correctly, after fine-tuning {}."
    )
    return _by_two(before, after, ("before", "after"), after, "before and after", said)


def by_two_arms(plain: GalleryRun, augmented: GalleryRun) -> Drawn:
    """Rollout and occlusion of the same pictures by two arms of a study: without and with augmentation."""
    said = "Trained without augmentation, the model classifies {} of these {} validation images correctly; trained with augmentation, {}."
    return _by_two(plain, augmented, ("without", "with"), plain, "by both models", said)


def _by_two(
    first: GalleryRun, second: GalleryRun, names: tuple[str, str], data: GalleryRun, whose: str, said: str
) -> Drawn:
    """Maps of two models over the validation pictures of ``data``, and in ``said`` how many each names rightly."""
    split, rows = _firsts(TASKS[data.recipe.task].load(data.recipe).validation)
    models = [load(run.file("model")) for run in (first, second)]
    methods = ("rollout", "occlusion")
    sheet = [[model.explain(split.images[i], method=m) for m in methods for model in models] for i in rows]
    truth = [str(split.labels[i]) for i in rows]
    right = [sum(str(row[k].label) == name for row, name in zip(sheet, truth, strict=True)) for k in (0, 1)]
    content = pictures(sheet, [f"{m}\n{when}" for m in methods for when in names], truth)
    told = said.format(right[0], len(rows), right[1])
    sources = [run.told() for run in (first, second)]
    runs = " ".join(f"{n.capitalize()}: {told[0].lower()}{told[1:]}" for n, told in zip(names, sources))
    return Drawn(content.encode(), f"{len(rows)} photos, each with rollout and occlusion {whose}. {told}",
                 f"{told} {runs}{_credits(split, rows)}")  # fmt: skip


def fills(run: GalleryRun) -> Drawn:
    """The most probable words for the masks of the recipe's own sentences."""
    panels = {
        asked["text"]: [(w["token"], w["probability"]) for w in words[:SHOWN]]
        for asked in run.metrics["sentences"]
        for words in asked["fills"][:1]
    }
    first = "; ".join(f"“{text}” → {words[0][0]} ({words[0][1]:.0%})" for text, words in panels.items())
    return Drawn(bar_panels(panels, columns=1).encode(), f"Bars: the five most probable words. First come {first}",
                 f"{first}. {run.told()}")  # fmt: skip


def neighbors(run: GalleryRun) -> Drawn:
    """The nearest words of some words before the training, and after it."""
    after = load(run.file("model"))
    before = after.untrained()
    panels = {
        f"{word}, {when}": vectors.most_similar(word, SHOWN)
        for word in WORDS
        for when, vectors in (("before", before), ("after", after))
    }
    first = {name: found[0][0] for name, found in panels.items()}
    nearest = "; ".join(f"{w}: {first[f'{w}, before']} before, {first[f'{w}, after']} after" for w in WORDS)
    told = f"The nearest word of {nearest}."
    return Drawn(bar_panels(panels, "{:.2f}").encode(), f"Bars of cosines, before and after training. {told}",
                 f"{told} {run.told()}")  # fmt: skip


def _firsts(split: ImageSplit) -> tuple[ImageSplit, list[int]]:
    """The split, and the places of its first picture of each of the first classes."""
    labels = np.array(split.labels or [])
    return split, [int(np.flatnonzero(labels == name)[0]) for name in sorted(set(labels.tolist()))[:PHOTOS]]


def _credits(split: ImageSplit, rows: list[int]) -> str:
    """Who took the photos, where the data set has a list of it."""
    file = next((p for f in data_folders() if (p := Path(f) / "flowers" / "LICENSE.txt").is_file()), None)
    if file is None:
        return ""
    listed = LICENCE.findall(file.read_text(encoding="utf-8"))
    people: dict[str, Any] = {Path(name).name: who for name, who in listed}
    names = [people[n] for i in rows if (n := Path(split.names()[i]).name) in people]
    return f" Photos (CC BY 2.0): {', '.join(dict.fromkeys(names))}." if names else ""


PAGE = ROOT / "docs" / "gallery.md"
FOLDER = ROOT / "docs" / "gallery"
MOST = 150_000  # bytes of a picture
MARK = r"(<!-- picture: {} -->\n).*?(<!-- end -->)"


@dataclass(frozen=True)
class Picture:
    """One picture: the runs that it is made from, and what draws it."""

    recipes: tuple[str, ...]
    draw: Callable[..., Drawn]
    ending: str = "svg"
    recorded: bool = False  # drawn from the result file of the published run; no run folder is needed
    section: str = ""  # heading and words under which it joins the page when it is drawn for the first time


PICTURES = {
    "cifar10-grid": Picture(("cifar10-vit-stem",), grid, "png"),
    "cifar10-confusion": Picture(("cifar10-vit-stem",), confusion),
    "cifar10-curves": Picture(("cifar10-vit-stem",), curves),
    "imdb-architecture": Picture(("imdb-encoder-small-given",), architecture),
    "imdb-curves": Picture(("imdb-encoder-small-given",), curves, recorded=True),
    "europe-maps": Picture(("europe-given",), maps),
    "multi30k-alignment": Picture(("multi30k-rnn-additive-given",), alignment),
    "flowers-augmentation": Picture(("flowers-vit-given",), augmentation, "png"),
    "flowers-before-after": Picture(("flowers-vit-frozen", "flowers-vit-tuned"), before_and_after),
    "imdb-fills": Picture(("imdb-mlm-given",), fills),
    "countries-neighbors": Picture(("countries-word2vec-given",), neighbors),
    "flowers-ladder-maps": Picture(
        ("flowers-ladder-backbone/baseline", "flowers-ladder-backbone/strong"),
        by_two_arms,
        section="ViT explanations without and with augmentation\n\n"
        "Rollout of [CLS] and occlusion by patch, for two variants of the study `flowers-ladder-backbone`: the plots of\n"
        "[row 11](results/row-11.md).",
    ),
}


def block(name: str, picture: Picture, drawn: Drawn) -> str:
    """What stands on the page for a picture."""
    return f"![{drawn.alt}](gallery/{name}.{picture.ending})\n\n{drawn.caption}\n"


def with_block(page: str, name: str, text: str) -> str:
    """The page with another block between the marks of a picture, added where the picture has a section."""
    mark = re.compile(MARK.format(re.escape(name)), re.DOTALL)
    if not mark.search(page) and (section := PICTURES[name].section if name in PICTURES else ""):
        page = f"{page.rstrip()}\n\n### {section}\n\n<!-- picture: {name} -->\n<!-- end -->\n"
    if not mark.search(page):
        raise InputError(f"no <!-- picture: {name} -->", where=PAGE.name, fix="Put it where it belongs")
    return mark.sub(lambda found: found[1] + text + found[2], page)


def make(name: str, runs: Sequence[Path]) -> tuple[bytes, str]:
    """A picture's bytes and its block on the page; an error where it cannot be drawn or is too large."""
    picture = PICTURES[name]
    if picture.recorded:
        found = [GalleryRun.published(recipe) for recipe in picture.recipes]
    else:
        found = [GalleryRun.of(find_run(recipe, runs)) for recipe in picture.recipes]
    drawn = picture.draw(*found)
    if len(drawn.content) > MOST:
        raise InputError(f"{name} has {len(drawn.content):,} bytes, at most {MOST:,} are committed")
    return drawn.content, block(name, picture, drawn)


def main() -> None:
    args = parse(
        __doc__,
        runs=([Path("runs")], "folders of run folders"),
        only=dict(nargs="*", choices=list(PICTURES), metavar="NAME", help=", ".join(PICTURES)),
    )
    FOLDER.mkdir(exist_ok=True)
    page = PAGE.read_text(encoding="utf-8")
    for name in args.only or [n for n, p in PICTURES.items() if not p.section or f"picture: {n} " in page]:
        try:
            content, text = make(name, args.runs)
            page = with_block(PAGE.read_text(encoding="utf-8"), name, text)
        except GlassformerError as error:
            raise SystemExit(f"{name}: {error}") from None
        path = FOLDER / f"{name}.{PICTURES[name].ending}"
        path.write_bytes(content)
        PAGE.write_text(page, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
