"""Sphinx: Markdown pages through MyST; names, keys and commands come from the code, labs with
their outputs.
"""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import reference

reference.write()

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
html_theme = "alabaster"
html_static_path = ["_static"]
html_css_files = ["glassformer.css"]
html_theme_options = {
    "description": "Transformers you can see through",
    "fixed_sidebar": False,
    "page_width": "940px",
    "sidebar_width": "230px",
    "font_family": "system-ui, sans-serif",
    "head_font_family": "system-ui, sans-serif",
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


def leave_out(app, what, name, thing, skip, options):
    """scikit-learn's own methods, which link into its documentation."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-skip-member", leave_out)
    # before napoleon, which reads the same lines
    app.connect("autodoc-process-docstring", show_formulas_as_they_are, priority=100)
