"""Hook of MkDocs: pages link files of the repository by relative paths, as a code host needs them.

What lies outside docs/ (figures of the reproduction, the changelog, ...) is taken into the site under `repository/`,
programs as pages that show them, and the links of every page are rewritten to where their targets are in the site. A
link to a file that is not taken stays as it is, and the strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

DOCS, TAKEN = "docs", "repository"
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/NOTES.md", "reproduction/figures/*.svg")
PROGRAMS = "examples/*.py"
BOOST = {"reference/settings.md": 2, "explanation/glossary.md": 2}  # pages that a search shows before others
LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Take the files outside docs/ into the site."""
    root = Path(config.docs_dir).parent
    for pattern in OUTSIDE:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            files.append(File.generated(config, f"{TAKEN}/{name}", abs_src_path=str(path)))
    for path in sorted(root.glob(PROGRAMS)):
        name = path.relative_to(root).as_posix()
        shown = f"# {name}\n\n```python\n{path.read_text()}```\n"
        linked_only = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, f"{TAKEN}/{name}.md", content=shown, inclusion=linked_only))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Rewrite the links of a page, and drop the word that keeps a code block out of the tests."""
    uri = page.file.src_uri
    if uri in BOOST:
        page.meta["search"] = {"boost": BOOST[uri]}

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(uri)), match[2]))
        found = next((name for name in _in_site(target) if files.get_file_from_path(name)), None)
        return match[0] if found is None else match[1] + posixpath.relpath(found, posixpath.dirname(uri) or ".")

    return re.sub(r"^(```\w+) notest$", r"\1", LINK.sub(rewritten, markdown), flags=re.MULTILINE)


def _in_repository(uri: str) -> str:
    """Return where a file of the site lies in the repository."""
    return uri.removeprefix(f"{TAKEN}/") if uri.startswith(f"{TAKEN}/") else f"{DOCS}/{uri}"


def _in_site(name: str) -> tuple[str, ...]:
    """Return where a file of the repository may lie in the site."""
    if name.startswith(f"{DOCS}/"):
        return (name.removeprefix(f"{DOCS}/"),)
    return f"{TAKEN}/{name}", f"{TAKEN}/{name}.md"
