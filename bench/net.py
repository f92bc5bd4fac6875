#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench net: the networks over loopback; Weft beside bare sockets, the stock libfabric, UCX and Open MPI's shared memory, in turns in one run.

The host places the cores of a virtual machine differently from hour to hour, so only ratios within one run mean anything.
Every figure is a median over the rounds, every ratio the median of the ratios that the rounds had.
usage: net.py [--rounds N] [--time MS] [--no-ucx] [--no-mpi] [--no-loss] [--strict]
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import _common as c
from _ucx import Ucx

# One line for each thing measured: key, title, unit, better when low, test of weft perf, size, test of ucx_perftest.
TESTS = [
    ("latency", "8 B tagged, one way", "us", True, "tagged-pingpong", 8, "tag_lat"),
    ("rate", "8 B tagged, window 64", "M msg/s", False, "tagged-rate", 8, "tag_bw"),
    ("bw64k", "64 KiB tagged, window 64", "GB/s", False, "tagged-bw", 65536, "tag_bw"),
    ("bw1m", "1 MiB tagged, window 64", "GB/s", False, "tagged-bw", 1 << 20, "tag_bw"),
]
# weft perf takes several tests at once when the sizes are the same: fewer processes, more of the time measured.
CALLS = [("tagged-pingpong,tagged-rate", "8"), ("tagged-bw", "65536,1048576")]

# Who takes part: name, provider, the stock library.
PEOPLE = [
    ("tcp", "tcp", False),
    ("rxd", "udp;ofi_rxd", False),
    ("rxm", "tcp;ofi_rxm", False),
    ("stock tcp", "tcp;ofi_rxm", True),
    ("stock net", "net", True),
    ("stock rxd", "udp;ofi_rxd", True),
]
LOSSES = [0, 1, 5]  # percent; with 0 each packet goes alone too, as it must to be lost alone

# What is asked: key, whose, beside whom, factor, and whether it is to be at most or at least that many times theirs.
BOTH_STOCK = ("stock tcp", "stock net")
GOALS = [
    ("latency", "tcp", BOTH_STOCK + ("raw tcp",), "at most", 1.0),
    ("rate", "tcp", BOTH_STOCK, "at least", 20),
    ("bw64k", "tcp", BOTH_STOCK, "at least", 1.1),
    ("bw1m", "tcp", BOTH_STOCK, "at least", 1.1),
    ("latency", "rxd", ("stock rxd",), "at most", 0.6),
    ("rate", "rxd", ("stock rxd",), "at least", 20),
    ("bw1m", "rxd", ("stock rxd",), "at least", 10),
    ("bw1m", "rxd", BOTH_STOCK, "at least", 1.0),
    ("loss", "loss 1 %", ("loss 0 %",), "at least", 0.5),
    ("loss", "loss 5 %", ("loss 0 %",), "at least", 0.001),
    ("mpi8", "weft", ("vader",), "at most", 1.0),
    ("mpi1m", "weft", ("vader",), "at least", 1.0),
]
TITLES = {t[0]: (t[1], t[3]) for t in TESTS}
TITLES.update(loss=("1 MiB over udp;ofi_rxd that loses packets", False), mpi8=("NetPIPE 8 B", True),
              mpi1m=("NetPIPE 1 MiB", False))


def parse():
    p = argparse.ArgumentParser(prog="bench/net.py", description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default 5)")
    p.add_argument("--time", type=int, default=60, help="milliseconds that one repeat of weft perf takes (default 60)")
    p.add_argument("--no-ucx", action="store_true", help="leave UCX out")
    p.add_argument("--no-mpi", action="store_true", help="leave Open MPI out")
    p.add_argument("--no-loss", action="store_true", help="leave lossy runs out")
    p.add_argument("--strict", action="store_true", help="exit status 1 when a goal is missed")
    return p.parse_args()


def weft_perf(provider, tests, sizes, args, cpus, stock, faults=None):
    """{(test, size): (figure, placement)} or None. Latency in ns, rate in M/s, bandwidth in GB/s."""
    command = [c.weft(), "perf", "--provider", provider, "--tests", tests, "--sizes", sizes, "--window", "64", "--repeat", "1",
               "--time", str(args.time), "--pin", f"{cpus[0]},{cpus[1]}", "--format", "json"]
    env = dict(os.environ)
    env.pop("WEFT_PACKET_FAULTS", None)
    if faults is not None:
        env["WEFT_PACKET_FAULTS"] = faults
    text = c.run(command + (["--stock"] if stock else []), 60, env, check=False)
    if text is None:
        return None
    return {(r["test"], r["size"]): (r["median"], r["placement"]) for r in json.loads(text)["results"]}


