#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench peers: 1,000 processes turn to one at the same time; connect rate and memory for each peer, over each network.

usage: peers.py [--stock] [--peers N] [--provider NAME]... [--timeout SECONDS]
Exit status 0 only when every message was right.
"""
import argparse
import json
import subprocess
import sys

sys.dont_write_bytecode = True
import _common as c


def main():
    p = argparse.ArgumentParser(prog="bench/peers.py", description=__doc__.split("\n")[0])
    p.add_argument("--stock", action="store_true", help="on the system's libfabric")
    p.add_argument("--peers", type=int, default=1000)
    p.add_argument("--provider", action="append", help="default: tcp and udp;ofi_rxd")
    p.add_argument("--timeout", type=int, default=200)
    args = p.parse_args()
    results, worst = [], 0
    for provider in args.provider or ["tcp", "udp;ofi_rxd"]:
        command = [] if args.stock else [c.weft(), "run", "--"]
        command += [c.program("peers"), "-n", str(args.peers), "-p", provider, "-t", str(args.timeout), "-j"]
        try:
            done = subprocess.run(command, timeout=args.timeout + 30, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            c.die(f"peers over {provider} did not end")
        if done.stdout.startswith("{"):
            results.append(json.loads(done.stdout))
        if done.returncode != 0:
            worst = 1
            print(f"{provider}: failed\n{done.stderr[-2000:]}")
    print(c.table(["provider", "peers", "seconds", "peers/s", "KiB a peer", "kernel KiB a peer", "all messages s"],
                  [[r["provider"], r["peers"], f"{r['seconds']:.2f}", f"{r['peers_per_s']:.0f}", r["kib_per_peer"],
                    r["kernel_kib_per_peer"], f"{r['all_messages_s']:.2f}"] for r in results]))
    print(f"saved {c.save('peers.stock.json' if args.stock else 'peers.json', results)}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
