"""`garonne bench sockets`: connections of unmodified programs over shared memory, beside plain TCP in the same run.

virtual_sockets.c says what is timed. redis-benchmark and wrk with nginx run where they are installed. Samples of both alternate; medians are compared.
"""

import argparse
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from ports import free_port

HERE = pathlib.Path(__file__).resolve().parent
GARONNE = HERE.parents[2] / "bin/garonne"
# Kind: what it is, unit, whether less is better.
KINDS = {"pingpong": ("64 B there and back, waiting in recv", "µs", True), "spinning": ("64 B there and back, looking all the time", "µs", True),
         "slow": ("64 B there and back, 200 µs apart", "µs", True), "stream": ("writes of 128 KB", "GB/s", False)}
PROGRAMS = {"redis": ("redis-benchmark -c 50, GET", "1/s", False), "wrk": ("wrk -c 20 at nginx, 600 B", "1/s", False)}


def under(library, *command):
    return ([str(GARONNE), "sockets", "run", "--"] if library else []) + [str(word) for word in command]


def served(command, port, measure):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        limit = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(port))).close()
                break
            except OSError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)
        return measure()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def redis(library, seconds, place):
    port = str(free_port())
    # As many requests as take about the time on a slow machine.
    work = under(library, "redis-benchmark", "-p", port, "-c", "50", "-n", str(int(seconds * 30000)), "-t", "get", "--csv")

    def measure():
        text = subprocess.run(work, capture_output=True, text=True, check=True).stdout
        return next(float(line.split(",")[1].strip('"')) for line in text.splitlines() if line.startswith('"GET"'))

    return served(under(library, "redis-server", "--port", port, "--save", "", "--dir", place), port, measure)


def wrk(library, seconds, place):
    port = str(free_port())
    (place / "page").write_text("x" * 600)
    bodies = "".join(f"{name}_temp_path {place}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (place / "conf").write_text(f"worker_processes 1; daemon off; pid {place}/pid; error_log {place}/log; events {{ worker_connections 512; }} "
                                f"http {{ access_log off; {bodies} server {{ listen 127.0.0.1:{port}; root {place}; }} }}\n")
    place.chmod(0o755)

    def measure():
        work = under(library, "wrk", "-t1", "-c20", f"-d{max(1, round(seconds))}s", f"http://127.0.0.1:{port}/page")
        text = subprocess.run(work, capture_output=True, text=True, check=True).stdout
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith("Requests/sec")))

    return served(under(library, "nginx", "-c", place / "conf"), port, measure)


def main(argv):
    parser = argparse.ArgumentParser(prog="garonne bench sockets", description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"only these: {' '.join([*KINDS, *PROGRAMS])}")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a sample")
    args = parser.parse_args(argv)
    wanted = args.kinds or [*KINDS, *PROGRAMS]
    unknown = [kind for kind in wanted if kind not in KINDS | PROGRAMS]
    if unknown:
        parser.error(f"no kind '{unknown[0]}'")
    print(f"{'':<44}{'TCP':>10}{'Garonne':>10}        {'ratio':>6}")
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        subprocess.run(["cc", "-O2", HERE / "virtual_sockets.c", "-o", place / "program"], check=True)
        for kind in wanted:
            text, unit, is_time = (KINDS | PROGRAMS)[kind]
            needed = {"redis": ["redis-server", "redis-benchmark"], "wrk": ["nginx", "wrk"]}.get(kind, [])
            missing = [program for program in needed if not shutil.which(program)]
            if missing:
                print(f"{text:<44}{missing[0]} is not installed")
                continue

            def sample(library, kind=kind):
                if kind in PROGRAMS:
                    return {"redis": redis, "wrk": wrk}[kind](library, args.seconds, place)
                command = under(library, place / "program", kind, args.seconds * 1000)
                return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

            pairs = [(sample(False), sample(True)) for _ in range(args.samples)]
            tcp, ours = (statistics.median(column) for column in zip(*pairs))
            faster = tcp / ours if is_time else ours / tcp
            print(f"{text:<44}{tcp:>10.2f}{ours:>10.2f} {unit:<6}{faster:>7.2f} times", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
