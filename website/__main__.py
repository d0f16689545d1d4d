"""`python -m website`: build the documentation site in site/html. Notebooks are executed; warnings are errors.

The pages of docs/ and of the repository's root are copied as they are, so that they read the same there. The front page,
the pages of operators and properties, and the API reference are only on the site.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from website.changes import write_changes
from website.checks import find_faults
from website.reference import write_reference

HERE = Path(__file__).parent
ROOT = HERE.parent
SOURCE, SITE = ROOT / "site" / "source", ROOT / "site" / "html"
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def main() -> int:
    """Write the sources and build the pages."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE)
    for name in ROOT_PAGES:
        (SOURCE / name.lower()).write_text(as_site_page((ROOT / name).read_text()))
    for page in SOURCE.glob("*.md"):  # the site's front page stands for the README
        page.write_text(re.sub(r"\]\(\.\./README\.md[^)]*", "](index.md", page.read_text()))
    for page in (HERE / "pages").glob("*.md"):
        shutil.copy(page, SOURCE)
    for page in [*SOURCE.glob("*.md"), *SOURCE.glob("howto/*.md")]:  # docs/ is the root of the site
        page.write_text(re.sub(r"\]\((\.\./)?\.\./examples/", r"](\1examples/", page.read_text()))
    shutil.copytree(ROOT / "examples", SOURCE / "examples")
    examples = SOURCE / "examples" / "README.md"
    examples.write_text(examples.read_text().replace("](../docs/", "](../"))
    write_changes(SOURCE / "changes")
    (SOURCE / "api.md").write_text(write_reference())
    shutil.rmtree(SITE, ignore_errors=True)
    code = sphinx(["-W", "--keep-going", "-q", "-b", "html", "-c", str(HERE), str(SOURCE), str(SITE)])
    faults = list(find_faults(SITE))
    print(*faults, sep="\n", file=sys.stderr, end="\n" if faults else "")
    return code or int(bool(faults))


def as_site_page(text: str) -> str:
    """Return a page of the root with the links that it needs among the pages of docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name in ROOT_PAGES:
        text = text.replace(f"]({name}", f"]({name.lower()}")
    return text


if __name__ == "__main__":
    sys.exit(main())
