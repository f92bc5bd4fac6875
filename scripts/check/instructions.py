#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The libraries run on every x86-64 processor: objdump finds no later instruction outside of functions that are called where the processor has it.
usage: instructions.py BUILD | LIBRARY...

tests/system/old_processors_test.sh runs the common paths on such processors; this looks at all of them. Exit status 77: no objdump, or nothing to read.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

LIBRARIES = ("lib/weft/compat/libfabric.so.1", "lib/weft/compat/libibverbs.so.1", "lib/weft/compat/librdmacm.so.1", "lib/libweft.so.1", "lib/weft/plugin/libweft-fi.so",
             "lib/weft/plugin/libweft-tcp-fi.so", "lib/weft/plugin/libweft-udp-fi.so", "bin/weft")
LATER = re.compile(  # x86-64-v2 to v4 and what no level has, as objdump spells it
    r"v(?!err$|erw$|m(call|func|launch|resume|run|load|save|mcall|read|write|clear|ptrld|ptrst|xon|xoff)[bwlq]?$)[a-z0-9]+|k(mov|or|ortest|and|andn|xor|xnor|not|add|test|shift[lr]|unpck)[bwdq]+"  # AVX and later
    r"|addsubp[sd]|h(add|sub)p[sd]|lddqu|mov(ddup|shdup|sldup)|fisttp[sl]*|monitorx?|mwaitx?"  # SSE3
    r"|pabs[bwd]|palignr|ph(add|sub)(d|w|sw)|pmaddubsw|pmulhrsw|pshufb|psign[bwd]"  # SSSE3
    r"|p?blend(v|vb|w)?(p[sd])?|dpp[sd]|(extract|insert)ps|movntdqa|mpsadbw|packusdw|pcmp(eq|gt)q|p(extr|insr)[bdq]|phminposuw"
    r"|pm(ax|in)(sb|sd|uw|ud)|pmov[sz]x[bwd][wdq]|pmul(dq|ld)|ptest|round[ps][sd]|crc32[bwlq]?|pcmp[ei]str[im]"  # SSE4
    r"|popcnt[wlq]?|lzcnt[wlq]?|andn|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|rorx|s[ahl][lr]x|adcx|adox|movbe[wlq]?"
    r"|cmpxchg16b|[ls]ahf|aes\w+|pclmul\w+|gf2p8\w+|sha(1|256)\w+|extrq|insertq|movnts[sd]"
    r"|x(save|rstor|getbv|setbv|begin|end|abort|test)\w*|rd(rand|seed|tscp|pid|pkru|[fg]sbase)|wr([fg]sbase|pkru)"
    r"|prefetchwt1|prefetchit[01]|clflushopt|clwb|clzero|serialize|umonitor|umwait|tpause|movdir\w+|enqcmds?")
# Not above: tzcnt is bsf on a processor without it, and the compiler writes it only where its operand is not zero. prefetchw: src/arch/cpu.hpp.
PREFIXES = frozenset(("lock", "rep", "repz", "repnz", "data16", "addr32", "cs", "ds", "es", "ss", "notrack", "bnd", "xacquire", "xrelease"))
# Functions that run where the processor has what they use, and what they may have.
ASKED = (
    (re.compile(r"crc32c_words"), re.compile(r"crc32[bwlq]?")),  # proto/reliable/packet.cpp
    (re.compile(r"^(crc32|adler32)_x86_"), re.compile(r".*")),  # libdeflate's, behind its own question
    (re.compile(r"^(libdeflate_init_x86_cpu_features|get_available_features|__cpu_indicator_init)"), re.compile(r"xgetbv")),
)


def later_in(library: pathlib.Path) -> "tuple[pathlib.Path, bool, list[str]]":
    """Whether it is of x86-64, and `function: instruction` for each pair that is not allowed."""
    found: "set[str]" = set()
    known: "dict[str, bool]" = {}
    function, is_ours = "", False
    with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", str(library)], stdout=subprocess.PIPE, text=True) as dump:
        assert dump.stdout is not None
        for line in dump.stdout:
            if line[0] != " ":
                is_ours = is_ours or "elf64-x86-64" in line
                if line.endswith(">:\n"):
                    function = line[line.index("<") + 1:-3]
                continue
            tab = line.find("\t")
            word = line[tab + 1:].split(None, 1)[0] if tab >= 0 and len(line) > tab + 2 else ""
            if word in PREFIXES:
                word = next((each for each in line[tab + 1:].split() if each not in PREFIXES), "")
            if word not in known:
                known[word] = LATER.fullmatch(word) is not None
            if known[word] and not any(name.search(function) and what.fullmatch(word) for name, what in ASKED):
                found.add(f"{function}: {word}")
    return library, is_ours and dump.returncode == 0, sorted(found)


def main() -> int:
    words = [pathlib.Path(word) for word in sys.argv[1:]]
    if len(words) == 1 and words[0].is_dir():
        words = [words[0] / name for name in LIBRARIES if (words[0] / name).exists()]
    if not words or shutil.which("objdump") is None:
        print("nothing to read, or no objdump")
        return 77
    faults, read = 0, 0
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for library, is_read, found in pool.map(later_in, words):
            read += is_read
            faults += len(found)
            for what in found[:20]:
                print(f"{library}: not of every x86-64 processor: {what}")
    if read == 0:
        print("no library of x86-64")
        return 77
    print(f"{read} libraries, {faults} instructions that older processors do not have")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
