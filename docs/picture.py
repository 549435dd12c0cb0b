"""The picture of the README: what each word gives to an answer, from a model that is trained here (seconds).

python docs/picture.py        writes docs/_static/prediction.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "labs"))
TEXT = "The story is not dull. The acting was very good."
FOR, AGAINST, INK, MUTED = (47, 109, 181), (200, 85, 61), "#23303d", "#6b7785"
METHODS = (("attention", "where it looked"), ("occlusion", "what is lost without the word"),
           ("integrated_gradients", "what the word gives to the answer"))  # fmt: skip
SIZE, LINE, LEFT = 19, 58, 24


def draw(rows: list[tuple[str, list[tuple[str, float]]]], label: str, probability: float) -> str:
    """Words on tinted grounds, a row a method: blue speaks for the answer, red against it."""
    height = 78 + LINE * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" '
        'font-family="ui-sans-serif, system-ui, sans-serif">',
        f'<rect width="640" height="{height}" rx="10" fill="#fbfcfe" stroke="#d7dee7"/>',
        f'<text x="{LEFT}" y="38" font-size="17" fill="{INK}">'
        f'The model says <tspan font-weight="700">{escape(label)}</tspan>, '
        f"{min(probability, 0.999):.1%} sure. Why?</text>",
    ]
    for i, (title, words) in enumerate(rows):
        y, x = 72 + LINE * i, float(LEFT)
        most = max(abs(score) for _, score in words)
        out.append(f'<text x="{LEFT}" y="{y}" font-size="12.5" fill="{MUTED}">{escape(title)}</text>')
        for word, score in words:
            width = 11 + 0.56 * SIZE * len(word)
            r, g, b = FOR if score >= 0 else AGAINST
            out.append(f'<rect x="{x:.1f}" y="{y + 8}" width="{width:.1f}" height="30" rx="5" '
            f'fill="rgb({r},{g},{b})" '
                       f'fill-opacity="{0.75 * abs(score) / most:.3f}"/>')  # fmt: skip
            dark = abs(score) / most > 0.75
            out.append(f'<text x="{x + width / 2:.1f}" y="{y + 29}" font-size="{SIZE}" text-anchor="middle" '
                       f'fill="{"#fff" if dark else INK}">{escape(word)}</text>')  # fmt: skip
            x += width + 5
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    from reviews import reviews

    import glassformer as gf

    texts, labels = reviews(3000)
    settings = dict(
        tokenizer="word", min_count=1, max_length=48, num_layers=2, epochs=16, lr=3e-3, batch_size=64
    )
    clf = gf.TextClassifier("encoder-mini", **settings, seed=0, threads=1)
    clf.fit(texts, labels)
    held = reviews(500, seed=1)
    print(f"accuracy on 500 unseen ones: {clf.score(*held):.1%}")
    found = [(title, clf.explain(TEXT, method=method)) for method, title in METHODS]
    names = {"pos": "positive", "neg": "negative"}
    first = found[0][1]
    rows = [(title, [(w, s) for w, s in e.words() if w != "."]) for title, e in found]
    for title, words in rows:
        print(title, [(w, round(s, 2)) for w, s in words])
    svg = draw(rows, names[str(first.label)], first.probability)
    (HERE / "_static" / "prediction.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
