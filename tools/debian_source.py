#!/usr/bin/env python3
"""Fetches the upstream sources of a Debian or Ubuntu source package, with apt's own checks, and unpacks them.

usage: debian_source.py PACKAGE DIRECTORY

It works as an ordinary user and changes nothing of the system: apt is given lists and a cache of its own, made from
the places that the machine's own apt already uses.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys


def binary_stanzas():
    """The machine's own sources: (uris, suites, components, signed-by) of each enabled `deb` entry."""
    apt = pathlib.Path("/etc/apt")
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", re.sub(r"^#.*\n?", "", path.read_text(), flags=re.M)):
            field = dict(re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.M))
            if "deb" in field.get("Types", "").split() and field.get("Enabled", "yes").strip() != "no":
                yield field["URIs"], field["Suites"], field.get("Components", ""), field.get("Signed-By")
    for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))]:
        if path.exists():
            for options, uri, suite, parts in re.findall(r"^deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)[ \t]*(.*)$", path.read_text(), re.M):
                key = re.search(r"signed-by=(\S+)", options)
                yield uri, suite, parts, key and key.group(1)


def apt_options(state):
    (state / "parts").mkdir(parents=True, exist_ok=True)
    (state / "lists/partial").mkdir(parents=True, exist_ok=True)
    with open(state / "parts/source.sources", "w", encoding="utf-8") as out:
        for uris, suites, components, key in binary_stanzas():
            if "main" in components.split():  # the distribution itself, not a vendor's shelf
                out.write(f"Types: deb-src\nURIs: {uris}\nSuites: {suites}\nComponents: {components}\n")
                out.write(f"Signed-By: {key}\n\n" if key else "\n")
    settings = {
        "Dir::Etc::SourceList": "/dev/null", "Dir::Etc::SourceParts": state / "parts", "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache", "APT::Sandbox::User": "root", "Acquire::Languages": "none",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def main():
    package, target = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    if target.is_dir():
        return
    state = pathlib.Path(os.environ["GARONNE_STATE"]).resolve() / "apt"
    options = apt_options(state)
    download = state / package
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir(parents=True)
    # --tar-only: the upstream sources, not the distribution's patches, which serve its own packaging.
    fetch = ["apt-get", *options, "source", "--download-only", "--tar-only", package]
    if not any((state / "lists").glob("*Sources*")) or subprocess.run(fetch, cwd=download, check=False).returncode != 0:
        subprocess.run(["apt-get", *options, "update"], check=True)
        subprocess.run(fetch, cwd=download, check=True)
    (archive,) = download.glob("*.orig.tar.*")
    unpacked = download / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "xf", archive, "-C", unpacked, "--strip-components", "1"], check=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    unpacked.rename(target)


if __name__ == "__main__":
    main()
