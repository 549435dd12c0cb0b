"""Sheets of explanations as files: maps of heads, pictures under their scores."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from glassformer.errors import InputError
from glassformer.explain.render import Explanation
from glassformer.explain.svg_grids import heads, heat_colors, pictures, to_svg_file


def of_text(tokens=("[CLS]", "<a>", "b")) -> Explanation:
    maps = np.arange(2 * 2 * len(tokens) ** 2).reshape(2, 2, len(tokens), len(tokens)) / 100
    offsets = [(0, 0)] * len(tokens)
    return Explanation("a b", list(tokens), offsets, np.zeros(len(tokens)), "x", 0.5, "attention", maps=maps)


def of_picture(target=None, label="cat & dog") -> Explanation:
    image = np.full((5, 7, 3), (255, 0, 0), np.uint8)
    scores = np.array([[1.0, -2.0, 0.0]])
    return Explanation("", [], [], scores, label, 0.999, "occlusion", target, image=image, name="n.png")


def test_a_page_s_drawing_stands_alone():
    svg = to_svg_file(
        '<svg viewBox="0 0 30 20"><rect fill="var(--sheet, #ffffff)"/><text fill="var(--ink, #16212a)">x</text></svg>'
    )
    root = ET.fromstring(svg)
    ground, rect, text = root
    assert root.get("font-family") == "system-ui, sans-serif"
    assert (ground.get("width"), ground.get("height"), ground.get("fill")) == ("30", "20", "#ffffff")
    assert (rect.get("fill"), text.get("fill")) == ("#ffffff", "#16212a")
    with pytest.raises(ValueError, match="no viewBox"):
        to_svg_file("<svg></svg>")


def test_heads_have_a_map_each():
    root = ET.fromstring(heads(of_text()))
    shades = [e.get("fill-opacity") for e in root.iter() if e.get("fill-opacity")]
    assert shades == [f"{n / 100:.3f}" for n in range(18, 36)]  # the last layer, head by head, row by row
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert texts.count("<a>") == 3  # the rows once, the columns of each head
    assert "0.000" in heads(of_text(), layer=0)


def test_heat_is_signed_where_a_label_is_explained():
    signed = heat_colors(np.array([[1.0, -2.0, 0.0]]), signed=True)
    assert signed.shape == (1, 3, 4)
    assert signed[0, :, 3].tolist() == [100, 200, 0]
    assert signed[0, 0, :3].tolist() != signed[0, 1, :3].tolist()
    looked = heat_colors(np.array([[1.0, -2.0, 0.0]]), signed=False)
    assert looked[0, :, 3].tolist() == [200, 0, 133]
    assert heat_colors(np.zeros((2, 3)), signed=True)[..., 3].max() == 0


def test_a_row_a_picture_and_a_column_an_explanation():
    rows = [[of_picture(), of_picture("cat & dog")] for _ in range(3)]
    svg = pictures(rows, ["rollout\nbefore", "occlusion"], ["cat", "dog", "cow"])
    root = ET.fromstring(svg)
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert texts[:3] == ["rollout", "before", "occlusion"]
    assert texts.count("cat & dog 99.9 %") == 6
    assert {"cat", "dog", "cow"} < set(texts)
    assert len(re.findall(r"<image ", svg)) == 3 * (2 + 2)
    assert [e.get("id") for e in root.iter() if e.get("id")] == ["grey-0", "grey-1", "grey-2"]
    assert "n.png" in pictures(rows, ["a", "b"])


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: heads(of_picture()), "maps=True"),
        (lambda: heads(of_text(), layer=2), "no layer 2: the model has 2 layers"),
        (lambda: heads(of_text(["a"] * 65)), "65 tokens; at most 64"),
        (lambda: pictures([], ["a"], []), "0 rows"),
        (lambda: pictures([[of_picture()]], ["a", "b"], [""]), "2 titles"),
        (lambda: pictures([[of_text()]], ["a"], [""]), "of a text"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, said):
    with pytest.raises(InputError, match=said):
        draw()
