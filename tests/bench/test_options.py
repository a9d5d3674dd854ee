"""What the benchmark's command line refuses, and with what words: nothing may be measured that nothing can come of."""

import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import bench  # noqa: E402
import flows  # noqa: E402
import nonblocking  # noqa: E402
import options  # noqa: E402
import overlap  # noqa: E402
import oversubscribed  # noqa: E402
import peers  # noqa: E402
import session  # noqa: E402
import threads  # noqa: E402
import waits  # noqa: E402
import ways  # noqa: E402

PARTS = {"": bench, "overlap": overlap, "collectives": nonblocking, "oversubscribed": oversubscribed, "threads": threads, "flows": flows, "ways": ways}


def said(call):
    """(exit code, what it said) of something that ends the program."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = call()
        except SystemExit as end:
            code = end.code
    return code, errors.getvalue()


class Refused(unittest.TestCase):
    def refused(self, part, *words, takes):
        code, line = said(lambda: PARTS[part].arguments(list(words)))
        option = [word for word in words if word.startswith("--")][-1]
        self.assertEqual(code, 2, f"{part} {words}: {line}")
        self.assertRegex(line, rf"^error: {option}: .*{takes}.*\n\Z", f"{part} {words}")

    def constant(self, source, name):
        return int(re.search(rf"{name} = (\d+)", (BENCH / source).read_text())[1])

    def test_every_part_takes_one_round_and_one_sample_of_some_time_at_least(self):
        for part in PARTS:
            more = ["--overlap"] if part == "collectives" else []
            for option, wrong in (("--rounds", "0"), ("--rounds", "-1"), ("--samples", "0"), ("--samples", "few"), ("--samples", "2147483648")):
                self.refused(part, *more, option, wrong, takes="whole number from 1 on")
            for wrong in ("0", "-1", "nan", "inf", "long"):
                self.refused(part, *more, "--sample-ms", wrong, takes="milliseconds above 0")

    def test_collectives_and_crowds_take_two_ranks_at_least(self):
        for wrong in ("1", "0", "2,1", ",", "-3"):
            self.refused("collectives", "--overlap", "--ranks", wrong, takes="whole numbers from 2 to 1048576")
            self.refused("oversubscribed", "--ranks", wrong, takes="whole numbers from 2 to 1048576")

    def test_messages_have_a_byte_at_least_and_a_list_of_lengths_has_one(self):
        for wrong in ("-5", "0", ",", "", "8,x", "8,0"):
            for part in ("overlap", "flows", "ways"):
                self.refused(part, "--sizes", wrong, takes="whole numbers from 1 to")
            self.refused("collectives", "--overlap", "--sizes", wrong, takes="whole numbers from 1 on")

    def test_lengths_that_no_int_holds_are_refused(self):
        self.refused("overlap", "--sizes", str(1 << 31), takes="to 1073741824")
        self.refused("collectives", "--overlap", "--ranks", "2,64", "--sizes", str(1 << 26), takes="at most 33554431 bytes")

    def test_reductions_of_doubles_take_whole_doubles(self):
        self.refused("collectives", "--overlap", "--names", "ibcast,ireduce", "--sizes", "8,12", takes="multiples of 8 bytes")
        said_of = nonblocking.arguments(["--overlap", "--names", "ibcast", "--sizes", "12"])
        self.assertEqual(said_of.sizes, [12])

    def test_more_lengths_of_computing_than_there_is_room_for_are_refused_and_not_dropped(self):
        room = self.constant("overlap.c", "LENGTHS_MAX")
        percents = [str(percent) for percent in range(room + 1)]
        self.refused("overlap", "--percents", ",".join(percents), takes=f"{room + 1} numbers; it takes at most {room}")
        self.assertEqual(len(overlap.arguments(["--percents", ",".join(percents[:room])]).percents), room)
        self.refused("overlap", "--percents", "-1", takes="whole numbers from 0 to")

    def test_computing_for_a_given_time_takes_milliseconds_and_no_longer_than_a_job_may(self):
        for part, more in (("overlap", []), ("collectives", ["--overlap"])):
            for wrong in ("0", "-5", "5,x", "1.5", ",", "1001"):
                self.refused(part, *more, "--comp-ms", wrong, takes="whole numbers from 1 to 1000")
            self.refused(part, *more, "--comp-ms", ",".join(["1"] * 17), takes="17 numbers; it takes at most 16")
            self.refused(part, *more, "--samples", "50", "--comp-ms", "200", takes="fewer --samples or shorter times")
        self.assertEqual(overlap.arguments(["--comp-ms", "5,20,50"]).comp_ms, [5, 20, 50])
        self.assertEqual(nonblocking.arguments(["--overlap", "--comp-ms", "5"]).comp_ms, [5])

    def test_shares_of_the_messages_time_are_measured_where_no_time_is_given_or_both_are(self):
        self.assertEqual(overlap.arguments([]).percents, overlap.PERCENTS)
        self.assertEqual(overlap.arguments(["--comp-ms", "5"]).percents, [])
        self.assertEqual(overlap.arguments(["--comp-ms", "5", "--percents", "100"]).percents, [100])

    def test_jobs_of_computing_for_a_given_time_are_bounded_and_leave_no_case_out(self):
        args = overlap.arguments(["--comp-ms", "5,20,50", "--samples", "6"])
        cases = [str(case) for case in range(66)]
        jobs = waits.jobs(args, cases)
        self.assertEqual([case for job in jobs for case in job], cases)
        self.assertLessEqual(max(map(len, jobs)) * waits.case_seconds(args), waits.JOB_PLANNED_S)

    def test_what_is_planned_for_is_what_the_programs_repeat(self):
        for source in ("overlap.c", "nonblocking.c"):
            for name in ("REPEATS_MIN", "REPEATS_MAX", "ALONE_MAX"):
                self.assertEqual(self.constant(source, name), getattr(waits, name))
            self.assertEqual(self.constant(source, "LENGTHS_MAX"), options.LENGTHS_MAX)
        self.assertEqual(self.constant("overlap.c", "WARM"), waits.WARM)

    def test_all_collectives_of_imb_nbc_are_there_up_to_megabytes(self):
        imb = "ibcast iallreduce ialltoall ialltoallv igather igatherv iscatter iscatterv iallgather iallgatherv ireduce ibarrier".split()
        source = (BENCH / "nonblocking.c").read_text()
        self.assertEqual(set(re.findall(r'\{"(\w+)", \1\}', source)), set(imb))
        args = nonblocking.arguments(["--overlap"])
        self.assertEqual(set(args.names), set(imb))
        self.assertGreaterEqual(max(args.sizes), 1 << 20)

    def test_series_are_no_longer_than_there_is_room_for(self):
        room = self.constant("flows.c", "SERIES_MAX")
        self.refused("flows", "--counts", str(room + 1), takes=f"from 1 to {room}")

    def test_words_that_are_not_known_and_lists_without_any_are_refused(self):
        for part, option in (("", "--only"), ("overlap", "--sides"), ("overlap", "--shapes"), ("threads", "--only"), ("flows", "--only"), ("flows", "--over")):
            self.refused(part, option, "nothing-of-the-kind", takes="is not one of")
            self.refused(part, option, ",", takes="it takes some of")
        self.refused("collectives", "--overlap", "--names", ",", takes="it takes some of")
        self.refused("ways", "--rates", "400", takes="pairs such as 400:100")

    def test_what_can_be_measured_is_taken(self):
        self.assertEqual(bench.arguments(["--only", "floor, large collectives"]).only, ["floor", "large collectives"])
        self.assertEqual(overlap.arguments(["--sizes", "8, 64,"]).sizes, [8, 64])
        self.assertEqual(overlap.arguments([]).sizes, overlap.SIZES)
        self.assertEqual(oversubscribed.arguments(["--quick"]).ranks, [2, 4])
        self.assertEqual(nonblocking.arguments(["--overlap"]).ranks, [2, 4])


class Kept(unittest.TestCase):
    """What becomes of the output directory, and of a benchmark whose jobs fail; with jobs that are a shell's."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        environment = mock.patch.dict(os.environ, {"GARONNE_STATE": place.name})
        environment.start()
        self.addCleanup(environment.stop)

    def session(self, out):
        made = session.Session(types.SimpleNamespace(out=str(out), json=False))
        self.addCleanup(made.map.close)
        return made

    def code_after(self, *jobs):
        """The exit code of a benchmark with these jobs: (name of the MPI, exit code)."""
        one = self.session(self.place / "out")

        def jobs_and_report():
            for name, code in jobs:
                peer = peers.Peer(name, self.place, ["sh", "-c", f"echo said so; exit {code}", "sh"])
                one.run(peer, "program", 2, [1, 1e6, "barrier"])
            return one.keep({}, "# Nothing", {})

        return said(jobs_and_report)

    def test_a_benchmark_of_which_every_job_of_ours_failed_fails(self):
        code, line = self.code_after(("garonne", 3), ("mpich", 0), ("garonne", 1))
        self.assertEqual(code, 1)
        self.assertIn("every job of Garonne failed", line)

    def test_one_job_that_did_something_is_a_result_whatever_the_peers_do(self):
        self.assertEqual(self.code_after(("garonne", 0), ("garonne", 1), ("mpich", 1))[0], 0)
        self.assertEqual(self.code_after(("mpich", 1))[0], 0)

    def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_measured(self):
        (self.place / "file").touch()
        (self.place / "out" / "bench.json").mkdir(parents=True)
        for out in (self.place / "file", self.place / "file" / "beneath", self.place / "out", "/proc/none"):
            code, line = said(lambda out=out: self.session(out))
            self.assertEqual(code, 2, out)
            self.assertRegex(line, r"^error: --out takes a directory that can be written to; .*\n\Z")

    def test_what_was_measured_is_shown_also_where_it_cannot_be_written_any_more(self):
        one = self.session(self.place / "out")
        (self.place / "out" / "bench.json").mkdir()
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(one.keep({}, "# Figures", {}), 1)
        self.assertEqual(shown.getvalue(), "# Figures\n")

    def test_samples_that_are_none_are_not_added_to(self):
        (self.place / "samples.json").write_text("{}")
        one = overlap.Overlap(overlap.arguments(["--add", "--out", str(self.place)]))
        self.addCleanup(one.map.close)
        code, line = said(one.load)
        self.assertEqual(code, 2)
        self.assertIn("--add takes", line)


if __name__ == "__main__":
    unittest.main()
