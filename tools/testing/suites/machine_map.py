"""`garonne map` of this machine, of synthetic and of recorded ones (tests/machines): its text, its drawing, and, where there is a browser, where a headless Chromium puts each part of the page. Bad descriptions of machines."""

import gzip
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

from .. import browser
from ..marked_jobs import expect
from ..runner import Case, Skip

LIMIT_S = 120
# Name, description, CPUs, NUMA nodes.
SYNTHETIC = (
    ("one core", "core:1 pu:1", 1, 1),
    ("sixty-four cores", "package:2 l3:4 l2:8 core:1 pu:2", 128, 1),
    ("three hundred and eighty-four cores", "package:2 numa:6 l3:2 l2:16 core:1 pu:2", 768, 12),
    ("shared caches", "package:3 numa:1 l3:1 l2:3 core:2 pu:1", 18, 3),
)
# Name, file, CPUs, nodes of memory, words of the text.
RECORDED = (
    ("twenty-four NUMA nodes", "192em64t-24n8c2t", 384, 24, ("8 x (L2, 256 KiB + L1, 32 KiB + core): CPUs 0-7, 192-199", "network eth0", "NUMALatency")),
    ("cores of several kinds", "fakecpukinds", 4, 1, ()),
    ("a Xeon Phi", "64intel64-fakeKNL-SNC4-hybrid", 64, 8, ("MCDRAM node 1, 2 GiB",)),
    ("GPUs with distances", "power8gpudistances", 16, 2, ("Tesla P100", "NVLinkBandwidth", "nvml3")),
)
# Each part lies in the one around it and beside its siblings; no text is wider than its box or lies over another; a click tells what a part is.
LOOK = """\
  const parts = [...document.querySelectorAll("#machine g.part")];
  const box = new Map(parts.map(part => [part.dataset.at, part.querySelector("rect").getBoundingClientRect()]));
  const has = (a, b) => b.left >= a.left - 0.5 && b.right <= a.right + 0.5 && b.top >= a.top - 0.5 && b.bottom <= a.bottom + 0.5;
  const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5;
  const siblings = new Map();
  parts.forEach(part => siblings.set(part.dataset.parent, [...(siblings.get(part.dataset.parent) || []), box.get(part.dataset.at)]));
  const pairs = (all) => all.flatMap((a, at) => all.slice(at + 1).filter(b => meet(a, b))).length;
  const texts = [...document.querySelectorAll("#machine text")];
  const counts = {};
  parts.forEach(part => { counts[part.classList[1]] = (counts[part.classList[1]] || 0) + 1; });
  const cpus = parts.filter(part => part.classList.contains("cpu"));
  cpus[cpus.length - 1].dispatchEvent(new MouseEvent("click", { bubbles: true }));
  return { counts, out: parts.filter(part => part.dataset.parent !== "" && !has(box.get(part.dataset.parent), box.get(part.dataset.at))).length,
    overlaps: [...siblings.values()].map(pairs).reduce((sum, count) => sum + count, 0), wide: texts.filter(text => !has(text.parentElement.querySelector("rect").getBoundingClientRect(), text.getBoundingClientRect())).length,
    textOverlaps: pairs(texts.map(text => text.getBoundingClientRect())), smallest: Math.min(...texts.map(text => text.getBoundingClientRect().height)),
    numbers: cpus.map(cpu => cpu.querySelector("text").textContent), detail: document.getElementById("detail").textContent, tables: document.querySelectorAll("#distances table").length,
    loaded: performance.getEntriesByType("resource").length, scrolls: document.documentElement.scrollWidth > innerWidth };
"""


def suite(context):
    if context.foreign:
        return
    context.installed()
    yield Case("machine-map/this machine", lambda: this_machine(context))
    yield Case("machine-map/bad descriptions of machines are told", lambda: refused(context))
    for name, text, *counts in SYNTHETIC if context.soak else SYNTHETIC[2:]:
        yield Case(f"machine-map/synthetic: {name}", lambda name=name, text=text, counts=counts: described(context, name, {"HWLOC_SYNTHETIC": text}, *counts))
    for name, file, *counts in RECORDED:
        yield Case(f"machine-map/recorded: {name}", lambda name=name, file=file, counts=counts: recorded(context, name, file, *counts))


