"""Python threads that hash, wait for each other and sleep; what it prints is alike in each run."""

import concurrent.futures
import hashlib
import queue
import subprocess
import threading
import time

work, out, lock = queue.Queue(), [], threading.Lock()


def worker():
    while (item := work.get()) is not None:
        digest = hashlib.sha256(str(item).encode() * 2000).hexdigest()
        with lock:
            out.append(digest)


threads = [threading.Thread(target=worker) for _ in range(16)]
for thread in threads:
    thread.start()
for item in range(500):
    work.put(item)
for _ in threads:
    work.put(None)
for thread in threads:
    thread.join()

barrier, never, places = threading.Barrier(8), threading.Event(), threading.Semaphore(3)


def meets(number):
    barrier.wait()
    with places:
        time.sleep(0.001)
    assert not never.wait(0.002)
    return subprocess.run(["echo", str(number)], capture_output=True, text=True, check=True).stdout.strip()


with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(*pool.map(meets, range(8)))
print(len(out), hashlib.sha256("".join(sorted(out)).encode()).hexdigest())
