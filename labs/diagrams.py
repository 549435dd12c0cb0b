"""Diagrams of the labs, drawn by code: SVG in one style, for light and dark pages.

    python labs/diagrams.py [--check]      writes docs/_static/diagrams/*.svg and the slides, docs/_static/slides.html

A diagram is a function that draws on a ``Sheet``; its docstring is the caption. Numbers in a diagram are computed here.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

STATIC = Path(__file__).resolve().parents[1] / "docs" / "_static"
FOLDER = STATIC / "diagrams"
WIDTH = 800  # of every diagram, in units of its viewBox

# Kinds of boxes: n neutral, a blue (queries, what reads), b red (keys, what is read), c green (values, results).
STYLE = """
.card{fill:#fbfcfe;stroke:#d7dee7} text{fill:#23303d} .muted{fill:#566270} .bold{font-weight:600}
.n{fill:#eef1f5;stroke:#8793a0} .a{fill:#dbe7f5;stroke:#2f6db5} .b{fill:#f8e1da;stroke:#c8553d} .c{fill:#ddeee1;stroke:#4f8a5b}
.cell{fill:#2f6db5;stroke:#8793a0;stroke-width:.6} .lit{fill:#fff} .line{stroke:#566270;fill:none} .tip{fill:#566270}
@media (prefers-color-scheme:dark){
.card{fill:#161c24;stroke:#3a4654} text{fill:#e6ebf1} .muted{fill:#a9b4c0}
.n{fill:#242d38;stroke:#76828f} .a{fill:#1d3550;stroke:#78aee6} .b{fill:#4a2a22;stroke:#e59580} .c{fill:#203d29;stroke:#86c795}
.cell{fill:#5b9bdf;stroke:#76828f} .lit{fill:#0d1218} .line{stroke:#a9b4c0} .tip{fill:#a9b4c0}}
""".strip()


class Sheet:
    """What a diagram draws on: boxes, texts, arrows and grids at places in pixels from the upper left corner."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, size: float = 15, kind: str = "", anchor: str = "middle"
    ) -> None:
        """One line of text, ``y`` its middle."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y + 0.35 * size:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
            f"{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{escape(words)}</text>"
        )

    def box(
        self, x: float, y: float, w: float, h: float, words: str = "", kind: str = "n", size: float = 15
    ) -> None:
        """A box with its text in the middle, a line for each ``\\n``."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="5" class="{kind}"/>'
        )
        lines = words.split("\n") if words else []
        for i, line in enumerate(lines):
            self.text(x + w / 2, y + h / 2 + (i - (len(lines) - 1) / 2) * size * 1.2, line, size=size)

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """A line through the points with a tip at the last one."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{path}" class="line" stroke-width="1.4"{dash} marker-end="url(#tip)"/>'
        )

    def grid(self, x: float, y: float, shares: Sequence[Sequence[float]], side: float, *, numbers: bool = False) -> None:  # fmt: skip
        """Squares as dark as their number from 0 to 1; ``numbers`` writes those above 0 into them."""
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                at_x, at_y = x + side * j, y + side * i
                self.parts.append(
                    f'<rect x="{at_x:.1f}" y="{at_y:.1f}" width="{side:g}" height="{side:g}" class="cell" fill-opacity="{share:.2f}"/>'
                )
                if numbers and share > 0:
                    self.text(at_x + side / 2, at_y + side / 2, f"{share:.2f}".lstrip("0"), size=0.34 * side,
                              kind="lit" if share > 0.55 else "")  # fmt: skip

    def svg(self, height: int, caption: str) -> str:
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
            f' font-family="ui-sans-serif, system-ui, sans-serif">',
            f"<title>{escape(caption)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0.5 L8,4 L0,7.5 z" class="tip"/></marker></defs>',
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10" class="card"/>',
            *self.parts,
            "</svg>\n",
        ])  # fmt: skip


def softmax(scores: Sequence[float]) -> list[float]:
    exponentials = [math.exp(s) for s in scores]
    return [e / sum(exponentials) for e in exponentials]


def row_of(seed: int, width: int = 6) -> list[list[float]]:
    """A row of numbers from 0.05 to 0.95 that looks like an embedding, one below the other; the same for the same seed."""
    return [[0.05 + 0.9 * ((seed * 37 + i * 53 + seed * i * 11) % 97) / 97] for i in range(width)]


def text_to_rows(s: Sheet) -> int:
    """A text becomes tokens, tokens become ids, and each id picks a row of a table."""
    tokens = ["the", "story", "is", "not", "dull", "."]
    ids = [2, 65, 9, 24, 751, 3]  # of lab 0's vocabulary
    s.text(24, 30, "“The story is not dull.”", size=17, anchor="start")
    for y, name in ((72, "tokens"), (112, "ids"), (188, "rows [T, D]")):
        s.text(24, y, name, size=14, kind="muted", anchor="start")
    for i, (token, number) in enumerate(zip(tokens, ids, strict=True)):
        x = 160 + 90 * i
        s.box(x, 56, 78, 30, token, "a")
        s.text(x + 39, 112, str(number))
        s.grid(x + 32, 146, row_of(number), 14)
        s.arrow((x + 39, 122), (x + 39, 142))
    return 252


def queries_keys_values(s: Sheet) -> int:
    """The query of “film” is compared with every key; the softmax of the scores gives weights; the output is the weighted mean of the values."""
    words, query, keys = ["a", "dull", "film"], (1.0, 2.0), [(1.0, 0.0), (2.0, 1.0), (0.0, 1.0)]
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(2) for key in keys]
    weights = softmax(scores)
    for x, name in ((72, "row"), (212, "query, key, value"), (420, "q · k / √K"), (545, "softmax"), (700, "output")):  # fmt: skip
        s.text(x, 28, name, size=14, kind="muted")
    for i, (word, key) in enumerate(zip(words, keys, strict=True)):
        y = 50 + 92 * i
        s.box(24, y + 14, 96, 44, word, "n", 17)
        if word == "film":
            s.box(150, y - 8, 150, 26, f"q = ({query[0]:g}, {query[1]:g})", "a", 14)
        s.box(150, y + 22, 150, 26, f"k = ({key[0]:g}, {key[1]:g})", "b", 14)
        s.box(150, y + 52, 150, 26, f"v of “{word}”", "c", 14)
        s.arrow((122, y + 36), (146, y + 36))
        s.box(380, y + 14, 80, 44, f"{scores[i]:.2f}", "n", 17)
        s.arrow((302, y + 35), (376, y + 35))
        s.box(505, y + 14, 80, 44, f"{weights[i]:.2f}", "a", 17)
        s.arrow((462, y + 36), (501, y + 36))
        s.arrow((588, y + 36), (636, 170))
    s.box(640, 140, 136, 60, " + ".join(f"{w:.2f} v" for w in weights[:2]) + f"\n+ {weights[2]:.2f} v", "c")
    s.text(
        400,
        338,
        "every row asks with its own query in the same way; K: how many numbers a query and a key have",
        size=14,
    )
    return 368


def heads(s: Sheet) -> int:
    """Queries, keys and values are cut into pieces; each head attends with its own piece; the outputs are joined and projected."""
    s.box(24, 120, 90, 100, "rows\n[T, D]", "n")
    s.box(150, 120, 100, 100, "W_Q, W_K,\nW_V", "a")
    s.arrow((116, 170), (146, 170))
    maps = (
        [[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
        [[0.3, 0.3, 0.4], [0.4, 0.2, 0.4], [0.3, 0.4, 0.3]],
        [[0.1, 0.1, 0.8], [0.1, 0.8, 0.1], [0.8, 0.1, 0.1]],
    )
    for h, shares in enumerate(maps):
        y = 30 + 100 * h
        s.text(360, y + 8, f"head {h + 1}: map [T, T]", size=13, kind="muted")
        s.grid(330, y + 20, shares, 20)
        s.arrow((252, 170), (324, y + 50))
        s.arrow((394, y + 50), (496, 170))
    s.box(500, 110, 90, 120, "side\nby side\n[T, D]", "c")
    s.box(626, 130, 60, 80, "W_O", "a")
    s.box(716, 130, 66, 80, "[T, D]", "n")
    s.arrow((592, 170), (622, 170))
    s.arrow((688, 170), (712, 170))
    s.text(
        400,
        346,
        "3 heads: each reads its own D/3 numbers of every query, key and value, so the maps differ",
        size=14,
    )
    return 372


def encoder_layer(s: Sheet) -> int:
    """One layer, in its two orders: pre-norm normalizes what a branch reads, post-norm normalizes the sum."""
    for x, name, order in (
        (60, "pre-norm (ViT, the labs)", ("norm", "attention", "+", "norm", "feed-forward", "+")),
        (440, "post-norm (BERT, 2017)", ("attention", "+", "norm", "feed-forward", "+", "norm")),
    ):
        s.text(x + 150, 28, name, size=15, kind="bold")
        s.text(x + 150, 470, "rows [N, D]", size=14)
        at, before = 446.0, 458.0
        branch = before  # where the residual connection leaves
        for part in order:
            y = at - 52
            if part == "+":
                s.box(x + 132, y + 6, 36, 30, "+", "c", 18)
                s.arrow((x + 150, before - 6), (x + 150, y + 38))
                s.arrow(
                    (x + 150, branch - 8),
                    (x + 20, branch - 8),
                    (x + 20, y + 21),
                    (x + 130, y + 21),
                    dashed=True,
                )
                at, before = y + 2, y + 6
                branch = before
            else:
                kind = {"norm": "n", "attention": "a"}.get(part, "b")
                s.box(x + 70, y + 4, 160, 36, part, kind)
                s.arrow((x + 150, before - 2), (x + 150, y + 42))
                at, before = y, y + 4
                if part == "norm" and name.startswith("post"):
                    branch = before
        s.arrow((x + 150, before), (x + 150, before - 34))
        s.text(x + 150, before - 46, "rows [N, D]", size=14)
    s.text(
        400,
        500,
        "dashed: the residual connection, which lets a row pass as it is",
        size=13,
        kind="muted",
    )
    return 522


def masks(s: Sheet) -> int:
    """The same scores under three masks: what a mask hides gets the weight 0, and the rest of the row shares its weight."""
    scores = [
        [1.0, 0.2, 0.4, 0.9, 0.1],
        [0.3, 1.2, 0.8, 0.2, 0.6],
        [0.9, 0.1, 1.1, 0.5, 0.3],
        [0.2, 0.7, 0.6, 1.3, 0.4],
        [0.5, 0.4, 0.9, 0.3, 1.0],
    ]
    kinds: tuple[tuple[str, Callable[[int, int], bool], str], ...] = (
        ("no mask", lambda i, j: True, "an encoder"),
        ("causal", lambda i, j: j <= i, "a decoder: nothing later"),
        ("padding", lambda i, j: j < 3, "2 of 5 tokens are [PAD]"),
    )
    for n, (name, sees, why) in enumerate(kinds):
        x = 40 + 250 * n
        shares = []
        for i, row in enumerate(scores):
            seen = softmax([v for j, v in enumerate(row) if sees(i, j)])
            shares.append(seen + [0.0] * (5 - len(seen)))
        s.text(x + 105, 28, name, size=16, kind="bold")
        s.grid(x, 50, shares, 42, numbers=True)
        s.text(x + 105, 282, why, size=14, kind="muted")
    s.text(400, 316, "rows ask, columns are read; each row sums to 1", size=14)
    return 342


def skip_gram(s: Sheet) -> int:
    """The center word is pulled towards words of its window and pushed away from words drawn at random."""
    words = ["paris", "is", "the", "capital", "of", "france"]
    for i, word in enumerate(words):
        kind = "a" if word == "capital" else "c" if abs(i - 3) <= 2 else "n"
        s.box(40 + 124 * i, 30, 108, 36, word, kind, 16)
    s.text(400, 92, "window 2: “is”, “the”, “of” and “france” are contexts of “capital”", size=14, kind="muted")  # fmt: skip
    s.box(346, 190, 108, 44, "capital", "a", 17)
    for y, word in ((150, "france"), (230, "of")):
        s.box(60, y, 108, 36, word, "c", 16)
        s.arrow((342, 212), (172, y + 18))
    for y, word in ((120, "tea"), (190, "king"), (260, "wool")):
        s.box(640, y, 108, 36, word, "b", 16)
        s.arrow((458, 212), (636, y + 18), dashed=True)
    s.text(256, 160, "pull: - log σ(v·u)", size=14)
    s.text(548, 292, "push: - log σ(-v·u)", size=14)
    s.text(400, 326, "negatives are drawn in proportion to (number of occurrences) to the power 0.75", size=14, kind="muted")  # fmt: skip
    return 350


def recurrent_cell(s: Sheet) -> int:
    """A recurrent cell makes the next state from the last state and one word; unrolled, it is the same cell at every word."""
    s.text(190, 28, "the cell", size=16, kind="bold")
    s.box(40, 130, 60, 44, "hₜ₋₁", "n", 17)
    s.box(150, 240, 60, 44, "xₜ", "a", 17)
    s.box(140, 132, 80, 40, "+  b", "n", 17)
    s.box(250, 132, 66, 40, "tanh", "c", 16)
    s.box(350, 130, 50, 44, "hₜ", "n", 17)
    s.arrow((102, 152), (136, 152))
    s.text(120, 132, "W_h", size=13, kind="muted")
    s.arrow((180, 238), (180, 176))
    s.text(200, 208, "W_x", size=13, kind="muted")
    s.arrow((222, 152), (246, 152))
    s.arrow((318, 152), (346, 152))
    s.text(610, 28, "unrolled over a sentence", size=16, kind="bold")
    s.box(438, 132, 36, 40, "0", "n")
    for i, word in enumerate(("the", "cat", "sleeps")):
        x = 500 + 96 * i
        s.box(x, 132, 64, 40, "cell", "c")
        s.box(x - 4, 240, 72, 40, word, "a")
        s.arrow((x + 32, 238), (x + 32, 176))
        s.arrow((x - 24 if i == 0 else x - 30, 152), (x - 4, 152))
    s.arrow((758, 152), (782, 152))
    s.text(610, 90, "the last state has to hold the whole sentence", size=14, kind="muted")
    return 310


def encoder_decoder(s: Sheet) -> int:
    """Without attention the decoder starts from one vector; with attention it reads every encoder state again for each word."""
    for y, name in ((40, "one thought vector"), (260, "with attention")):
        s.text(24, y, name, size=16, kind="bold", anchor="start")
        for i, word in enumerate(("old", "cat", "sleeps")):
            s.box(40 + 110 * i, y + 100, 90, 34, word, "a")
            s.box(40 + 110 * i, y + 40, 90, 34, f"h{'₁₂₃'[i]}", "b")
            s.arrow((85 + 110 * i, y + 98), (85 + 110 * i, y + 78))
            if i:
                s.arrow((22 + 110 * i, y + 57), (38 + 110 * i, y + 57))
        for i, word in enumerate(("dormas", "kato", "olda")):
            s.box(450 + 110 * i, y + 40, 90, 34, f"s{'₁₂₃'[i]}", "c")
            s.box(450 + 110 * i, y - 14, 90, 34, word, "n")
            s.arrow((495 + 110 * i, y + 38), (495 + 110 * i, y + 24))
            if i:
                s.arrow((432 + 110 * i, y + 57), (448 + 110 * i, y + 57))
        s.arrow((352, y + 57), (446, y + 57))
    s.text(400, 84, "h₃ alone", size=13, kind="muted")
    for i in range(3):  # what s₂ reads
        s.arrow((85 + 110 * i, 298), (85 + 110 * i, 288), (575, 288), (575, 298), dashed=True)
    s.text(605, 352, "s₂ reads h₁ to h₃", size=13, kind="muted")
    return 412


def cross_attention(s: Sheet) -> int:
    """In a decoder layer the queries come from the target and the keys and values from the source."""
    s.box(24, 60, 150, 50, "target rows [T, D]", "a")
    s.box(24, 220, 150, 50, "memory [S, D]\n(source rows)", "b", 14)
    s.box(224, 60, 90, 50, "W_Q", "n")
    s.box(224, 200, 90, 40, "W_K", "n")
    s.box(224, 250, 90, 40, "W_V", "n")
    s.arrow((176, 85), (220, 85))
    s.arrow((176, 240), (220, 220))
    s.arrow((176, 250), (220, 270))
    s.grid(420, 92, [[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]], 46, numbers=True)
    s.arrow((316, 85), (414, 120))
    s.arrow((316, 220), (414, 190))
    s.text(490, 72, "weights [T, S]", size=14, kind="muted")
    s.text(490, 212, "here T = 2, S = 3", size=13, kind="muted")
    s.arrow((316, 270), (640, 270), (640, 202))
    s.arrow((562, 160), (606, 160))
    s.box(610, 124, 160, 74, "weighted means of\nvalues [T, D]", "c")
    s.text(
        400, 320, "T is the length of the target, S that of the source: the map need not be square", size=14
    )
    return 346


def teacher_forcing(s: Sheet) -> int:
    """In training the decoder reads the true words, shifted by one place, and is asked for the next; at use it reads its own words."""
    s.text(24, 30, "training: all places at once", size=15, kind="bold", anchor="start")
    for i, (read, asked) in enumerate(
        zip(("[BOS]", "dormas", "kato", "olda"), ("dormas", "kato", "olda", "[EOS]"), strict=True)
    ):
        x = 60 + 176 * i
        s.box(x, 116, 120, 36, read, "a", 16)
        s.box(x, 52, 120, 36, asked, "c", 16)
        s.arrow((x + 60, 114), (x + 60, 92))
    s.text(24, 196, "use: one place after the other", size=15, kind="bold", anchor="start")
    for i, (read, said) in enumerate(zip(("[BOS]", "dormas", "kato"), ("dormas", "kato", "olda"), strict=True)):  # fmt: skip
        x = 60 + 176 * i
        s.box(x, 288, 120, 36, read, "a", 16)
        s.box(x, 224, 120, 36, said, "c", 16)
        s.arrow((x + 60, 286), (x + 60, 264))
        s.arrow((x + 122, 242), (x + 148, 242), (x + 148, 306), (x + 172, 306), dashed=True)
    s.text(660, 306, "…", size=20)
    s.text(400, 354, "The causal mask makes the first possible: no place sees the words that it is asked for", size=14, kind="muted")  # fmt: skip
    return 380


def beam(s: Sheet) -> int:
    """A tree of words with the probability of each after the words before it; a sentence is worth the product along its path."""
    tree = {"a": (0.6, {"c": 0.45, "d": 0.55}), "b": (0.4, {"e": 1.0})}
    s.box(30, 140, 84, 40, "[BOS]", "n")
    y = 40.0
    for first, (p, nexts) in tree.items():
        at = y + 46 * (len(nexts) - 1)
        s.box(270, at, 84, 40, first, "a", 17)
        s.arrow((116, 160), (266, at + 20))
        s.text(196, (160 + at + 20) / 2 - 14, f"{p:g}", size=15)
        for word, q in nexts.items():
            s.box(510, y, 84, 40, word, "n", 17)
            s.arrow((356, at + 20), (506, y + 20))
            s.text(436, (at + y) / 2 + 4, f"{q:g}", size=15)
            s.text(612, y + 20, f"p = {p:g} × {q:g}", anchor="start")
            y += 92
    return 300


PIXELS = (  # a small handwritten 3, 8 x 8
    "........", "..####..", ".....##.", "...###..", ".....##.", ".....##.", ".#####..", "........",
)  # fmt: skip
OTHER = ("........", "...##...", "..##....", "..####..", "..#..##.", "..#..##.", "...###..", "........")


def pixels_of(rows: Sequence[str]) -> list[list[float]]:
    return [[0.9 if pixel == "#" else 0.06 for pixel in row] for row in rows]


def patches(s: Sheet) -> int:
    """An image is cut into patches; each patch is flattened and multiplied by one matrix; with [CLS] they are the rows."""
    image = pixels_of(PIXELS)
    s.text(124, 28, "8 × 8 pixels", size=14, kind="muted")
    s.grid(24, 46, image, 25)
    s.text(350, 28, "16 patches of 2 × 2", size=14, kind="muted")
    for r in range(4):
        for c in range(4):
            piece = [line[2 * c : 2 * c + 2] for line in image[2 * r : 2 * r + 2]]
            s.grid(256 + 50 * c, 46 + 50 * r, piece, 20)
    s.arrow((228, 146), (250, 146))
    s.arrow((456, 146), (486, 146))
    s.box(490, 116, 100, 60, "W\n[4, D]", "a")
    s.arrow((592, 146), (622, 146))
    s.box(626, 50, 150, 34, "[CLS]", "b")
    for i in range(4):
        s.box(626, 90 + 36 * i, 150, 32, ("patch 1", "patch 2", "…", "patch 16")[i], "c", 14)
    s.text(
        400,
        278,
        "(224 / 16)² = 196 patches and [CLS] make 197 rows; positions are added as for words",
        size=14,
    )
    return 304


def mixup(s: Sheet) -> int:
    """Two images become one, and so do their labels: mixup blends all pixels, CutMix puts a rectangle of one on the other."""
    three, six = pixels_of(PIXELS), pixels_of(OTHER)
    blended = [
        [0.7 * a + 0.3 * b for a, b in zip(first, second, strict=True)]
        for first, second in zip(three, six, strict=True)
    ]
    cut = [[*a[:4], *b[4:]] if i >= 4 else a for i, (a, b) in enumerate(zip(three, six, strict=True))]
    share = 1 - 4 * 4 / 64  # of the first image that is left
    for x, image, name, label in (
        (24, three, "a", "3"),
        (216, six, "b", "6"),
        (424, blended, "mixup, λ = 0.7", "3: 0.70, 6: 0.30"),
        (616, cut, "CutMix", f"3: {share:.2f}, 6: {1 - share:.2f}"),
    ):
        s.text(x + 80, 28, name, size=16, kind="bold")
        s.grid(x, 48, image, 20)
        s.text(x + 80, 232, label, size=15)
    s.text(200, 128, "+", size=22)
    s.arrow((382, 128), (416, 128))
    s.text(400, 270, "the label says how much of each image is left", size=14, kind="muted")
    return 296


def masked_words(s: Sheet) -> int:
    """15 % of the words are asked for: of these, 80 % are read as [MASK], 10 % as a random word, 10 % as they are."""
    true = ["paris", "is", "the", "capital", "of", "france"]
    read = ["paris", "is", "the", "[MASK]", "of", "tea"]
    for i, (a, b) in enumerate(zip(true, read, strict=True)):
        x = 40 + 124 * i
        s.box(x, 36, 108, 36, a, "c" if a in ("is", "capital", "france") else "n", 16)
        s.box(x, 112, 108, 36, b, "n" if a == b else "b", 16)
        s.arrow((x + 54, 74), (x + 54, 108))
    for i, (name, share, kind) in enumerate((("[MASK]", 0.8, "b"), ("a random word", 0.1, "b"), ("as it is", 0.1, "n"))):  # fmt: skip
        y = 190 + 44 * i
        s.text(190, y + 15, name, size=15, anchor="end")
        s.box(206, y, 500 * share, 30, "", kind)
        s.text(216 + 500 * share, y + 15, f"{share:.0%}", size=15, anchor="start")
    s.text(400, 346, "the loss asks for the green words; “is” was chosen and kept", size=14, kind="muted")  # fmt: skip
    return 372


def next_sentence(s: Sheet) -> int:
    """Two segments in one sequence; [CLS] must tell whether the second follows the first."""
    words = ["[CLS]", "tokyo", "is", "big", "[SEP]", "its", "park", "is", "old", "[SEP]"]
    for i, word in enumerate(words):
        x = 16 + 77 * i
        second = i > 4
        s.box(x, 110, 72, 36, word, "b" if second else "a", 14)
        s.text(x + 36, 170, "B" if second else "A", size=15)
        s.text(x + 36, 198, str(i), size=14, kind="muted")
    s.text(
        400, 224, "segment A or B and the position are added to the row of each token", size=14, kind="muted"
    )
    s.box(16, 36, 160, 40, "IsNext or NotNext?", "c")
    s.arrow((52, 108), (52, 80))
    s.text(520, 56, "half of the pairs get a second segment from another text", size=14)
    return 250


DIAGRAMS: dict[str, Callable[[Sheet], int]] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (text_to_rows, queries_keys_values, heads, encoder_layer, masks, skip_gram, recurrent_cell, encoder_decoder,
                 cross_attention, teacher_forcing, beam, patches, mixup, masked_words, next_sentence)
}  # fmt: skip


def caption(name: str) -> str:
    return " ".join((DIAGRAMS[name].__doc__ or "").split())


def svg(name: str) -> str:
    """The text of a diagram's file."""
    sheet = Sheet()
    return sheet.svg(DIAGRAMS[name](sheet), caption(name))


def slides() -> str:
    """One file with one diagram per screen: the space bar scrolls, printing gives a PDF."""
    parts = [
        f"<section><h2>{escape(name.replace('-', ' ').capitalize())}</h2>{svg(name)}"
        f"<p>{escape(caption(name))}</p></section>"
        for name in DIAGRAMS
    ]
    return "\n".join([
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        "<title>glassformer: diagrams of the course</title><style>",
        ":root{color-scheme:light dark;scroll-snap-type:y mandatory} body{margin:0;font:22px system-ui,sans-serif}",
        "section{height:100vh;box-sizing:border-box;padding:3vh 6vw;scroll-snap-align:start;display:flex;flex-direction:column;"
        "align-items:center;justify-content:center;break-after:page} svg{max-width:100%;max-height:70vh;width:1400px}",
        "h2,p{margin:1vh 0;text-align:center;max-width:44em}</style><body>",
        *parts,
        "</body></html>\n",
    ])  # fmt: skip


def files() -> dict[Path, str]:
    """Every file that this module writes, with its text."""
    return {FOLDER / f"{name}.svg": svg(name) for name in DIAGRAMS} | {STATIC / "slides.html": slides()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--check", action="store_true", help="change nothing, fail where one is out of date")
    check = parser.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    stale = [file for file, text in files().items() if not file.is_file() or file.read_text(encoding="utf-8") != text]  # fmt: skip
    for file in stale if not check else ():
        file.write_text(files()[file], encoding="utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(file.name for file in stale) or 'none'}")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
