"""The page of an explanation: its numbers, its policy, and what a browser does with it."""

import base64
import hashlib
import json
import re
import shutil

import numpy as np
import pytest

from glassformer.explain.render import Explanation, page
from glassformer.explain.view import certainty, view_of

HOSTILE = (
    '<script>alert(1)</script> "><img src=x onerror=alert(1)> </script><script>alert(1)</script> '
    "</style></title><svg onload=alert(1)> {{ 7 * 7 }}{% raw %} javascript:alert(1)// "
    "\u2028\u2029\x00\x1b[31m\u202e <!--<script> ' autofocus onfocus=alert(1) x=' "
    "]]><a href=javascript:alert(1)>x</a> &lt;script&gt;"
)


def made(text="A wonderful film .", layers=3, heads=2, **changes):
    words = [(m.start(), m.end()) for m in re.finditer(r"\S+", text)]
    offsets = [(0, 0), *words, (0, 0)]
    tokens = ["[CLS]", *(text[a:b] for a, b in words), "[SEP]"]
    rng = np.random.default_rng(0)
    values = {"scores": rng.normal(size=len(tokens)), "label": "pos", "probability": 0.93, "target": "pos"}
    values |= {"maps": rng.dirichlet(np.ones(len(tokens)), (layers, heads, len(tokens)))}
    return Explanation(text, tokens, offsets, **({"method": "occlusion"} | values | changes))


def picture(**changes):
    rng = np.random.default_rng(1)
    values = dict(
        image=rng.integers(0, 255, (20, 28, 3)).astype(np.uint8),
        scores=rng.normal(size=(5, 7)),
        maps=rng.dirichlet(np.ones(36), (3, 2, 36)),
    )
    values |= dict(label="cat", probability=0.9, method="occlusion", target="cat")
    return Explanation("", [], [], **(values | changes))


def decode(text, *shape):
    return ((np.frombuffer(base64.b64decode(text), np.uint8) / 255.0) ** 2).reshape(shape)