def measure_perf(samples, who, provider, stock, args, cpus):
    for tests, sizes in CALLS:
        got = weft_perf(provider, tests, sizes, args, cpus, stock)
        if got is None:
            samples.fail(who, f"weft perf over {provider}{' (stock)' if stock else ''} did not end well")
            return
        for key, _, _, low, test, size, _ in TESTS:
            if (test, size) in got:
                value, place = got[test, size]
                samples.add(key, who, value * 1e-3 if low else value, place)


def measure_raw(samples, cpus):
    r, place = c.placed(cpus, lambda: c.run_json([c.program("raw_sockets"), "--cpus", f"{cpus[0]},{cpus[1]}", "--time", "100"]))
    samples.add("latency", "raw tcp", r["tcp_oneway_ns"] * 1e-3, place)
    samples.add("latency", "raw udp", r["udp_oneway_ns"] * 1e-3, place)
    samples.add("rate", "raw tcp", r["tcp_records_mps"], place)
    samples.add("bw64k", "raw tcp", r["tcp_64k_gbs"], place)
    samples.add("bw1m", "raw tcp", r["tcp_1m_gbs"], place)
    for name in ("udp_single_gbs", "udp_gso_1400_gbs", "udp_gso_16k_gbs"):
        samples.add("raw", name, r[name], place)


def measure_loss(samples, args, cpus):
    for loss in LOSSES:
        got = weft_perf("udp;ofi_rxd", "tagged-bw", str(1 << 20), args, cpus, False, f"loss={loss},seed=3")
        if got is None:
            samples.fail(f"loss {loss} %", f"udp;ofi_rxd with {loss} % loss did not end well")
        else:
            samples.add("loss", f"loss {loss} %", *got["tagged-bw", 1 << 20])


def netpipe(flags, cpus, size, count):
    """(one way in us, GB/s) of NPopenmpi, or None."""
    run = c.ROOT / "tests/mpi/run.sh"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "np"
        env = dict(os.environ, WEFT_BUILD=str(c.BUILD))
        command = [str(run), "--bind"] + flags + ["2", "NPopenmpi", "-l", str(size), "-u", str(size), "-p", "0", "-n",
                                                  str(count), "-o", str(out)]
        if c.run(command, 60, env, check=False) is None or not out.exists():
            return None
        lines = [line.split() for line in out.read_text().splitlines() if line.split()]
        found = [line for line in lines if int(line[0]) == size]
        return (float(found[-1][2]) * 1e6, float(found[-1][1]) / 8e3 * 1.048576) if found else None


def measure_mpi(samples, cpus, turn):
    ways = [("weft", ["--rma", "pt2pt", "weft"]), ("vader", ["own"])]
    for who, flags in ways[turn % 2:] + ways[:turn % 2]:
        small, small_place = c.placed(cpus, lambda: netpipe(flags, cpus, 8, 30_000))
        large, large_place = c.placed(cpus, lambda: netpipe(flags, cpus, 1 << 20, 1_000))
        if small is None or large is None:
            samples.fail(who, f"NPopenmpi over {who} did not end well")
            continue
        samples.add("mpi8", who, small[0], small_place)
        samples.add("mpi1m", who, large[1], large_place)


def measure(args, cpus, ucx, quiet):
    samples = c.Samples()
    with_mpi = not args.no_mpi and c.have("NPopenmpi") and c.have("mpirun")
    for i in range(args.rounds):
        quiet.look()
        turns = [lambda: measure_raw(samples, cpus)]
        for who, provider, stock in PEOPLE:
            turns.append(lambda who=who, provider=provider, stock=stock: measure_perf(samples, who, provider, stock, args, cpus))
        if ucx:
            turns.append(lambda: ucx.measure(samples, TESTS, cpus))
        if not args.no_loss:
            turns.append(lambda: measure_loss(samples, args, cpus))
        if with_mpi:
            turns.append(lambda: measure_mpi(samples, cpus, i))
        at = i * 3 % len(turns)
        for turn in turns[at:] + turns[:at]:  # nobody is always first
            turn()
        print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
    return samples


