"""What TCP sockets do, tried on connections between two processes: behaviour.py NAME [tcp].

Each function is one test. It passes on plain TCP as it does with garonne sockets run; with the library it also says that
the connection went over shared memory, unless the word `tcp` follows.
"""

import array
import errno
import fcntl
import hashlib
import os
import random
import select
import signal
import socket
import struct
import sys
import tempfile
import termios
import threading
import time

HOST = "127.0.0.1"


def has_library():
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        return "libgaronne_sockets" in maps.read()


def virtual_sockets():
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        return sum("memfd:garonne-socket (deleted)" in line or line.rstrip().endswith("memfd:garonne-socket") for line in maps)


def pair_of_processes(server, family=socket.AF_INET, host=HOST):
    """A connection to a child that runs `server` on its end; the child's number."""
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen(8)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                other, _ = listener.accept()
                listener.close()
                server(other)
                code = 0
            finally:
                os._exit(code)
        here = socket.create_connection(listener.getsockname()[:2])
    assert not has_library() or "tcp" in sys.argv or virtual_sockets() > 0, "the connection is not over shared memory"
    return here, child


def ends_well(child):
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the other side ended with {status}"


def exactly(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"{len(data)} bytes of {count}, then the end"
        data += piece
    return data


def content(count, seed=1):
    return random.Random(seed).randbytes(count)


def data_both_ways():
    """Long streams in both directions at once, by all calls that there are, in pieces of any length."""
    size = 24 << 20
    there, back = content(size, 1), content(size, 2)

    def send(sock, data):
        rng, at = random.Random(3), 0
        view = memoryview(data)
        while at < len(data):
            count = min(rng.choice([1, 7, 64, 1000, 4096, 70000, 300000]), len(data) - at)
            piece = view[at:at + count]
            way = rng.randrange(4)
            if way == 0:
                at += sock.send(piece)
            elif way == 1:
                at += sock.sendmsg([piece[:count // 3], piece[count // 3:]])
            elif way == 2:
                at += os.writev(sock.fileno(), [piece[:count // 2], piece[count // 2:]])
            else:
                at += os.write(sock.fileno(), piece)
        sock.shutdown(socket.SHUT_WR)

    def receive(sock):
        rng, sums, total = random.Random(4), hashlib.sha256(), 0
        while True:
            count = rng.choice([1, 10, 64, 5000, 65536, 400000])
            way = rng.randrange(4)
            if way == 0:
                data = sock.recv(count)
            elif way == 1:
                data = sock.recvmsg(count)[0]
            elif way == 2:
                parts = [bytearray(count // 2 + 1), bytearray(count)]
                got = os.readv(sock.fileno(), parts)
                data = b"".join(parts)[:min(got, len(parts[0]))] + bytes(parts[1][:max(0, got - len(parts[0]))])
            else:
                data = os.read(sock.fileno(), count)
            if not data:
                return sums.hexdigest(), total
            peeked = b""
            if rng.randrange(50) == 0:
                sock.setblocking(False)
                try:
                    peeked = sock.recv(10, socket.MSG_PEEK)
                except BlockingIOError:
                    pass
                sock.setblocking(True)
            sums.update(data)
            total += len(data)
            if peeked:
                again = sock.recv(len(peeked))
                assert again == peeked[:len(again)], "what was peeked at is not what came"
                sums.update(again)
                total += len(again)

    def both(sock, data, expected):
        sender = threading.Thread(target=send, args=(sock, data))
        sender.start()
        found = receive(sock)
        sender.join()
        assert found == (hashlib.sha256(expected).hexdigest(), len(expected)), f"other bytes: {found[1]}"

    here, child = pair_of_processes(lambda sock: both(sock, back, there))
    both(here, there, back)
    ends_well(child)


def version_6():
    here, child = pair_of_processes(lambda sock: sock.sendall(exactly(sock, 5)), socket.AF_INET6, "::1")
    here.sendall(b"hello")
    assert exactly(here, 5) == b"hello" and here.getpeername()[0] == "::1"
    ends_well(child)


def names_and_options():
    def server(sock):
        sock.sendall(repr((sock.getsockname(), sock.getpeername())).encode())
        sock.shutdown(socket.SHUT_WR)

    here, child = pair_of_processes(server)
    text = b""
    while piece := here.recv(100):
        text += piece
    assert text.decode() == repr((here.getpeername(), here.getsockname()))
    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert here.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert here.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    assert here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    ends_well(child)


def waiting_bytes(sock):
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    return count[0]


def readiness():
    """poll, select and epoll say that there are bytes if and only if there are."""
    def server(sock):
        for _ in range(200):
            exactly(sock, 1)
            sock.sendall(b"x" * 100)
        exactly(sock, 1)

    here, child = pair_of_processes(server)
    level, edge, poll = select.epoll(), select.epoll(), select.poll()
    level.register(here, select.EPOLLIN)
    edge.register(here, select.EPOLLIN | select.EPOLLET)
    poll.register(here, select.POLLIN)
    for _ in range(200):
        assert not select.select([here], [], [], 0)[0] and not level.poll(0) and not poll.poll(0)
        here.sendall(b"?")
        assert edge.poll(10), "no edge came with the bytes"
        assert level.poll(10) and poll.poll(10) and select.select([here], [], [], 10)[0]
        while waiting_bytes(here) < 100:
            time.sleep(0.001)
        exactly(here, 60)
        assert level.poll(0) and waiting_bytes(here) == 40
        exactly(here, 40)
        assert waiting_bytes(here) == 0
        edge.poll(0)
    here.setblocking(False)
    try:
        here.recv(1)
        raise AssertionError("bytes from nowhere")
    except BlockingIOError:
        pass
    here.send(b"!")
    assert level.poll(10)
    assert here.recv(1) == b""
    ends_well(child)


def full():
    """A socket that takes no more is not writable, and writable again once the other side has read."""
    def server(sock):
        hold, go = sock, sock.recv(1)
        assert go == b"x"
        time.sleep(0.2)
        while hold.recv(1 << 20):
            pass

    for _ in range(5):
        here, child = pair_of_processes(server)
        here.setblocking(False)
        edge = select.epoll()
        edge.register(here, select.EPOLLOUT | select.EPOLLET)
        assert edge.poll(0)
        sent = 0
        for _ in range(3):
            try:
                while True:
                    sent += here.send(b"x" * 100000)
            except BlockingIOError:
                pass
            if not select.select([], [here], [], 0)[1]:
                break
        assert edge.poll(10), "no edge came when there was room"
        assert select.select([], [here], [], 10)[1]
        here.setblocking(True)
        here.sendall(b"y" * 3000000)
        here.close()
        ends_well(child)


def times():
    """Time limits of calls, and signals that interrupt them."""
    here, child = pair_of_processes(lambda sock: exactly(sock, 1))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000))
    for call in (lambda: os.read(here.fileno(), 10), lambda: os.read(here.fileno(), 10)):
        try:
            call()
            raise AssertionError("no time limit")
        except BlockingIOError:
            pass
    interrupted = []
    signal.signal(signal.SIGALRM, lambda *_: interrupted.append(1) or here.send(b"x"))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    assert os.read(here.fileno(), 10) == b"" and interrupted
    ends_well(child)

    here, child = pair_of_processes(lambda sock: time.sleep(1))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000))
    try:
        while True:
            os.write(here.fileno(), b"x" * (1 << 20))
    except (BlockingIOError, BrokenPipeError, ConnectionResetError) as error:
        assert error.errno == errno.EAGAIN
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def half_close():
    def server(sock):
        data = b""
        while piece := sock.recv(1000):
            data += piece
        sock.sendall(data[::-1])

    here, child = pair_of_processes(server)
    here.sendall(b"abc")
    here.shutdown(socket.SHUT_WR)
    assert exactly(here, 3) == b"cba" and here.recv(1) == b""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        here.send(b"x")
        raise AssertionError("a write after shutdown")
    except BrokenPipeError:
        pass
    ends_well(child)


def killed():
    """A side that dies: the other reads what was sent, then the end or a reset, and writes fail."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def server(sock):
        sock.sendall(b"last words")
        time.sleep(60)

    for unread in (False, True):
        here, child = pair_of_processes(server)
        assert here.recv(4, socket.MSG_WAITALL) == b"last"
        if unread:
            here.sendall(b"never read")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        data, reset = b"", False
        try:
            while piece := here.recv(100):
                data += piece
        except ConnectionResetError:
            reset = True
        assert reset == unread, (reset, unread)
        assert unread or data == b" words", data
        try:
            for _ in range(100):
                here.send(b"x" * 1000)
            raise AssertionError("writes to the dead go on")
        except (BrokenPipeError, ConnectionResetError):
            pass
    for _ in range(30):
        here, child = pair_of_processes(lambda sock: [sock.sendall(sock.recv(100)) for _ in range(10 ** 9)])
        count = random.randrange(100)
        try:
            for at in range(10 ** 9):
                if at == count:
                    os.kill(child, signal.SIGKILL)
                here.sendall(b"x" * 64)
                if not here.recv(64):
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        os.waitpid(child, 0)


def reset():
    """SO_LINGER without time: closing resets the connection."""
    def server(sock):
        exactly(sock, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    here, child = pair_of_processes(server)
    here.sendall(b"x")
    try:
        assert here.recv(1) == b"" and False, "an end instead of a reset"
    except ConnectionResetError:
        pass
    ends_well(child)


def forked():
    """Parent and child of a fork share an end, as on TCP."""
    def server(sock):
        while data := sock.recv(100):
            sock.sendall(data.upper())

    here, child = pair_of_processes(server)
    for round_ in range(20):
        second = os.fork()
        if second == 0:
            here.sendall(b"child")
            os._exit(0 if exactly(here, 5) == b"CHILD" else 1)
        ends_well(second)
        here.sendall(b"parent")
        assert exactly(here, 6) == b"PARENT", round_
    here.close()
    ends_well(child)


def copied():
    """dup, dup2, F_DUPFD: a connection lives as long as one of its descriptors."""
    def server(sock):
        while data := sock.recv(100):
            sock.sendall(data)

    here, child = pair_of_processes(server)
    copies = [os.dup(here.fileno()), fcntl.fcntl(here.fileno(), fcntl.F_DUPFD, 100), os.dup2(here.fileno(), 200)]
    here.close()
    for at, copy in enumerate(copies):
        os.write(copy, b"copy")
        assert os.read(copy, 100) == b"copy"
        os.close(copy)
    ends_well(child)
    here, child = pair_of_processes(server)
    with open("/dev/null", "wb") as null:
        os.dup2(null.fileno(), here.fileno())
    ends_well(child)
    assert os.write(here.fileno(), b"into the void") == 13


def files():
    """sendfile, whole and in parts."""
    data = content(3 << 20)

    def server(sock):
        sums = hashlib.sha256()
        while piece := sock.recv(100000):
            sums.update(piece)
        sock.sendall(sums.digest())

    here, child = pair_of_processes(server)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        assert os.sendfile(here.fileno(), file.fileno(), 0, 1000) == 1000
        at = 1000
        while at < len(data):
            at += os.sendfile(here.fileno(), file.fileno(), at, len(data))
    here.shutdown(socket.SHUT_WR)
    assert exactly(here, 32) == hashlib.sha256(data).digest()
    ends_well(child)


def nonblocking_connect():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(8)
        here = socket.socket()
        here.setblocking(False)
        assert here.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS)
        assert select.select([], [here], [], 10)[1]
        assert here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        here.send(b"before accept")
        there, name = listener.accept()
        assert name == here.getsockname()
        assert there.recv(100) == b"before accept"
        assert here.connect_ex(listener.getsockname()) in (0, errno.EISCONN)
        gone = listener.getsockname()
    refused = socket.socket()
    try:
        refused.connect(gone)
        raise AssertionError("somebody listens at a closed port")
    except ConnectionRefusedError:
        pass


def passed_on():
    """A descriptor that goes to another process is refused or works; it never gives other bytes."""
    def server(sock):
        while data := sock.recv(100):
            sock.sendall(data)

    here, child = pair_of_processes(server)
    ours, theirs = socket.socketpair()
    taker = os.fork()
    if taker == 0:
        ours.close()
        here.close()
        _, descriptors, _, _ = socket.recv_fds(theirs, 10, 1)
        if not descriptors:
            os._exit(0)
        os.write(descriptors[0], b"passed")
        os._exit(0 if os.read(descriptors[0], 100) == b"passed" else 1)
    try:
        socket.send_fds(ours, [b"x"], [here.fileno()])
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
        ours.sendall(b"none")
    ends_well(taker)
    here.sendall(b"still")
    assert exactly(here, 5) == b"still"
    here.close()
    ends_well(child)


def many(count=1000):
    """A thousand connections at once, each with its own bytes."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(4096)
        child = os.fork()
        if child == 0:
            epoll, sockets = select.epoll(), {}
            epoll.register(listener, select.EPOLLIN)
            done = 0
            while done < count:
                for number, _ in epoll.poll(60):
                    if number == listener.fileno():
                        sock, _ = listener.accept()
                        sockets[sock.fileno()] = sock
                        epoll.register(sock, select.EPOLLIN)
                        continue
                    data = sockets[number].recv(100)
                    if data:
                        sockets[number].sendall(data)
                    else:
                        sockets.pop(number).close()
                        done += 1
            os._exit(0)
        sockets = [socket.create_connection(listener.getsockname()) for _ in range(count)]
        assert not has_library() or virtual_sockets() > count // 2
        for round_ in range(3):
            for at, sock in enumerate(sockets):
                sock.sendall(b"%d %d;" % (round_, at))
            for at, sock in enumerate(sockets):
                wanted = b"%d %d;" % (round_, at)
                assert exactly(sock, len(wanted)) == wanted
        for sock in sockets:
            sock.close()
        ends_well(child)


def few_descriptors():
    """Where descriptors run out the program is told as on TCP, and what is connected works."""
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(100)
        pairs = []
        try:
            while True:
                here = socket.socket()
                here.connect(listener.getsockname())
                there, _ = listener.accept()
                pairs.append((here, there))
        except OSError as error:
            assert error.errno == errno.EMFILE, error
    assert len(pairs) >= 4
    for here, there in pairs:
        here.sendall(b"there")
        assert exactly(there, 5) == b"there"
        there.sendall(b"back")
        assert exactly(here, 4) == b"back"


def threads():
    """Many threads at one connection: each piece comes once."""
    def server(sock):
        total = 0
        lock = threading.Lock()

        def work():
            nonlocal total
            while data := sock.recv(64):
                with lock:
                    total += len(data)

        workers = [threading.Thread(target=work) for _ in range(4)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        sock.sendall(b"%d" % total)

    here, child = pair_of_processes(server)
    workers = [threading.Thread(target=lambda: [here.sendall(b"x" * 100) for _ in range(2000)]) for _ in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    here.shutdown(socket.SHUT_WR)
    assert here.recv(100) == b"800000"
    ends_well(child)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("all is well")
