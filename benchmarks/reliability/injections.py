"""Markup, scripts, templates and formulas as data: 200 strings, as texts, labels and names of files, into all that is shown.

Ten strings at a time are the texts and the labels of one small run, and the labels and file names of another, of
pictures. Their reports, pages of explanations and the server's page are opened in Chromium, where each string must stand
as text, and nothing may run, be asked for, or be said on the console. No cell of predictions.csv may begin a formula.
"""

import csv
import io
import itertools
import re
import shutil
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import glassformer as gf
from benchmarks.harness.processes import scratch
from benchmarks.harness.servers import running, serving
from glassformer.cli.explain import explain
from glassformer.cli.own_data import choose_recipe
from glassformer.explain.render import page
from glassformer.tasks.run import run_task

AT_ONCE = 10  # of which a report shows one picture each
DOORS = [(source, end) for end in ("report", "page") for source in ("text", "label", "file name")]
RUNS = ("alert({n})", "window.ran={n}", "confirm`{n}`", "parent.ran=top.ran={n}", "fetch('//x.invalid/{n}')")
MARKUP = (
    "<script>{run}</script>", "<ScRiPt >{run}</sCrIpT >", "<script/src=data:,{run}>", "<script>{run}//", "<svg><script>{run}</svg>",
    '"><img src=x onerror={run}>', "'><img src=x onerror={run}>", "<img src=x onerror={run}>", "<img/src/onerror={run}>",
    "<svg onload={run}>", "<svg/onload={run}//", "<svg><animate onbegin={run} attributeName=x dur=1s>", "<body onload={run}>",
    "<details open ontoggle={run}>", "<input autofocus onfocus={run}>", "' autofocus onfocus={run} x='", '" onmouseover={run} x="',
    "` onclick={run} `", "<video><source onerror={run}>", "<audio src=x onerror={run}>", "<marquee onstart={run}>",
    "<iframe srcdoc='<script>{run}</script>'>", "<iframe src=javascript:{run}>", "<object data=javascript:{run}>",
    "<embed src=javascript:{run}>", "<a href=javascript:{run}>x</a>", "<a href=' &#1;javascript:{run}'>x</a>",
    "<a href=data:text/html,<script>{run}</script>>x</a>", "javascript:{run}//", "data:text/html,<script>{run}</script>",
    "vbscript:{run}", "<form action=javascript:{run}><button>x", "<button formaction=javascript:{run}>x", "<isindex action={run}>",
    "<meta http-equiv=refresh content='0;url=javascript:{run}'>", "<base href='javascript:{run}//'>",
    "<link rel=stylesheet href=//x.invalid/{run}>", "<style>@import '//x.invalid/{run}';</style>",
    "<style>*{{background:url(//x.invalid/{run})}}</style>", "<p style='background:url(//x.invalid/{run})'>",
    "</style><script>{run}</script>", "</title><script>{run}</script>", "</textarea><script>{run}</script>",
    "</script><script>{run}</script>", "</svg><img src=x onerror={run}>", "</template><script>{run}</script>",
    "--><script>{run}</script><!--", "<!--<script>{run}", "<![CDATA[<script>{run}</script>]]>", "]]><script>{run}</script>",
    "<math><mtext><img src=x onerror={run}></mtext></math>", "<xss id=x tabindex=1 onfocus={run}>", "&lt;script&gt;{run}&lt;/script&gt;",
    "&#60;script&#62;{run}&#60;/script&#62;", "%3Cscript%3E{run}%3C/script%3E", "\\u003cscript\\u003e{run}", "\\x3cscript\\x3e{run}",
    "\uff1cscript\uff1e{run}", "<scr\u200bipt>{run}</script>", "\u202e<script>{run}</script>", "\u2028<script>{run}</script>",
    "+ADw-script+AD4-{run}", "${{{run}}}", "{{{{{run}}}}}", "{{% include '{run}' %}}", "{{# {run} #}}", "<%= {run} %>", "#{{{run}}}",
    "{{{{constructor.constructor('{run}')()}}}}", "';{run};//", '";{run};//', "\\';{run};//", "`+{run}+`", "*/{run};/*", "\n{run}\n",
    '"}}]}}</script><script>{run}</script>',
)  # fmt: skip
FORMULAS = (
    "=1+{n}", "+1+{n}", "-1+{n}", "@SUM({n})", "=cmd|' /C calc'!A{n}", "+cmd|' /C calc'!A{n}", "-2+3+cmd|' /C calc'!A{n}",
    "@SUM(1+9)*cmd|' /C calc'!A{n}", '=HYPERLINK("http://x.invalid/{n}","click")', "=IMPORTXML(\"//x.invalid/{n}\",\"//a\")",
    "=WEBSERVICE(\"http://x.invalid/{n}\")", "\t=2+{n}", "\r=3+{n}", "\n=4+{n}", "\uff1d1+{n}", "\uff0b1+{n}", "\uff0d1+{n}",
    "\uff20SUM({n})", "'=1+{n}", '"=1+{n}', "=1+{n}\",=2", ";=1+{n}", "hello;=cmd|' /C calc'!A{n}", "x\t@SUM({n})", "=DDE(\"cmd\";\"/C calc\";\"{n}\")", "-{n}-{n}",
)  # fmt: skip
NAMES = (
    "__proto__", "constructor", "toString", "null", "undefined", "valueOf", "[object Object]", "true", "..",
    "$& $1 \\1 %s %n {0}",
)  # fmt: skip
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def strings(count: int) -> list[str]:
    """The first ``count`` of them; every family is among the first twenty."""
    found: dict[str, None] = {}
    families = [
        (m.format(run=r.format(n=n)) for n, r in enumerate(RUNS, 1) for m in MARKUP),
        (f.format(n=n) for n in itertools.count(2) for f in FORMULAS),
        iter(NAMES),
    ]
    turns = itertools.cycle((0, 0, 1, 0, 0, 1, 0, 0, 2, 0))
    while len(found) < count:
        if (made := next(families[next(turns)], None)) is not None:
            found[made] = None
    return list(found)