def test_numbers_of_a_text():
    e = made()
    view = view_of(e)
    assert view.data["shape"] == [3, 2, 6]
    np.testing.assert_allclose(view.data["scores"], e.scores, rtol=1e-4)
    np.testing.assert_allclose(decode(view.data["pairs"], 3, 2, 6, 6), e.maps, atol=0.01)
    np.testing.assert_allclose(decode(view.data["rows"], 3, 2, 6), e.maps[:, :, 0], atol=0.01)
    assert "".join(p.before + p.text for p in view.pieces if not p.special).strip() == e.text
    strongest = int(np.abs(e.scores).argmax())
    assert view.pieces[strongest].shade == ("h10" if e.scores[strongest] > 0 else "n10")
    # long texts keep the mean over heads, or no words at all
    e = made(text=" ".join(f"w{i}" for i in range(43)))
    assert view_of(e).data["pairHeads"] == 2
    assert view_of(e, max_pairs=3 * 45 * 45 * 4 // 3 + 1).data["pairHeads"] == 1
    assert view_of(e, max_pairs=100).data["pairHeads"] == 0


def test_numbers_of_a_picture():
    e = picture()
    view = view_of(e)
    assert len(view.patches) == 35
    assert [p.text for p in view.pieces] == ["[CLS]"]
    assert view.data["shape"] == [3, 2, 36]
    np.testing.assert_allclose(view.data["scores"][1:], e.scores.ravel(), rtol=1e-4)
    last = view.patches[-1]
    assert (last.x + last.width, last.y + last.height) == (28, 20)
    assert view.picture.startswith("data:image/png;base64,")
    html = e._repr_html_()
    assert html.count("<rect") == 35
    assert "<script" not in html


def test_scores_alone_make_a_page():
    html = page([made(maps=None)])
    assert "The image is gray" not in html
    assert page([picture()]).count("The image is gray, so that the colors of the scores") == 1
    data = json.loads(re.search(r'id="maps">(.*?)</script>', html, re.DOTALL)[1])
    assert data[0]["shape"] == [0, 0, 6]
    assert data[0]["pairs"] == data[0]["rows"] == ""
    # what is not quite all is not a hundred per cent
    shown = "50.0 99.9 99.9 99.9 100.0".split()
    assert [certainty(share) for share in (0.5, 0.9994, 0.99951, 0.9999999, 1.0)] == shown
    assert "pos at 99.9 %" in page([made(probability=0.9999)])
    assert "99.9 %" in made(probability=0.9999)._repr_html_()


def test_the_policy_admits_what_is_shipped_and_nothing_else():
    html = page([made(text=HOSTILE, label=HOSTILE, notes=[HOSTILE]), picture(label=HOSTILE)])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 1
    for text in (style, scripts[0]):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert html.count("<script") == 2  # the block of numbers is the other one
    assert not re.search(r"<[^>]*\s(on\w+|style)=", re.sub(r"(?s)<(script|style).*?</\1>", "", html))
    assert not re.search("[\x00\x1b\u202e]", html)


def test_a_page_of_pictures_speaks_of_patches():
    html = re.sub(
        r"(?s)<(script|style).*?</\1>", "", page([picture(name="a <b>.png", settings={"converged": True})])
    )
    assert "For a selected patch" in html
    assert "when the patch is masked" in html
    assert "a &lt;b&gt;.png" in html
    assert "converged yes" in html
    assert not re.search("words? |tokens? is", html)
    assert view_of(picture()).data["parts"] == "patches"
    text = page([made()])
    assert "For a selected word" in text
    assert "when the token is masked" in text


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = shutil.which("chromium") or pytest.skip("needs chromium")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page of explanations; the test fails where the browser has something to say."""
    said = []

    def open_page(*explanations, **options):
        (tmp_path / "page.html").write_text(page(explanations), encoding="utf-8")
        tab = browser.new_page(**options)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: said.append(dialog.message))
        tab.goto((tmp_path / "page.html").as_uri())
        return tab

    yield open_page
    assert said == []


def shares(tab):
    return tab.locator(".shares").first.inner_text().replace("\u202f", " ")


def test_layer_head_and_word_are_chosen_with_the_keyboard(opened):
    e = made()
    tab = opened(e)
    assert shares(tab) == view_of(e).caption  # the script's figures equal the page's own
    tab.locator("#layer").focus()
    tab.keyboard.press("End")  # the last layer
    tab.locator("#head").focus()
    tab.keyboard.press("End")
    assert tab.locator("#layer").input_value() == "2"
    assert tab.locator("#head").input_value() == "1"
    tab.locator(".w[tabindex='0']").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    row = e.maps[2, 1, 2]
    order = np.argsort(-row)
    assert shares(tab).startswith(f"“wonderful” reads: {e.tokens[order[0]]} ")
    word = tab.locator("article.map .w").nth(int(order[0]))
    assert abs(float(word.get_attribute("title").split("\u202f")[0]) - 100 * row[order[0]]) < 0.5
    assert tab.locator("article.map .w").nth(2).get_attribute("aria-pressed") == "true"
    tab.select_option("#direction", "to")
    column = e.maps[2, 1, :, 2]
    assert shares(tab).startswith(f"“wonderful” is read by: {e.tokens[int(column.argmax())]} ")
    tab.locator("summary").first.click()
    tab.locator(".figures tbody tr").nth(5).wait_for()  # the event comes a moment later
    assert tab.locator(".figures tbody tr").count() == 6
    tab.locator("article.map .w").nth(2).focus()
    tab.keyboard.press("Escape")
    assert "words" in shares(tab)


def test_a_picture_s_patches_are_chosen_likewise(opened):
    e = picture()
    tab = opened(e, viewport={"width": 360, "height": 800}, color_scheme="dark")
    tab.select_option("#layer", "1")
    tab.locator("rect.w").nth(9).click()
    row = e.maps[1].mean(0)[10]
    best = int(row.argmax()) - 1
    name = "[CLS]" if best < 0 else f"row {best // 7 + 1}, column {best % 7 + 1}"
    assert shares(tab).startswith(f"“row 2, column 3” reads: {name} ")
    assert tab.evaluate("document.documentElement.scrollWidth") == 360


def test_hostile_text_stays_text(opened):
    tab = opened(made(HOSTILE, label=HOSTILE, target=HOSTILE, notes=[HOSTILE], settings={"by": HOSTILE}))
    assert "<script>alert(1)</script>" in tab.locator("blockquote").first.inner_text()
    tab.locator("article.map .w").nth(1).click()
    tab.locator("summary").first.click()
    assert tab.locator("img, iframe, a").count() == 0
    assert tab.evaluate("document.scripts.length") == 2
    assert "\u202e" not in tab.locator("blockquote").first.inner_text()
