"""The pictures of docs/gallery.md, each from a finished run folder; no training happens here.

    .venv/bin/python -m benchmarks.pages.gallery [--runs FOLDER ...] [--only NAME ...]

A run of RECIPE is looked for as ``FOLDER/RECIPE-seed0``, ``FOLDER/RECIPE`` and so on, an arm of a study, STUDY/ARM, in the study's folder;
what the result file of a published run holds is drawn from that. The pictures go to ``docs/gallery/``. On the page, what stands between ``<!-- picture: NAME -->``
and ``<!-- end -->`` is written anew: the picture, its words for those who cannot see it, and a caption with recipe, seed and
figure, all read from the files of the run.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages import gallery_pictures as draw
from benchmarks.pages.gallery_runs import Drawn, GalleryRun, find_run
from glassformer.errors import GlassformerError, InputError

ROOT = Path(__file__).parents[2]
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
    "cifar10-grid": Picture(("cifar10-vit-stem",), draw.grid, "png"),
    "cifar10-confusion": Picture(("cifar10-vit-stem",), draw.confusion),
    "cifar10-curves": Picture(("cifar10-vit-stem",), draw.curves),
    "imdb-architecture": Picture(("imdb-encoder-small-given",), draw.architecture),
    "imdb-curves": Picture(("imdb-encoder-small-given",), draw.curves, recorded=True),
    "europe-maps": Picture(("europe-given",), draw.maps),
    "multi30k-alignment": Picture(("multi30k-rnn-additive-given",), draw.alignment),
    "flowers-augmentation": Picture(("flowers-vit-given",), draw.augmentation, "png"),
    "flowers-before-after": Picture(("flowers-vit-frozen", "flowers-vit-tuned"), draw.before_and_after),
    "imdb-fills": Picture(("imdb-mlm-given",), draw.fills),
    "countries-neighbors": Picture(("countries-word2vec-given",), draw.neighbors),
    "flowers-ladder-maps": Picture(
        ("flowers-ladder-backbone/baseline", "flowers-ladder-backbone/strong"),
        draw.by_two_arms,
        section="Where a ViT looks, trained without and with augmentation\n\n"
        "Rollout of [CLS] and occlusion by patch, of two arms of the study `flowers-ladder-backbone`: the pictures of\n"
        "[row 11](results/row-11.md).",
    ),
}


def block(name: str, picture: Picture, drawn: Drawn) -> str:
    """What stands on the page for a picture."""
    return f"```{{figure}} gallery/{name}.{picture.ending}\n:alt: {drawn.alt}\n\n{drawn.caption}\n```\n"


def with_block(page: str, name: str, text: str) -> str:
    """The page with another block between the marks of a picture, which it gets where the picture has a section.

    Raises:
        InputError: it has no such marks.
    """
    mark = re.compile(MARK.format(re.escape(name)), re.DOTALL)
    if not mark.search(page) and (section := PICTURES[name].section if name in PICTURES else ""):
        page = f"{page.rstrip()}\n\n### {section}\n\n<!-- picture: {name} -->\n<!-- end -->\n"
    if not mark.search(page):
        raise InputError(f"no <!-- picture: {name} -->", where=PAGE.name, fix="Put it where it belongs")
    return mark.sub(lambda found: found[1] + text + found[2], page)


def make(name: str, runs: Sequence[Path]) -> tuple[bytes, str]:
    """A picture's bytes and its block on the page.

    Raises:
        GlassformerError: a run is missing or cannot be drawn, or the picture is too large to be committed.
    """
    picture = PICTURES[name]
    found = [
        GalleryRun.published(recipe) if picture.recorded else GalleryRun.of(find_run(recipe, runs))
        for recipe in picture.recipes
    ]
    drawn = picture.draw(*found)
    if len(drawn.content) > MOST:
        raise InputError(f"{name} has {len(drawn.content):,} bytes, at most {MOST:,} are committed")
    return drawn.content, block(name, picture, drawn)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, nargs="+", default=[Path("runs")], help="folders of run folders")
    parser.add_argument("--only", nargs="*", choices=list(PICTURES), metavar="NAME", help=", ".join(PICTURES))
    args = parser.parse_args()
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
