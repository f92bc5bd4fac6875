#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The figures of `./dev vm kofi bench`: medians, ratios, a verdict for each goal; and the instructions of the API layer.

usage: bench.py FIGURES MODULE    FIGURES: lines NAME;WHO;VALUE; MODULE: kofi_test.ko, with the functions bench_api_*
"""
import re
import statistics
import subprocess
import sys

# Of the ratio kofi/other: the least, or the most.
GOALS = {"tcp latency": ("at most", 1.10), "tcp stream": ("at least", 0.90), "verbs latency": ("at most", 1.05),
         "verbs stream": ("at least", 0.95), "fio": ("at least", 1.00)}


def verdict(name: str, ratio: float) -> str:
    kind, bound = next(goal for prefix, goal in GOALS.items() if name.startswith(prefix))
    met = ratio <= bound if kind == "at most" else ratio >= bound
    return f"{kind} {bound:.2f}: {'met' if met else 'NOT MET'}"


def ratios(path: str) -> None:
    values: "dict[str, dict[str, list[float]]]" = {}
    for line in open(path, encoding="utf-8"):
        name, who, value = line.strip().split(";")
        if value:
            values.setdefault(name, {}).setdefault(who, []).append(float(value))
    print(f"{'':36} {'other':>6} {'its':>10} {'kofi':>10}  ratio  goal  (medians of rounds, in turns; spread of kofi)")
    for name, sides in values.items():
        for who in sides:
            if who == "kofi" or "kofi" not in sides:
                continue
            other, kofi = statistics.median(sides[who]), statistics.median(sides["kofi"])
            spread = f"{min(sides['kofi']):.0f}-{max(sides['kofi']):.0f}, n={len(sides['kofi'])}"
            print(f"{name:36} {who:>6} {other:10.0f} {kofi:10.0f}  {kofi / other:5.2f}  {verdict(name, kofi / other)}  ({spread})")


def instructions(module: str) -> None:
    """From the entry of bench_api_CALL to the provider's function: what the inline code of <kofi/data.h> costs."""
    text = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", module], check=True, capture_output=True, text=True).stdout
    for name, body in re.findall(r"<bench_api_(\w+)>:\n(.*?)\n\n", text + "\n\n", re.S):
        count = 0
        for line in body.splitlines():
            if "R_X86_64" in line:
                if "indirect_thunk" in line:
                    break
                if "__fentry__" in line:
                    count -= 1
                continue
            count += 1
            if re.search(r"\b(call|jmp)\s+\*", line):
                break
        print(f"API layer, fi_{name}: {count} instructions from the call to the provider's entry, one indirect call")


if __name__ == "__main__":
    ratios(sys.argv[1])
    instructions(sys.argv[2])
