#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Writes the tables of docs/check.md between its marks: `weft check` over each provider of the system's libfabric and over ours.

usage: check_tables.py STAGE [--minimal PLUGIN] [--from FOLDER] [--runs FILE]
STAGE has bin/weft; FOLDER has answers that were stored before (NAME.json); FILE is what tests/system/check_verdicts_test.sh wrote
(WEFT_CHECK_VERDICTS=all WEFT_CHECK_VERDICTS_TO=FILE). Two providers are asked at a time.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "check.md"
STOCK = ["tcp", "tcp;ofi_rxm", "net", "shm", "udp", "udp;ofi_rxd", "sockets"]
OURS = ["weft", "shm", "tcp", "tcp;ofi_rxm", "udp", "udp;ofi_rxd", "loopback"]
TYPES = ["FI_EP_RDM", "FI_EP_MSG", "FI_EP_DGRAM"]


def answer(weft, provider, stock, stored):
    file = stored / f"{'stock' if stock else 'ours'}-{pathlib.Path(provider).name.replace(';', '-')}.json"
    if file.exists():
        return json.loads(file.read_text())
    print(f"{'stock' if stock else 'ours'}: {provider}", file=sys.stderr)
    words = [weft, "check", "--format", "json"] + (["--stock"] if stock else []) + [provider]
    text = subprocess.run(words, capture_output=True, text=True).stdout
    stored.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return json.loads(text)


def cell(report, kind, name):
    """What one provider did with one capability: yes, "yes 3/5", -, or what was not shown."""
    of_type = report["endpoint_types"].get(kind)
    if of_type is None:
        return None
    for line in of_type["capabilities"]:
        if line["capability"] != name:
            continue
        if line["of"] == 0:
            return "-" if line["claimed"] in ("no", "by call") else "not shown"
        text = f"{line['shown']}/{line['of']}"
        if line["broken"]:
            return f"**{text}**" if line["claimed"] != "no" else f"({text})"
        return text
    return "-"


def table(reports, kind):
    reports = [r for r in reports if kind in r["endpoint_types"]]
    if not reports:
        return []
    names = []
    for report in reports:
        for line in report["endpoint_types"][kind]["capabilities"]:
            if line["capability"] not in names:
                names.append(line["capability"])
    out = [f"`{kind}`:", "", "| | " + " | ".join(f"`{r['provider']}`" for r in reports) + " |", "|---|" + "---|" * len(reports)]
    for name in names:
        cells = [cell(r, kind, name) for r in reports]
        if any(c not in ("-", None) for c in cells):
            out.append(f"| {name} | " + " | ".join(cells) + " |")
    untested = [" ".join(r["endpoint_types"][kind]["claimed_without_case"]) or "-" for r in reports]
    if any(u != "-" for u in untested):
        out.append("| claimed, no case | " + " | ".join(untested) + " |")
    return out + [""]


def shortened(text, most=170):
    text = text.replace("|", "\\|")
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " ..."


PURPOSES = ["ompi-mtl", "ompi-btl", "mpich", "rxm", "rxd"]


def read_runs(file):
    """What the runs did: (library, provider, purpose) to a word or two."""
    lines = [line.split("\t") for line in file.read_text().splitlines()] if file else []
    return {(library, provider, purpose): did for library, provider, purpose, _, did in lines}


def verdicts(reports, library, runs):
    out = ["| | " + " | ".join(f"`{r['provider']}`" for r in reports) + " |", "|---|" + "---|" * len(reports)]
    for i, verdict in enumerate(reports[0]["verdicts"]):
        said = ["yes" if r["verdicts"][i]["yes"] else "no" for r in reports]
        out.append(f"| {verdict['verdict']} | " + " | ".join(said) + " |")
        if runs:
            did = [runs.get((library, r["provider"], PURPOSES[i]), "not run") for r in reports]
            out.append("| ... and when it was run | " + " | ".join(did) + " |")
    out.append("")
    for report in reports:
        for verdict in report["verdicts"]:
            if not verdict["yes"] and not verdict["reasons"][0].endswith("is not offered"):
                out.append(f"- `{report['provider']}`, {verdict['verdict']}: " + shortened("; ".join(verdict["reasons"]), 400))
    return out + [""]


def broken(reports):
    out = []
    for report in reports:
        for kind in TYPES:
            for line in report["endpoint_types"].get(kind, {}).get("capabilities", []):
                if line["claimed"] == "no":
                    continue
                for case in line["broken"]:
                    reason = case["reasons"][0] if case["reasons"] else ""
                    if case["outcome"] != "failed":
                        reason = case["outcome"] + ": " + reason
                    out.append(f"| `{report['provider']}` {kind[6:]} | {case['case']} | {shortened(reason)} |")
    return ["| provider | case | first reason |", "|---|---|---|"] + out + [""] if out else ["Nothing.", ""]


def section(title, reports, library, runs):
    versions = sorted({f"libfabric {r['libfabric']}" for r in reports})
    names = ", ".join(f"`{r['provider']}` {r['version']}" for r in reports)
    out = [f"## {title}", "", f"{', '.join(versions)}: {names}.", ""]
    out += verdicts(reports, library, runs)
    for kind in TYPES:
        out += table(reports, kind)
    return out + ["What is claimed and broken:", ""] + broken(reports)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", type=pathlib.Path)
    parser.add_argument("--minimal", help="the plugin of examples/minimal_provider")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, default=pathlib.Path("build/check"))
    parser.add_argument("--runs", type=pathlib.Path)
    given = parser.parse_args()
    weft = str(given.stage / "bin" / "weft")
    ours = OURS + ([given.minimal] if given.minimal else [])
    text = PAGE.read_text()
    begin, end = "<!-- tables: scripts/check_tables.py -->\n", "<!-- end of tables -->\n"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    runs = read_runs(given.runs)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        of_stock = pool.map(lambda p: answer(weft, p, True, given.stored), STOCK)
        of_ours = pool.map(lambda p: answer(weft, p, False, given.stored), ours)
        lines = section("Debian's providers", list(of_stock), "stock", runs)
        lines += section("Ours", list(of_ours), "ours", runs)
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + end + after)


main()
