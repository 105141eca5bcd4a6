"""The site: `bash scripts/docs.sh` builds it from the Markdown files of this folder, which a code-hosting site shows too."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "dpadmm_mpi"
author = "the dpadmm_mpi developers"
copyright = author
release = version = metadata.version("dpadmm-mpi")

extensions = ["myst_nb", "sphinx.ext.autodoc", "building.links", "building.docstrings", "building.reference"]
exclude_patterns = ["_build", "building"]
suppress_warnings = ["myst.strikethrough"]

# The tests execute the notebooks, which are stored without outputs. Here they are executed once and kept, or not at all
# (scripts/docs.sh --quick).
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"  # an indented block is a formula
default_role = "code"  # `name` in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # parameters are described in words
add_module_names = False
smartquotes = False  # --set stays as it is typed

html_theme = "sphinx_book_theme"
html_title = "dpadmm_mpi"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"show_toc_level": 2, "home_page_in_toc": True, "use_download_button": False, "show_navbar_depth": 1}
html_theme_options |= {
    "navbar_start": [],
    "navbar_center": [],
    "navbar_end": [],
    "navbar_persistent": [],
}  # the side has a search