def verdicts(samples, place):
    medians = samples.medians(place)
    rows = []
    for key, whose, others, sense, factor in GOALS:
        title, low = TITLES[key]
        m = medians.get(key, {})
        there = {who: m[who] for who in others if m.get(who)}
        asked = f"{sense} {factor:g}x"
        if not there or not m.get(whose):
            rows.append([title, whose, " or ".join(others), place, asked, "-", "0", "not measured"])
            continue
        other = (min if low else max)(there, key=there.get)
        ratio, count = samples.ratio(key, whose, other, place)
        ok = ratio <= factor if sense == "at most" else ratio >= factor
        rows.append([title, whose, other, place, asked, f"{ratio:.2f}x", count, "ok" if ok else "missed"])
    return rows


def figures(medians, place):
    people = ["raw tcp", "tcp", "rxd", "rxm", "stock tcp", "stock net", "stock rxd", "ucx"]
    names = {"tcp": "Weft tcp", "rxd": "Weft rxd", "rxm": "Weft rxm", "raw tcp": "bare TCP", "stock tcp": "stock rxm"}
    text = [c.table([f"CPUs {place}", "unit"] + [names.get(p, p) for p in people],
                    [[title, unit] + [c.figure(medians.get(key, {}).get(p)) for p in people] for key, title, unit, *_ in TESTS])]
    udp = medians.get("raw", {})
    if udp:
        text.append(f"bare UDP: {c.figure(medians.get('latency', {}).get('raw udp'))} us one way; GB/s packet by packet, with GSO and "
                    f"GRO at 1400 and 16000 bytes: " + ", ".join(c.figure(udp.get(k)) for k in
                                                                 ("udp_single_gbs", "udp_gso_1400_gbs", "udp_gso_16k_gbs")))
    if "loss" in medians:
        text.append("udp;ofi_rxd, 1 MiB, each packet alone, GB/s: " +
                    ", ".join(f"{who}: {c.figure(v)}" for who, v in medians["loss"].items()))
    if "mpi8" in medians:
        text.append("NetPIPE, us for 8 B and GB/s for 1 MiB: " +
                    ", ".join(f"{who}: {c.figure(v)} and {c.figure(medians.get('mpi1m', {}).get(who))}" for who, v in medians["mpi8"].items()))
    return text


def report(args, samples, quiet, seconds):
    places = samples.places(2) or samples.places()
    text = [f"medians of {args.rounds} rounds in turns over loopback; {samples.summary()}"]
    for place in places:
        text += figures(samples.medians(place), place)
    text.append("rxd is udp;ofi_rxd, rxm is tcp;ofi_rxm; the rate of bare TCP is that of 32-byte records in 2 KiB writes")
    rows = [row for place in places for row in verdicts(samples, place)]
    text.append("\n" + c.table(["goal", "whose", "beside", "CPUs", "asked", "ratio", "figures", "verdict"], rows))
    text += [f"{why}" for why in samples.failed.values()]
    text.append(f"\n{quiet.verdict()}; took {seconds:.0f} s")
    return "\n".join(text), rows


def main():
    args = parse()
    if not c.has_ours():
        c.die(f"there is no drop-in library in {c.STAGE}; run ./dev build first")
    cpus = c.two_cpus() or (min(os.sched_getaffinity(0)),) * 2
    quiet = c.Quiet()
    quiet.wait()
    begin = time.monotonic()
    ucx = Ucx(("tcp",)) if not args.no_ucx and shutil.which("ucx_perftest") and shutil.which("taskset") else None
    samples = measure(args, cpus, ucx, quiet)
    text, rows = report(args, samples, quiet, time.monotonic() - begin)
    print("\n" + text)
    c.OUT.mkdir(parents=True, exist_ok=True)
    (c.OUT / "net.txt").write_text(text + "\n")
    c.save("net.json", {"samples": samples.all, "failed": samples.failed, "cpus": cpus, "verdicts": rows,
                        "other_work_cpus": quiet.worst})
    print(f"saved net.txt and net.json in {c.OUT}")
    return 1 if args.strict and any(r[-1] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
