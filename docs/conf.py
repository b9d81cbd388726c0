"""The documentation as a site: `make site`. The pages are the Markdown of the repository, read as GitHub reads it."""

from __future__ import annotations

from sphinx.application import Sphinx

project = "driftnet"
copyright = "the driftnet contributors"
extensions = ["myst_parser"]
root_doc = "README"
myst_heading_anchors = 4
myst_links_external_new_tab = False
highlight_language = "none"  # most examples are commands with what they print
html_theme = "furo"
html_title = "driftnet"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_js_files = ["site.js"]

PARTS = (
    ("Begin", ("docs/tutorials", "docs/install", "docs/ci", "docs/cluster", "docs/commands", "docs/python")),
    ("How it works", ("docs/architecture", "docs/oracle", "docs/artifact-tier", "docs/generators", "docs/glossary")),
    ("What is judged", ("docs/operators", "docs/judgement")),
    ("What was found", ("docs/trophies", "docs/findings", "docs/zoo", "reports/README")),
    ("Work on it", ("CONTRIBUTING", "docs/rejected", "CHANGELOG")),
)
"""Every page, in the order of the menu: one that stands in none is an error of the build."""


def with_menu(app: Sphinx, name: str, text: list[str]) -> None:
    """Add the menu to the first page, which stands on GitHub as it is."""
    if name == root_doc:
        for title, pages in PARTS:
            lines = ("```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```")
            text[0] += "\n" + "\n".join(lines) + "\n"


def setup(app: Sphinx) -> None:
    """What Sphinx asks for."""
    app.connect("source-read", with_menu)
