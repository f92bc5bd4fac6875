#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Counts the cases in a JUnit file of ctest and prints one plain line: N passed, N failed[, N skipped]. Before it, of a run of many: the slowest tests, and a
table of the counts by the first word of the names (a module, a provider, system, check).

usage: test_summary.py RESULTS.xml CTEST_STATUS [REASONS]
REASONS: a file whose lines are a regular expression on names of tests, a tab and why these are not run; how many there were is printed for each.
Exit status 1 when anything failed, when nothing ran, or when ctest itself ended badly.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree


SLOWEST = 20


def print_slowest(cases) -> None:
    """Where the time went. Several tests run at once, so their times add up to more than the run took."""
    times = sorted(((float(case.get("time") or 0), case.get("name")) for case in cases), reverse=True)
    if len(times) <= SLOWEST:
        return
    print(f"the slowest {SLOWEST} of {len(times)} tests, {sum(t for t, _ in times):.0f} s in all:")
    for seconds, name in times[:SLOWEST]:
        print(f"{seconds:7.1f} s  {name}")


def print_groups(passed, failed, skipped) -> None:
    counts: "dict[str, list[int]]" = {}
    for place, cases in enumerate((passed, failed, skipped)):
        for case in cases:
            counts.setdefault(str(case.get("name")).split(":")[0], [0, 0, 0])[place] += 1
    width = max(map(len, counts))
    print(f"{'':{width}}  passed  failed  skipped")
    for name, (good, bad, not_run) in counts.items():
        print(f"{name:{width}}  {good:6}  {bad:6}  {not_run:7}")


def print_reasons(skipped, path: str) -> None:
    rows = [line.split("\t", 1) for line in open(path, encoding="utf-8").read().splitlines() if "\t" in line and not line.startswith("#")]
    left = [case.get("name") for case in skipped if case.get("status") == "disabled"]
    for pattern, reason in rows:
        some = [name for name in left if re.search(pattern, name)]
        left = [name for name in left if name not in some]
        if some:
            print(f"skipped: {len(some)} like '{pattern}': {reason}")


def main() -> int:
    path, ctest_status = sys.argv[1], int(sys.argv[2])
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"no results: {error}")
        print("0 passed, 1 failed")
        return 1
    passed, failed, skipped = [], [], []
    for case in cases:
        status = case.get("status")
        if status == "run":
            passed.append(case)
        elif status == "disabled" or case.find("skipped") is not None and "SKIP" in skip_reason(case):
            skipped.append(case)
        else:
            failed.append(case)  # "fail", and "notrun" for a program that was not there
    print_slowest(cases)
    if len(cases) > SLOWEST:
        print_groups(passed, failed, skipped)
    for case in failed:
        print(f"failed: {case.get('name')}")
    if len(sys.argv) > 3:
        print_reasons(skipped, sys.argv[3])
    ended_badly = ctest_status != 0 and not failed
    if ended_badly:
        print(f"ctest ended with status {ctest_status}")
    line = f"{len(passed)} passed, {len(failed) + ended_badly} failed"
    if skipped:
        line += f", {len(skipped)} skipped"
    print(line)
    return 1 if failed or ended_badly or not passed else 0


def skip_reason(case) -> str:
    return (case.find("skipped").get("message") or "").upper()


if __name__ == "__main__":
    sys.exit(main())
