"""Fetching of peers: once, also where several want one at the same time."""

import pathlib
import sys
import tempfile
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import peers  # noqa: E402


class Fetch(unittest.TestCase):
    def test_two_that_want_one_peer_wait_for_one_fetch(self):
        begun, together, seen = [], threading.Event(), []

        def make(name, package, root, wheels):
            begun.append(name)
            # The other one is on its way, and finds nothing half made.
            together.wait(10)
            root.mkdir()
            (root / "program").touch()
            (root / ".ready").touch()

        with tempfile.TemporaryDirectory() as state, mock.patch.object(peers, "make", make):
            def want():
                seen.append((peers.fetch("mpich", pathlib.Path(state), None) / "program").exists())

            threads = [threading.Thread(target=want) for _ in range(2)]
            for thread in threads:
                thread.start()
            threads[1].join(0.2)
            together.set()
            for thread in threads:
                thread.join()
        self.assertEqual((begun, seen), (["mpich"], [True, True]))


if __name__ == "__main__":
    unittest.main()
