"""Sphinx: Markdown pages through MyST; names, keys and commands come from the code, labs with
their outputs.
"""

import json
import re
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import messages
import reference
from bs4 import BeautifulSoup

reference.write()
messages.write()

project = "glassformer"
copyright = "the glassformer authors"
release = metadata.version("glassformer")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

highlight_language = "none"  # fences without a language are commands and what they print
html_theme = "furo"
html_title = f"glassformer {release}"
html_static_path = ["_static"]
html_css_files = ["glassformer.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5a99", "color-brand-content": "#1f5a99"},
    "dark_css_variables": {"color-brand-primary": "#8dbff2", "color-brand-content": "#8dbff2"},
}
html_show_copyright = False


def show_formulas_as_they_are(app, what, name, thing, options, lines):
    """Indented paragraphs of a module's docstring are formulas and pictures: literal, not
    reStructuredText.
    """
    if what != "module":
        return
    out = []
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and (i == 0 or not lines[i - 1].strip()) and "::" not in "".join(out[-3:]):
            out += ["::", ""]
        out.append(line)
    lines[:] = out


TERMS = Path(__file__).parent / "search.json"
SEARCH = json.loads(TERMS.read_text(encoding="utf-8"))


def let_search_find(app, page, source):
    """Terms of ``search.json`` become index entries above the heading they belong to; the search shows those first."""
    for place, terms in SEARCH.items():
        name, _, anchor = place.partition("#")
        if name == page:
            app.env.note_dependency(TERMS)
            entries = f"```{{index}} {', '.join(f'! {term}' for term in terms)}\n```\n\n"
            for heading in re.finditer(r"^#+ (.+)$", source[0], re.MULTILINE):
                if anchor in ("", re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")):
                    source[0] = source[0][: heading.start()] + entries + source[0][heading.start() :]
                    break


def open_toctrees(app, page, source):
    """Comments ``<!-- toctree ... -->`` become directives; GitHub would show a directive as code."""
    source[0] = re.sub(r"<!-- (toctree)\n(.*?)-->", r"```{\1}\n\2```", source[0], flags=re.DOTALL)


def leave_out(app, what, name, thing, skip, options):
    """scikit-learn's own methods, which link into its documentation."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def open_to_all(app, page, template, context, doctree):
    """Blocks of code can be reached by the keyboard, captions of the side bar have a level, images open in full, and each cell
    of a table carries its column's title, which a phone shows before it: there a row is a list.
    """
    tree = context.get("furo_navigation_tree") or ""
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    body = context.get("body") or ""
    if page.startswith("_modules/") or not re.search(r"<(table|pre|img)\b", body):
        return
    soup = BeautifulSoup(body, "html.parser")
    for block in soup.select("pre"):
        block["tabindex"] = "0"
        if "│" in block.get_text():
            block["class"] = "grid"  # a table that a command prints: keeps its columns and scrolls on a phone
    for image in soup.select("img"):
        if image.find_parent("a") is None:
            image.wrap(soup.new_tag("a", href=image["src"]))
    for table in soup.select("table.docutils"):
        titles = [cell.get_text(" ", strip=True) for cell in table.select("thead th")]
        # Shown as blocks, a table is none to a screen reader unless its parts say so.
        roles = (("table", [table]), ("rowgroup", table.select("thead, tbody")), ("row", table.select("tr")))
        for role, parts in (*roles, ("columnheader", table.select("th")), ("cell", table.select("td"))):
            for part in parts:
                part["role"] = role
        for row in table.select("tbody tr"):
            for title, cell in zip(titles, row.find_all("td", recursive=False)):
                cell["data-label"] = title
                if not cell.get_text(strip=True) and not cell.find("img"):
                    cell["class"] = [*cell.get("class", []), "blank"]  # a phone leaves it out
    context["body"] = str(soup)


def setup(app):
    app.connect("source-read", open_toctrees)
    app.connect("source-read", let_search_find)
    app.connect("html-page-context", open_to_all, priority=900)  # after the theme
    app.connect("autodoc-skip-member", leave_out)
    # before napoleon, which reads the same lines
    app.connect("autodoc-process-docstring", show_formulas_as_they_are, priority=100)
