# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Running ucx_perftest between two processes of this machine. Used by shm.py and net.py."""
import os
import re
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import _common as c

# Windows to try for each test; the fastest is what UCX is measured with.
OUTSTANDING = {"tag_lat": [None], "tag_bw": [None, 8, 64]}
# So many messages that a run takes about as long as one of weft perf over a network.
MESSAGES = {("tag_lat", 8): 8_000, ("tag_bw", 8): 100_000, ("tag_bw", 65536): 3_000, ("tag_bw", 1 << 20): 200}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    """Whether a TCP socket of this network namespace listens on the port (state 0A)."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}") as table:
                rows = [line.split() for line in table][1:]
        except OSError:
            continue
        if any(int(row[1].rsplit(":", 1)[1], 16) == port and row[3] == "0A" for row in rows):
            return True
    return False


def await_server(server, port, limit_s=10):
    """True: the server listens. False: it ended, or did not listen in time."""
    end = time.monotonic() + limit_s
    while not listens(port):
        if server.poll() is not None or time.monotonic() > end:
            print(f"ucx_perftest does not listen on port {port}", file=sys.stderr)
            return False
        time.sleep(0.01)
    return True


def run(test, size, messages, transports, outstanding, cpus, **variables):
    """Messages per second, or None. The average over all messages, as ours is."""
    env = dict(os.environ, UCX_TLS=transports, UCX_LOG_LEVEL="error", UCX_WARN_UNUSED_ENV_VARS="n", **variables)
    port = free_port()
    common = ["ucx_perftest", "-p", str(port)]
    # One that is built with MPI (Debian 13) takes it for the set-up unless told otherwise.
    if "enable MPI mode" in subprocess.run(["ucx_perftest", "-h"], capture_output=True, text=True, check=False).stdout:
        common += ["-P", "0"]
    server = subprocess.Popen(["taskset", "-c", str(cpus[1])] + common, env=env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        command = ["taskset", "-c", str(cpus[0])] + common + [
            "127.0.0.1", "-t", test, "-s", str(size), "-n", str(messages), "-w", str(messages // 10), "-f"]
        if outstanding:
            command += ["-O", str(outstanding)]
        if not await_server(server, port):
            return None
        text = c.run(command, 60, env, check=False)
        # Percentile, average and overall latency; average and overall bandwidth; average and overall rate.
        found = re.search(r"^\s+\d+((?:\s+[\d.]+){7})\s*$", text or "", re.M)
        return float(found.group(1).split()[6]) if found else None
    finally:
        if server.poll() is None:
            try:
                server.wait(2)
            except subprocess.TimeoutExpired:
                server.kill()
        server.wait()


class Ucx:
    def __init__(self, transports):
        self.transports = ",".join(transports)
        self.best = {}  # (test, size): the window that was the fastest

    def rate(self, test, size, cpus):
        """Messages per second over the whole run, or None."""
        def once(outstanding):
            return run(test, size, MESSAGES[test, size], self.transports, outstanding, cpus, UCX_NET_DEVICES="lo")
        if (test, size) not in self.best:
            self.best[test, size] = max(OUTSTANDING[test], key=lambda outstanding: once(outstanding) or 0)
        return once(self.best[test, size])

    def measure(self, samples, tests, cpus):
        for key, _, _, low, _, size, test in tests:
            rate, place = c.placed(cpus, lambda: self.rate(test, size, cpus))
            if rate is None:
                samples.fail("ucx", f"ucx_perftest {test} of {size} bytes over {self.transports} did not end well")
            else:  # ucx_perftest counts one way
                samples.add(key, "ucx", 1e6 / rate if low else rate * 1e-6 if key == "rate" else rate * size * 1e-9, place)
