#!/usr/bin/env bash
# Linux, CPython: in a process with a limit of CPU time, `time.process_time()` moves in steps of a kernel tick.
#
# The usual guess: the clock has the nanoseconds that `time.get_clock_info` and `clock_getres` state, so what a verifier
#   costs can be measured in the process that limits it.
# What happens: from the call of `setrlimit(RLIMIT_CPU, …)` on, also in children, the clock is what the kernel's timer has
#   counted: work of 1 ms costs 0 or 4 ms (1 to 10, as the kernel was built). `getrusage` and `time.thread_time()` stay
#   exact, and the resolution that is stated does not change.
# Met by: whoever times verifiers in a sandbox, or decides by such a time that one is slow.
# The cure here: `rg-env attack` reads `getrusage`.
source "$(dirname "$0")/environment.sh"
environment
cd "$work"
cat >run.py <<'PY'
import platform
import resource
import sys
import time


def of_rusage():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def idle(clock):
    """The share of pieces of work of about 1 ms that cost nothing by a clock."""
    costs = []
    for _ in range(200):
        end = time.perf_counter() + 0.001
        start = clock()
        while time.perf_counter() < end:
            pass
        costs.append(clock() - start)
    return sum(cost < 0.00005 for cost in costs) / len(costs)


CLOCKS = {"process_time": time.process_time, "thread_time": time.thread_time, "getrusage": of_rusage}
print("CPython", platform.python_version(), platform.system(), platform.release().partition("-")[0])
before = {name: idle(clock) for name, clock in CLOCKS.items()}
resource.setrlimit(resource.RLIMIT_CPU, (3600, 3600))
after = {name: idle(clock) for name, clock in CLOCKS.items()}
for name in CLOCKS:
    print(f"{name}: {before[name]:.0%} of pieces of 1 ms cost nothing; with a limit {after[name]:.0%}")
print("resolution of process_time as stated:", time.get_clock_info("process_time").resolution)
expected = max(before.values()) < 0.2 and after["process_time"] > 0.4 and after["thread_time"] < 0.2 > after["getrusage"]
sys.exit(not expected)
PY
"$python" run.py
