"""Jobs whose agents are started by OpenSSH, as `garonne run --host` does it by itself: hosts are network namespaces with a server each. What users see of it: output, input, exit codes,
Ctrl-C, and what is said where ssh does not let them in."""

import os
import pty
import re
import signal
import subprocess
import time

from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..runner import Case
from ..ssh_hosts import Reached


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    place = context.work / "ssh"
    place.mkdir(exist_ok=True)
    talk = place / "talk"
    context.build_program("ssh", "tests/hosts/talk.c", talk)
    for case in (plain, words_and_codes, not_let_in, ctrl_c, lines_are_cut, ping_between_named):
        yield Case(f"ssh/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk))


class Job(MarkedJob):
    """`garonne` on the first host."""

    def __init__(self, context, hosts, words, stdin=None):
        self.hosts = hosts
        super().__init__(["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", *words], context.environment(), stdin)

    def nothing_left(self, limit=PATIENCE_S):
        super().nothing_left(limit)
        # Neither the servers' own processes for this job.
        until = time.monotonic() + limit
        while left := self.hosts.sessions():
            expect(time.monotonic() < until, f"left behind on some host: {left}", "")
            time.sleep(0.05)


def run(context, hosts, words, input=None):
    return Job(context, hosts, ["run", *words], subprocess.PIPE if input is not None else None).end(input=input)


def plain(context, talk):
    """Nothing but names of hosts; all, or the others alone, and with a file of settings that `--launcher` names."""
    with Reached(3) as hosts:
        code, output = run(context, hosts, ["--host", ",".join(f"{name}:2" for name in hosts.called[1:]), talk, 20])
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        places = sorted(re.findall(r"rank \d of 4 on (\S+) with 2", output))
        expect(places == 2 * [hosts.called[1]] + 2 * [hosts.called[2]], "ranks are not where they should be", output)
        # Settings that nobody finds by himself.
        settings = hosts.place / "settings"
        settings.write_text(f"Host far\n  HostName {hosts.addresses[2]}\n" + hosts.config(known="known_hosts", key="user"))
        code, output = run(context, hosts, ["--launcher", f"ssh -F {settings}", "--host", "localhost,far", talk, 5])
        expect(code == 0 and "all is well" in output and "on far with 1" in output, f"exit code {code}", output)


def words_and_codes(context, talk):
    del talk
    with Reached(2) as hosts:
        where = ["--host", f"localhost:1,{hosts.called[1]}:2"]
        code, output = run(context, hosts, [*where, "-l", "sh", "-c", "seq 1 20000; echo to-err-$PMI_RANK >&2"])
        for rank in range(3):
            mine = [line.split("] ", 1)[1] for line in output.splitlines() if line.startswith(f"[{rank}] ")]
            expect([line for line in mine if not line.startswith("to-err")] == list(map(str, range(1, 20001))), f"rank {rank}'s lines", output)
            expect(f"to-err-{rank}" in mine, f"rank {rank}'s error output", output)
        expect(code == 0, f"exit code {code}", output)
        # Standard input, and the environment and directory of the one who starts it.
        code, output = run(context, hosts, ["--host", hosts.called[1], "-x", "COLOUR=blue it is", "sh", "-c", 'cat; echo "$COLOUR" in "$PWD"'], input=b"a word\n")
        expect(code == 0 and output == f"a word\nblue it is in {os.getcwd()}\n", f"exit code {code}", output)
        code, output = run(context, hosts, [*where, "sh", "-c", "if [ $PMI_RANK = 2 ]; then echo my last words; exit 7; else sleep 1000; fi"])
        expect(code == 7 and "my last words" in output and "rank 2" in output, f"exit code {code}", output)


def not_let_in(context, talk):
    """What ssh itself says is shown, with the host."""
    with Reached(3) as hosts:
        here, other = hosts.called[1], hosts.called[2]
        (hosts.place / "nobody").write_text("")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", hosts.place / "stranger"], check=True)
        known = (hosts.place / "known_hosts").read_text().splitlines()
        (hosts.place / "changed").write_text(known[1].replace(here, f"{here},{other}", 1) + "\n")
        hosts.stop(2)
        for how, known, key, host, words in (
            ("a key of a host that nobody knows", "nobody", "user", here, "Host key verification failed"),
            ("a user whose key is not accepted", "known_hosts", "stranger", here, "Permission denied"),
            ("no server", "known_hosts", "user", other, "Connection refused"),
            ("a name that is none", "known_hosts", "user", "nobody.invalid", "Could not resolve hostname"),
        ):
            settings = hosts.place / "settings"
            settings.write_text(hosts.config(known, key))
            launcher = f"ssh -o BatchMode=yes -F {settings}"
            code, output = run(context, hosts, ["--launcher", launcher, "--host", f"localhost,{host}", talk])
            expect(code != 0 and "G0216" in output and f"'{host}'" in output and words in output, f"{how}: exit code {code}", output)
        # Another host answers where this one was.
        hosts.serve(2)
        settings.write_text(hosts.config("changed", "user"))
        code, output = run(context, hosts, ["--launcher", launcher, "--host", f"{here},{other}", talk])
        expect(code != 0 and "G0216" in output and f"'{other}'" in output and "REMOTE HOST IDENTIFICATION HAS CHANGED" in output, f"exit code {code}", output)
        # By itself it asks nobody for a password or whether to go on.
        code, output = run(context, hosts, ["--host", "nobody.invalid", talk])
        expect(code != 0 and "G0216" in output and "'nobody.invalid'" in output and "Could not resolve hostname" in output, f"exit code {code}", output)


def ctrl_c(context, talk):
    """At a terminal: all ranks of all hosts end."""
    with Reached(3) as hosts:
        control, terminal = pty.openpty()
        try:
            words = ["setsid", "--ctty", "--wait", "ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run"]
            job = MarkedJob([*words, "--host", f"localhost,{hosts.called[1]}:2,{hosts.called[2]}", talk, "0"], context.environment(), terminal)
            with job:
                job.wait_for_ranks(talk, 4)
                os.write(control, b"\x03")
            code, output = job.end()
            expect(code == 130, f"exit code {code}", output)
        finally:
            os.close(control)
            os.close(terminal)


def lines_are_cut(context, talk):
    """The connections of ssh end in the middle of the job, which goes on by lines of its own; a rank that dies afterwards is still told of."""
    with Reached(3) as hosts:
        where = ["--host", f"localhost,{hosts.called[1]},{hosts.called[2]}"]
        for well in (True, False):
            job = Job(context, hosts, ["run", *where, talk, "0"])
            with job:
                job.wait_for_ranks(talk, 3)
                clients = [pid for pid, command in job.alive().items() if command.startswith("ssh ")]
                expect(len(clients) == 2, f"{len(clients)} clients of ssh", "")
                time.sleep(0.5)
                for pid in clients:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(1)
                expect(len(job.ranks(talk)) == 3, "ranks have ended with the connections of ssh", "")
            if well:
                job.end_well(talk)
                continue
            with job:
                os.kill(max(job.ranks(talk)), signal.SIGKILL)
            code, output = job.end()
            expect(code == 137 and "SIGKILL" in output, f"exit code {code}", output)


def ping_between_named(context, talk):
    """`garonne ping A B` from a third host, and from one of the two."""
    del talk
    with Reached(3) as hosts:
        one, other = hosts.called[1:]
        code, output = Job(context, hosts, ["ping", "--ms", "5", one, other]).end()
        expect(code == 0 and f"between {one} and {other}, over TCP from 10.77.0.2:" in output and " to 10.77.0.3:" in output, f"exit code {code}", output)
        code, output = Job(context, hosts, ["ping", "--ms", "5", "--json", other]).end()
        expect(code == 0 and "TCP from 10.77.0.1:" in output and " to 10.77.0.3:" in output, f"exit code {code}", output)
