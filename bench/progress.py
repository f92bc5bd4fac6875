# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What automatic progress costs and gives: manual and automatic in turns, and writes to a target that makes no call.

usage: progress.py [--provider NAME]... [--rounds N] [--time MS]
"""
import argparse
import os
import re
import sys

import _common as c

TESTS = [("tagged-pingpong", 8, "8 B tagged, one way", "ns"), ("tagged-rate", 8, "8 B tagged, rate", "M/s"),
         ("tagged-bw", 65536, "64 KiB tagged, stream", "GB/s"), ("rma-write-lat", 8, "8 B write, one way", "ns")]
PROVIDERS = ["shm", "tcp", "udp;ofi_rxd", "tcp;ofi_rxm"]


def perf(provider, test, size, way, args, cpus):
    command = [c.weft(), "perf", "--provider", provider, "--tests", test, "--sizes", str(size), "--repeat", "3", "--time",
               str(args.time), "--pin", f"{cpus[0]},{cpus[1]}", "--format", "json"]
    return c.run_json(command, env=dict(os.environ, WEFT_PROGRESS=way))["results"][0]["median"]


def asleep(provider):
    """Microseconds of a write of 8 bytes, with its acknowledgement, while the target is in sleep(3)."""
    program = c.BUILD / "tests/system/progress_test"
    if not program.exists():
        return None
    env = dict(os.environ, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"))
    text = c.run([str(program), "--provider", provider], env=env)
    return min(float(us) for us in re.findall(r"\(([0-9.]+) us for a write", text))


def main():
    p = argparse.ArgumentParser(prog="bench/progress.py", description=__doc__.split("\n")[0])
    p.add_argument("--provider", action="append", help=f"default: {', '.join(PROVIDERS)}")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--time", type=int, default=50, help="milliseconds of a repeat (default 50)")
    args = p.parse_args()
    cpus = c.two_cpus() or c.die("two CPUs are needed")
    quiet = c.Quiet()
    quiet.wait()
    rows, document = [], {}
    for provider in args.provider or PROVIDERS:
        for test, size, title, unit in TESTS:
            figures = {"manual": [], "auto": []}
            for i in range(args.rounds):
                quiet.look()
                for way in (["manual", "auto"], ["auto", "manual"])[i % 2]:
                    figures[way].append(perf(provider, test, size, way, args, cpus))
            document[f"{provider} {test} {size}"] = figures
            rows.append([f"{provider}: {title}", unit, *(c.figure(c.median(figures[way])) for way in ("manual", "auto")),
                         f"{c.ratio(figures['auto'], figures['manual']):.2f}x"])
        if (us := asleep(provider)) is not None:
            document[f"{provider} asleep us"] = us
            rows.append([f"{provider}: 8 B write and its acknowledgement, target asleep", "us", "-", c.figure(us), "-"])
    print(c.table(["", "unit", "manual", "auto", "auto / manual"], rows))
    print(quiet.verdict())
    c.save("progress.json", document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
