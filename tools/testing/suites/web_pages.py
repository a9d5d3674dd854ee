"""The page that replays bubbles (`garonne bubbles replay`): each box lies where the trace says. The page of a job (`garonne map --html`, `garonne top --web`), of ranks on several hosts, which are network namespaces: what stands in it, who may read it, and, where there is a
browser, what a headless Chromium makes of it: nothing is loaded, nothing lies over anything else.
"""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from .. import browser
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Hosts
from ..runner import Case, Skip, check

LIMIT_S = 120
# No ranks' boxes, and no texts of the drawing, overlap; and all lies within the drawing.
LOOK = """\
  const boxes = (of) => [...document.querySelectorAll(of)].map(element => element.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5;
  const pairs = (all) => all.flatMap((a, at) => all.slice(at + 1).filter(b => meet(a, b)));
  const drawing = document.querySelector("#map svg").getBoundingClientRect();
  const out = (box) => box.left < drawing.left - 1 || box.right > drawing.right + 1 || box.top < drawing.top - 1 || box.bottom > drawing.bottom + 1;
  const ranks = boxes("g.rank > rect"), texts = boxes("#map svg text"), hosts = boxes("rect.hostbox");
  const wide = [...document.querySelectorAll("g.rank")].filter(rank => [...rank.querySelectorAll("text")].some(text => text.getBoundingClientRect().width > rank.querySelector("rect").getBoundingClientRect().width));
  return { ranks: ranks.length, hosts: hosts.length, rows: document.querySelectorAll("#ranks tr").length - 1, traffic: document.querySelectorAll("path.traffic").length,
    waits: document.querySelectorAll("path.waits").length, overlaps: pairs(ranks).length + pairs(texts).length + pairs(hosts).length, out: [...ranks, ...texts, ...hosts].filter(out).length, wide: wide.length,
    pairs: document.querySelectorAll("#traffic tr").length - 1, scrolls: document.documentElement.scrollWidth > innerWidth, loaded: performance.getEntriesByType("resource").length,
    states: [...document.querySelectorAll("g.rank")].map(rank => rank.dataset.state), verdict: document.getElementById("verdict").textContent };
"""


def suite(context):
    if context.foreign:
        return
    context.installed()
    for case in (drawn, many, live):
        name = case.__doc__.split("\n")[0].rstrip(".")
        yield Case(f"web-pages/{name}", lambda case=case: case(Stuck(context, case.__name__)), alone=True)
    yield Case("web-pages/bubbles and threads of a replay lie where the trace says", lambda: replayed(context))


class Stuck:
    """The program that gets stuck in a known way (tests/trace/stuck.c), and jobs of it over hosts."""

    def __init__(self, context, name):
        self.context = context
        self.directory = context.work / f"pages-{name}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.program, self.page = self.directory / "stuck", self.directory / "page.html"
        source = context.root / "tests" / "trace" / "stuck.c"
        check(context.execute(f"web-pages build {name}", [context.mpicc(), "-g", "-O1", source, "-o", self.program], timeout=60))

    def job(self, hosts, ranks):
        where = ",".join(f"{name}:{ranks // len(hosts.names)}" for name in hosts.names)
        command = ["ip", "netns", "exec", hosts.names[0], self.garonne(), "run", "--launcher", "ip netns exec", "--host", where, "--bind-to", "none", "--name", "stuck-on-purpose", "--metrics", "9464"]
        return MarkedJob([*command, "-n", str(ranks), self.program, self.directory], self.context.environment(None))

    def garonne(self):
        return self.context.prefix / "bin" / "garonne"

    def command(self, hosts, *words):
        return ["ip", "netns", "exec", hosts.names[0], self.garonne(), *map(str, words)]

    def ask(self, hosts, *words):
        return subprocess.run(self.command(hosts, *words), env=self.context.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def written(self, hosts, until):
        """The data of a page once it is as it should be."""
        patience = time.monotonic() + PATIENCE_S
        data = {}
        while True:
            done = self.ask(hosts, "map", "stuck-on-purpose", "--html", self.page, "--for", "700ms")
            if done.returncode == 0:
                data = data_of(self.page.read_text())
                if until(data):
                    return data
            expect(time.monotonic() < patience, "the page does not show what it should", done.stdout + done.stderr + json.dumps(data)[:6000])

    def metrics(self, hosts):
        """What Prometheus would read on the launcher's host: the samples, by name and labels."""
        script = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
        done = subprocess.run(["ip", "netns", "exec", hosts.names[0], "python3", "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        expect(done.returncode == 0, "metrics are not served", done.stderr)
        samples = [re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups() for line in done.stdout.splitlines() if line and not line.startswith("#")]
        return [(name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)) for name, labels, value in samples]

    def seen(self, width=1400):
        """What a browser makes of the page."""
        return browser.seen(self.page, LOOK, width)


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S).group(1))


