#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench syscalls: shows that small messages make no system call and no context switch.

Runs weft perf under strace with few and with many messages. What a message costs is the difference; opening, connecting and
reporting cancel out. Context switches are counted by the kernel (getrusage, and perf stat where it works).
usage: syscalls.py [--stock] [--provider NAME]        exit status 1 when a message costs a system call
"""
import argparse
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import _common as c

TESTS = [("tagged-pingpong", 8, 40_000), ("msg-pingpong", 8, 40_000), ("tagged-rate", 8, 200_000),
         ("msg-rate", 8, 200_000), ("rma-write-lat", 8, 40_000)]
MANY = 10       # times the few
NONE = 0.005    # system calls per message that count as none: looks for news of peers go with idle polls, not with messages
LIMIT_S = 120


def perf_command(args, test, size, messages):
    return [c.weft(), "perf", "--provider", args.provider, "--tests", test, "--sizes", str(size), "--iters", str(messages),
            "--warmup", "0", "--repeat", "1", "--format", "json"] + (["--stock"] if args.stock else [])


def calls(args, test, size, messages):
    """System calls of all processes together, by name."""
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as out:
        done = subprocess.run(["strace", "-f", "-c", "-U", "calls,name", "-o", out.name] + perf_command(args, test, size, messages),
                              capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            sys.stderr.write(done.stderr[-2000:])
            c.die(f"weft perf under strace ended with status {done.returncode}")
        found = re.findall(r"^\s*(\d+)\s+([a-z]\w+)\s*$", out.read(), re.M)
    return {name: int(count) for count, name in found if name != "total"}


def switches(args, test, size, messages):
    result = c.run_json(perf_command(args, test, size, messages), LIMIT_S)["results"][0]
    return result["voluntary_switches"], result["involuntary_switches"]


def perf_stat(args, test, size, messages):
    """Context switches as perf sees them, or None."""
    if not c.have("perf"):
        return None
    done = subprocess.run(["perf", "stat", "-x,", "-e", "context-switches"] + perf_command(args, test, size, messages),
                          capture_output=True, text=True, timeout=LIMIT_S)
    found = re.search(r"^(\d+),[^\n]*context-switches", done.stderr, re.M)
    return int(found.group(1)) if done.returncode == 0 and found else None


def main():
    p = argparse.ArgumentParser(prog="bench/syscalls.py", description=__doc__.split("\n")[0])
    p.add_argument("--stock", action="store_true", help="look at the stock library instead")
    p.add_argument("--provider", default="shm")
    args = p.parse_args()
    if not c.have("strace"):
        c.die("strace is missing (package strace)")
    rows, bad, saved = [], False, []
    for test, size, few in TESTS:
        many = few * MANY
        a, b = calls(args, test, size, few), calls(args, test, size, many)
        more = sum(b.values()) - sum(a.values())
        each = more / (many - few)
        bad |= each > NONE
        grown = sorted(((b[n] - a.get(n, 0), n) for n in b if b[n] > a.get(n, 0)), reverse=True)[:2]
        voluntary, involuntary = switches(args, test, size, many)
        stat = (perf_stat(args, test, size, few), perf_stat(args, test, size, many))
        rows.append([f"{test} {size} B", few, sum(a.values()), many, sum(b.values()), f"{max(each, 0):.6f}", voluntary, involuntary,
                     "-" if None in stat else f"{stat[0]} / {stat[1]}", ", ".join(f"{n} +{k}" for k, n in grown) or "-"])
        saved.append({"test": test, "size": size, "few": few, "many": many, "calls_few": a, "calls_many": b,
                      "voluntary": voluntary, "involuntary": involuntary, "perf_stat": stat, "grown": grown})
    print(f"system calls of both processes and their parent, {'stock' if args.stock else 'Weft'}, provider {args.provider}")
    print(c.table(["test", "messages", "calls", "messages", "calls", "per message", "sleeps", "preempted", "perf stat", "what grew most"], rows))
    print("sleeps and preempted: voluntary and involuntary context switches during the longer run; a sleep would be ours, a")
    print("preemption is other work on the machine. perf stat: all context switches, start and end included, few / many.")
    print("A fabric may look for dead or new peers while nothing comes; that goes with the time waited, not with messages.")
    c.save("syscalls.json", saved)
    print(f"verdict: {'a message makes system calls' if bad else 'no system call per message'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
