"""Packages in a private root: what apt says is planned, links that scripts of packages would make, and one fetch of each."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import packages  # noqa: E402

PLANNED = """NOTE: This is only a simulation!
Inst libucx0 (1.13.1-1 Debian:12.11/stable [amd64])
Inst libopenmpi3 [4.1.4-2] (4.1.4-3+b1 Debian:12.11/stable [amd64])
Conf libucx0 (1.13.1-1 Debian:12.11/stable [amd64])
"""


class Packages(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.debian = packages.Debian(place.name)

    def test_closure_is_what_apt_would_install(self):
        with mock.patch.object(packages, "asked", return_value=PLANNED):
            self.assertEqual(self.debian.closure("libopenmpi3"), [("libucx0", "1.13.1-1"), ("libopenmpi3", "4.1.4-3+b1")])

    def test_a_package_is_fetched_once(self):
        added = []
        with mock.patch.object(packages.Debian, "closure", return_value=[("a", "1")]), mock.patch.object(packages.Debian, "add", lambda _, *what: added.append(what)):
            self.debian.fetch(["a"])
            self.debian.fetch(["a"])
        self.assertEqual(added, [("a", "1")])

    def test_alternatives_are_linked(self):
        directory = self.debian.root / "usr/lib/x86_64-linux-gnu"
        (directory / "blas").mkdir(parents=True)
        (directory / "blas/libblas.so.3").touch()
        self.debian.link()
        self.debian.link()
        self.assertTrue((directory / "libblas.so.3").samefile(directory / "blas/libblas.so.3"))

    def test_a_command_that_fails_says_why(self):
        with self.assertRaisesRegex(packages.Unavailable, "no such package"):
            packages.asked(["sh", "-c", "echo no such package >&2; exit 1"])


if __name__ == "__main__":
    unittest.main()
