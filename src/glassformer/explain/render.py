"""HTML of explanations.

``fragment`` returns HTML for notebooks, with inline styles and without scripts. ``page`` returns a
self-contained file. Its content security policy allows only the included style sheet and script. All texts,
labels and tokens are escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.data.text_pairs import SEPARATOR
from glassformer.explain.cross import cross_heatmaps
from glassformer.explain.result import ABOUT, Result
from glassformer.explain.view import certainty, inert, view_of
from glassformer.finite import json_text
from glassformer.outputs import check_page_path, write_text

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
SCORES_STROKE = 'stroke="rgb(214 140 30)" stroke-width="2"'
RANDOM_STROKE = 'stroke="currentColor" stroke-opacity="0.6" stroke-dasharray="3 3"'


def fragment(explanation: Result) -> str:
    """HTML for a notebook: the text with words highlighted by their scores, or the image."""
    e = explanation
    method = escape(e.method.replace("_", " "))
    probability = "" if e.number else f" {certainty(e.probability)} %"
    head = f"<b>{escape(str(e.label))}</b>{probability} &middot; {method}"
    if e.target is not None:
        head += f" for <b>{escape(str(e.target))}</b>"
    if e.of_target is not None:
        head += f" at {certainty(e.of_target)} %"
    if e.error is not None:
        head += f" &middot; error {e.error:.1e}"
    notes = "".join(f"<p>{escape(note)}</p>" for note in e.notes)
    body = _image_html(e) if e.image is not None else _text_html(e)
    curves = faithfulness_svg(e.trust) if e.trust is not None else ""
    return f'<div style="line-height:1.7;max-width:70ch"><div>{head}</div>{body}{notes}{curves}</div>'


def faithfulness_svg(trust: dict[str, Any]) -> str:
    """The curves of ``faithfulness.check_faithfulness`` as two SVGs.

    The curve of the explanation is solid, the curve of random orders is dashed.
    """
    low, high, quantity = 0.0, 1.0, "probability"
    random = trust["random"]
    if trust.get("number"):
        quantity = "number"
        values = [*trust["deletion"], *trust["insertion"], *random["deletion"], *random["insertion"]]
        low, high = min(values), max(values)
    svgs = ""
    for name, what in (("deletion", "first parts hidden"), ("insertion", "only first parts shown")):
        lines = ""
        for values, stroke in ((random[name], RANDOM_STROKE), (trust[name], SCORES_STROKE)):
            points = " ".join(
                f"{24 + 180 * x:.1f},{104 - 88 * (y - low) / ((high - low) or 1.0):.1f}"
                for x, y in zip(trust["shares"], values, strict=True)
            )
            lines += f'<polyline points="{points}" fill="none" {stroke}/>'
        svgs += (
            '<svg viewBox="0 0 230 122" width="230" role="img" font-size="10" fill="currentColor" '
            f'aria-label="The {quantity} in the {name} test ({what}), compared with {trust["draws"]} random '
            f'orders (dashed)">{lines}'
            '<path d="M24 16V104H204" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
            f'<text x="24" y="10">{name}: {what}</text>'
            f'<text x="20" y="20" text-anchor="end">{high:.3g}</text>'
            f'<text x="20" y="106" text-anchor="end">{low:.3g}</text>'
            '<text x="24" y="118">0 %</text><text x="204" y="118" text-anchor="end">100 %</text></svg>'
        )
    return svgs


def _text_html(e: Result) -> str:
    highest = max(float(abs(e.scores).max()), 1e-12)
    parts, end = [], 0
    for token, (start, stop), score in zip(e.tokens, e.offsets, e.scores, strict=True):
        start = max(start, end)  # tokens that are bytes of one character have the same offsets
        if stop <= start:  # special tokens are not part of the text
            continue
        strength = abs(float(score)) / highest
        hue = "214 140 30" if score >= 0 else "60 110 200"
        parts.append(_between(e, end, start))
        parts.append(
            f'<span title="{escape(token)}: {float(score):.4f}" style="background:rgb({hue} / '
            f"{strength:.2f});"
            f'border-radius:3px">{escape(e.text[start:stop])}</span>'
        )
        end = stop
    return f"<p>{''.join(parts)}{escape(e.text[end:])}</p>"


def _between(e: Result, start: int, stop: int) -> str:
    """The text between two words; the texts of a pair are on separate lines."""
    text = escape(e.text[start:stop])
    return text if e.sides is None else text.replace(SEPARATOR, "<br>")


def _image_html(e: Result) -> str:
    view = view_of(e, max_pairs=0)
    width, height = view.size
    colors = {"h": "rgb(255 178 0)", "n": "rgb(60 110 200)"}  # positive and negative scores
    cells = "".join(
        f'<rect x="{p.x:g}" y="{p.y:g}" width="{p.width:g}" height="{p.height:g}" '
        f'fill="{colors[p.shade[0]]}" fill-opacity="{0.075 * int(p.shade[1:]):.3f}"/>'
        for p in view.patches
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{max(width, 224)}" role="img">'
        f'<image href="{view.picture}" width="{width}" height="{height}"/>{cells}</svg>'
    )


def page(explanations: Sequence[Result], title: str = "") -> str:
    """An HTML page with explanations of one model.

    Args:
        title: heading; empty: the first label and its probability.
    """
    from markupsafe import Markup

    css, script = asset("page.css"), asset("attention.js")
    views = [view_of(e) for e in explanations]
    has_maps = any(view.data["shape"][0] for view in views)
    return (
        environment(TEMPLATES)
        .get_template("explanation.html.j2")
        .render(
            css=Markup(css),
            script=Markup(script),
            policy=policy(css, script, pictures=any(v.picture for v in views)),
            title=title or _title(explanations[0]),
            views=views,
            shown=list(zip(explanations, views, strict=True)),
            has_maps=has_maps,
            about=ABOUT,
            crossed=[
                [(title, Markup(svg)) for title, svg in (cross_heatmaps(e.cross) if e.cross else [])]
                for e in explanations
            ],
            curves=[Markup(faithfulness_svg(e.trust)) if e.trust is not None else "" for e in explanations],
        )
    )


def _title(e: Result) -> str:
    """The predicted number, or the label and its probability."""
    return str(e.label) if e.number else f"{e.label} at {certainty(e.probability)} %"


@cache
def asset(name: str) -> str:
    """The contents of a style sheet or script."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def environment(*folders: Path) -> Environment:
    """The Jinja environment for these folders; every value is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    jinja = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters["inert"] = lambda value: inert(str(value))
    jinja.filters["certainty"] = certainty
    return jinja


def policy(css: str, script: str, *, pictures: bool = False) -> str:
    """A content security policy that allows only this style sheet and this script."""
    style, code = (
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for text in (css, script)
    )
    images = " img-src data:;" if pictures else ""
    allowed = f"style-src {style}; script-src {code}"
    return f"default-src 'none';{images} {allowed}; base-uri 'none'; form-action 'none'"


# --- the public result ----------------------------------------------------------------------------


@dataclass
class Explanation(Result):
    """The result of every attribution method; see ``Result`` for the fields."""

    def save(self, path: str | Path) -> Path:
        """Write ``.json`` (scores) or ``.html`` (a self-contained page, with attention maps if available)."""
        path = check_page_path(path)
        if path.suffix.lower() == ".json":
            text = json_text(self.to_dict(), indent=2, ascii=True) + "\n"
        else:
            text = page([self])
        write_text(path, text)
        return path

    def _repr_html_(self) -> str:
        return fragment(self)
