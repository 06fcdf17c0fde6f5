#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What real consumers make of the exported metrics: consumers.py promtool|prometheus|otlp|webhook|tls EXPORTER

promtool    Debian's `promtool check metrics` reads the text format
prometheus  Debian's Prometheus scrapes a server on loopback, OpenMetrics as it prefers, and is asked for the samples
otlp        OpenTelemetry's own JavaScript decoder reads the protobuf message
webhook     a target that is down, comes up, fails once and then takes everything
tls         an https target is posted to if its certificate is trusted, and not otherwise

Exit status 77, with the reason, where the consumer is not installed.
"""
import http.server
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import expect, need_tool  # noqa: E402
from kit.ports import hold_port, number_of  # noqa: E402

LIMIT_S = 300  # of waiting for another program; only a failing test waits so long
JOB = 'train "a\\b" ü\nx'


def output(exporter, mode):
    return subprocess.run([exporter, mode], check=True, capture_output=True).stdout


def promtool(exporter):
    tool = need_tool("promtool", "prometheus")
    for text, is_good in ((output(exporter, "text"), True), (b"kansoku_x{a=1} 2\n", False)):
        done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False)
        words = (done.stdout + done.stderr).decode()
        # 3: readable, but promtool's style guide has remarks.
        expect((done.returncode == 0) == is_good, f"promtool: exit {done.returncode}: {words}")
    print("promtool takes every metric without a remark")


class Prometheus:
    """Debian's Prometheus with a data folder of its own, on loopback, scraping one target."""

    def __init__(self, tool, folder, target):
        self.port = hold_port()
        self.address = f"127.0.0.1:{number_of(self.port)}"
        config = folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: kansoku\n  honor_labels: true\n"
                          f"  static_configs: [{{targets: ['{target}']}}]\n", encoding="utf-8")
        self.log = (folder / "log").open("wb")
        self.process = kit.Job([tool, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                                f"--web.listen-address={self.address}"], "SIGTERM", stdout=self.log, stderr=subprocess.STDOUT)

    def get(self, path, **parameters):
        address = f"http://{self.address}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=LIMIT_S) as answer:
            return json.load(answer)["data"]

    def wait_for(self, query):
        def samples():
            try:
                return self.get("/api/v1/query", query=query)["result"]
            except OSError:
                return None  # not up yet
        return self.process.wait_for(samples, query, LIMIT_S, 0.2)

    def end(self):
        self.process.end()
        self.log.close()
        self.port.close()


