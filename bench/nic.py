#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""./dev bench nic: what the drivers of network cards need for one packet: instructions (callgrind, the model of the card left out) and
accesses to registers, beside what UDP sockets need for the same packet in the kernel; and the accesses to registers of RoCEv2 over a card.

usage: nic.py [--count N]
"""
import argparse
import json
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import _common as c

DRIVERS = ["e1000e", "virtio_split", "virtio_packed"]
BATCHES = [1, 32]
ROCE_DRIVERS = ["e1000e", "virtio_net"]
ROCE_BYTES = [64, 4096]
CALLS = [("send", "sent"), ("receive", "received"), ("poll", "poll of an empty ring")]


def counted(driver, call, batch, count):
    """Instructions that callgrind collected, and what the program says."""
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--callgrind-out-file=/dev/null",
               c.program("nic_ops"), driver, call, str(batch), str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        c.die(f"{call} did not end under callgrind")
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.stderr.write(done.stderr[-3000:])
        c.die(f"{driver} {call} could not be counted")
    return int(found.group(1)), json.loads(done.stdout)


def of_driver(driver, count):
    """{(call, batch): instructions, reads and writes of registers for each packet}; what the counting costs is taken off."""
    collected, said = counted(driver, "nothing", 1, count)
    stretch = collected / said["stretches"]
    result = {}
    for call, _ in CALLS:
        for batch in BATCHES if call != "poll" else BATCHES[:1]:
            collected, said = counted(driver, call, batch, count)
            result[call, batch] = {
                "instructions": (collected - stretch * said["stretches"]) / said["packets"],
                "reads": said["reads"] / said["packets"],
                # What the other end writes belongs to the other line.
                "writes": said["writes"] / said["packets"],
            }
    return result


def main():
    p = argparse.ArgumentParser(prog="bench/nic.py", description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--count", type=int, default=3200, help="packets of each kind (default 3200)")
    args = p.parse_args()
    if not c.have("valgrind"):
        c.die("valgrind is missing (package valgrind)")
    rows, saved = [], {"count": args.count, "drivers": {}, "roce": {}, "time": {}}
    for driver in DRIVERS:
        figures = of_driver(driver, args.count)
        for call, title in CALLS:
            for batch in BATCHES:
                if (call, batch) in figures:
                    f = figures[call, batch]
                    rows.append([driver, title, batch, f"{f['instructions']:.1f}", f"{f['reads']:.3f}", f"{f['writes']:.3f}", "0"])
                    saved["drivers"].setdefault(driver, {})[f"{call} {batch}"] = f
    print(f"one packet, UDP with 64 B of payload, one fragment, {args.count} of each kind")
    print(c.table(["driver", "packet", "batch", "instructions", "register reads", "register writes", "system calls"], rows))

    rows = []
    for driver in ROCE_DRIVERS:
        for size in ROCE_BYTES:
            for batch in BATCHES:
                said = c.run_json([c.program("nic_roce"), driver, str(size), str(batch), str(max(1, args.count // 32))])
                saved["roce"][f"{driver} {size} {batch}"] = said
                packets = said["packets"] + said["answers"]
                rows.append([driver, size, batch, f"{said['writes'] / said['packets']:.3f}", f"{said['peer_writes'] / packets:.3f}",
                             f"{said['reads'] + said['peer_reads']}"])
    print("\nRDMA writes over RoCEv2 between two cards that do not know each other's ports: of the requester for each packet that it sends, of the\n"
          "peer for each that comes and goes")
    print(c.table(["driver", "bytes", "requests at once", "register writes", "peer's register writes", "register reads, all"], rows))

    rows = []
    for what in ["udp", *DRIVERS]:
        for batch in BATCHES:
            best = min((c.run_json([c.program("nic_ops"), what, "time", str(batch), str(args.count * 100)]) for _ in range(5)),
                       key=lambda t: t["user_ns"] + t["system_ns"])
            saved["time"][f"{what} {batch}"] = best
            calls = f"{2 / batch:.3f}" if what == "udp" else "0"
            rows.append([what, batch, f"{best['user_ns']:.0f}", f"{best['system_ns']:.0f}", calls])
    print("\nthe same packet sent and received by one thread, CPU time, best of five: UDP sockets over the loopback interface (sendmmsg, recvmmsg),\n"
          "and a driver together with the model of its card, which copies the frame and checks its checksums")
    print(c.table(["through", "batch", "user ns", "system ns", "system calls"], rows))
    print("The kernel's part is given as time: instructions in the kernel need a PMU, which virtual machines often hide (perf stat).")
    c.save("nic.json", saved)
    return 0


if __name__ == "__main__":
    sys.exit(main())
