#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Looks for indirect calls and jumps among the instructions that a program executed, by its disassembly. usage: indirect_calls.py PROGRAM ARG...

The program (linked without -pie) runs under callgrind and says by CALLGRIND_TOGGLE_COLLECT which stretch counts. Exit status 1 when an
indirect call was executed in it, in each of up to three runs. Indirect calls within CLOCKED are not counted: these functions run by the clock, every
10 ms, and on a busy machine a stretch of well under a millisecond takes longer.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

INDIRECT = re.compile(r"^(?:notrack |bnd )*(?:call|jmp)\s+\*")
CLOCKED = re.compile(r"::(?:time_passes|housekeeping)\(")


def executed(command):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", "--dump-instr=yes", "--compress-pos=no",
                        f"--callgrind-out-file={out}", *command], capture_output=True, check=True, timeout=300)
        made, of_callee = {}, False
        for line in out.read_text().splitlines():
            # The line after "calls=" has what the callee took, also when the call itself was not collected.
            if (match := re.match(r"0x([0-9a-f]+) \d+ (\d+)$", line)) and not of_callee:
                address = int(match.group(1), 16)
                made[address] = made.get(address, 0) + int(match.group(2))
            of_callee = line.startswith("calls=")
        return made


def disassembly(program):
    text = subprocess.run(["objdump", "-dC", "--no-show-raw-insn", program], capture_output=True, text=True, check=True).stdout
    name, made = "", {}
    for line in text.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = match.group(1)
        elif match := re.match(r"\s+([0-9a-f]+):\t(.+)$", line):
            made[int(match.group(1), 16)] = (name, match.group(2).strip())
    return made


def main():
    code, found = disassembly(sys.argv[1]), None
    for _ in range(3):
        ran = executed(sys.argv[1:])
        here = [address for address in sorted(ran) if address in code]
        indirect = {address for address in here if INDIRECT.match(code[address][1]) and "@plt" not in code[address][0]
                    and not CLOCKED.search(code[address][0])}
        for address in sorted(indirect):
            print(f"{code[address][0]}: {code[address][1]} ({ran[address]} times)")
        found = indirect if found is None else found & indirect
        if not found:
            break
    print(f"{' '.join(sys.argv[2:])}: {len(here)} different instructions executed, {len(found)} of them indirect calls in each run")
    return 1 if found or len(here) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
