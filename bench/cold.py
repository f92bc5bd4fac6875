#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench cold: the first 10, 100 and 1,000 messages of new processes, Weft beside the stock library and another libfabric, in turns.

usage: cold.py [--rounds N] [--sizes BYTES,...] [--provider NAME] [--other FOLDER] [--base FOLDER] [--mpi] [--strict]
Each figure is the mean time one way of the first N messages of one size, after an empty message each way, in processes that are started for it. Printed are
medians over the rounds, and the ratio of Weft's time to the other's: below 1 Weft is faster. A run in which a process waited for its CPU for more than
2 % of the time is repeated, up to four times, and then left out. --other: the folder of another libfabric.so.1, and --base
that of another Weft. --mpi: Open MPI over Weft beside its own shared memory. --strict: exit status 1 when a ratio is above 1.1.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import _common as c

COUNTS = ["10", "100", "1000"]
GOAL = 1.1  # times the other's time
WAITED_MOST = 0.02  # share of the measured time that a side may have waited for its CPU
TRIES = 4  # of a run that other work disturbs

MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size = atoi(argv[1]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char* b = malloc(size);
  memset(b, rank, size);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  if (rank == 0) printf("{\"us\": {");
  for (int i = 1, next = 10; i <= 1000; ++i) {
    if (rank == 0) MPI_Send(b, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(b, size, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(b, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    if (i != next) continue;
    if (rank == 0) printf("%s\"%d\": %.3f", i > 10 ? ", " : "", i, (MPI_Wtime() - start) / i / 2 * 1e6);
    next *= 10;
  }
  if (rank == 0) printf("}}\n");
  MPI_Finalize();
}
"""


def options(prog, doc, rounds, sizes):
    """Those of busy.py, too."""
    p = argparse.ArgumentParser(prog=prog, description=doc.split("\n")[0])
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--sizes", default=sizes)
    p.add_argument("--other", help="folder of another libfabric.so.1")
    p.add_argument("--base", help="folder of another Weft's libfabric.so.1")
    p.add_argument("--strict", action="store_true", help="exit status 1 when a ratio is above the goal")
    return p


def parse():
    p = options("bench/cold.py", __doc__, 7, "8,64,512,1024,4096,16384,65536")
    p.add_argument("--provider", default="shm")
    p.add_argument("--mpi", action="store_true", help="Open MPI over Weft beside its own shared memory, too")
    return p.parse_args()


def ours():
    """The drop-in library: of the install tree, or of the build tree when there is none."""
    staged = c.STAGE / "lib/weft/compat"
    return str(staged if (staged / "libfabric.so.1").exists() else c.BUILD / "lib/weft/compat")


def first_messages(folder, provider, size, cpus, *options, limit_s=30):
    """What the program says with the libfabric of that folder, or the system's where it is empty; None when it fails."""
    env = dict(os.environ)
    env.pop("LD_LIBRARY_PATH", None)
    if folder:
        env["LD_LIBRARY_PATH"] = folder
    command = [c.program("cold"), "-p", provider, "-s", str(size), *options] + (["--cpus", f"{cpus[0]},{cpus[1]}"] if cpus else [])
    out = c.run(command, limit_s, env, check=False)
    return json.loads(out) if out else None


def compared(figures, pairs, goal):
    """The ratios of each pair as text, and how many are above the goal; those to the other Weft do not count."""
    ratios, missed = [], 0
    for mine, theirs in pairs:
        known = figures[mine] and figures[theirs]
        ratios.append(f"{figures[mine] / figures[theirs]:.2f}" if known else "-")
        missed += bool(known and theirs != "base" and figures[mine] > goal * figures[theirs])
    return ratios, missed


def mpi(program, way, size):
    env = dict(os.environ, WEFT_BUILD=str(c.STAGE if c.WEFT.exists() else c.BUILD))
    try:
        done = subprocess.run([str(c.ROOT / "tests/mpi/run.sh"), "--quiet", way, "2", program, str(size)] if way != "own" else
                              [str(c.ROOT / "tests/mpi/run.sh"), "own", "2", program, str(size)], capture_output=True, text=True, timeout=60, env=env)
        return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    except (subprocess.TimeoutExpired, StopIteration, ValueError):
        return None


def main():
    args = parse()
    cpus = c.two_cpus()
    quiet = c.Quiet()
    ways = {"weft": lambda size: first_messages(ours(), args.provider, size, cpus)}
    stock_provider = "net" if args.provider == "tcp" else args.provider  # the stock tcp has no RDM endpoints
    ways["stock"] = lambda size: first_messages("", stock_provider, size, cpus)
    if args.other:
        ways["other"] = lambda size: first_messages(args.other, args.provider, size, cpus)
    if args.base:
        ways["base"] = lambda size: first_messages(args.base, args.provider, size, cpus)
    pairs = [("weft", other) for other in ways if other != "weft"]
    with tempfile.TemporaryDirectory() as folder:
        if args.mpi and c.have("mpicc"):
            source = pathlib.Path(folder, "first.c")
            source.write_text(MPI)
            c.run(["mpicc", "-O2", str(source), "-o", f"{folder}/first"])
            ways["mpi"] = lambda size: mpi(f"{folder}/first", "weft", size)
            ways["mpi own"] = lambda size: mpi(f"{folder}/first", "own", size)
            pairs.append(("mpi", "mpi own"))
        sizes = [int(s) for s in args.sizes.split(",")]
        found, disturbed = {}, 0
        for i in range(args.rounds):
            quiet.look()
            for size in sizes:
                names = list(ways)
                for who in names[i % len(names):] + names[:i % len(names)]:
                    for _ in range(TRIES):
                        one = ways[who](size)
                        if one is not None and one.get("waited", 0) <= WAITED_MOST:
                            found.setdefault((size, who), []).append(one)
                            break
                        disturbed += 1
            print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
    rows, missed, by = [], 0, {}
    for size in sizes:
        for n in COUNTS:
            figures = {who: c.median([r["us"][n] for r in found.get((size, who), [])]) for who in ways}
            by[f"{size} {n}"] = figures
            ratios, above = compared(figures, pairs, GOAL)
            missed += above
            rows.append([f"{size} B, first {n}"] + [c.figure(figures[who]) for who in ways] + ratios)
    print(f"one way, us, medians of {args.rounds} rounds; provider {args.provider}, stock: {stock_provider}")
    print(c.table(["messages"] + list(ways) + [f"{a} / {b}" for a, b in pairs], rows))
    for who in ways:
        meeting = [r["meeting_us"] for size in sizes for r in found.get((size, who), []) if "meeting_us" in r]
        faults = [r["faults"] for size in sizes for r in found.get((size, who), []) if "faults" in r]
        if meeting:
            print(f"{who}: the empty messages before took {c.figure(c.median(meeting))} us; page faults in 1,000 messages: {c.figure(c.median(faults))}")
    if disturbed:
        print(f"{disturbed} runs were left out: a process waited for its CPU, or a run failed")
    print(quiet.verdict())
    saved = c.save("cold.json", {"medians_us": by, "provider": args.provider, "rounds": args.rounds, "missed": missed, "other_work_cpus": quiet.worst})
    print(f"saved {saved.name} in {c.OUT}")
    return 1 if args.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
