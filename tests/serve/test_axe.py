"""Can everybody use the pages? axe-core looks for faults that it calls serious or critical.

The checker comes from npm, once, into the folder of temporary files; without npm or a network the tests are skipped.
"""

import base64
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli.app import main
from glassformer.explain.render import page as explanation_page

from .conftest import CHROMIUM, PICTURES, TEXTS, Running, png
from .test_page import caption_begins, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]
AXE = "axe-core@4.14.1"
SMALL = "limit=240 epochs=1 d_model=14 num_heads=2 d_ff=22 bootstrap=20 threads=1 maps=2".split()


@pytest.fixture(scope="module")
def axe() -> str:
    """The checker's script."""
    folder = Path(tempfile.gettempdir()) / f"glassformer-{AXE}"
    if not (archives := list(folder.glob("*.tgz"))):
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed, and axe-core comes from there")
        folder.mkdir(exist_ok=True)
        try:
            subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True, timeout=60)
        except subprocess.SubprocessError:
            pytest.skip(f"npm could not fetch {AXE}: is there a network?")
        archives = list(folder.glob("*.tgz"))
    with tarfile.open(archives[0]) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode("utf-8")


@pytest.fixture(params=["light", "dark"])
def tab(browser, request) -> Iterator[Any]:
    """A tab that lets the checker in past the pages' own policy."""
    context = browser.new_context(
        bypass_csp=True, color_scheme=request.param, viewport={"width": 1100, "height": 900}
    )
    yield context.new_page()
    context.close()


def faults(tab: Any, axe: str) -> list[str]:
    """Rule, what it says, and where, of each serious or critical fault."""
    tab.evaluate(axe)
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "the checker has checked nothing"
    return [
        f"{fault['id']}: {fault['help']}: {node['target']} {node['failureSummary']}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


@pytest.fixture
def served(tab, server: Running) -> Any:
    tab.goto(f"http://127.0.0.1:{server.port}/")
    until(tab, "document.querySelectorAll('#model option').length === 3")
    return tab


def test_the_checker_finds_a_fault(tab, axe: str):
    tab.set_content("<html lang='en'><title>t</title><main><h1>One</h1><button></button></main></html>")
    assert [fault.split(":")[0] for fault in faults(tab, axe)] == ["button-name"]


def test_text_and_its_explanation(served, axe: str):
    assert faults(served, axe) == []
    served.fill("textarea", "a dull film")
    caption_begins(served, "decomposition")
    until(served, "!document.querySelector('.why[aria-busy=true]')")  # it is pale until then
    served.click("summary")
    assert faults(served, axe) == []


def test_two_texts(served, axe: str):
    served.fill("textarea", "a dull film")
    served.click("#compare")
    served.locator("textarea:visible").nth(1).fill("a warm film")
    until(served, "document.querySelectorAll('.answer:not([hidden])').length === 2")
    until(served, "document.querySelectorAll('.words:not([hidden])').length === 2")
    assert faults(served, axe) == []


def test_a_picture(served, axe: str):
    served.select_option("#model", "pictures")
    file = {"name": "a.png", "mimeType": "image/png", "buffer": base64.b64decode(png(PICTURES[0]))}
    served.set_input_files("input[type=file]", file)
    until(served, "document.querySelectorAll('.patches rect').length === 9")
    assert faults(served, axe) == []


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "europe"
    words = [word for pair in SMALL for word in ("--set", pair)]
    assert main(["train", "europe", "--out", str(run), *words]) == 0
    return run / "report.html"


def test_the_report_of_a_run(tab, axe: str, report: Path):
    tab.goto(report.as_uri())
    assert faults(tab, axe) == []


def test_a_page_of_explanations(tab, axe: str, classifiers, tmp_path: Path):
    explanations = [classifiers[0].explain(text, method="attention", maps=True) for text in TEXTS[:2]]
    explanations.append(classifiers[0].explain(TEXTS[0], method="occlusion"))
    (tmp_path / "page.html").write_text(explanation_page(explanations), encoding="utf-8")
    tab.goto((tmp_path / "page.html").as_uri())
    assert faults(tab, axe) == []
