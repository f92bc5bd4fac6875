#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The figures of ./dev vm bench as ratios of Weft to rxe: medians of all rounds. usage: ratios.py FILE"""
import statistics
import sys

values: "dict[str, dict[str, list[float]]]" = {}
for line in open(sys.argv[1], encoding="utf-8"):
    side, name, value = line.strip().split(";")
    if value != "failed":
        values.setdefault(name, {}).setdefault(side, []).append(float(value))
WAYS = {"weft": "UDP socket", "packet": "packet socket"}
print(f"{'':40} {'rxe':>10} {'Weft':>10}  Weft is")
for name, sides in values.items():
    for side, way in WAYS.items():
        if not {"rxe", side} <= sides.keys():
            print(f"{name:40} rxe or Weft by {way} failed")
            continue
        rxe, weft = statistics.median(sides["rxe"]), statistics.median(sides[side])
        ratio = rxe / weft if "latency" in name else weft / rxe
        print(f"{name:40} {rxe:10.3f} {weft:10.3f}  {ratio:.2f} times as fast by {way}")
