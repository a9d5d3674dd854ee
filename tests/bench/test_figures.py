"""What the benchmarks compute from times: the ideal model, shares, labels, tables and pictures. No MPI and no clock."""

import itertools
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import ideal  # noqa: E402
import overlap  # noqa: E402
import report  # noqa: E402
import stats  # noqa: E402
import waits  # noqa: E402


def sample(comm=100.0, comp=100.0, total=120.0, **more):
    return waits.Sample(**{"comm": comm, "comm_worst": comm, "comp": comp, "disturbed": 0.0, "total": total, "calls": total - comp, "within": comp, "wait": total - comp,
                           "wait_worst": total - comp, **more})


def lone_cases():
    """(side, cores, T_comm, T_comp, work, Lone) of all kinds."""
    lones = [ideal.Lone(kernel, own) for kernel in (0, 1, 6, 20, 300) for own in (0.5, 7, 200)]
    return itertools.product(ideal.SIDES, (1, 2, 3, 16), (1, 7, 50), (0, 3, 7, 50, 1000), (0, 5, 200), lones)


class Ideal(unittest.TestCase):
    def test_an_idle_side_does_all_the_work_of_a_message(self):
        for side in ("sender", "receiver"):
            self.assertEqual(ideal.total(side, 2, t_comm=10, t_comp=10, work=10), 10)
            self.assertEqual(ideal.total(side, 2, t_comm=10, t_comp=20, work=10), 20)
            self.assertEqual(ideal.total(side, 2, t_comm=10, t_comp=5, work=10), 10)

    def test_a_copy_by_both_sides_takes_twice_as_long_when_one_of_them_computes(self):
        # 10 with both at it is 20 of core time, and there are 2 * T of it, of which computing takes 10.
        self.assertEqual(ideal.total("receiver", 2, t_comm=10, t_comp=10, work=20), 15)

    def test_two_computing_ranks_on_two_cores_hide_only_what_is_no_copying(self):
        self.assertEqual(ideal.total("both", 2, t_comm=10, t_comp=20, work=20), 30)
        self.assertEqual(ideal.total("both", 2, t_comm=10, t_comp=20, work=0), 20)
        self.assertEqual(ideal.total("both", 2, t_comm=10, t_comp=20, work=10), 25)

    def test_cores_to_spare_hide_everything_on_both_sides(self):
        self.assertEqual(ideal.total("both", 4, t_comm=10, t_comp=20, work=20), 20)

    def test_one_core_hides_no_work(self):
        self.assertEqual(ideal.total("sender", 1, t_comm=10, t_comp=10, work=10), 20)

    def test_work_measured_larger_than_the_transfer_took_is_not_believed(self):
        self.assertEqual(ideal.total("both", 2, t_comm=10, t_comp=20, work=1000), 30)

    def test_the_model_never_promises_less_than_either_part_and_never_more_than_both_in_a_row(self):
        for side in ideal.SIDES:
            for cores in (2, 3, 16):
                for comm in (1, 7, 50):
                    for comp in (0, 3, 50, 100):
                        for work in (0, 5, 200):
                            best = ideal.total(side, cores, comm, comp, work)
                            self.assertGreaterEqual(best, max(comm, comp))
                            self.assertLessEqual(best, comm + comp)

    def test_a_lone_side_copies_at_the_kernels_pace_and_the_rest_takes_both(self):
        # Half of it is there after 10; the other half takes both 5.
        lone = ideal.Lone(kernel=20, own=1000)
        for side in ("sender", "receiver"):
            self.assertEqual(ideal.total_lone(side, 2, t_comm=10, t_comp=10, work=10, lone=lone), 15)
            self.assertEqual(ideal.total_lone(side, 2, t_comm=10, t_comp=20, work=10, lone=lone), 20)
            self.assertEqual(ideal.total_lone(side, 2, t_comm=10, t_comp=5, work=10, lone=lone), 12.5)

    def test_where_both_compute_each_byte_is_copied_by_the_kernel_or_twice(self):
        for lone in (ideal.Lone(kernel=12, own=100), ideal.Lone(kernel=100, own=12)):
            self.assertEqual(ideal.total("both", 2, t_comm=10, t_comp=10, work=4), 12)
            self.assertEqual(ideal.total_lone("both", 2, t_comm=10, t_comp=10, work=4, lone=lone), 16)
            self.assertEqual(ideal.total_lone("both", 2, t_comm=5, t_comp=10, work=4, lone=lone), 15, "as it was moved in less, it takes no more core time than two cores have in that")
            self.assertEqual(ideal.total_lone("both", 16, t_comm=10, t_comp=10, work=4, lone=lone), 10)

    def test_of_a_small_message_the_waiting_hides_and_only_the_own_part_of_the_copy_is_left(self):
        self.assertEqual(ideal.total_lone("sender", 2, t_comm=10, t_comp=10, work=2, lone=ideal.Lone(kernel=20, own=4)), 12)

    def test_one_side_computing_with_shared_memory_lies_between_the_ideal_of_equal_hands_and_both_in_a_row(self):
        for side, cores, comm, comp, work, lone in lone_cases():
            best = ideal.total_lone(side, cores, comm, comp, work, lone)
            equal = ideal.total(side, cores, comm, comp, work)
            self.assertGreaterEqual(best, equal)
            # On one core two that compute take longer than that whatever the copy is.
            self.assertLessEqual(best, max(equal, comm + comp))

    def test_the_kernels_copy_changes_nothing_where_it_is_not_known_or_no_slower_than_both_or_nobody_is_alone_or_nothing_is_computed(self):
        for side, cores, comm, comp, work, lone in lone_cases():
            equal = ideal.total(side, cores, comm, comp, work)
            self.assertEqual(ideal.total_lone(side, cores, comm, comp, work, None), equal)
            self.assertEqual(ideal.total_lone(side, cores, comm, 0, work, lone), ideal.total(side, cores, comm, 0, work))
            if side != "both" and (lone.kernel <= comm or cores != 2 or comp >= lone.kernel):
                self.assertEqual(ideal.total_lone(side, cores, comm, comp, work, lone), equal)

    def test_a_lone_kernel_copy_as_quick_as_both_adds_nothing_by_the_formula_either(self):
        for comm, comp in ((10, 1), (10, 5), (10, 10), (10, 30)):
            nearly = ideal.total_lone("sender", 2, comm, comp, 0, ideal.Lone(comm * (1 + 1e-12), comm))
            self.assertAlmostEqual(nearly, ideal.total("sender", 2, comm, comp, 0))

    def test_more_to_compute_a_longer_message_and_a_slower_copy_never_make_the_lone_ideal_shorter(self):
        for side, cores, comm, comp, work, lone in lone_cases():
            best = ideal.total_lone(side, cores, comm, comp, work, lone)
            self.assertGreaterEqual(ideal.total_lone(side, cores, comm, comp + 1, work, lone), best - 1e-9)
            self.assertGreaterEqual(ideal.total_lone(side, cores, comm + 1, comp, work, lone), best - 1e-9)
            self.assertGreaterEqual(ideal.total_lone(side, cores, comm, comp, work + 1, lone), best - 1e-9)
            for slower in (ideal.Lone(lone.kernel + 1, lone.own), ideal.Lone(lone.kernel, lone.own + 1)):
                self.assertGreaterEqual(ideal.total_lone(side, cores, comm, comp, work, slower), best - 1e-9)

    def test_an_unknown_side_is_refused(self):
        with self.assertRaises(ValueError):
            ideal.total("nobody", 2, 1, 1, 1)

    def test_what_is_hidden_is_a_share_of_the_shorter_time(self):
        self.assertEqual(ideal.hidden(10, 10, 20), 0)
        self.assertEqual(ideal.hidden(10, 10, 10), 1)
        self.assertEqual(ideal.hidden(10, 20, 25), 0.5)
        self.assertLess(ideal.hidden(10, 10, 30), 0)
        self.assertEqual(ideal.hidden(10, 0, 10), 0)

    def test_between_hosts_a_side_that_computes_pays_the_kernels_work_for_it(self):
        kernel = ideal.Kernel(put=30, get=20)
        self.assertEqual(ideal.total_between("sender", 2, 100, 100, kernel), 130)
        self.assertEqual(ideal.total_between("receiver", 2, 100, 100, kernel), 120)
        self.assertEqual(ideal.total_between("both", 2, 100, 100, kernel), 130)
        # Nobody computes; no more than the message took; not enough cores for both.
        self.assertEqual(ideal.total_between("sender", 2, 100, 0, kernel), 100)
        self.assertEqual(ideal.total_between("sender", 4, 100, 100, ideal.Kernel(put=500, get=20)), 200)
        self.assertEqual(ideal.total_between("both", 1, 100, 100, kernel), 250)

    def test_the_formula_of_imb_is_bounded(self):
        self.assertEqual(ideal.nbc(10, 10, 100), 0)
        self.assertEqual(ideal.nbc(10, 10, 5), 1)
        self.assertEqual(ideal.nbc(10, 10, 15), 0.5)

    def test_the_papers_ratio_is_computing_by_all(self):
        self.assertEqual(ideal.paper_ratio(10, 20), 0.5)
        self.assertEqual(ideal.paper_ratio(0, 0), 0)


