"""The times that docs/user/faults.md promises, and how late a test still takes what was promised: limits of the code, in seconds.

What a machine with too much to do adds to such a time is in SLACK_S alone. A test that waits for something of which no time is promised waits as long as jobs.PATIENCE_S.
"""

# Beyond the promised time, on two cores on which other tests run.
SLACK_S = 15

# A host that says nothing counts as gone (AGENT_SILENCE_MAX).
HOST_SILENT_S = 20
# A line between agents that says nothing is made again elsewhere (LINE_QUIET).
LINE_SILENT_S = 6
# A connection between ranks that is silent while bytes are under way is broken (TCP_SILENCE_MAX, and a look).
CONNECTION_SILENT_S = 10
# The same that is idle: the kernel's probes (TCP_PROBE_AFTER_S and its neighbours).
CONNECTION_IDLE_S = 19
# Two ranks that do not reach each other, nor does anybody reach both (TCP_UNREACHABLE_LIMIT).
APART_S = 12


def within(promised, before=0):
    """How long to wait for something that is promised within so many seconds, if it begins after `before`."""
    return before + promised + SLACK_S
