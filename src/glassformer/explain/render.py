"""Explanations as HTML; text is data and is escaped everywhere."""

from __future__ import annotations

from html import escape

from glassformer.explain.result import Explanation


def text_html(explanation: Explanation) -> str:
    """The text with each token on a background as strong as its score; hovering shows the figure."""
    e = explanation
    highest = max(float(abs(e.scores).max()), 1e-12)
    parts, end = [], 0
    for token, (start, stop), score in zip(e.tokens, e.offsets, e.scores, strict=True):
        if stop <= start:
            continue  # a special token stands nowhere in the text
        strength = abs(float(score)) / highest
        hue = "214 140 30" if score >= 0 else "60 110 200"
        parts.append(escape(e.text[end:start]))
        parts.append(
            f'<span title="{escape(token)}: {float(score):.4f}" style="background:rgb({hue} / {strength:.2f});'
            f'border-radius:3px">{escape(e.text[start:stop])}</span>'
        )
        end = stop
    parts.append(escape(e.text[end:]))
    head = f"<b>{escape(str(e.label))}</b> {e.probability:.1%} &middot; {escape(e.method)}"
    return f'<div style="line-height:1.7;max-width:70ch"><div>{head}</div><p>{"".join(parts)}</p></div>'
