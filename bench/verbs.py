#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench verbs: perftest over the drop-in libibverbs, between two pinned processes of this host, beside UCX over TCP, in turns, by placement of the CPUs.

usage: verbs.py [--rounds N]
Rows are time one way, messages per second and bandwidth; ratios are Weft over UCX tcp, as factors of time (below 1: Weft is ahead).
"""
import argparse
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import _common as c
import _ucx

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
COLUMN = {"typical": 4, "rate": 4}  # #bytes #iterations min max typical ...; #bytes #iterations peak average rate


def perftest(command, column, cpus, env):
    """Seconds of one message, or None."""
    port = _ucx.free_port()
    common = [command[0], "-F", "-p", str(port)] + command[1:]
    server = subprocess.Popen(["taskset", "-c", str(cpus[1])] + common, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not _ucx.await_server(server, port):
            return None
        text = c.run(["taskset", "-c", str(cpus[0])] + common + ["127.0.0.1"], 60, env, check=False)
        lines = re.findall(r"^ +\d+ +\d+ .*$", text or "", re.M)
        if not lines:
            return None
        value = float(lines[-1].split()[COLUMN[column]])
        return value * 1e-6 if column == "typical" else 1 / (value * 1e6) if value > 0 else None
    finally:
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main():
    p = argparse.ArgumentParser(prog="bench/verbs.py", description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    args = p.parse_args()
    if not c.have("ib_send_lat"):
        c.die("ib_send_lat is missing (package perftest)")
    cpus = c.two_cpus() or c.die("one CPU is not enough")
    env = dict(os.environ, LD_LIBRARY_PATH=str(c.STAGE / "lib/weft/compat"))
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
        print(f"round {number + 1} of {args.rounds} done", flush=True)
    results = {}
    for place in samples.places():
        rows = []
        for row in ROWS:
            mine = c.median(samples.of(row, "Weft", place))
            pair = samples.ratio(row, "Weft", "UCX tcp", place)
            rows.append([row, f"{mine * 1e6:.2f} us" if mine else "-", f"{pair[0]:.2f}x (n={pair[1]})" if pair else "-"])
            results[f"{row}, {place}"] = {"seconds": mine, "ratio": pair[0] if pair else None}
        print(f"\nCPUs {place}: time of a message, and over that of UCX tcp")
        print(c.table(["what", "Weft", "ratio"], rows))
    print(samples.told() + "; " + quiet.verdict())
    c.save("verbs.json", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
