#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench all_to_all: 200 processes on one machine, each sending to each; memory per process, and what is left behind.

usage: all_to_all.py [--stock] [--processes N] [--messages N] [--size BYTES] [--provider NAME] [--exact] [--timeout SECONDS]
Exit status 0 only when every byte was right and nothing was left.
"""
import argparse
import subprocess
import sys

sys.dont_write_bytecode = True
import _common as c


def main():
    p = argparse.ArgumentParser(prog="bench/all_to_all.py", description=__doc__.split("\n")[0])
    p.add_argument("--stock", action="store_true", help="on the system's libfabric")
    p.add_argument("--processes", type=int, default=200)
    p.add_argument("--messages", type=int, default=16, help="for each ordered pair (default 16)")
    p.add_argument("--size", type=int, default=1024)
    p.add_argument("--provider", default="shm")
    p.add_argument("--exact", action="store_true", help="receives that name sender and number")
    p.add_argument("--timeout", type=int, default=300)
    args = p.parse_args()
    command = [] if args.stock else [c.weft(), "run", "--"]
    command += [c.program("all_to_all"), "-n", str(args.processes), "-m", str(args.messages), "-s", str(args.size),
                "-p", args.provider, "-t", str(args.timeout)] + (["-e"] if args.exact else [])
    try:
        return subprocess.run(command, timeout=args.timeout + 30).returncode
    except subprocess.TimeoutExpired:
        c.die("all_to_all did not end")


if __name__ == "__main__":
    sys.exit(main())