class Map:
    """`garonne map` with a description of a machine, and a folder for what it writes."""

    def __init__(self, context, name, described):
        self.context, self.described = context, described
        self.directory = context.work / ("map-" + re.sub(r"\W+", "-", name))
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def run(self, *words):
        environment = {name: value for name, value in self.context.environment().items() if not name.startswith("HWLOC_")}
        garonne = self.context.prefix / "bin" / "garonne"
        return subprocess.run([garonne, "map", *map(str, words)], env=environment | self.described, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def output(self, *words):
        done = self.run(*words)
        expect(done.returncode == 0, f"garonne map {words}", done.stdout + done.stderr)
        return done.stdout

    def seen(self):
        """What a browser makes of the page; None without a browser."""
        page = self.directory / "page.html"
        self.output("--html", page)
        return browser.seen(page, LOOK)


def objects(tree):
    yield tree
    for child in tree["children"]:
        yield from objects(child)


def shown(machine, cpus, nodes, words=()):
    """Text, JSON, drawing and page agree on what the machine has."""
    text = machine.output()
    expect(text.startswith("Machine") and all(word in text for word in words), "the text", text)
    tree = json.loads(machine.output("--json"))
    numbers = [part["cpu"] for part in objects(tree) if part["cpu"] is not None]
    memory = [part for part in objects(tree) if part["type"] == "NUMANode"]
    expect(len(numbers) == len(set(numbers)) == cpus and len(memory) == nodes, "JSON", f"{len(numbers)} CPUs, {len(memory)} nodes")
    drawing = machine.directory / "map.svg"
    machine.output("--svg", drawing)
    drawn = xml.etree.ElementTree.parse(drawing).getroot()
    of_class = lambda name: sum(group.get("class") == name for group in drawn.iter("{http://www.w3.org/2000/svg}g"))
    expect(of_class("cpu") == cpus and of_class("memory") >= nodes, "the drawing", f"{of_class('cpu')} CPUs, {of_class('memory')} nodes")
    seen = machine.seen()
    if seen is None:
        raise Skip("there is no Chromium here to draw the page")
    expect(seen["counts"]["cpu"] == cpus and seen["counts"]["memory"] >= nodes and sorted(map(int, seen["numbers"])) == sorted(numbers), "parts of the page", str(seen)[:2000])
    expect(seen["out"] == seen["overlaps"] == seen["wide"] == seen["textOverlaps"] == seen["loaded"] == 0 and not seen["scrolls"] and seen["smallest"] >= 9, "the page is not legible", str(seen)[:2000])
    expect(f"CPU {seen['numbers'][-1]}" in seen["detail"] and seen["tables"] == len(tree["distances"]), "what a click tells, distances", str(seen)[:2000])


def this_machine(context):
    machine = Map(context, "this machine", {})
    parts = list(objects(json.loads(machine.output("--json"))))
    numbers = [part["cpu"] for part in parts if part["cpu"] is not None]
    expect(set(numbers) >= os.sched_getaffinity(0), "CPUs of this machine", str(numbers))
    shown(machine, len(numbers), sum(part["type"] == "NUMANode" for part in parts))


def described(context, name, environment, cpus, nodes):
    shown(Map(context, name, environment), cpus, nodes)


def recorded(context, name, file, cpus, nodes, words):
    machine = Map(context, name, {})
    path = machine.directory / "machine.xml"
    path.write_bytes(gzip.decompress((context.root / "tests" / "machines" / f"{file}.xml.gz").read_bytes()))
    machine.described = {"HWLOC_XMLFILE": str(path)}
    shown(machine, cpus, nodes, words)


def refused(context):
    """hwloc would silently show the machine at hand."""
    machine = Map(context, "refused", {})
    broken = machine.directory / "broken.xml"
    broken.write_text('<?xml version="1.0"?>\n<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x')
    for described, word in (
        ({"HWLOC_SYNTHETIC": "package:two"}, "HWLOC_SYNTHETIC"),
        ({"HWLOC_XMLFILE": str(broken)}, "describes no machine"),
        ({"HWLOC_XMLFILE": str(machine.directory / "none.xml")}, "cannot read HWLOC_XMLFILE"),
        ({"HWLOC_XMLFILE": "/bin/sh"}, "describes no machine"),
    ):
        machine.described = described
        done = machine.run()
        expect(done.returncode == 1 and word in done.stderr and not done.stdout, f"{described}: exit code {done.returncode}", done.stdout + done.stderr)
