"""Sphinx: Markdown pages through MyST; names, keys and commands come from the code, labs with their outputs."""

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
myst_dmath_double_inline = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_use_legacy_class_based = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "alabaster"
html_static_path = ["_static"]
html_css_files = ["glassformer.css"]
html_theme_options = {
    "description": "Transformers you can see through",
    "fixed_sidebar": False,
    "page_width": "1120px",
    "sidebar_width": "230px",
    "font_family": "system-ui, sans-serif",
    "head_font_family": "system-ui, sans-serif",
}
html_show_copyright = False
