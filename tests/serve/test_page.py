"""The page in a real browser: texts, pictures, explanations, keyboard, phone, dark, and nothing that runs from data."""

import base64
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.serve.limits import Limits
from glassformer.serve.models import load_models

from .conftest import CHROMIUM, EXAMPLES, PICTURES, Running, png

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]
INJECTIONS = [
    '<img src=x onerror="window.ran=1">',
    "<script>window.ran=1</script>",
    '"><svg onload="window.ran=1">',
    "javascript:window.ran=1",
    "\u202e</textarea><iframe srcdoc='<script>parent.ran=1</script>'>",
]


@pytest.fixture
def page(browser, server: Running, request) -> Iterator[Any]:
    """An open page that must not have said anything on the console by its end."""
    context = browser.new_context(**getattr(request, "param", {"viewport": {"width": 1100, "height": 900}}))
    made, said = context.new_page(), []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(f"http://127.0.0.1:{server.port}/")
    until(made, "document.querySelectorAll('#model option').length === 3")
    caption_begins(made, "decomposition")  # of the example that it opens with
    made.fill("textarea", "")
    until(made, "document.querySelector('.answer').hidden")
    yield made
    assert [line for line in said if "status of 422" not in line] == []  # which the browser logs by itself
    context.close()


def until(page: Any, what: str) -> None:
    """Waits for an expression; Playwright's own way needs eval, which the page forbids."""
    end = time.monotonic() + 15
    while not page.evaluate(what):
        assert time.monotonic() < end, what
        page.wait_for_timeout(30)


def caption_begins(page: Any, words: str) -> None:
    until(page, f"document.querySelector('.caption')?.textContent.startsWith({words!r})")


def test_text_and_explanations(page, classifiers):
    page.fill("textarea", "a dull film")
    caption_begins(page, "decomposition")
    assert page.text_content(".answer .label") == classifiers[0].predict(["a dull film"])[0]
    assert "Calibrated" in page.text_content(".sure")
    page.select_option("#method", "occlusion")
    caption_begins(page, "occlusion")
    words = page.locator(".words .w:not(.special)").all_text_contents()
    assert words == ["a", "dull", "film"]
    page.select_option("#target", "good")
    until(page, "document.querySelector('.caption').textContent.includes('good')")
    page.select_option("#method", "attention")
    caption_begins(page, "attention, where the model looked")
    assert page.is_enabled("#layer")
    assert page.is_disabled("#target")
    page.click("summary")
    assert page.locator(".figures tbody tr").count() == 5


def test_examples_are_those_of_the_model(page):
    page.wait_for_selector(".examples button")
    assert page.locator(".examples button").all_inner_texts() == EXAMPLES
    page.locator(".examples button").nth(1).click()
    caption_begins(page, "decomposition")
    assert page.locator("textarea").first.input_value() == EXAMPLES[1]
    assert page.locator(".examples b").count() == 0


def test_it_opens_with_an_example_and_says_what_the_model_is(browser, server: Running, classifiers):
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    until(page, "document.querySelector('.answer') && !document.querySelector('.answer').hidden")
    assert page.input_value("textarea.first") == EXAMPLES[0]
    assert page.text_content(".answer .label") == classifiers[0].predict(EXAMPLES[:1])[0]
    assert page.text_content("h1") == "films"
    assert page.title() == "films · glassformer"
    assert page.text_content("#facts") == "Predicts one of 2 labels"
    assert page.locator("#labels .chip").all_inner_texts() == ["bad", "good"]
    page.select_option("#model", "pictures")
    until(page, "document.querySelectorAll('.patches rect').length === 9")
    assert page.text_content(".answer .label") in ("<b>x</b>", "y")
    assert page.locator("#labels .chip").all_inner_texts() == ["<b>x</b>", "y"]
    page.close()


NAMES = [f"balance_not_updated_after_a_long_{i}_transfer_by_cheque" for i in range(17)]


