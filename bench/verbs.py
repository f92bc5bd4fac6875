#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench verbs: perftest over the drop-in libibverbs, between two pinned processes of this host, beside UCX over TCP and the provider shm, in turns,
by placement of the CPUs; programs that sleep on a completion channel beside blocking TCP sockets; and the instructions of single calls.

usage: verbs.py [--rounds N] [--asleep] [--instructions]
Rows are time one way, messages per second and bandwidth; ratios are Weft's verbs over UCX tcp and over Weft's shm, as factors of time (below 1: verbs are ahead).
"""
import argparse
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import _common as c
import _ucx
import busy

# Row: program and options of perftest, column of its last line, and the test of ucx_perftest beside it.
ROWS = {
    "RC SEND 8 B, one way": (["ib_send_lat", "-s", "8", "-n", "5000"], "typical", ("tag_lat", 8)),
    "RC WRITE 8 B, one way": (["ib_write_lat", "-s", "8", "-n", "5000"], "typical", None),
    "RC READ 8 B, there and back": (["ib_read_lat", "-s", "8", "-n", "5000"], "typical", None),
    "RC SEND 8 B, rate": (["ib_send_bw", "-s", "8", "-n", "50000"], "rate", ("tag_bw", 8)),
    "RC SEND 64 KiB, bandwidth": (["ib_send_bw", "-s", "65536", "-n", "5000"], "rate", ("tag_bw", 65536)),
    "RC WRITE 64 KiB, bandwidth": (["ib_write_bw", "-s", "65536", "-n", "5000"], "rate", ("tag_bw", 65536)),
    "RC READ 64 KiB, bandwidth": (["ib_read_bw", "-s", "65536", "-n", "5000"], "rate", None),
    "UD SEND 8 B, rate": (["ib_send_bw", "-c", "UD", "-s", "8", "-n", "20000"], "rate", None),
}
# Programs that sleep on a completion channel, and the figure of raw_sockets --sleep beside each. Pinned to two CPUs each message wakes the other CPU; free, the
# scheduler may run both on one; busy: pinned, with a loop on each CPU.
ASLEEP = {
    "RC SEND 8 B, one way": (["ib_send_lat", "-e", "-s", "8", "-n", "3000"], "typical", "tcp_oneway_ns"),
    "RC SEND 4 KiB, one way": (["ib_send_lat", "-e", "-s", "4096", "-n", "3000"], "typical", "tcp_4k_oneway_ns"),
    "RC SEND 64 KiB, stream": (["ib_send_bw", "-e", "-s", "65536", "-n", "3000"], "rate", "tcp_64k_gbs"),
}
# Of shm beside a row: test and size of weft perf.
SHM = {"RC SEND 8 B, one way": ("tagged-pingpong", 8), "RC SEND 64 KiB, bandwidth": ("tagged-bw", 65536)}
CALLS = [("post", "ibv_post_send of 8 B"), ("write", "the same as a WRITE"), ("post_recv", "ibv_post_recv"), ("empty", "ibv_poll_cq of an empty queue"),
         ("receive", "ibv_poll_cq that returns a message"), ("sent", "ibv_poll_cq that returns a send"), ("turn", "all of a side in a ping-pong")]
COLUMN = {"typical": 4, "rate": 4}  # #bytes #iterations min max typical ...; #bytes #iterations peak average rate


def last_line(command, cpus, env):
    """The numbers in the last line of a program of perftest, or None. `cpus` None: the scheduler chooses."""
    port = _ucx.free_port()
    common = [command[0], "-F", "-p", str(port)] + command[1:]
    at = [["taskset", "-c", str(cpu)] if cpus else [] for cpu in cpus or (0, 0)]
    server = subprocess.Popen(at[1] + common, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not _ucx.await_server(server, port):
            return None
        text = c.run(at[0] + common + ["127.0.0.1"], 60, env, check=False)
        lines = re.findall(r"^ +\d+ +\d+ .*$", text or "", re.M)
        return [float(word) for word in lines[-1].split()] if lines else None
    finally:
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def perftest(command, column, cpus, env):
    """Seconds of one message, or None."""
    line = last_line(command, cpus, env)
    if not line:
        return None
    value = line[COLUMN[column]]
    return value * 1e-6 if column == "typical" else 1 / (value * 1e6) if value > 0 else None


def asleep(rounds, cpus, env):
    """Time of a message over that of blocking TCP sockets: pinned, free and on busy CPUs, over shared memory and over UDP."""
    samples = {}
    quiet = c.Quiet()
    for number in range(rounds):
        quiet.wait()
        for place, at in (("pinned", cpus), ("free", None), ("busy", cpus)):
            with busy.loops(cpus if place == "busy" else []):
                theirs = c.run_json([c.program("raw_sockets"), "--sleep", "--time", "150"] + (["--cpus", f"{at[0]},{at[1]}"] if at else []))
                for row, (command, column, key) in ASLEEP.items():
                    beside = 65536 / (theirs[key] * 1e9) if key == "tcp_64k_gbs" else theirs[key] * 1e-9
                    for near in ("1", "0"):
                        mine = perftest(command, column, at, dict(env, WEFT_VERBS_SHM=near))
                        if mine:
                            samples.setdefault((row, place), {}).setdefault(near, []).append((mine, beside))
        print(f"round {number + 1} of {rounds} done", flush=True)
    rows, results = [], {}
    for (row, place), by in samples.items():
        cells = [f"{row}, {place}", f"{c.median([b for pairs in by.values() for _, b in pairs]) * 1e6:.2f} us"]
        for near in ("1", "0"):
            pairs = by.get(near, [])
            value = c.median([mine / beside for mine, beside in pairs])
            cells += [f"{c.median([mine for mine, _ in pairs]) * 1e6:.2f} us" if pairs else "-", f"{value:.2f}x (n={len(pairs)})" if pairs else "-"]
            results[f"{row}, {place}, {'shared memory' if near == '1' else 'UDP'}"] = value
        rows.append(cells)
    print("\nPrograms that sleep: time of a message, and over that of blocking TCP sockets")
    print(c.table(["what", "TCP", "shared memory", "over TCP", "UDP", "over TCP"], rows))
    print(quiet.verdict())
    c.save("verbs-asleep.json", results)


def shm(test, size, cpus):
    """Seconds of one message of the provider shm."""
    report = c.run_json([c.weft(), "perf", "--provider", "shm", "--tests", test, "--sizes", str(size), "--window", "64", "--repeat", "3", "--time", "60",
                         "--pin", f"{cpus[0]},{cpus[1]}", "--format", "json"])
    result = report["results"][0]
    return result["median"] * 1e-9 if test == "tagged-pingpong" else size / (result["median"] * 1e9)


def instructions(count, env):
    """Between two devices of one process, which meet in shared memory. Under valgrind time goes faster than work: a poll that finds something looks at
    the sockets, too, which it does every 10 us only (some 250 instructions each time)."""
    env = dict(env, WEFT_PROGRESS="manual", WEFT_VERBS_DEVICES="a=127.0.0.1,b=127.0.0.1")
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--callgrind-out-file=/dev/null", c.program("verbs_ops")]
    totals = {}
    for call in ["nothing"] + [call for call, _ in CALLS]:
        try:
            done = subprocess.run(command + [call, str(count)], capture_output=True, text=True, timeout=300, env=env)
        except subprocess.TimeoutExpired:
            c.die(f"{call} did not end under callgrind")
        found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
        if done.returncode != 0 or not found:
            sys.stderr.write(done.stderr[-3000:])
            c.die(f"{call} could not be counted")
        totals[call] = int(found.group(1)) / count
    rows = [[title, f"{totals[call] - totals['nothing']:.0f}"] for call, title in CALLS]
    print(c.table(["instructions of", "Weft"], rows))
    c.save("verbs-instructions.json", {"per call": {call: totals[call] - totals["nothing"] for call, _ in CALLS}, "count": count})
    return 0


def main():
    p = argparse.ArgumentParser(prog="bench/verbs.py", description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    p.add_argument("--asleep", action="store_true", help="programs that sleep on a channel alone")
    p.add_argument("--instructions", action="store_true", help="count instructions of single calls instead (callgrind)")
    args = p.parse_args()
    env = dict(os.environ, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"))
    if args.instructions:
        if not c.have("valgrind"):
            c.die("valgrind is missing (package valgrind)")
        return instructions(1000, env)
    if not c.have("ib_send_lat"):
        c.die("ib_send_lat is missing (package perftest)")
    cpus = c.two_cpus() or c.die("one CPU is not enough")
    asleep(args.rounds, cpus, env)
    if args.asleep:
        return 0
    samples, quiet = c.Samples(), c.Quiet()
    for number in range(args.rounds):
        quiet.wait()
        for row, (command, column, beside) in ROWS.items():
            value, place = c.placed(cpus, lambda: perftest(command, column, cpus, env))
            samples.add(row, "Weft", value, place)
            if beside and c.have("ucx_perftest"):
                test, size = beside
                rate, place = c.placed(cpus, lambda: _ucx.run(test, size, _ucx.MESSAGES[beside], "tcp,self", 64 if test == "tag_bw" else None, cpus, UCX_NET_DEVICES="lo"))
                samples.add(row, "UCX tcp", 1 / rate if rate else None, place)
            if row in SHM:
                value, place = c.placed(cpus, lambda: shm(*SHM[row], cpus))
                samples.add(row, "shm", value, place)
        print(f"round {number + 1} of {args.rounds} done", flush=True)
    results = {}
    for place in samples.places():
        rows = []
        for row in ROWS:
            mine = c.median(samples.of(row, "Weft", place))
            pairs = [samples.ratio(row, "Weft", other, place) for other in ("UCX tcp", "shm")]
            rows.append([row, f"{mine * 1e6:.2f} us" if mine else "-"] + [f"{pair[0]:.2f}x (n={pair[1]})" if pair else "-" for pair in pairs])
            results[f"{row}, {place}"] = {"seconds": mine, "ratio": pairs[0][0] if pairs[0] else None, "over shm": pairs[1][0] if pairs[1] else None}
        print(f"\nCPUs {place}: time of a message, and over that of UCX tcp and of the provider shm")
        print(c.table(["what", "Weft", "over UCX tcp", "over shm"], rows))
    print(samples.summary() + "; " + quiet.verdict())
    c.save("verbs.json", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
