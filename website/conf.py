"""Settings of Sphinx for the documentation site."""

from __future__ import annotations

from brinell import __version__

project, author = "brinell", "The brinell developers"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]  # myst_nb includes myst_parser
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3  # as GitHub numbers them
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["schema/*"]
default_role = "code"  # single backticks in docstrings
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

# notebooks are stored without outputs and executed for every build; what they print to standard error is a warning
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds per cell
nb_output_stderr = "remove-warn"
nb_merge_streams = True

html_theme = "furo"
html_title = f"brinell {version}"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # a browser loads no pages for it from a folder
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp"
