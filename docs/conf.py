"""Sphinx: Markdown pages through MyST; the public names come from the docstrings."""

from importlib import metadata

project = "glassformer"
copyright = "the glassformer authors"
release = metadata.version("glassformer")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "alabaster"
html_theme_options = {
    "description": "A glass-box Transformer toolkit",
    "fixed_sidebar": True,
    "page_width": "1080px",
}
html_show_copyright = False
