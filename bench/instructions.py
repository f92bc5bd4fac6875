#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench instructions: how many instructions single calls take, Weft beside the stock library, counted by callgrind.

usage: instructions.py [--count N] [--provider NAME]
"""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
import _common as c

CALLS = [
    ("tinject", "fi_tinject of 8 B"),
    ("empty", "fi_cq_read of an empty queue"),
    ("one", "fi_cq_read that returns a completion"),
]


def collected(provider, call, count, env, program="callgrind_ops"):
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--callgrind-out-file=/dev/null",
               c.program(program), provider, call, str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    except subprocess.TimeoutExpired:
        c.die(f"{call} did not end under callgrind")
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.stderr.write(done.stderr[-3000:])
        c.die(f"{call} could not be counted")
    calls = re.search(r"calls ([\d.]+)", done.stdout)
    return int(found.group(1)), float(calls.group(1)) if calls else 1.0


def counts(provider, count, env, program="callgrind_ops"):
    """Instructions of each call; what the counting itself costs is taken off, once per call."""
    nothing = collected(provider, "nothing", count, env, program)[0] / count
    result = {}
    for call, _ in CALLS:
        total, calls = collected(provider, call, count, env, program)
        result[call] = total / count - nothing * calls
    return result


@contextlib.contextmanager
def read_by_top(program):
    """`weft top` reads the pages of all processes, again and again; yields a list with one entry for each reading that showed the counted program."""
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            shown = subprocess.run([c.STAGE / "bin/weft", "top", "--once", "--json"], capture_output=True, text=True, check=False).stdout
            if program in shown:
                seen.append(len(shown))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()


def main():
    p = argparse.ArgumentParser(prog="bench/instructions.py", description=__doc__.split("\n")[0])
    p.add_argument("--count", type=int, default=2000, help="calls of each kind (default 2000)")
    p.add_argument("--provider", default="shm")
    p.add_argument("--traced", action="store_true", help="count below the recorder of `weft trace`, too")
    p.add_argument("--top", action="store_true", help="count while `weft top` reads, too")
    args = p.parse_args()
    if not c.have("valgrind"):
        c.die("valgrind is missing (package valgrind)")
    if not c.has_ours():
        c.die(f"there is no drop-in library in {c.STAGE}; run ./dev build first")
    plain = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    ours = counts(args.provider, args.count, dict(plain, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat")))
    stock = counts(args.provider, args.count, plain)
    traced = None
    recorder = c.STAGE / "lib/weft/trace/libweft-trace.so"
    if args.traced:
        with tempfile.TemporaryDirectory() as folder:
            traced = counts(args.provider, args.count, dict(plain, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"), LD_PRELOAD=str(recorder),
                                                            WEFT_TRACE_FOLDER=folder))
    print(f"instructions per call, provider {args.provider}, two endpoints in one process, {args.count} calls each")
    print(c.table(["call", "Weft", "stock", "ratio"],
                  [[title, f"{ours[k]:.1f}", f"{stock[k]:.1f}", f"{ours[k] / stock[k]:.2f}x"] for k, title in CALLS]))
    if traced:
        print("\nbelow `weft trace`")
        print(c.table(["call", "Weft", "traced", "more"], [[title, f"{ours[k]:.1f}", f"{traced[k]:.1f}", f"{traced[k] - ours[k]:.1f}"] for k, title in CALLS]))
    if args.top:
        with read_by_top("callgrind") as seen:
            read = counts(args.provider, args.count, dict(plain, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat")))
        print(f"\nwhile `weft top` reads (it saw the program {len(seen)} times)")
        print(c.table(["call", "Weft", "read", "more"], [[title, f"{ours[k]:.1f}", f"{read[k]:.1f}", f"{read[k] - ours[k]:.1f}"] for k, title in CALLS]))
    c.save("instructions.json", {"weft": ours, "stock": stock, "provider": args.provider, "count": args.count})
    return 0


if __name__ == "__main__":
    sys.exit(main())