class Summary(unittest.TestCase):
    def test_every_comparison_is_counted_once_by_its_whole_interval(self):
        def row(low, high):
            return {"ratio": {"peer": {"median": 1.0, "low": low, "high": high}}}
        lines = report.summary([row(0.5, 0.99), row(0.5, 1.01), row(1.01, 2.0), row(1.2, 2.0), {"ratio": {}}])
        self.assertEqual(lines[-2], "| peer | 1 | 1 | 2 |")

    def test_nothing_compared_makes_no_table(self):
        self.assertEqual(report.summary([{"ratio": {}}]), [])


class Waits(unittest.TestCase):
    def test_a_stall_of_one_sample_shows_whatever_the_medians_say_and_whatever_its_regime(self):
        good, stalled = sample(comm=10.0, calls=2.0, wait=1.0, wait_worst=1.5), sample(comm=10.0, calls=2.0, wait=1.0, wait_worst=7e7, disturbed=3.0)
        figures = waits.figures([good] * 3, [good] * 3 + [stalled])
        self.assertEqual((figures["wait_ns"], figures["wait_worst_ns"], figures["disturbed_ns"]), (1.0, 7e7, 3.0))
        self.assertAlmostEqual(figures["hidden"], 0.8)
        self.assertEqual(overlap.worst({"near": [good], "unsteady": [stalled]})["wait_worst_ns"], 7e7)

    def test_a_table_has_a_line_for_each_mpi_with_its_times_in_microseconds(self):
        of = waits.figures([sample(comm=250e3, calls=50e3, wait=40e3, wait_worst=70.1e6)], [sample(wait_worst=70.1e6)])
        lines = waits.table([{"bytes": 8, "comp_ms": 20, "of": {"mpich": of, "garonne": of}}], [("bytes", lambda row: row["bytes"])], "T_comm")
        self.assertEqual([line.split(" | ")[2] for line in lines[2:4]], ["garonne", "mpich"])
        self.assertIn("| 250.0 | 80 % | 40.0 | 70100.0 |", lines[2])
        self.assertEqual({line.count("|") for line in lines[:4]}, {11})


