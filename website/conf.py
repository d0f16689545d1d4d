"""Settings of Sphinx for the documentation site."""

from __future__ import annotations

from brinell import __version__

project, author = "brinell", "The brinell developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3  # as GitHub numbers them
source_suffix = {".md": "markdown"}
exclude_patterns = ["schema/*"]
default_role = "code"  # single backticks in docstrings
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"brinell {version}"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp"
