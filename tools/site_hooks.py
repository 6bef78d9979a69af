"""MkDocs hooks: publish the pages outside of `docs/` that the documentation links to, and adjust the links.

Pages link to each other by their paths in the repository, so that the links work on a code host. The root of the site
is `docs/`; files outside of it keep their path in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "LICENSE")
OUTSIDE_GLOBS = ("bench/results/*.md", "src/claude_mem/data/**/*.toml", "src/claude_mem/data/plugin/skills/*/SKILL.md")
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    paths = [ROOT / name for name in OUTSIDE]
    for pattern in OUTSIDE_GLOBS:
        paths.extend(sorted(ROOT.glob(pattern)))
    for path in paths:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Translate links from repository paths to site paths."""
    site_path = page.file.src_uri
    is_outside = page.file.generated_by is not None
    repository_folder = posixpath.dirname(site_path if is_outside else f"docs/{site_path}")

    def translate(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(repository_folder, match[2]))
        # The site's home page is docs/index.md, so the README has no page of its own.
        site_target = "index.md" if target == "README.md" else target.removeprefix("docs/")
        return match[1] + posixpath.relpath(site_target, posixpath.dirname(site_path) or ".") + match[3]

    return LINK.sub(translate, markdown)