class Labels(unittest.TestCase):
    def test_samples_whose_hand_offs_disagree_have_no_regime(self):
        self.assertEqual(stats.regime(100, 110), "near")
        self.assertEqual(stats.regime(300, 310), "far")
        self.assertIsNone(stats.regime(100, 300))
        self.assertIsNone(stats.regime(145, 145))
        self.assertEqual(stats.regime(0, 0), "any")


class Report(unittest.TestCase):
    def rows(self):
        samples = [sample(total=total) for total in (110.0, 120.0, 130.0, 120.0, 120.0)]
        case = overlap.Case("receiver", "contiguous", 32768, 100)
        return [{"side": case.side, "shape": case.shape, "bytes": case.bytes, "percent": case.percent,
                 "of": {"garonne": overlap.figures(samples, "near", lambda s: ideal.total(case.side, 2, s.comm, s.comp, 100.0))}}]

    def test_a_case_has_the_papers_ratio_and_the_share_hidden(self):
        figures = self.rows()[0]["of"]["garonne"]
        self.assertAlmostEqual(figures["paper_ratio"], 100 / 120)
        self.assertAlmostEqual(figures["hidden"], 0.8)
        self.assertAlmostEqual(figures["ideal_hidden"], 1.0)
        self.assertAlmostEqual(figures["of_ideal"], 100 / 120)

    def test_the_heat_map_is_a_picture_with_a_cell_for_each_case_and_its_ideal(self):
        root = xml.fromstring(overlap.heat_map(self.rows(), "contiguous"))
        texts = [element.text for element in root.iter() if element.text]
        self.assertIn("80", texts)
        self.assertIn("100", texts)
        self.assertIn("32K", texts)

    def test_an_ideal_that_is_not_known_is_no_number_and_no_colour(self):
        figures = overlap.figures([sample()], "far", None)
        self.assertEqual([figures[key] for key in ("ideal_paper_ratio", "of_ideal", "ideal_hidden")], [None] * 3)
        self.assertEqual([figures[key] for key in ("lone_paper_ratio", "of_lone", "lone_hidden")], [None] * 3)
        text = overlap.cell_text({**figures, "wait_worst_ns": 30.0}, "sender")
        self.assertIn("0.83 (?) | ? | 80 % (?) ", text)
        rows = self.rows()
        rows[0]["of"]["garonne"]["ideal_hidden"] = None
        xml.fromstring(overlap.heat_map(rows, "contiguous"))

    def test_both_ideals_show_where_they_differ_and_the_aim_is_judged_by_equal_hands(self):
        figures = overlap.figures([sample()], "near", lambda s: 100.0, lambda s: 115.0)
        text = overlap.cell_text({**figures, "wait_worst_ns": 30.0}, "sender")
        self.assertTrue(text.startswith("0.83 (1.00; 0.87) | 0.83; 0.96 | 80 % (100 %; 85 %) | "), text)
        reached = overlap.figures([sample()], "near", lambda s: 115.0, lambda s: 116.0)
        self.assertIn("| **0.96**; 0.97 |", overlap.cell_text({**reached, "wait_worst_ns": 30.0}, "sender"))
        same = overlap.cell_text({**overlap.figures([sample()], "near", lambda s: 100.0), "wait_worst_ns": 30.0}, "sender")
        self.assertTrue(same.startswith("0.83 (1.00) | 0.83 | 80 % (100 %) | "), same)
        rows = self.rows()
        names = lambda: [element.text for element in xml.fromstring(overlap.heat_map(rows, "contiguous")).iter()]
        self.assertNotIn("ideal, lone", names())
        rows[0]["of"]["garonne"] = figures
        self.assertTrue({"ideal, lone", "ideal", "85", "100"} <= set(names()))

    def test_a_lone_receiver_reads_and_a_lone_sender_writes_contiguous_data_on_one_host(self):
        def lone(side, *words, shape="contiguous", size=8192, label="near"):
            with tempfile.TemporaryDirectory() as out, mock.patch.dict(os.environ, {"GARONNE_STATE": out}):
                bench = overlap.Overlap(overlap.arguments(["--out", out, *words]))
                self.addCleanup(bench.map.close)
            for what, ns in (("memcpy", 60), ("strided", 200), ("readv", 80), ("stage", 30), ("writev", 70)):
                bench.take_floor(f"sample {what} {size} {ns} 50 50\n")
            case = overlap.Case(side, shape, size, 100)
            best = bench.ideal_lone(case, 2, label)
            return bench.lone(case, label), best and best(sample(comm=40.0, comp=40.0))
        # The idle receiver reads half of it meanwhile, and the sender's part of the rest is half of 30; the idle sender writes 4 of 7, and the rest takes both 3/7 of 40.
        self.assertEqual(lone("sender"), (ideal.Lone(80, 30), 55))
        self.assertEqual(lone("receiver")[0], ideal.Lone(70, 60))
        self.assertAlmostEqual(lone("receiver")[1], 40 + 40 * 3 / 7)
        # Where both compute the sender writes it, in 70 of core time, or both copy, in 30 + 60.
        self.assertEqual(lone("both"), (ideal.Lone(70, 90), 75))
        self.assertEqual(lone("sender", shape="strided")[0], None)
        self.assertEqual(lone("sender", size=4096)[0], None, "it lies in stores that are not finished yet")
        self.assertEqual(lone("sender", "--over", "tcp"), (None, None))
        self.assertEqual(lone("sender", label="far"), (None, None))

    def test_the_ideal_takes_the_copying_of_the_same_regime(self):
        with tempfile.TemporaryDirectory() as out, mock.patch.dict(os.environ, {"GARONNE_STATE": out}):
            bench = overlap.Overlap(overlap.arguments(["--out", out]))
            self.addCleanup(bench.map.close)
        # Near cores copy in 60 what takes far ones 200; unsteady ones have samples of their own.
        for what, ns, handoffs in (("memcpy", 60, (50, 50)), ("readv", 80, (50, 50)), ("memcpy", 200, (180, 180)), ("readv", 150, (180, 180)), ("memcpy", 110, (50, 180))):
            bench.take_floor(f"sample {what} 1024 {ns} {handoffs[0]} {handoffs[1]}\n")
        case = overlap.Case("both", "contiguous", 1024, 100)
        self.assertEqual([bench.ideal(case, 2, label)[1] for label in ("near", "far", "unsteady")], [60, 150, 110])
        self.assertEqual(bench.ideal(overlap.Case("both", "contiguous", 8, 100), 2, "near"), (None, None))

    def test_colours_go_from_red_to_green(self):
        self.assertEqual(overlap.colour(-1), overlap.colour(0))
        self.assertEqual(overlap.colour(1), "#3ca05a")


if __name__ == "__main__":
    unittest.main()