def prometheus(exporter):
    tool = need_tool("prometheus", "prometheus")
    wanted = {re.split(rb"[{ ]", line)[0].decode() for line in output(exporter, "openmetrics").splitlines() if line[:1] != b"#"}
    wanted.add("kansoku_export_dropped_series_total")  # what is published on a board has it
    with tempfile.TemporaryDirectory() as folder, \
            subprocess.Popen([exporter, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as served:
        port = int(served.stdout.readline())
        peer = Prometheus(tool, pathlib.Path(folder), f"127.0.0.1:{port}")
        try:
            result = peer.wait_for("kansoku_step_mean_seconds")
            labels = [(row["metric"]["job"], row["metric"]["rank"]) for row in result]
            expect(sorted(labels) == [(JOB, "0"), (JOB, "1")], f"labels are {labels}")
            names = set(peer.get("/api/v1/label/__name__/values"))
            names = {name for name in names if name.startswith("kansoku_")}
            expect(names == wanted, f"names differ: {sorted(names ^ wanted)}")
            # Only OpenMetrics carries units: this tells which of the formats was read.
            unit = peer.get("/api/v1/metadata", metric="kansoku_step_mean_seconds")["kansoku_step_mean_seconds"][0]["unit"]
            expect(unit == "seconds", f"the unit is {unit!r}: not read as OpenMetrics")
            print(f"prometheus scraped {len(names)} names")
        except kit.Wrong:
            print((pathlib.Path(folder) / "log").read_text(encoding="utf-8", errors="replace")[-2000:])
            raise
        finally:
            peer.end()
            served.stdin.close()


def otlp(exporter):
    node = need_tool("node", "nodejs")
    module = os.path.join(kit.ROOT, "build/npm/node_modules/@opentelemetry/otlp-transformer/build/src/generated/root.js")
    kit.need(os.path.isfile(module), "@opentelemetry/otlp-transformer not found (make deps-otlp)")
    program = ("const {opentelemetry: {proto}} = require(process.argv[1]);"
               "const T = proto.collector.metrics.v1.ExportMetricsServiceRequest;"
               "const message = T.decode(require('fs').readFileSync(0));"
               "const again = T.encode(message).finish();"
               "process.stdout.write(JSON.stringify({bytes: again.length, message: T.toObject ? "
               "T.toObject(message, {longs: String}) : message}));")
    bytes_out = output(exporter, "otlp")
    done = subprocess.run([node, "-e", program, module], input=bytes_out, capture_output=True, check=False)
    expect(done.returncode == 0, done.stderr.decode())
    read = json.loads(done.stdout)
    # Fields that the decoder does not know would be lost on the way back.
    expect(read["bytes"] == len(bytes_out), f"{len(bytes_out)} bytes became {read['bytes']}")
    services = {}
    for resource in read["message"]["resourceMetrics"]:
        attributes = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
        service = attributes.pop("service.name")
        expect(attributes == {"host.name": "node1", "service.version": "1.2.3", "service.instance.id": "i"}, f"resource: {attributes}")
        services[service] = {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}
    expect(sorted(services) == ["kansoku", JOB], f"services: {sorted(services)}")
    metrics = {**services[JOB], **services["kansoku"]}
    expect(len(metrics) == len(services[JOB]) + len(services["kansoku"]), "a metric is of the job and of the agent")
    points = metrics["kansoku_step_mean_seconds"]["gauge"]["dataPoints"]
    expect([{one["key"]: one["value"]["stringValue"] for one in point["attributes"]} for point in points] ==
           [{"rank": "0"}, {"rank": "1"}], f"attributes: {points}")
    expect(points[0]["asDouble"] > 0, f"value: {points[0]}")
    total = metrics["kansoku_incidents"]["sum"]
    expect(total["isMonotonic"] and total["aggregationTemporality"] in (2, "AGGREGATION_TEMPORALITY_CUMULATIVE"), f"sum: {total}")
    histogram = metrics["kansoku_example_seconds"]["histogram"]["dataPoints"][0]
    expect(histogram["explicitBounds"] == [0.1, 1] and len(histogram["bucketCounts"]) == 3 and histogram["sum"] == 7.5,
           f"histogram: {histogram}")
    print(f"OpenTelemetry's decoder read {len(metrics)} metrics of {len(bytes_out)} bytes")


class Target(http.server.BaseHTTPRequestHandler):
    """Answers 503 once, then takes everything."""

    got, failures_left = [], 1

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status = 503 if Target.failures_left else 200
        Target.failures_left = 0
        if status == 200:
            Target.got.append(body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        pass


def webhook(exporter):
    wanted = [json.dumps({"n": n}) for n in range(20)]
    with hold_port() as held, subprocess.Popen([exporter, "post", f"http://127.0.0.1:{number_of(held)}/hook"], stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, text=True) as poster:
        # Nobody listens yet: every message is taken all the same.
        for body in wanted[:10]:
            poster.stdin.write(body + "\n")
            poster.stdin.flush()
            expect(poster.stdout.readline() == f"queued {body}\n", "the poster waits for its target")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", number_of(held)), Target)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for body in wanted[10:]:
            poster.stdin.write(body + "\n")
        poster.stdin.close()
        words = poster.stdout.read().splitlines()[-1]
        server.shutdown()
        thread.join()
        server.server_close()
    expect(Target.got == wanted, f"the target got {Target.got}")
    expect(words == "sent 20 failed 0 dropped 0 queued 0 retried yes", words)
    print(words)


def tls(exporter):
    openssl = need_tool("openssl", "openssl")
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/certificate.pem", f"{folder}/key.pem"
        subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-out", certificate, "-keyout", key, "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_arguments: None  # refused by the client, as it should be
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Target.failures_left = 0
        answers = []
        for arguments in (["1"], ["600", certificate]):
            done = subprocess.run([exporter, "post", f"https://127.0.0.1:{server.server_port}/", *arguments], input="x\n",
                                  capture_output=True, text=True, check=False)
            answers.append(" ".join(done.stdout.splitlines()[-1].split()[:4]))
        server.shutdown()
        thread.join()
        server.server_close()
    expect(answers == ["sent 0 failed 1", "sent 1 failed 0"], f"untrusted, trusted: {answers}")
    expect(Target.got == ["x"], f"the target got {Target.got}")
    print("https only to whom it trusts")


def main(report):
    mode, exporter = sys.argv[1:3]
    report.part(mode, {"promtool": promtool, "prometheus": prometheus, "otlp": otlp, "webhook": webhook, "tls": tls}[mode], exporter)


if __name__ == "__main__":
    kit.run(main)
