#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kansoku collect through a real nats-server: collect.py KANSOKU FLEET_HOSTS

A thousand hosts, a server that is killed and started again in mid-stream, refused credentials, nobody there. Exit status 77: no
nats-server on this machine.
"""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

KANSOKU = FLEET_HOSTS = ""
PATIENCE_S = 60


def nats_server():
    return shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class Server:
    """A nats-server of our own on a free port of the loopback device."""

    def __init__(self, *extra):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.extra = extra
        self.start()

    def start(self):
        self.process = subprocess.Popen([nats_server(), "-a", "127.0.0.1", "-p", str(self.port), *self.extra],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("nats-server did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def url(self, credentials=""):
        return f"nats://{credentials}127.0.0.1:{self.port}"


class Collector:
    """kansoku collect --json in the background; its reports as they come."""

    def __init__(self, url, *arguments):
        self.process = subprocess.Popen([KANSOKU, "collect", "--nats", url, "--json", "--every", "200ms", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.reports, self.errors = [], []
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self.read, args=pair) for pair in
                        ((self.process.stdout, self.reports), (self.process.stderr, self.errors))]
        for thread in self.threads:
            thread.start()

    def read(self, file, lines):
        for line in file:
            with self.changed:
                lines.append(json.loads(line) if lines is self.reports else line)
                self.changed.notify_all()

    def wait_for(self, condition):
        """The first report from now on that fulfils `condition`."""
        with self.changed:
            first = max(len(self.reports) - 1, 0)
            found = lambda: next((report for report in self.reports[first:] if condition(report)), None)
            if not self.changed.wait_for(lambda: found() is not None, PATIENCE_S):
                raise AssertionError(f"never seen; last: {str(self.reports[-1:])[:2000]} {self.errors}")
            return found()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_S)
        for thread in self.threads:
            thread.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


def publish(url, *arguments):
    subprocess.run([FLEET_HOSTS, url, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)


class Collect(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.kill)

    def collector(self, *arguments):
        collector = Collector(self.server.url(), *arguments)
        self.addCleanup(collector.stop)
        collector.wait_for(lambda report: report["bus"]["connected"])
        return collector

    def test_a_thousand_hosts(self):
        collector = self.collector()
        publish(self.server.url(), 1000, 3, 8)
        report = collector.wait_for(lambda report: report["messages"] >= 3000)
        self.assertEqual(report["host_count"], 1000)
        self.assertEqual(report["missing_messages"], 0)
        self.assertEqual(len(report["jobs"]), 125)
        job = report["jobs"][0]
        self.assertEqual((job["hosts"], job["ranks"], job["world_size"]), (8, 32, 32))
        self.assertEqual(job["features"][0]["count"], 3 * 60 * 32)
        self.assertAlmostEqual(job["features"][0]["p50"], 1.1, delta=0.03)
        self.assertEqual(job["features"][0]["highest"][0]["rank"], 5)
        self.assertEqual([len(group["incidents"]) for group in report["incident_groups"]], [8])
        self.assertEqual(report["counters"], {"lost": 3000})
        self.assertEqual(sum(report["loss"].values()) + report["bus"]["dropped"], 0)
        self.assertEqual(collector.stop(), 0)

    def test_the_server_is_killed_in_mid_stream(self):
        collector = self.collector()
        publish(self.server.url(), 4, 3)
        collector.wait_for(lambda report: report["messages"] == 12)
        for round in (1, 2):
            self.server.kill()
            collector.wait_for(lambda report: not report["bus"]["connected"])
            self.server.start()
            collector.wait_for(lambda report: report["bus"]["connected"] and report["bus"]["connects"] == round + 1)
            until = time.monotonic() + PATIENCE_S
            before = collector.reports[-1]["messages"]
            # The subscription is sent behind the connection: what is published before it gets lost.
            while collector.reports[-1]["messages"] == before and time.monotonic() < until:
                publish(self.server.url(), 4, 3)
                time.sleep(0.3)
        report = collector.wait_for(lambda report: report["messages"] > 12)
        self.assertEqual(report["host_count"], 4)
        self.assertEqual(collector.stop(), 0)

    def test_a_host_that_stops(self):
        collector = self.collector()
        publish(self.server.url(), 3, 6, 3, 1)
        report = collector.wait_for(lambda report: report["messages"] == 13)
        self.assertEqual([host["messages"] for host in report["hosts"]], [6, 1, 6])
        self.assertEqual([host["state"] for host in report["hosts"]], ["up", "up", "up"])  # heard just now

    def test_what_agents_tell(self):
        """Two agents: one job with a rank on each host, and one on each that happens to have the same name."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # Processes are found by the names of the files that they map.
        library = pathlib.Path(folder.name) / "libtorch_cpu.so"
        ctypes.CDLL("libm.so.6")
        maths = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "/libm.so" in line)
        shutil.copy(maths, library)
        program = f"import ctypes, time; ctypes.CDLL({str(library)!r}); print(flush=True); time.sleep(300)"

        def rank(address, number):
            environment = dict(os.environ, MASTER_ADDR=address, MASTER_PORT="29500", RANK=str(number), WORLD_SIZE="2")
            process = subprocess.Popen(["/usr/bin/python3", "-c", program], env=environment, stdout=subprocess.PIPE)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            process.stdout.readline()
            return str(process.pid)

        ranks = [[rank("127.0.0.1", 0), rank("10.9.8.7", number)] for number in (0, 1)]
        collector = self.collector()
        agents = [subprocess.Popen([KANSOKU, "watch", "-q", "--no-history", "--state", f"{folder.name}/{host}", "--host", host, "--for", "6s",
                                    "--collector", self.server.url(), "--pid", *pids], stdout=subprocess.DEVNULL)
                  for host, pids in zip(("one", "two"), ranks)]
        for agent in agents:
            self.assertEqual(agent.wait(PATIENCE_S), 0)
        report = collector.wait_for(lambda report: report["messages"] >= 2)
        self.assertEqual(report["host_count"], 2)
        jobs = {job["key"]: (job["hosts"], job["ranks"]) for job in report["jobs"]}
        self.assertEqual(jobs, {"10.9.8.7:29500": (2, 2), "one/127.0.0.1:29500": (1, 1), "two/127.0.0.1:29500": (1, 1)})

    def test_text(self):
        process = subprocess.Popen([KANSOKU, "collect", "--nats", self.server.url(), "--every", "200ms", "--feature", "feature_0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "connected" not in process.stderr.readline():
            pass
        lines = []
        for line in process.stdout:
            if " 0 messages" in line:  # until its subscription has arrived
                publish(self.server.url(), 4, 3)
            lines.append(line)
            if line.startswith("incident"):
                break
        process.send_signal(signal.SIGTERM)
        text = "".join(lines) + process.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual(process.returncode, 0)
        self.assertRegex(text, r"4 hosts \(0 lost\), 1 jobs, 1 incidents, \d+ messages \(0 missing\)")
        self.assertRegex(text, r"job train 0 \(key0000\): 16 of 16 ranks on 4 hosts")
        self.assertRegex(text, r"feature_0 .* \(rank 5, node0001\)")
        self.assertNotIn("feature_1", text)
        self.assertRegex(text, r"incident .*, job key0000: latency_spike on 4 of its hosts: score 3")

    def test_credentials_are_in_no_output(self):
        server = Server("--user", "ann", "--pass", "g00d")
        self.addCleanup(server.kill)
        refused = subprocess.run([KANSOKU, "collect", "--nats", server.url("ann:s3cret@"), "--for", "3s", "--json"],
                                 capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("Authorization", refused.stderr)
        self.assertNotIn("s3cret", refused.stderr + refused.stdout)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("ann:g00d\n")
            file.flush()
            accepted = subprocess.run([KANSOKU, "collect", "--nats", server.url(), "--nats-credentials", file.name, "--for", "5s"],
                                      capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(accepted.returncode, 0, accepted.stderr)

    def test_nobody_there(self):
        self.server.kill()
        done = subprocess.run([KANSOKU, "collect", "--nats", self.server.url(), "--once", "--every", "500ms"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("hint: is nats-server running there?", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    if nats_server() is None:
        print("skipped: no nats-server (apt-get install nats-server)")
        sys.exit(77)
    KANSOKU, FLEET_HOSTS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=2)