def stop(job):
    job.process.terminate()
    code, output = job.end()
    expect(code == 128 + signal.SIGTERM, f"exit code {code}", output)


def is_stuck(data):
    ranks = data["ranks"]
    states = [rank["state"] for rank in ranks]
    return states[:4] == ["waits", "sleeps", "computes", "waits"] and all(state == "waits" for state in states[4:]) and all(rank["for"] == [rank["rank"] - 1] for rank in ranks[4:])


def stuck_job(stuck, hosts, ranks):
    """What is drawn of a job while it sends, and when it is stuck; the latter as a browser sees it."""
    names = hosts.names
    with stuck.job(hosts, ranks) as job:
        moving = stuck.written(hosts, lambda data: len(data["ranks"]) == ranks and data["pairs"] == ranks)
        for pair in moving["traffic"]:
            expect(pair["to"] == (pair["from"] + 1) % ranks, "a message that nobody sent", str(pair))
            expect(pair["bytes"] == pair["messages"] * (pair["from"] + 1) * 1000, "bytes of messages", str(pair))
        expect(sorted(chip["rank"] for chip in moving["map"]["chips"]) == list(range(ranks)), "ranks on the machines", str(moving["map"]["chips"]))
        expect({(link["from"], link["to"]) for link in moving["map"]["links"]} == {(pair["from"], pair["to"]) for pair in moving["traffic"]}, "messages on the machines", str(moving["map"]["links"]))
        expect([host for host in (f"host {name}" for name in names) if all(host not in box["lines"] for box in moving["map"]["boxes"])] == [], "hosts of the machines", str(moving["map"])[:2000])
        sending = stuck.seen()
        (stuck.directory / "stop").touch()
        data = stuck.written(hosts, is_stuck)
        expect([host["name"] for host in data["hosts"]] == names, "hosts", str(data["hosts"]))
        expect(data["ranks"][0]["for"] == [3] and data["ranks"][3]["for"] == [0] and "deadlock" in data["verdict"], "the verdict", str(data))
        expect("stuck.c:" in data["ranks"][0]["waits"], "the place", str(data["ranks"][0]))
        told = stuck.metrics(hosts)
        of_rank = lambda name: {int(labels["rank"]): (value, labels["host"]) for known, labels, value in told if known == name}
        messages, size = of_rank("garonne_messages_sent_total"), of_rank("garonne_sent_bytes_total")
        expect(sorted(messages) == list(range(ranks)) and {host for _, host in messages.values()} == set(names), "metrics of all ranks", str(told))
        expect(all(value > 0 and size[rank][0] == value * (rank + 1) * 1000 for rank, (value, _) in messages.items()), "messages and bytes", str(told))
        one = lambda name, **wanted: [value for known, labels, value in told if known == name and labels.items() >= wanted.items()]
        expect(one("garonne_ranks", state="running") == [ranks] and one("garonne_ranks_waiting", call="MPI_Recv") == [ranks - 2] and one("garonne_job_stuck") == [1], "states", str(told))
        still = [stuck.seen(), stuck.seen(width=700)]
        stop(job)
    if sending is None:
        raise Skip("there is no Chromium here to draw the page")
    expect(sending["traffic"] == ranks and sending["pairs"] == min(ranks, 40), "messages", str(sending))
    for seen in (sending, *still):
        expect(seen["ranks"] == seen["rows"] == ranks and seen["hosts"] == len(names), "ranks and hosts", str(seen))
        expect(seen["overlaps"] == seen["out"] == seen["wide"] == seen["loaded"] == 0 and not seen["scrolls"], "the page is not legible", str(seen))
    for seen in still:
        expect(seen["waits"] == ranks - 2 and seen["states"][:4] == ["waits", "sleeps", "computes", "waits"] and "deadlock" in seen["verdict"], "waits", str(seen))


