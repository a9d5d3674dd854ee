#!/usr/bin/env python3
"""Checks what Markdown mentions: links, their headings, and paths of the tree in code spans.

`python3 tools/docs.py` prints each place that is wrong and ends with 1 if there is one; `--words` prints words per page.
`./x lint` may import this file: `wrong(root, files)` returns the list of places.
"""

import os
import pathlib
import re
import subprocess
import sys

# Pages that tell of the past; what they mention need not be there any more.
HISTORY = ("CHANGELOG.md",)
# A page whose paths are below crates/.
SHORT_PATHS = "docs/contributing/where.md"
# The first folders of the tree: a code span that begins with one of these names a path.
FOLDERS = ("bench", "crates", "docs", "examples", "fuzz", "install", "tests", "tools")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^(?:%s)/[\w./{},*-]+$" % "|".join(FOLDERS))
# Names of Markdown files at the root of the repository.
ROOT_PAGE = re.compile(r"^[A-Z]+\.md$")


def without_blocks(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def anchors(text):
    """Names of headings as GitHub makes them."""
    found, seen = set(), {}
    for heading in re.findall(r"^#+\s+(.+?)\s*$", without_blocks(text), flags=re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.add(name if count == 0 else f"{name}-{count}")
    return found


def expanded(path):
    """`a/{b,c}.rs` as both paths."""
    inner = re.search(r"\{([^{}]*)\}", path)
    if not inner:
        return [path]
    return [whole for part in inner.group(1).split(",") for whole in expanded(path[:inner.start()] + part + path[inner.end():])]


def is_there(root, path):
    if "*" in path:
        return any(root.glob(path.rstrip("/")))
    return (root / path).exists()


def wrong_link(root, page, target, pages):
    if re.match(r"^[a-z]+:", target):
        return None
    path, _, heading = target.partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if not (root / file).exists():
        return f"{page}: link to {target}: there is no {file}"
    if heading and file.endswith(".md") and heading not in anchors(pages.get(file) or (root / file).read_text()):
        return f"{page}: link to {target}: {file} has no such heading"
    return None


def wrong(root, files):
    """Places in Markdown that mention what is not there, one line each."""
    root = pathlib.Path(root)
    pages = {path: (root / path).read_text() for path in files if path.endswith(".md")}
    found = []
    for page, text in sorted(pages.items()):
        if page in HISTORY:
            continue
        prose = without_blocks(text)
        found += filter(None, (wrong_link(root, page, target, pages) for target in LINK.findall(prose)))
        for span in SPAN.findall(prose):
            for word in span.split():
                word = word.rstrip(".,:;")
                # This page leaves the first folder out.
                if page == SHORT_PATHS and re.match(r"^(base|core|mpi|run|testing|tools|transports)/", word) and not (root / word).exists():
                    word = f"crates/{word}"
                if "NAME" in word:
                    continue
                if ROOT_PAGE.match(word) or PATH.match(word):
                    found += [f"{page}: `{span}`: there is no {path}" for path in expanded(word) if not is_there(root, path)]
    return found


def main():
    root = pathlib.Path(os.environ.get("GARONNE_ROOT") or pathlib.Path(__file__).resolve().parent.parent)
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True)
    files = sorted({path for path in listed.stdout.splitlines() if (root / path).is_file()})
    if "--words" in sys.argv:
        total = 0
        for path in files:
            if path.endswith(".md"):
                words = len((root / path).read_text().split())
                print(f"{words:7} {path}")
                total += 0 if path.startswith(("docs/benchmarks/", "CHANGELOG.md")) else words
        print(f"{total:7} all but docs/benchmarks and CHANGELOG.md")
        return 0
    found = wrong(root, files)
    print("\n".join(found))
    print(f"{len(found)} places in Markdown mention what is not there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
