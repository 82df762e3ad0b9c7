"""How `make docs` builds the pages: Markdown by MyST, the reference from docstrings and from the command line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import topicscope

project = "topicscope"
author = "The topicscope authors"
project_copyright = "The topicscope authors"
version = release = topicscope.__version__

# The last two are the small extensions beside this file; nothing here needs a network.
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "command_line"]
exclude_patterns = ["reproduction/*", "images/*"]
suppress_warnings = ["toc.empty_glob"]  # `*` takes pages that nobody has named yet, if there are any

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
smartquotes = False  # it would write --out with a dash
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True, "exclude-members": "__init__, __new__"}
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = "topicscope"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_copy_source = False