def drawn(stuck):
    """four ranks on two hosts are drawn with what they send and whom they wait for"""
    with Hosts(2) as hosts:
        stuck_job(stuck, hosts, 4)


def many(stuck):
    """sixty-four ranks on four hosts are drawn legibly"""
    with Hosts(4) as hosts:
        stuck_job(stuck, hosts, 64)


def answer(address, **headers):
    """Status and body."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as got:
            return got.status, got.read().decode(), got.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def live(stuck):
    """a page that is served follows its job, and is for loopback and its key alone"""
    # In the network of this process, so that it can ask; on one host.
    command = [stuck.garonne(), "run", "--bind-to", "none", "--name", "stuck-here", "-n", "4", stuck.program, stuck.directory]
    with MarkedJob(command, stuck.context.environment(None)) as job:
        until = time.monotonic() + PATIENCE_S
        here = lambda *words: [stuck.garonne(), *words]
        while subprocess.run(here("ps", "stuck-here"), capture_output=True, check=False).returncode != 0:
            expect(time.monotonic() < until, "the job is not listed", "")
            time.sleep(0.05)
        server = subprocess.Popen(here("top", "--web", "stuck-here"), env=stuck.context.environment(), stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            expect(re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", address), "the address", address)
            port = address.split(":")[2].split("/")[0]
            status, page, headers = answer(address)
            expect(status == 200 and "const LIVE = true;" in page, f"the page: {status}", page)
            expect(headers["Cache-Control"] == "no-store" and headers["X-Frame-Options"] == "DENY", "headers", str(headers))
            latest = {}

            def follows(is_so):
                nonlocal latest
                until = time.monotonic() + PATIENCE_S
                while True:
                    latest = json.loads(answer(address + "data")[1])
                    if is_so(latest):
                        return
                    expect(time.monotonic() < until, "the page does not follow its job", str(latest))
                    time.sleep(0.2)

            follows(lambda data: data.get("pairs") == 4 and len(data.get("map", {}).get("chips", ())) == 4)
            (stuck.directory / "stop").touch()
            follows(lambda data: "ranks" in data and is_stuck(data))
            for wrong in (f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{port}/data", f"http://127.0.0.1:{port}/{'0' * 32}/data", address[:-2] + "/data"):
                status, body, _ = answer(wrong)
                expect(status == 404 and "rank" not in body, f"{wrong}: {status}", body)
            status, body, _ = answer(address + "data", Host="evil.example")
            expect(status == 421 and "rank" not in body, f"another host's name: {status}", body)
            expect(answer(address + "data", Host="localhost:9999")[0] == 200, "a tunnel's port is refused", "")
            listening = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=False).stdout
            expect(not listening or all("127.0.0.1:" in line for line in listening.splitlines()), "it listens beyond loopback", listening)
            stop(job)
            follows(lambda data: data.get("ended"))
            expect(server.wait(timeout=PATIENCE_S) == 0, "top ends with its job", "")
        finally:
            server.kill()
            server.wait()


# Of each thread and closed bubble, the innermost box whose area has it, at several steps, by its place on the screen alone.
WHERE = """\
  const middle = (box) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
  const boxes = (of) => [...document.querySelectorAll(of)].map(element => [element, element.getBoundingClientRect()]);
  const has = (outer, inner) => inner.left >= outer.left - 0.5 && inner.right <= outer.right + 0.5 && inner.top >= outer.top - 0.5 && inner.bottom <= outer.bottom + 0.5;
  const seen = STEPS.map(step => {
    show(step, false);
    const holders = [...boxes("[data-processor]").map(([e, r]) => ["run " + e.dataset.processor, r]), ...boxes("[data-queue]").map(([e, r]) => ["queue " + e.dataset.queue, r]),
      ...["blocked", "made", "ended"].map(id => [id, document.getElementById(id).getBoundingClientRect()])];
    const found = {};
    for (const [element, rect] of [...boxes("[data-thread]"), ...boxes("[data-bubble]:not(.burst)")]) {
      const key = element.dataset.thread !== undefined ? "thread " + element.dataset.thread : "bubble " + element.dataset.bubble;
      const around = boxes("[data-bubble]:not(.burst)").filter(([e, r]) => e !== element && e.contains(element) && has(r, rect)).length;
      found[key] = holders.filter(([, r]) => has(r, rect)).map(([name]) => name).concat(around ? ["inside"] : []);
    }
    const out = boxes(".place .place").filter(([e, r]) => !has(e.parentElement.closest(".place").getBoundingClientRect(), r)).length;
    return { step, found, out, busy: document.querySelectorAll("#machine .slot.busy").length };
  });
  document.getElementById("play").click();
  const playing = document.getElementById("play").textContent;
  document.getElementById("play").click();
  document.getElementById("step").click();
  return { seen, playing, after: document.getElementById("time").textContent, loaded: performance.getEntriesByType("resource").length, scrolls: document.documentElement.scrollWidth > innerWidth };
