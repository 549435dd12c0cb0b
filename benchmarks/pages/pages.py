"""Every page of the documentation and those that commands write in a browser: on a laptop, light and dark, and on a phone.

    make docs && .venv/bin/python -m benchmarks.pages.pages [--only WORD ... [--merge]] [--skip WORD ...] [--shots FOLDER]

Measured are: whether the page, a table or a code block scrolls sideways, the longest line of prose in characters, and what
axe-core calls serious or critical; and which terms of ``docs/search.json`` the search does not lead to their page. The page of the server is tested in ``tests/serve/test_axe.py``.
``--merge`` puts some pages into a result file that has others, which keep the day and commit that they were looked at.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, ROOT, environment, write_result

BUILT = ROOT / "docs" / "_build"
LAPTOP, PHONE = 1280, 400
VIEWS = 3  # of a page: laptop light and dark, phone light
LONGEST = 90  # characters in a line of prose
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
NONE_OF_OURS = {"genindex.html", "search.html", "py-modindex.html"}

MEASURE = """() => {
  const wide = e => e.scrollWidth > e.clientWidth + 1;
  const shown = e => e.offsetParent !== null;
  const name = e => e.textContent.trim().replace(/\\s+/g, ' ').slice(0, 60);
  const main = document.querySelector('article[role=main]') || document.querySelector('main') || document.body;
  const tables = [...main.querySelectorAll('table')].filter(shown).filter(t => {
    const box = t.closest('.table-wrapper') || t.parentElement;
    return wide(box) || wide(t) || t.getBoundingClientRect().right > innerWidth + 1;
  }).map(name);
  const code = [...main.querySelectorAll('pre')].filter(shown).filter(wide).map(name);
  let longest = 0, line = '';
  for (const p of main.querySelectorAll('p, li')) {
    if (!shown(p) || p.closest('table, pre, figure') || p.querySelector('p, ul, ol')) continue;
    const lines = new Map();
    const walker = document.createTreeWalker(p, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    for (let node; (node = walker.nextNode());) {
      for (const word of node.data.matchAll(/\\S+/g)) {
        range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
        const add = text => {
          const box = range.getClientRects()[0];
          if (!box) return;
          const at = Math.round((box.top + box.bottom) / 12);
          lines.set(at, (lines.get(at) || '') + text);
        };
        if (range.getClientRects().length < 2) { add(' ' + word[0]); continue; }
        for (let i = 0; i < word[0].length; i++) {  // a long word that was broken
          range.setStart(node, word.index + i); range.setEnd(node, word.index + i + 1);
          add(word[0][i]);
        }
      }
    }
    for (const text of lines.values()) if (text.length - 1 > longest) { longest = text.length - 1; line = text.trim(); }
  }
  return {page: wide(document.scrollingElement), tables, code, longest, line};
}"""
AXE = """only => axe.run(document, {resultTypes: ['violations'], ...(only ? {runOnly: only} : {})}).then(r => r.violations
  .filter(v => ['serious', 'critical'].includes(v.impact))
  .map(v => `${v.id}: ${v.nodes.length} x, ${v.nodes[0].target} ${v.nodes[0].failureSummary.replace(/\\s+/g, ' ').slice(0, 240)}`))"""
COLORS = ["color-contrast", "link-in-text-block"]  # all that the dark scheme changes


def built_pages(only: list[str]) -> list[Path]:
    """The pages of the documentation; without indexes and the sources of modules."""
    whole = [p for p in sorted(BUILT.rglob("*.html")) if p.name not in NONE_OF_OURS]
    found = [p for p in whole if not {"_modules", "_downloads"} & set(p.parts)]
    return [p for p in found if not only or any(word in str(p.relative_to(BUILT)) for word in only)]


def reports(folder: Path) -> list[Path]:
    """What commands write: the reports of the quick demo (texts, images), an explanation, an audit."""
    commands = (
        ["demo", "--quick"],
        ["explain", "demo-run", "they charged me twice", "--trust", "--out", "demo-run/explanation.html"],
        ["audit", "demo-run", "--out", "demo-audit"],
    )
    for words in commands:
        command = [sys.executable, "-m", "glassformer", *words]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("demo-*/*.html"))


def seen(browser: Any, pages: list[Path], axe: str, shots: Path | None) -> Iterator[dict[str, Any]]:
    """What each page shows on a laptop, light and dark, and on a phone. A page is loaded once per width."""
    for width in (LAPTOP, PHONE):
        context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900})
        context.set_default_timeout(5 * 60_000)  # milliseconds: the machine may be busy
        tab = context.new_page()
        for page in pages:
            inside = BUILT in page.parents
            name = str(page.relative_to(BUILT)) if inside else f"{page.parent.name}/{page.name}"
            tab.emulate_media(color_scheme="light")
            tab.goto(page.as_uri())
            found = tab.evaluate(MEASURE)
            tab.evaluate(axe)
            for scheme in ("light", "dark") if width == LAPTOP else ("light",):
                tab.emulate_media(color_scheme=scheme)
                heard = tab.evaluate(AXE, COLORS if scheme == "dark" else None)
                if shots:
                    shots.mkdir(parents=True, exist_ok=True)
                    shot = shots / f"{name.replace('/', '-')}-{width}-{scheme}.png"
                    tab.screenshot(path=shot, full_page=True)
                yield {"name": name, "width": width, "scheme": scheme, **found, "axe": heard}
        context.close()


def misses(browser: Any) -> list[str]:
    """Terms of ``docs/search.json`` whose page is not the first that the search of the documentation finds."""
    places = json.loads((ROOT / "docs" / "search.json").read_text(encoding="utf-8"))
    tab, found = browser.new_page(), []
    for place, terms in places.items():
        for term in terms:
            tab.goto(f"{(BUILT / 'search.html').as_uri()}?{urlencode({'q': term})}")
            first = tab.locator("#search-results li a").first.get_attribute("href") or ""
            if not first.startswith(f"{place.partition('#')[0]}.html"):
                found.append(f"the search for {term!r} finds {first} first")
    tab.close()
    return found


def faults(view: dict[str, Any]) -> list[str]:
    """What is wrong with a view, in words. On a phone long lines of code may scroll inside their block."""
    found = ["the page scrolls sideways"] if view["page"] else []
    found += [f"a table scrolls sideways: {table}" for table in view["tables"]]
    if view["width"] == LAPTOP:
        found += [f"a code block scrolls sideways: {code}" for code in view["code"]]
    if view["longest"] > LONGEST:
        found.append(f"{view['longest']} characters in a line: {view['line']}")
    return found + [f"axe: {line}" for line in view["axe"]]


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A result with the pages of both; ``earlier`` says when those were looked at that are not in the new one."""
    looked = set(new["pages"])
    before = [*old.get("earlier", []), {"date": old["date"], "commit": old["commit"], "pages": old["pages"]}]
    earlier: list[dict[str, Any]] = []
    for part in before:
        told = looked.union(*(e["pages"] for e in earlier))
        left = [name for name in part["pages"] if name not in told]
        earlier += [part | {"pages": left}] if left else []
    stay = [name for part in earlier for name in part["pages"]]
    faults = {view: found for view, found in old["faults"].items() if view.split(", ")[0] in stay}
    return new | {
        "pages": [*new["pages"], *stay],
        "earlier": earlier,
        "views": new["views"] + VIEWS * len(stay),
        "longest_line": max(old["longest_line"], new["longest_line"]),
        "faults": faults | new["faults"],
    }


def main() -> int:
    options = parse(
        __doc__,
        only=([], "pages whose path holds one of these, and no reports"),
        merge=(False, "with --only: write these pages into the result file"),
        skip=dict(nargs="*", default=[], help="pages whose path holds one of these are left out"),
        reports=dict(nargs="*", type=Path, help="these, instead of those of a quick demo"),
        shots=(Path, "a folder for screenshots"),
        out=RESULTS / "pages.json",
    )
    import axe_playwright_python
    from playwright.sync_api import sync_playwright

    if not (BUILT / "index.html").is_file():
        raise SystemExit("run `make docs` first")
    axe = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    views: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as tool:
        path = next((p for p in CHROMIUM if Path(p).is_file()), None)
        browser = tool.chromium.launch(executable_path=path, args=["--no-sandbox"])
        pages = built_pages(options.only)
        if not options.only:
            pages = [p for p in pages if not any(word in str(p.relative_to(BUILT)) for word in options.skip)]
            pages += [p.resolve() for p in options.reports] if options.reports else reports(Path(name))
        for view in seen(browser, pages, axe, options.shots):
            views.append(view)
            for fault in faults(view):
                print(f"{view['name']}, {view['width']} px, {view['scheme']}: {fault}", flush=True)
        lost = [] if options.only else misses(browser)
        browser.close()
    print("\n".join(lost))
    wrong = {f"{v['name']}, {v['width']} px, {v['scheme']}": found for v in views if (found := faults(v))}
    print(f"{len(pages)} pages, {len(views)} views, {len(wrong)} with faults")
    if options.merge or not options.only:
        result: dict[str, Any] = {"benchmark": "pages in a browser", **environment()}
        result["pages"] = list(dict.fromkeys(v["name"] for v in views))
        result |= {"views": len(views), "longest_line": max(v["longest"] for v in views), "faults": wrong}
        if options.merge:
            result = merged(json.loads(options.out.read_text(encoding="utf-8")), result)
        write_result(options.out, result)
    return 1 if wrong or lost else 0


if __name__ == "__main__":
    sys.exit(main())
