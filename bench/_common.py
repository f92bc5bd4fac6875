# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What the benchmark scripts share: where the programs are, running them with a time limit, medians, and whether the machine is quiet.

Environment: WEFT_STAGE (install tree, default build/stage), WEFT_BUILD (build tree, default build/release),
WEFT_BENCH_OUT (where results go, default build/bench). Python's standard library only.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAGE = pathlib.Path(os.environ.get("WEFT_STAGE", ROOT / "build/stage"))
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD", ROOT / "build/release"))
OUT = pathlib.Path(os.environ.get("WEFT_BENCH_OUT", ROOT / "build/bench"))
WEFT = STAGE / "bin/weft"


def die(sentence):
    print(f"bench: {sentence}", file=sys.stderr)
    sys.exit(1)


def program(name):
    """A benchmark program of the build tree."""
    path = BUILD / "bench" / name
    if not path.exists():
        die(f"{path} is missing; run ./dev build first")
    return str(path)


def weft():
    if not WEFT.exists():
        die(f"{WEFT} is missing; run ./dev build first")
    return str(WEFT)


def has_ours():
    return (STAGE / "lib/weft/compat/libfabric.so.1").exists()


def have(command):
    return any((pathlib.Path(d) / command).exists() for d in os.environ.get("PATH", "").split(":"))


def run(command, limit_s=60, env=None, check=True):
    """stdout of a command; a command that fails or hangs ends the benchmark (or returns None)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=env)
    except subprocess.TimeoutExpired:
        if check:
            die(f"{' '.join(command)} did not end within {limit_s} s")
        return None
    if done.returncode != 0:
        if check:
            sys.stderr.write(done.stdout[-2000:] + done.stderr[-4000:])
            die(f"{' '.join(command)} ended with status {done.returncode}")
        return None
    return done.stdout


def run_json(command, limit_s=60, env=None):
    return json.loads(run(command, limit_s, env))


def two_cpus():
    """Two CPUs of our mask, on different cores where there are such."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return None

    def siblings(cpu):
        try:
            return pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            return str(cpu)

    other = next((c for c in cpus[1:] if siblings(c) != siblings(cpus[0])), cpus[1])
    return cpus[0], other


def busy_cpus(seconds=0.3):
    """How many CPUs' worth of work others do at this moment."""

    def total():
        fields = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle and iowait are idle

    before = total()
    time.sleep(seconds)
    after = total()
    spent = max(1, after[0] - before[0])
    return (1 - (after[1] - before[1]) / spent) * (os.cpu_count() or 1)


class Quiet:
    """Watches whether the machine was ours alone."""

    LIMIT = 0.15  # CPUs

    def __init__(self):
        self.worst = 0.0

    def look(self):
        self.worst = max(self.worst, busy_cpus())

    def wait(self, limit_s=20):
        """Gives what else runs a little time to end."""
        end = time.monotonic() + limit_s
        while (now := busy_cpus()) > self.LIMIT and time.monotonic() < end:
            time.sleep(0.5)
        self.worst = max(self.worst, now)

    def verdict(self):
        if two_cpus() is None:
            return "WARNING: only one CPU; both processes share it and the figures are those of the scheduler"
        if self.worst > self.LIMIT:
            return (f"WARNING: other work took up to {self.worst:.1f} CPUs before or between the rounds; "
                    "the ratios are not to be trusted")
        return "the machine was quiet"


# A cache line from one CPU to the other, ns: as tools/weft/line_transfer.hpp has it.
NEAR_NS_MAX, FAR_NS_MIN = 130, 200
PLACES = ["near", "between", "far"]


def line_ns(cpus):
    return run_json([program("raw_limit"), "--cpus", f"{cpus[0]},{cpus[1]}", "--time", "4", "--line"])["line_ns"]


def place_of(before, after):
    """Where the host had the two CPUs: one of PLACES, or "moved"."""
    names = ["near" if ns < NEAR_NS_MAX else "between" if ns < FAR_NS_MIN else "far" for ns in (before, after)]
    return names[0] if names[0] == names[1] else "moved"


def placed(cpus, work):
    """What `work` returns, and where the CPUs were."""
    before = line_ns(cpus)
    value = work()
    return value, place_of(before, line_ns(cpus))


class Samples:
    """Figures by what, who and placement of the CPUs. Only figures of one placement are compared."""

    def __init__(self):
        self.all = {}
        self.failed = {}

    def add(self, key, who, value, place):
        if value is not None:
            self.all.setdefault(key, {}).setdefault(who, []).append((place, value))

    def fail(self, who, why):
        self.failed.setdefault(who, why)

    def of(self, key, who, place):
        return [value for at, value in self.all.get(key, {}).get(who, []) if at == place]

    def places(self, least=1):
        """Placements in which somebody has at least so many figures of one kind."""
        return [p for p in PLACES if any(len(self.of(key, who, p)) >= least for key, by in self.all.items() for who in by)]

    def medians(self, place):
        return {key: {who: median(self.of(key, who, place)) for who in by} for key, by in self.all.items()}

    def ratio(self, key, mine, theirs, place):
        """Of the medians, and how many figures the smaller side has. None: one has no figure there."""
        a, b = self.of(key, mine, place), self.of(key, theirs, place)
        return (statistics.median(a) / statistics.median(b), min(len(a), len(b))) if a and b else None

    def counts(self):
        found = [place for by in self.all.values() for values in by.values() for place, _ in values]
        return {place: found.count(place) for place in PLACES + ["moved"] if place in found}

    def summary(self):
        counts = self.counts()
        return "CPUs, by figures: " + ", ".join(f"{place} {n}" for place, n in counts.items()) + (
            "; those of runs in which they moved are left out" if "moved" in counts else "")


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio(mine, theirs):
    """Median of the rounds' own ratios: the host may move the machine's cores between two rounds, rarely within one."""
    if len(mine) == len(theirs):
        return statistics.median(a / b for a, b in zip(mine, theirs))
    return statistics.median(mine) / statistics.median(theirs)  # a round failed for one of them


def figure(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def table(head, rows):
    """Columns as wide as they need; the first to the left, the others to the right."""
    rows = [[str(c) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [head] + rows) for i in range(len(head))]

    def line(row):
        return "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()

    return "\n".join([line(head), "  ".join("-" * w for w in widths)] + [line(r) for r in rows])


def save(name, document):
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / name
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def gnuplot(script):
    """False when gnuplot is not there or does not like the script."""
    if not have("gnuplot"):
        return False
    return subprocess.run(["gnuplot"], input=script, text=True, capture_output=True).returncode == 0