def test_the_score_and_long_labels_on_a_phone(browser, classifiers, tmp_path):
    texts, labels = zip(*[(f"text {name} {i}", name) for name in NAMES for i in range(5)], strict=True)
    gf.TextClassifier("tfidf").fit(texts, labels).save(tmp_path / "bank" / "model")
    (tmp_path / "bank" / "metrics.json").write_text('{"test": {"accuracy": 0.9125, "n": 2003}}')
    page = browser.new_page(viewport={"width": 400, "height": 800})
    with Running(load_models([tmp_path / "bank"], Limits(), threads=1), Limits()) as running:
        page.goto(f"http://127.0.0.1:{running.port}/")
        until(page, "document.querySelectorAll('.bars li').length === 10")
        said = "Predicts one of 17 labels · test accuracy 91.3 % on 2,003 examples"
        assert page.text_content("#facts") == said
        assert page.locator("#labels .chip").all_text_contents() == sorted(NAMES)
        assert page.text_content("#labels summary") == "5 more"
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        names = page.locator(".bars .what")
        cut = "(e) => e.scrollWidth > e.clientWidth || getComputedStyle(e).textOverflow === 'ellipsis'"
        assert not any(names.nth(i).evaluate(cut) for i in range(10))
        assert len(set(names.all_inner_texts())) == 10
        page.close()


def test_two_inputs_and_a_link(page, browser):
    page.fill("textarea", "a dull film")
    page.click("#compare")
    page.locator("textarea:visible").nth(1).fill("a warm film")  # those of pairs are hidden
    until(page, "document.querySelectorAll('.answer:not([hidden])').length === 2")
    until(page, "location.hash.includes('warm')")
    other = browser.new_page()
    other.goto(page.url)
    until(other, "document.querySelectorAll('.answer:not([hidden])').length === 2")
    shown = [other.locator("textarea:visible").nth(i).input_value() for i in (0, 1)]
    assert shown == ["a dull film", "a warm film"]
    other.close()


def test_pictures(page, classifiers):
    page.select_option("#model", "pictures")
    file = {"name": "a.png", "mimeType": "image/png", "buffer": base64.b64decode(png(PICTURES[0]))}
    page.set_input_files("input[type=file]", file)
    until(page, "document.querySelectorAll('.patches rect').length === 9")
    assert page.text_content(".answer .label") == classifiers[2].predict(PICTURES[:1])[0]
    box = page.locator("canvas").bounding_box()
    page.click(".clear")
    until(page, "document.querySelector('.answer').hidden")
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 90, steps=4)
    page.mouse.up()
    until(page, "!document.querySelector('.answer').hidden")


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_is_only_text(page, text: str):
    page.fill("textarea", f"{text} film")
    caption_begins(page, "decomposition")
    page.goto(page.url)
    page.reload()
    caption_begins(page, "decomposition")
    assert page.evaluate("window.ran") is None
    assert page.locator(".panel img, .panel iframe, .panel script").count() == 0


def test_by_keyboard(page):
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
    page.keyboard.type("a dull film")
    page.keyboard.press("Control+Enter")
    caption_begins(page, "decomposition")
    page.focus("#method")
    page.keyboard.press("ArrowDown")
    until(page, "!document.querySelector('.caption').textContent.startsWith('decomposition')")


@pytest.mark.parametrize(
    "page",
    [{"viewport": {"width": 360, "height": 700}, "color_scheme": "dark", "has_touch": True}],
    indirect=True,
)
def test_on_a_phone_in_the_dark(page):
    page.fill("textarea", "a dull film " * 8 + "unbreakable" * 30)
    until(page, "!document.querySelector('.answer').hidden")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in colour.strip("rgb()").split(",")) < 150


def test_errors_are_said(page):
    page.select_option("#model", "pictures")
    file = {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"}
    page.set_input_files("input[type=file]", file)
    until(page, "document.querySelector('#message').textContent.includes('not an image')")


def test_a_picture_that_cannot_be_read_takes_the_last_one_away(page):
    page.select_option("#model", "pictures")
    page.click(".clear")
    corner = "document.querySelector('canvas').getContext('2d').getImageData(5, 5, 1, 1).data[0]"
    assert page.evaluate(corner) == 255  # a model of three channels reads photos: no black pad
    black = base64.b64decode(png(np.zeros((12, 12, 3), np.uint8)))
    page.set_input_files("input[type=file]", {"name": "b.png", "mimeType": "image/png", "buffer": black})
    until(page, f"{corner} === 0")
    page.set_input_files("input[type=file]", {"name": "a.png", "mimeType": "image/png", "buffer": b"nothing"})
    until(page, "document.querySelector('#message').textContent.includes('not an image')")
    assert page.evaluate(corner) == 255
