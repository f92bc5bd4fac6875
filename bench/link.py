#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench link: what a call costs by the way in which the program is linked: directly, through the multiplexer, over the drop-in, and with
the stock library; instructions (callgrind) and nanoseconds.

usage: link.py [--count N] [--rounds N]
Exit status 0 only when the direct way takes at most 0.6 of the drop-in's instructions and the multiplexer at most 12 more than it.
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True
import _common as c
import instructions

WAYS = ["direct", "multiplexer", "drop-in", "stock"]


def main():
    p = argparse.ArgumentParser(prog="bench/link.py", description=__doc__.split("\n")[0])
    p.add_argument("--count", type=int, default=2000, help="calls of each kind that callgrind counts (default 2000)")
    p.add_argument("--rounds", type=int, default=5, help="rounds of the nanoseconds (default 5)")
    args = p.parse_args()
    if not c.have("valgrind"):
        c.die("valgrind is missing (package valgrind)")
    plain = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    dropin = dict(plain, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"))
    programs = {"direct": ("callgrind_ops_direct", plain), "multiplexer": ("callgrind_ops_mux", plain),
                "drop-in": ("callgrind_ops", dropin), "stock": ("callgrind_ops", plain)}
    counted = {way: instructions.counts("shm", args.count, env, name) for way, (name, env) in programs.items()}
    timed = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, (name, env) in programs.items():
            timed[way].append(c.run_json([c.program(name), "shm", "time", "200000"], env=env))
    ns = {way: {call: c.median([round[call] for round in timed[way]]) for call, _ in instructions.CALLS} for way in WAYS}
    print("a call by the way of linking, provider shm, two endpoints in one process")
    rows = []
    for call, title in instructions.CALLS:
        rows.append([title + ": instructions"] + [f"{counted[way][call]:.1f}" for way in WAYS])
        rows.append(["    ns"] + [f"{ns[way][call]:.1f}" for way in WAYS])
    print(c.table(["call"] + WAYS, rows))
    missed = []
    for call, title in instructions.CALLS:
        ratio = counted["direct"][call] / counted["drop-in"][call]
        more = counted["multiplexer"][call] - counted["drop-in"][call]
        print(f"{title}: direct {ratio:.2f}x of the drop-in (asked 0.60x), multiplexer {more:+.1f} instructions (asked +12)")
        missed += [title] if ratio > 0.6 or more > 12 else []
    c.save("link.json", {"instructions": counted, "ns": ns, "count": args.count})
    if missed:
        print("missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
