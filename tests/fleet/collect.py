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
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit.ports import hold_port, number_of  # noqa: E402

KANSOKU = FLEET_HOSTS = ""
PATIENCE_S = 600  # of any wait: only a broken program takes so long
SETTLE_S = 20  # until what may have got lost is sent again


def nats_server():
    return shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def poll(condition):
    """Looks until the condition is fulfilled; gives what it gave."""
    return kit.wait_for(condition, "a state", PATIENCE_S)


class Server:
    """A nats-server of our own on a port of the loopback device that is its alone, also while it is away."""

    def __init__(self, *extra):
        self.held = hold_port()
        self.port = number_of(self.held)
        self.folder = tempfile.TemporaryDirectory()
        self.config = pathlib.Path(self.folder.name) / "nats.conf"
        self.config.write_text(f'write_deadline: "{PATIENCE_S}s"\n', encoding="ascii")  # a client that is slow loses nothing
        self.extra = extra
        self.start()

    def start(self):
        self.process = subprocess.Popen([nats_server(), "-c", str(self.config), "-a", "127.0.0.1", "-p", str(self.port), *self.extra],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        poll(self.is_up)

    def is_up(self):
        if self.process.poll() is not None:
            raise RuntimeError("nats-server did not start")
        try:
            socket.create_connection(("127.0.0.1", self.port), PATIENCE_S).close()
        except OSError:
            return False
        return True

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.kill()
        self.folder.cleanup()
        self.held.close()

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

    def look_for(self, condition, limit_s):
        """The first report from now on that fulfils `condition`, or None."""
        with self.changed:
            first = max(len(self.reports) - 1, 0)
            found = lambda: next((report for report in self.reports[first:] if condition(report)), None)
            self.changed.wait_for(lambda: found() is not None, limit_s)
            return found()

    def wait_for(self, condition):
        report = self.look_for(condition, PATIENCE_S)
        if report is None:
            raise AssertionError(f"never seen; last: {str(self.reports[-1:])[:2000]} {self.errors}")
        return report

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


def jobs_seen(state_folder):
    """The jobs that the agent of that folder has had a window of."""
    done = subprocess.run([KANSOKU, "watch", "--status", "--json", "--state", state_folder], capture_output=True, text=True, check=False)
    if done.returncode:
        return set()  # not up yet, or busy
    status = json.loads(done.stdout)
    return {job["name"] for job in status["jobs"]} & {row["job"] for row in status["rows"]}


def read_until(file, text):
    """Lines up to one that holds `text`."""
    lines = []
    while not lines or text not in lines[-1]:
        lines.append(file.readline())
        if not lines[-1]:
            raise AssertionError(f"no {text!r} in {lines}")
    return "".join(lines)


class Collect(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.end)

    def start(self, *arguments):
        """A program with pipes for what it says; one that hangs is ended."""
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        for cleanup in (process.stdout.close, process.stderr.close, process.wait, process.kill, watchdog.cancel):
            self.addCleanup(cleanup)
        return process

    def collector(self, *arguments):
        collector = Collector(self.server.url(), *arguments)
        self.addCleanup(collector.stop)
        collector.wait_for(lambda report: report["bus"]["connected"])
        return collector

    def test_a_thousand_hosts(self):
        def publish_all():
            """The report of all; None if it came so late that the ranks of the latest minute are no longer told of."""
            minute = time.time() // 60
            collector = self.collector()
            publish(self.server.url(), 1000, 3, 8)
            report = collector.wait_for(lambda report: report["messages"] >= 3000)
            self.assertEqual(collector.stop(), 0)
            return report if time.time() // 60 <= minute + 1 else None

        report = poll(publish_all)
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

    def test_the_server_is_killed_in_mid_stream(self):
        collector = self.collector()
        publish(self.server.url(), 4, 3)
        collector.wait_for(lambda report: report["messages"] == 12)
        for round in (1, 2):
            self.server.kill()
            collector.wait_for(lambda report: not report["bus"]["connected"])
            self.server.start()
            collector.wait_for(lambda report: report["bus"]["connected"] and report["bus"]["connects"] == round + 1)
            before = collector.reports[-1]["messages"]

            def is_heard():
                # The subscription is sent behind the connection: what is published before it gets lost.
                publish(self.server.url(), 4, 3)
                return collector.reports[-1]["messages"] > before

            poll(is_heard)
        self.assertEqual(collector.reports[-1]["host_count"], 4)
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
        program = f"import ctypes, time; ctypes.CDLL({str(library)!r}); print(flush=True); time.sleep(36000)"  # allowed: it lives until it is killed

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

        def run_agents():
            """Each until it has seen both of its jobs. An agent that ends gives its last summary two seconds: it may get lost."""
            agents = {f"{folder.name}/{host}": self.start(KANSOKU, "watch", "-q", "--no-history", "--state", f"{folder.name}/{host}", "--host",
                                                          host, "--collector", self.server.url(), "--pid", *pids)
                      for host, pids in zip(("one", "two"), ranks)}
            for state_folder, agent in agents.items():
                poll(lambda: jobs_seen(state_folder) >= {"10.9.8.7:29500", "127.0.0.1:29500"} or agent.poll() is not None)
                agent.send_signal(signal.SIGTERM)
            for agent in agents.values():
                self.assertEqual(agent.wait(PATIENCE_S), 0, agent.stderr.read())
            return collector.look_for(lambda report: report["host_count"] == 2, SETTLE_S)

        report = poll(run_agents)
        jobs = {job["key"]: (job["hosts"], job["ranks"]) for job in report["jobs"]}
        self.assertEqual(jobs, {"10.9.8.7:29500": (2, 2), "one/127.0.0.1:29500": (1, 1), "two/127.0.0.1:29500": (1, 1)})

    def test_text(self):
        wanted = [r"4 hosts \(0 lost\), 1 jobs, 1 incidents, \d+ messages \(0 missing\)", r"job train 0 \(key0000\): 16 of 16 ranks on 4 hosts",
                  r"feature_0 .* \(rank 5, node0001\)", r"incident .*, job key0000: latency_spike on 4 of its hosts: score 3"]
        process = self.start(KANSOKU, "collect", "--nats", self.server.url(), "--every", "200ms", "--feature", "feature_0")
        read_until(process.stderr, "connected")
        text, published_s = "", 0.0
        while not all(re.search(pattern, text) for pattern in wanted):  # there are reports of a part of what is published, too
            line = process.stdout.readline()
            self.assertTrue(line, f"ended, and said: {text}")
            # Until its subscription has arrived, and when ranks are no longer told of.
            if " 0 messages" in line or time.monotonic() - published_s > 60:
                publish(self.server.url(), 4, 3)
                published_s = time.monotonic()
            text += line
        process.send_signal(signal.SIGTERM)
        text += process.stdout.read()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertNotIn("feature_1", text)

    def test_credentials_are_in_no_output(self):
        server = Server("--user", "ann", "--pass", "g00d")
        self.addCleanup(server.end)
        refused = self.start(KANSOKU, "collect", "--nats", server.url("ann:s3cret@"), "--json")
        text = read_until(refused.stderr, "Authorization")
        refused.send_signal(signal.SIGTERM)
        text += refused.stderr.read() + refused.stdout.read()
        self.assertEqual(refused.wait(PATIENCE_S), 1)
        self.assertIn("collect from", text)
        self.assertNotIn("s3cret", text)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("ann:g00d\n")
            file.flush()
            accepted = self.start(KANSOKU, "collect", "--nats", server.url(), "--nats-credentials", file.name)
            read_until(accepted.stderr, "kansoku: connected")
            accepted.send_signal(signal.SIGTERM)
            self.assertEqual(accepted.wait(PATIENCE_S), 0)

    def test_nobody_there(self):
        self.server.kill()
        done = subprocess.run([KANSOKU, "collect", "--nats", self.server.url(), "--once", "--every", "500ms"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("hint: check that nats-server runs there", done.stderr)
        self.assertEqual(done.stdout, "")


def main(_report):
    global KANSOKU, FLEET_HOSTS
    kit.need(nats_server(), "no nats-server (apt-get install nats-server)")
    KANSOKU, FLEET_HOSTS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    kit.run(main)
