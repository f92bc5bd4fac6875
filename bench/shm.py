#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench shm: shared memory, Weft beside the bare limit, the stock libfabric and UCX, in turns in one run.

The host places the cores of a virtual machine near or far and changes its mind within a run, so a bare cache line is timed before and after each
measurement, and only figures of one placement are compared: medians, and their ratios. usage: shm.py [--rounds N] [--time MS] [--no-ucx] [--strict]
"""
import argparse
import os
import sys
import time

sys.dont_write_bytecode = True
import _common as c
import _ucx

# One line for each thing measured: key, title, unit, better when low, test and size of weft perf, test of ucx_perftest.
TESTS = [
    ("latency", "8 B tagged, one way", "ns", True, "tagged-pingpong", 8, "tag_lat"),
    ("rate", "8 B tagged, window 64", "M msg/s", False, "tagged-rate", 8, "tag_bw"),
    ("latency64k", "64 KiB tagged, one way", "ns", True, "tagged-pingpong", 65536, "tag_lat"),
    ("bandwidth", "1 MiB tagged, window 64", "GB/s", False, "tagged-bw", 1 << 20, "tag_bw"),
]

# What is asked: key, beside whom, factor, and whether ours is to be at most or at least that many times theirs.
GOALS = [
    ("latency", "raw", "at most", 1.35),
    ("latency", "ucx", "at most", 0.85),
    ("latency", "stock", "at most", 0.5),
    ("rate", "ucx", "at least", 2.0),
    ("rate", "stock", "at least", 4.0),
    ("latency64k", "better", "at least", 2.0),  # times faster
    ("bandwidth", "better", "at least", 2.0),
]

# Ways to run UCX; the best of them in a first round is what it is measured with.
UCX_TRANSPORTS = ["posix,sysv,cma,self", "posix,cma,self", "sysv,cma,self", "shm,self"]
UCX_MESSAGES = {("tag_lat", 8): 400_000, ("tag_bw", 8): 3_000_000, ("tag_lat", 65536): 15_000, ("tag_bw", 1 << 20): 3_000}


def parse():
    p = argparse.ArgumentParser(prog="bench/shm.py", description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=7, help="rounds, of which the median counts (default 7, at least 5)")
    p.add_argument("--time", type=int, default=60, help="milliseconds that one repeat of weft perf takes (default 60)")
    p.add_argument("--no-ucx", action="store_true", help="leave UCX out")
    p.add_argument("--strict", action="store_true", help="exit status 1 when a goal is missed")
    return p.parse_args()


def raw_limit(cpus):
    figures = c.run_json([c.program("raw_limit"), "--cpus", f"{cpus[0]},{cpus[1]}"])
    return {"latency": figures["line_ns"], "rate": figures["slot_mps"], "latency64k": figures["copy_64k_oneway_ns"],
            "bandwidth": figures["copy_best_gbs"]}, figures


def weft_perf(test, size, args, cpus, stock):
    command = [c.weft(), "perf", "--provider", "shm", "--tests", test, "--sizes", str(size), "--window", "64",
               "--repeat", "3", "--time", str(args.time), "--pin", f"{cpus[0]},{cpus[1]}", "--format", "json"]
    report = c.run_json(command + (["--stock"] if stock else []))
    return report["results"][0]["median"], report["results"][0]["placement"], report["library"]


def ucx(test, size, transports, outstanding, cpus, share=1.0):
    return _ucx.run(test, size, max(100, int(UCX_MESSAGES[test, size] * share)), transports, outstanding, cpus)


def ucx_figure(key, rate, size):
    if rate is None:
        return None
    if key.startswith("latency"):
        return 1e9 / rate  # ucx_perftest already counts one way
    return rate * 1e-6 if key == "rate" else rate * size * 1e-9


def choose_ucx(cpus):
    """For each test the way that gives UCX its best figure: the better of two tries each."""
    best = {}
    for key, _, _, _, _, size, test in TESTS:
        tried = []
        for transports in UCX_TRANSPORTS:
            for outstanding in _ucx.OUTSTANDING[test]:
                rates = [ucx(test, size, transports, outstanding, cpus, 0.25) for _ in range(2)]
                tried.append((max((r for r in rates if r), default=0), transports, outstanding))
        tried.sort(key=lambda t: -t[0])
        if tried[0][0] > 0:
            best[key] = tried[0][1:]
    return best


def measure(args, cpus, ways, quiet):
    samples = c.Samples()
    raw_all, libraries = [], {}
    for i in range(args.rounds):
        quiet.look()
        (raw, all_figures), place = c.placed(cpus, lambda: raw_limit(cpus))
        raw_all.append(dict(all_figures, place=place))
        for key, value in raw.items():
            samples.add(key, "raw", value, place)
        for key, _, _, _, test, size, ucx_test in TESTS:
            turns = ["weft", "stock", "ucx"]
            for who in turns[i % 3:] + turns[:i % 3]:  # nobody is always first
                if who == "ucx":
                    if key in ways:
                        rate, place = c.placed(cpus, lambda: ucx(ucx_test, size, *ways[key], cpus))
                        samples.add(key, "ucx", ucx_figure(key, rate, size), place)
                else:
                    value, place, libraries[who] = weft_perf(test, size, args, cpus, who == "stock")
                    samples.add(key, who, value, place)
        print(f"round {i + 1} of {args.rounds}: {c.figure(all_figures['line_ns'])} ns a line", file=sys.stderr)
    return samples, raw_all, libraries


def in_place(args, cpus):
    """What a message costs that is written and taken in place, beside one that is sent and received: rounds of figures by size."""
    env = dict(os.environ, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"))
    command = [c.program("in_place_messages"), "--cpus", f"{cpus[0]},{cpus[1]}", "--time", str(args.time)]
    return [c.run_json(command, env=env) for _ in range(args.rounds)]


def in_place_rows(rounds):
    rows = []
    for size in rounds[0]:
        for title, unit in (("one way", "ns"), ("a stream", "GB/s")):
            key = "ns" if unit == "ns" else "gbs"
            copied, placed = ([r[size][f"{way}_{key}"] for r in rounds] for way in ("copied", "in_place"))
            rows.append([f"{size} B, {title}", unit, c.figure(c.median(copied)), c.figure(c.median(placed)), f"{c.ratio(placed, copied):.2f}x"])
    return rows


def verdicts(samples, place):
    rows = []
    m = samples.medians(place)
    for key, other, sense, factor in GOALS:
        title, low = next((t[1], t[3]) for t in TESTS if t[0] == key)
        name = other
        if other == "better":
            both = {who: m[key].get(who) for who in ("stock", "ucx") if m.get(key, {}).get(who)}
            if both:
                name = (min if low else max)(both, key=both.get)
        found = samples.ratio(key, "weft", name, place)
        if found is None:
            rows.append([title, name, place, f"{sense} {factor}x", "-", "0", "not measured"])
            continue
        ratio, count = found
        if other == "better" and low:
            ratio = 1 / ratio
        ok = ratio <= factor if sense == "at most" else ratio >= factor
        what = "times faster than " if other == "better" and low else "of "
        rows.append([title, what + name, place, f"{sense} {factor}x", f"{ratio:.2f}x", count, "ok" if ok else "missed"])
    return rows


def plot(medians, path):
    people = ["raw", "weft", "stock", "ucx"]
    script = (f"set terminal svg size 900,640 background rgb 'white'\nset output '{path}'\nset termoption noenhanced\n"
              "set multiplot layout 2,2 title 'shared memory, medians of one run'\nset style fill solid 0.8\n"
              "set boxwidth 0.7\nunset key\nset yrange [0:*]\nset grid ytics\n")
    for key, title, unit, *_ in TESTS:
        script += f"set title '{title}, {unit}'\nset xtics ('bare limit' 0, 'Weft' 1, 'libfabric' 2, 'UCX' 3)\n"
        script += "plot '-' using 1:2 with boxes lc rgb '#3b6ea5'\n"
        script += "".join(f"{i} {medians.get(key, {}).get(who) or 0}\n" for i, who in enumerate(people)) + "e\n"
    return c.gnuplot(script + "unset multiplot\n")


def main():
    args = parse()
    args.rounds = max(5, args.rounds)
    if not c.has_ours():
        c.die(f"there is no drop-in library in {c.STAGE}; run ./dev build first")
    cpus = c.two_cpus() or (min(os.sched_getaffinity(0)),) * 2
    quiet = c.Quiet()
    quiet.wait()
    begin = time.monotonic()
    with_ucx = not args.no_ucx and c.have("ucx_perftest") and c.have("taskset")
    ways = choose_ucx(cpus) if with_ucx else {}
    samples, raw_all, libraries = measure(args, cpus, ways, quiet)
    placed = in_place(args, cpus)

    print(f"\nmedians of {args.rounds} rounds in turns, pinned to CPUs {cpus[0]} and {cpus[1]}; "
          f"stock: {libraries.get('stock')}\n{samples.summary()}")
    places = samples.places(2) or samples.places()
    medians = {place: samples.medians(place) for place in places}
    for place in places:
        print(c.table([f"CPUs {place}", "unit", "bare limit", "Weft", "stock", "UCX"],
                      [[title, unit] + [c.figure(medians[place].get(key, {}).get(who)) for who in ("raw", "weft", "stock", "ucx")]
                       for key, title, unit, *_ in TESTS]))
    print("\nbare limits: a cache line there and back; 64-byte slots; copies in and out of chunks on both cores")
    for place in places:
        those = [r for r in raw_all if r["place"] == place]
        if those:
            print(f"  {place}: " + ", ".join(f"{k} {c.figure(c.median([r[k] for r in those]))}" for k in those[0] if k != "place"))
    for key, (transports, outstanding) in ways.items():
        title = next(t[1] for t in TESTS if t[0] == key)
        print(f"UCX at its best for {title}: UCX_TLS={transports}" + (f" -O {outstanding}" if outstanding else ""))
    if not ways:
        print("UCX was not measured" + ("" if args.no_ucx else " (package ucx-utils)"))
    print("weft perf: fi_tinject in the 8 B ping-pong, fi_tsend with completions elsewhere; an acknowledgement per window,")
    print("           which ucx_perftest does without\n")
    print("messages in place (weft/extensions.h); each payload is made by the sender and added up by the receiver, 64 under way")
    print(c.table(["what", "unit", "fi_tsend, fi_trecv", "in place", "ratio"], in_place_rows(placed)) + "\n")
    rows = [row for place in places for row in verdicts(samples, place)]
    print(c.table(["goal", "Weft beside", "CPUs", "asked", "ratio", "figures", "verdict"], rows))
    print(f"\n{quiet.verdict()}; took {time.monotonic() - begin:.0f} s")

    saved = c.save("shm.json", {"medians": medians, "samples": samples.all, "raw": raw_all, "in_place": placed, "ucx_ways": ways, "cpus": cpus,
                                "libraries": libraries, "verdicts": rows, "other_work_cpus": quiet.worst})
    drawn = plot(medians[max(places, key=lambda p: samples.counts()[p])], c.OUT / "shm.svg")
    print(f"saved {saved.name}{' and shm.svg' if drawn else ''} in {c.OUT}")
    return 1 if args.strict and any(r[-1] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