"""


def positions(lines, step):
    """Where each thing is after so many moves, as the trace says."""
    at, parents, moves = {}, {}, 0
    for line in lines:
        if "new" in line:
            (kind, number), = line["new"]["entity"].items()
            parents[f"{kind} {number}"] = line["new"]["parent"]
        elif "move" in line:
            if moves == step:
                break
            moves += 1
            (kind, number), = line["move"]["entity"].items()
            at[f"{kind} {number}"] = line["move"]["to"]
    return at, parents


def replayed(context):
    """Positions are compared with the trace at steps back and forth."""
    directory = context.work / "pages-replay"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    garonne, trace, page = context.prefix / "bin" / "garonne", directory / "trace.jsonl", directory / "page.html"
    for workload, scheduler in (("nested", "spread"), ("producer-consumer", "gang")):
        check(context.execute("web-pages simulate", [garonne, "bubbles", "simulate", "--workload", workload, "--scheduler", scheduler, "--trace", trace], timeout=LIMIT_S))
        check(context.execute("web-pages replay", [garonne, "bubbles", "replay", trace, "-o", page], timeout=LIMIT_S))
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        moves = sum("move" in line for line in lines)
        steps = [0, moves // 7, moves // 3, moves // 2 + 1, moves // 4, moves, moves // 5]
        told = browser.seen(page, WHERE.replace("STEPS", json.dumps(steps)))
        if told is None:
            raise Skip("there is no Chromium here to draw the page")
        expect(told["loaded"] == 0 and not told["scrolls"] and told["playing"] == "pause" and f"step {steps[-1] + 1} of {moves}," in told["after"], "the page", str(told)[:2000])
        expect([seen["step"] for seen in told["seen"]] == steps, "steps", str(told)[:2000])
        for seen in told["seen"]:
            compare(lines, seen)


def compare(lines, seen):
    """What a browser has drawn of a step, with the trace."""
    at, parents = positions(lines, seen["step"])
    is_burst = lambda bubble: isinstance(at.get(f"bubble {bubble}"), dict) and "burst" in at[f"bubble {bubble}"]
    shown = {name for name, to in at.items() if not (isinstance(to, dict) and "burst" in to)}
    expect(set(seen["found"]) == shown, f"step {seen['step']}: other boxes are drawn", str(set(seen["found"]) ^ shown))
    running = 0
    for name in shown:
        to, where = at[name], seen["found"][name]
        if isinstance(to, dict):
            (kind, number), = to.items()
            wanted, running = f"{kind} {number}", running + (kind == "run")
        elif to == "held":
            wanted = "inside" if parents[name] is not None and not is_burst(parents[name]) else "made"
        else:
            wanted = to
        if wanted in ("ended", "blocked"):
            # These boxes scroll; what is beyond their edge is not to be seen.
            expect(not where or where == [wanted], f"step {seen['step']}: {name} is not in {wanted}", str(where))
        else:
            expect(wanted in where, f"step {seen['step']}: {name} is not in {wanted}", str(where))
    expect(seen["out"] == 0 and seen["busy"] == running, f"step {seen['step']}: the machine", str(seen)[:2000])
