#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Draws docs/top.svg: a terminal with `weft top` beside NetPIPE over Open MPI and ib_write_bw, as tmux shows it.

usage: top_picture.py [OUT]       needs build/stage (./dev build), tmux, openmpi-bin, netpipe-openmpi and perftest
"""
import html
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = ROOT / "build/stage/bin/weft"
COLUMNS, LINES = 156, 13
CELL, LEADING = 7.5, 16
READY_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(work: str, *command: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([str(WEFT), "run", "--", *command], cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                            env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))


def tmux(server: str, *words: str) -> str:
    return subprocess.run(["tmux", "-L", server, *words], check=True, capture_output=True, text=True).stdout


def screen(work: str) -> str:
    """What a terminal shows when both programs have been seen, with the escape sequences of its attributes."""
    server = f"weft-top-{os.getpid()}"
    tmux(server, "-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), f"{WEFT} top")
    try:
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            time.sleep(1)
            text = tmux(server, "capture-pane", "-p", "-e")
            lines = text.splitlines()
            if sum("NPopenmpi" in line for line in lines) >= 2 and sum("ib_write_bw" in line and "to " in line for line in lines) >= 2:
                time.sleep(3)  # rates of a whole second
                return tmux(server, "capture-pane", "-p", "-e")
        sys.exit(f"weft top did not show both programs within {READY_S} s; it showed:\n{text}")
    finally:
        tmux(server, "kill-server")


def drawn(text: str) -> str:
    height = LEADING * (LINES + 2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CELL * (COLUMNS + 2):.0f} {height}" font-family="monospace" font-size="12.5">',
           "<title>weft top beside NPopenmpi and ib_write_bw</title>", '<rect width="100%" height="100%" rx="6" fill="#1d1f21"/>']
    for row, line in enumerate(text.splitlines()[:LINES]):
        bold = reverse = False
        column = 0
        for piece in re.split(r"(\x1b\[[\d;]*m)", line):
            if piece.startswith("\x1b"):
                for code in (piece[2:-1] or "0").split(";"):
                    bold, reverse = (False, False) if code in ("", "0") else (bold or code == "1", (reverse or code == "7") and code != "27")
                continue
            if piece:
                x, y = CELL * (column + 1), LEADING * (row + 1.5)
                if reverse:
                    out.append(f'<rect x="{x:.1f}" y="{y - 12:.1f}" width="{CELL * len(piece):.1f}" height="{LEADING}" fill="#c5c8c6"/>')
                # The width of a cell is the picture's, whatever font there is.
                for match in re.finditer(r"\S+(?: \S+)*", piece):
                    at = x + CELL * match.start()
                    out.append(f'<text x="{at:.1f}" y="{y:.1f}" textLength="{CELL * len(match[0]):.1f}" fill="{"#1d1f21" if reverse else "#c5c8c6"}"'
                               f'{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""} xml:space="preserve">{html.escape(match[0])}</text>')
            column += len(piece)
    return "\n".join(out + ["</svg>"]) + "\n"


def main() -> int:
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/top.svg"
    port = str(free_port())
    with tempfile.TemporaryDirectory() as work:
        running = [start(work, "mpirun", "--oversubscribe", "-np", "2", "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "weft",
                         "NPopenmpi", "-n", "100000", "-l", "65536", "-u", "65536", "-p", "0", "-o", "np.out"),
                   start(work, "ib_write_bw", "-p", port, "-s", "65536", "-D", "60")]
        try:
            time.sleep(2)
            running.append(start(work, "ib_write_bw", "-p", port, "-s", "65536", "-D", "60", "127.0.0.1"))
            out.write_text(drawn(screen(work)))
        finally:
            for program in running:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
    print(f"{out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
