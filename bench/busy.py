#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench busy: ping-pongs while a loop runs on each CPU, Weft beside the stock library and another libfabric, in turns.

usage: busy.py [--rounds N] [--sizes BYTES,...] [--providers NAME,...] [--other FOLDER] [--base FOLDER] [--no-stock] [--idle] [--strict]
Two processes, each pinned to a CPU that it shares with a loop that computes. Each figure is the mean time one way; printed are medians over the rounds, and the ratio of
Weft's time to the other's: below 1 Weft is faster. --other: the folder of another libfabric.so.1, and --base that of another Weft. --idle: without the loops.
--strict: exit status 1 when a ratio is above 1.2.
"""
import contextlib
import subprocess
import sys

sys.dont_write_bytecode = True
import _common as c
import cold

GOAL = 1.2  # times the other's time
LOOP = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"


def parse():
    p = cold.options("bench/busy.py", __doc__, 5, "8,4096,65536")
    p.add_argument("--providers", default="shm,tcp")
    p.add_argument("--no-stock", action="store_true", help="without the stock library")
    p.add_argument("--idle", action="store_true", help="without the loops")
    return p.parse_args()


@contextlib.contextmanager
def loops(cpus):
    running = [subprocess.Popen([sys.executable, "-c", LOOP, str(cpu)]) for cpu in cpus]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def ping_pong(folder, provider, size, messages, cpus):
    said = cold.first_messages(folder, provider, size, cpus, "-n", str(messages), "--seconds", "60", limit_s=70)
    return said["us"][str(messages)] if said else None


def main():
    args = parse()
    cpus = c.two_cpus()
    if cpus is None:
        print("two CPUs are needed")
        return 1
    quiet = c.Quiet()
    ways = {"weft": (cold.ours(), lambda p: p), "stock": ("", lambda p: "net" if p == "tcp" else p)}
    if args.no_stock:
        del ways["stock"]
    if args.other:  # libfabric's tcp has reliable datagrams by ofi_rxm; between processes of one host `weft` stands beside its shm
        ways["other"] = (args.other, lambda p: {"tcp": "tcp;ofi_rxm", "weft": "shm"}.get(p, p))
    if args.base:
        ways["base"] = (args.base, lambda p: p)
    others = [way for way in ways if way != "weft"]
    cases = [(provider, int(size)) for provider in args.providers.split(",") for size in args.sizes.split(",")]
    found = {}
    for i in range(args.rounds):
        quiet.look()
        with loops([] if args.idle else cpus):
            names = list(ways)
            for provider, size in cases:
                messages = 100_000 if provider == "shm" and size < 65536 else 10_000
                for who in names[i % len(names):] + names[:i % len(names)]:
                    folder, named = ways[who]
                    if (us := ping_pong(folder, named(provider), size, messages, cpus)) is not None:
                        found.setdefault((provider, size, who), []).append(us)
        print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
    rows, missed, medians = [], 0, {}
    for provider, size in cases:
        figures = {who: c.median(found.get((provider, size, who), [])) for who in ways}
        medians[f"{provider} {size}"] = figures
        ratios, above = cold.compared(figures, [("weft", theirs) for theirs in others], GOAL)
        missed += above
        rows.append([f"{provider} {size} B"] + [c.figure(figures[who]) for who in ways] + ratios)
    print(f"one way, us, medians of {args.rounds} rounds; {'idle CPUs' if args.idle else 'a loop on each CPU'}")
    print(c.table(["messages"] + list(ways) + [f"weft / {theirs}" for theirs in others], rows))
    print(quiet.verdict())
    saved = c.save("idle.json" if args.idle else "busy.json", {"medians_us": medians, "rounds": args.rounds, "missed": missed, "other_work_cpus": quiet.worst})
    print(f"saved {saved.name} in {c.OUT}")
    return 1 if args.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
