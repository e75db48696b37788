"""Sphinx configuration."""

from cosched import __version__

project = "cosched"
author = "The cosched authors"
project_copyright = author
release = version = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True
html_theme = "alabaster"
html_theme_options = {"description": "Coscheduling on clusters that belong to somebody else", "page_width": "1100px"}
