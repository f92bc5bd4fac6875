#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""One table out of the JSON reports of `weft perf`. usage: compare.py FOLDER OURS OTHER

Reads FOLDER/OURS.NETWORK.*.json and FOLDER/OTHER.NETWORK.*.json, takes for each network, test and size the median over the reports, and
prints both with the ratio: how many times better ours is (a latency that is lower, a rate or bandwidth that is higher).
Exit status 1 when a figure of ours is missing, or all of the other's.
"""
import json
import pathlib
import statistics
import sys

BETTER_LOW = {"ns", "us"}
UNITS = ["ns", "us", "M msg/s", "GB/s"]  # in the order of the table


def size_text(size: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def medians(folder: pathlib.Path, name: str) -> "dict[tuple[str, str, int, str], float]":
    samples = {}
    for path in sorted(folder.glob(f"{name}.*.json")):
        network = path.name.split(".")[1]
        for result in json.loads(path.read_text())["results"]:
            samples.setdefault((network, result["test"], result["size"], result["unit"]), []).append(result["median"])
    return {key: statistics.median(values) for key, values in samples.items()}


def marks(folder: pathlib.Path, name: str) -> "dict[tuple[str, str, int, str], tuple[bool, bool]]":
    """Whether any report was cold, and in any the CPUs were shared with other work."""
    found = {}
    for path in sorted(folder.glob(f"{name}.*.json")):
        network = path.name.split(".")[1]
        for result in json.loads(path.read_text())["results"]:
            key = (network, result["test"], result["size"], result["unit"])
            cold, shared = found.get(key, (False, False))
            found[key] = cold or result.get("cold", False), shared or "shared" in result.get("marks", "")
    return found


def marks_text(names: "tuple[str, str]", left: "tuple[bool, bool]", right: "tuple[bool, bool]") -> str:
    cold = [name for name, side in zip(names, (left, right)) if side[0]]
    said = ["cold" if len(cold) == 2 else f"cold ({cold[0]})"] if cold else []
    return "; ".join(said + (["CPUs shared with other work"] if left[1] or right[1] else []))


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def main() -> int:
    folder, ours_name, other_name = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    ours, other = medians(folder, ours_name), medians(folder, other_name)
    our_marks, other_marks = marks(folder, ours_name), marks(folder, other_name)
    networks = list(dict.fromkeys(key[0] for key in ours))
    head = f"{'network':<14}{'test':<18}{'size':>8}{ours_name:>12}{other_name:>12}  {'unit':<9}{'ratio':>7}  note"
    print(head)
    print("-" * len(head))
    missing = not ours or not other
    order = {key: (networks.index(key[0]) if key[0] in networks else 99, UNITS.index(key[3]) if key[3] in UNITS else 99, key)
             for key in set(ours) | set(other)}
    for key in sorted(order, key=order.get):
        network, test, size, unit = key
        left, right = ours.get(key), other.get(key)
        ratio = "?"
        if left and right:
            ratio = f"{right / left if unit in BETTER_LOW else left / right:.2f}x"
        else:
            missing = missing or not left
        print(f"{network:<14}{test:<18}{size_text(size):>8}{number(left) if left else 'none':>12}{number(right) if right else 'none':>12}"
              f"  {unit:<9}{ratio:>7}  {marks_text((ours_name, other_name), our_marks.get(key, (False, False)), other_marks.get(key, (False, False)))}".rstrip())
    print(f"ratio: how many times better {ours_name} is (lower latency, higher rate and bandwidth); above 1 is ahead")
    print("note: of any of the reports; cold: the times were not stable yet; shared: a process waited for its CPU")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
