#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own programs on the software GPU: the command line, the server with two requests at once, a client of the RPC server. Each says
the same on the GPU as on the CPU, and the GPU's kernels are counted."""
import concurrent.futures
import contextlib
import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from builds import command, run, say
import kit.ports

PROMPT = "abc"
TOKENS = 32
SECONDS_TO_START = 120
OPTIONS = ["--temp", "0", "--seed", "1", "-fa", "off", "-fit", "off", "-c", "512"]
COUNTED = {"KANSOKU_SOFTGPU_TIMES": "1"}  # the number of launches, at the end
CPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def launches_in(text):
    found = re.search(r"in (\d+) launches of", text)
    return int(found[1]) if found else 0


def offloaded(text):
    return re.search(r"offloaded (\d+)/\1 layers to GPU", text) is not None


def free_port():
    with kit.ports.hold_port() as held:
        return kit.ports.number_of(held)


class Served:
    """A server of the build that listens on a port of this machine while the block lasts; its log is there after it has ended."""

    def __init__(self, variant, program, *arguments, settings):
        self.port, self.text = free_port(), ""
        words, environment = command(variant, program, *arguments, str(self.port), settings=settings)
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = kit.Job(words, "SIGTERM", 60, env=environment, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def __enter__(self):
        try:
            self.process.wait_for(self.listens, "a server", SECONDS_TO_START)
        except kit.Wrong as problem:
            self.__exit__()
            raise kit.Wrong(f"{problem}: {self.text[-2000:]}") from problem
        return self

    def __exit__(self, *_):
        self.process.end()
        self.log.seek(0)
        self.text = self.log.read()
        self.log.close()


def asked(url, question=None):
    """The answer as JSON or text; tried again as long as the server says that its model is being loaded."""
    end = time.monotonic() + SECONDS_TO_START
    while True:
        body = None if question is None else json.dumps(question).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=SECONDS_TO_START) as answer:
                text = answer.read().decode()
                return json.loads(text) if answer.headers.get_content_type() == "application/json" else text
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > end:
                raise kit.Wrong(f"{url}: {error}: {error.read()[:500]}") from error
            time.sleep(0.1)  # allowed: the pause of a poll loop


def conversed(variant, model, settings):
    """What the interactive program prints between the question and its figures."""
    done = run(variant, "llama-cli", "-m", model, "-p", PROMPT, "-n", str(TOKENS), "-st", "--simple-io", "--chat-template", "chatml", "-lv", "4",
               *OPTIONS, settings=settings, timeout=600)
    if done.returncode != 0:
        raise kit.Wrong(f"llama-cli: exit {done.returncode}: {done.stderr[-2000:]}")
    said = done.stdout.rpartition(f"> {PROMPT}")[2].partition("[ Prompt:")[0]
    return said.strip(), done.stderr


def answers(variant, model, *options, settings):
    """Two requests at once to the server, whose own count of tokens has to fit: both texts, and its log."""
    question = {"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    with Served(variant, "llama-server", "-m", model, "--host", "127.0.0.1", "-np", "2", "--metrics", "-lv", "4", *OPTIONS, *options, "--port",
                settings=settings) as server:
        url = f"http://127.0.0.1:{server.port}"
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            texts = [answer["content"].strip() for answer in threads.map(lambda _: asked(url + "/completion", question), range(2))]
        counted = re.search(r"^llamacpp:tokens_predicted_total (\d+)", asked(url + "/metrics"), re.M)
    if counted is None or int(counted[1]) != 2 * TOKENS:
        raise kit.Wrong(f"the server counted {counted and counted[1]} tokens, not {2 * TOKENS}")
    return texts, server.text


def remote(variant, model):
    """The layers on a software GPU that another process serves; this one has none."""
    with Served(variant, "ggml-rpc-server", "-H", "127.0.0.1", "-d", "CUDA0", "-p", settings={}) as server:
        return answers(variant, model, "--rpc", f"127.0.0.1:{server.port}", settings=CPU)


def judge(name, said, wanted, counted=True):
    text, log = said
    launches = launches_in(log)
    good = text == wanted and bool(text) and offloaded(log) and (launches > 0 if counted else re.search(r"RPC0\[.*model buffer", log) is not None)
    say(f"{name}: {'equal to the CPU' if text == wanted else 'NOT as on the CPU'}, {'all' if offloaded(log) else 'NOT all'} layers offloaded"
        + (f", {launches} launches" if counted else " to the other process") + ("" if good else f"  WRONG\n  {text!r}\n  {wanted!r}\n{log[-2000:]}"))
    return 0 if good else 1


def run_all(variant, models, report):
    """Not llama-completion: it may end before its thread that prints has printed all."""
    plain = models.make("F16")
    report.part("llama-cli", lambda: judge("llama-cli", conversed(variant, plain, COUNTED), conversed(variant, plain, CPU)[0]))
    for model, more in ((plain, ""), (models.make("experts-F16"), ", mixture of experts")):
        wanted, _ = answers(variant, model, settings=CPU)
        report.part(f"llama-server{more}", lambda: judge(f"llama-server{more}", answers(variant, model, settings=COUNTED), wanted))
        if not more:
            report.part("ggml-rpc-server", lambda: judge("llama-server with ggml-rpc-server", remote(variant, model), wanted, counted=False))
