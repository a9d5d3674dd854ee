"""Stacks of threads that run as fibers, for gdb: `garonne threads gdb -- -p PROCESS`, or `source` in gdb.

The kernel's thread of such a thread sleeps on a small stack of its own, with registers that say where the thread was left. So `bt` and
`thread apply all bt` show the sleep as frame 0, and below it where the thread waits. Workers show the thread that they run.
"""

import gdb
import gdb.unwinder

LIBRARY = "libgaronne_pthread"


class X86:
    """What `garonne_fiber_leave` leaves in registers and on the stack (crates/base/fiber/src/borrowed_stack/sys.rs)."""

    instruction, before = b"\x0f\x05", 2
    saved_at, word, futex, pc, sp = "r12", "r13", "rdi", "rip", "rsp"
    # Registers on the stack, by their distance from its pointer.
    saved = {"r15": 8, "r14": 16, "r13": 24, "r12": 32, "rbx": 40, "rbp": 48, "rip": 56}
    size = 64


class Arm:
    """The AArch64 form."""

    instruction, before = b"\x01\x00\x00\xd4", 4
    saved_at, word, futex, pc, sp = "x20", "x21", "x0", "pc", "sp"
    saved = {**{f"x{n}": 8 * (n - 19) for n in range(19, 31)}, "pc": 88}
    size = 160


MACHINES = {"i386:x86-64": X86, "aarch64": Arm}


class FrameId:
    """What gdb knows a frame by."""

    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


def word(value):
    return int(value) & (1 << 64) - 1


class Sleep(gdb.unwinder.Unwinder):
    """Goes from the sleep of a kernel's thread to the stack that it has left."""

    def __init__(self):
        super().__init__("garonne_threads")

    def __call__(self, frame):
        machine = MACHINES.get(frame.architecture().name())
        if machine is None:
            return None
        pc = word(frame.read_register(machine.pc))
        if LIBRARY not in (gdb.solib_name(pc) or ""):
            return None
        saved_at, home = (word(frame.read_register(name)) for name in (machine.saved_at, machine.word))
        memory = gdb.selected_inferior()
        try:
            asks = bytes(memory.read_memory(pc - machine.before, machine.before)) == machine.instruction
            is_away = int.from_bytes(memory.read_memory(home, 4), "little") != 0
            stack = int.from_bytes(memory.read_memory(saved_at, 8), "little")
            # Arm's first argument has the result at the call's end: then the thread is about to come home anyway.
            if not (asks and is_away and stack and word(frame.read_register(machine.futex)) == home):
                return None
            found = {name: memory.read_memory(stack + at, 8) for name, at in machine.saved.items()}
        except gdb.MemoryError:
            return None
        info = frame.create_unwind_info(FrameId(gdb.Value(stack), gdb.Value(pc)))
        for name, value in found.items():
            info.add_saved_register(name, gdb.Value(bytes(value), frame.read_register(name).type))
        after = (stack + machine.size).to_bytes(8, "little")
        info.add_saved_register(machine.sp, gdb.Value(after, frame.read_register(machine.sp).type))
        return info


gdb.unwinder.register_unwinder(None, Sleep(), replace=True)