def file_safe(text: str) -> str:
    """The string as a file system takes it."""
    return text.replace("/", "\u2215")


def seen_as(text: str) -> str:
    """What a page shows of it at least: its first characters, without those that have no shape."""
    return with_shape(text)[:24]


def with_shape(text: str) -> str:
    return "".join(c for c in text if unicodedata.category(c)[0] not in "CZ" and c != "\ufffd")


# --- the runs -----------------------------------------------------------------------------------------


def write_table(path: Path, header: tuple[str, str], rows: list[tuple[str, str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([header, *rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.getvalue().encode())


SMALL = ("d_model=12", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1", "precision=fp32", "threads=1", "baselines=false",
         "bootstrap=20")  # fmt: skip


def text_run(home: Path, given: list[str], name: str) -> Path:
    """A run on texts and labels that are the strings."""
    data = home / f"t {file_safe(name)}"
    rows = [(f"{s} film {i}", s) for i in range(3) for s in given]
    write_table(data / "train.csv", ("text", "label"), rows)
    write_table(data / "test.csv", ("text", "label"), [(f"{s} film", s) for s in given])
    sizes = (*SMALL, "max_length=64", "min_count=1", f"maps={AT_ONCE}", "validation_size=0.34")
    recipe = choose_recipe(None, str(data), model="encoder-mini", settings=sizes)
    recipe = replace(recipe, evaluate=replace(recipe.evaluate, sentences=tuple(given)))
    return run_task(recipe, home / f"runs {file_safe(name)[:40]}").folder


def picture_run(home: Path, given: list[str], name: str) -> Path:
    """A run on pictures whose labels and whose files are called like the strings."""
    data, rng = home / "p", np.random.default_rng(0)
    shutil.rmtree(data, ignore_errors=True)
    for split, copies in (("train", 3), ("test", 1)):
        rows = []
        for i, s in itertools.product(range(copies), given):
            file = f"{file_safe(s)}{'.' * (split == 'test') or i}.png"
            rows.append((file, s))
            data.mkdir(exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(data / file, "PNG")
        write_table(data / f"{split}.csv", ("file", "label"), rows)
    sizes = (*SMALL, "image_size=8", "patch_size=4", "validation_size=0.34")
    recipe = choose_recipe(None, images=str(data), model="vit-tiny", settings=sizes)
    return run_task(recipe, home / f"pictures {file_safe(name)[:40]}").folder


def no_formulas(run: Path) -> bool:
    """Whether no cell of predictions.csv is taken for a formula."""
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    others = [re.split(r"[;\t\r\n]", cell)[1:] for cell in cells]  # by other separators
    parts = [part.lstrip(' "') for found in others for part in found]
    return len(cells) > 7 * AT_ONCE and not any(cell.startswith(FORMULA_STARTS) for cell in cells + parts)


# --- the browser --------------------------------------------------------------------------------------


class Watched:
    """A page, and all that should not happen in it."""

    def __init__(self, browser: Any):
        self.page, self.said, self.own = browser.new_page(), [], "file:"
        for event, said in (
            ("console", lambda message: message.text),
            ("pageerror", str),
            ("popup", lambda _: "a new window"),
        ):
            self.page.on(event, lambda what, said=said: self.said.append(said(what)))
        self.page.on("dialog", lambda it: (self.said.append(f"dialog {it.message}"), it.dismiss())[0])
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.own, "data:image/png;base64,")):
            self.said.append(f"asked for {request.url}")

    def shown(self, inside: str = "body") -> str:
        """All text that stands there, and the names of pictures, without characters that have no shape."""
        # ruff: noqa: E501
        text = self.page.evaluate("""where => {
            const copy = document.querySelector(where).cloneNode(true);
            copy.querySelectorAll("script, style").forEach((x) => x.remove());
            const more = [...copy.querySelectorAll("[alt], [title]")].map((x) => `${x.alt ?? ""} ${x.title}`);
            const held = [...copy.querySelectorAll("option")].map((x) => x.textContent);
            return [copy.textContent, ...more, ...held, document.title].join(" ");
        }""", inside)  # fmt: skip
        return with_shape(text)

    def faults(self) -> list[str]:
        """What has happened since the last call, and what the page holds that could still happen."""
        held = self.page.evaluate("""() => [...document.querySelectorAll("*")].flatMap((x) => [
            ...[...x.attributes].filter((a) => /^on|^srcdoc$|^formaction$/i.test(a.name)).map((a) => `${x.tagName} ${a.name}`),
            ...[...x.attributes].filter((a) => /^\\s*(javascript|vbscript):/i.test(a.value) && /href|src|data|action/.test(a.name))
                .map((a) => a.value),
            ...(/^(iframe|object|embed|base|video|audio|marquee|math|isindex|xss|animate|frame)$/i.test(x.tagName) ? [x.tagName] : []),
        ]).concat(window.ran === undefined ? [] : ["a payload ran"])""")  # fmt: skip
        found, self.said = [*self.said, *held], []
        return found

    def open_file(self, path: Path) -> list[str]:
        """The faults of a page that lies in a file."""
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_timeout(50)
        return self.faults()

    def until(self, what: str, argument: Any = None) -> None:
        """Waits for an expression, without eval in the page, which it forbids."""
        end = time.monotonic() + 60
        while not self.page.evaluate(what, argument):
            if time.monotonic() > end:
                raise RuntimeError(f"waited a minute for {what}")
            self.page.wait_for_timeout(15)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; RuntimeError where there is none."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise RuntimeError("needs chromium")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def into_reports(tab: Watched, home: Path, given: list[str], texts: Path, pictures: Path) -> dict:
    """Whether each string stands as text in the reports and in the pages of explanations, and what went wrong."""
    out: dict[tuple, Any] = {(s, *door): True for s in given for door in DOORS}
    out |= {(s, "said"): [] for s in given}
    one = gf.load(texts)
    labels = [s if s in one.classes_ else s.strip() for s in given]  # tables lose white space around a label
    pairs = zip(given, labels, strict=True)
    explained = [one.explain(f"{s} film", method="occlusion", target=x, maps=True) for s, x in pairs]
    files = [str(home / "p" / f"{file_safe(s)}..png") for s in given]
    (home / "texts.html").write_text(page(explained), encoding="utf-8")
    seen = page(explain(pictures, files, method="rollout", maps=True))
    (home / "pictures.html").write_text(seen, encoding="utf-8")
    for file, run, end, doors in (
        (texts / "report.html", texts, "report", ("text", "label")),
        (pictures / "report.html", pictures, "report", ("file name", "label")),
        (home / "texts.html", None, "page", ("text", "label")),
        (home / "pictures.html", None, "page", ("file name",)),
    ):
        quiet = tab.open_file(file)
        shown, safe = tab.shown(), run is None or no_formulas(run)
        for s, door in itertools.product(given, doors):
            named = seen_as(file_safe(s) if door == "file name" else s)
            # a page of explanations does not say how the file is called
            stands = named in shown or (door, end) == ("file name", "page")
            out[s, door, end] &= not quiet and safe and stands
        for s in given:
            out[s, "said"] = out[s, "said"] + quiet
    return out


def into_the_server_s_page(tab: Watched, url: str, given: list[str], names: tuple[str, str], out: dict):
    """Each string typed and explained, its picture dropped; the labels stand in the list of labels."""
    tab.own = url
    tab.page.goto(url)
    tab.until("document.querySelectorAll('#model option').length > 1")
    for kind, name in zip(("text", "file name"), names, strict=True):
        tab.page.select_option("#model", name)
        for s in given:
            if kind == "text":
                tab.page.fill("textarea", f"{s} film")
                place = ".panel .words"
            else:
                tab.page.set_input_files("input[type=file]", [])
                file, rng = io.BytesIO(), np.random.default_rng(len(s))
                Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(file, "PNG")
                picture = {"name": f"{file_safe(s)}.png", "mimeType": "image/png", "buffer": file.getvalue()}
                tab.page.set_input_files("input[type=file]", picture)
                place = ".panel .patches"
            end = time.monotonic() + 60
            while (shown := tab.shown(place)) == "" or (kind == "text" and seen_as(s) not in shown):
                tab.page.wait_for_timeout(15)
                if time.monotonic() > end:
                    break
            faults = tab.faults()
            stands = seen_as(s) in shown if kind == "text" else shown != ""
            out[s, kind, "page"] &= stands and not faults
            out[s, "label", "page"] &= not faults and seen_as(s) in tab.shown("#target")
            out[s, "said"] = out[s, "said"] + faults


def injections(count: int, first: int = 0) -> list[dict]:
    """``count`` tests, six for each string: as text, label and file name into the report (with its table) and the pages."""
    begin, end = first // len(DOORS), (first + count) // len(DOORS)
    chosen, out = strings(end)[begin:], []
    with scratch() as home, chromium() as browser:
        runs = []
        for at in range(0, len(chosen), AT_ONCE):
            given = chosen[at : at + AT_ONCE]
            texts, pictures = text_run(home, given, given[0]), picture_run(home, given, given[0])
            tab = Watched(browser)
            runs.append((given, texts, pictures, into_reports(tab, home, given, texts, pictures)))
            tab.page.close()
        folders = [str(folder) for _, texts, pictures, _ in runs for folder in (texts, pictures)]
        with running(*serving(folders, "--threads", "1"), threads=1) as server:
            for given, texts, pictures, found in runs:
                tab = Watched(browser)
                into_the_server_s_page(tab, server.url, given, (texts.name, pictures.name), found)
                tab.page.close()
                for s in given:
                    said = sorted(set(found[s, "said"]))[:3]
                    out += [{"string": s, "as": source, "into": end, "passed": bool(found[s, source, end]), "said": said}
                            for source, end in DOORS]  # fmt: skip
    return out


def control(count: int) -> list[dict]:
    """The markup among the strings in pages that do not escape it: whether these tests notice."""
    out = []
    with scratch() as home, chromium() as browser:
        for s in [s for s in strings(200) if s.startswith(("<", "'><", '"><'))][:count]:
            (home / "raw.html").write_text(f"<!doctype html><meta charset=utf-8><p>{s}</p>", encoding="utf-8")
            tab = Watched(browser)
            faults = tab.open_file(home / "raw.html")
            noticed = bool(faults) or seen_as(s) not in tab.shown()
            out.append({"string": s, "passed": noticed, "said": faults[:3]})
            tab.page.close()
    return out
