#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench loss: RC over a network that loses packets: median, mean and 99th percentile of a message, beside udp;ofi_rxd and verbs;ofi_rxm, in turns.

usage: loss.py [--rounds N] [--messages N] [--losses PERCENT,...] [--sizes BYTES,...] [--seed N]
UDP over the loopback interface; WEFT_PACKET_FAULTS loses packets of both sides. Each figure is the median over the rounds. SEND and WRITE: time one way; READ and fetch and
add: to the completion. Ratios are those of the means: below 1 RC (or verbs;ofi_rxm) is faster than udp;ofi_rxd.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True
import _common as c
import verbs

# Row: test of weft perf over an RC queue pair (None: perftest's ib_atomic_lat), and over libfabric.
ROWS = {"SEND": ("verbs-send-lat", "tagged-pingpong"), "WRITE": ("verbs-write-lat", "rma-write-lat"), "READ": ("verbs-read-lat", "rma-read-lat"),
        "fetch and add": (None, "atomic-lat")}
WAYS = {"RC": None, "rxd": "udp;ofi_rxd", "rxm": "verbs;ofi_rxm"}
FIGURES = ["median", "mean", "p99"]


def parse():
    p = argparse.ArgumentParser(prog="bench/loss.py", description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default 5)")
    p.add_argument("--messages", type=int, default=1000, help="of each figure in a round (default 1000)")
    p.add_argument("--losses", default="0,0.1,1,5", help="percent, separated by commas (default 0,0.1,1,5)")
    p.add_argument("--sizes", default="8,4096,65536", help="bytes, separated by commas (default 8,4096,65536)")
    p.add_argument("--seed", type=int, default=5, help="of the losses of the first round (default 5)")
    return p.parse_args()


def size_of(size):
    return f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} B"


def weft_perf(way, tests, sizes, messages, cpus, env):
    """{(test, size): figures in us}; empty when it did not end well."""
    where = ["--provider", WAYS[way], "--node", "127.0.0.1"] if WAYS[way] else ["--device", "weft_lo"]
    text = c.run([c.weft(), "perf", "--tests", ",".join(tests), "--sizes", ",".join(map(str, sizes)), "--iters", str(messages), "--warmup", str(messages // 10),
                  "--repeat", "1", "--percentiles", "--pin", f"{cpus[0]},{cpus[1]}", "--format", "json"] + where, 300, env, check=False)
    results = json.loads(text)["results"] if text else []
    return {(r["test"], r["size"]): (r["times_ns"]["p50"] / 1e3, statistics.mean(r["samples"]) / 1e3, r["times_ns"]["p99"] / 1e3) for r in results}


def fetch_and_add(messages, cpus, env):
    """Figures of ib_atomic_lat in us, or None: #bytes #iterations min max typical average deviation 99% 99.9%."""
    line = verbs.last_line(["ib_atomic_lat", "-d", "weft_lo", "-n", str(messages)], cpus, env)
    return (line[4], line[5], line[7]) if line and len(line) > 7 else None


def measure(way, sizes, messages, cpus, env):
    """{(row, size): figures}"""
    at = 0 if way == "RC" else 1
    tests = {ROWS[row][at]: row for row in ROWS if row != "fetch and add"}
    found = {(tests[test], size): figures for (test, size), figures in weft_perf(way, tests, sizes, messages, cpus, env).items()}
    if way == "RC":
        added = fetch_and_add(messages, cpus, env) if c.have("ib_atomic_lat") else None
    else:
        added = weft_perf(way, ["atomic-lat"], [8], messages, cpus, env).get(("atomic-lat", 8))
    if added:
        found["fetch and add", 8] = added
    return found


def report(found, losses, sizes, args, quiet, seconds):
    rows, medians, failed = [], {}, 0
    for row in ROWS:
        for size in sizes if row != "fetch and add" else [8]:
            for loss in losses:
                cells = {}
                for way in WAYS:
                    rounds = found.get((row, size, loss, way), [])
                    failed += args.rounds - len(rounds)
                    cells[way] = [statistics.median(one[i] for one in rounds) if rounds else None for i in range(len(FIGURES))]
                ratios = [cells[way][1] / cells["rxd"][1] if cells[way][1] and cells["rxd"][1] else None for way in ("RC", "rxm")]
                rows.append([f"{row} {size_of(size)}", f"{loss} %"] + [c.figure(value) for way in WAYS for value in cells[way]] + [c.figure(one) for one in ratios])
                medians[f"{row} {size} B, loss {loss} %"] = {way: dict(zip(FIGURES, cells[way])) for way in WAYS}
    head = ["us", "loss"] + [f"{way} {figure}" for way in WAYS for figure in FIGURES] + ["RC / rxd", "rxm / rxd"]
    text = [f"medians of {args.rounds} rounds of {args.messages} messages; rxd is udp;ofi_rxd, rxm is verbs;ofi_rxm", c.table(head, rows),
            f"{failed} figures of a round are missing; " * (failed != 0) + f"{quiet.verdict()}; took {seconds:.0f} s"]
    return "\n".join(text), medians


def main():
    args = parse()
    if not c.has_ours():
        c.die(f"there is no drop-in library in {c.STAGE}; run ./dev build first")
    cpus = c.two_cpus() or c.die("one CPU is not enough")
    losses, sizes = args.losses.split(","), [int(size) for size in args.sizes.split(",")]
    quiet = c.Quiet()
    quiet.wait()
    begin = time.monotonic()
    found, names = {}, list(WAYS)
    for number in range(args.rounds):
        for loss in losses:
            env = dict(os.environ, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"), WEFT_VERBS_SHM="0", WEFT_PACKET_FAULTS=f"loss={loss},seed={args.seed + number}")
            quiet.look()
            for way in names[number % 3:] + names[:number % 3]:  # none is always first
                got = measure(way, sizes, args.messages, cpus, env)
                for (row, size), figures in got.items():
                    found.setdefault((row, size, loss, way), []).append(figures)
                print(f"round {number + 1} of {args.rounds}, loss {loss} %, {way}: {len(got)} figures, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    text, medians = report(found, losses, sizes, args, quiet, time.monotonic() - begin)
    print("\n" + text)
    c.save("loss.json", {"medians_us": medians, "rounds": args.rounds, "messages": args.messages, "other_work_cpus": quiet.worst})
    (c.OUT / "loss.txt").write_text(text + "\n")
    print(f"saved loss.txt and loss.json in {c.OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
