#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Does as a newcomer on a fresh Debian: a root of its own made by debootstrap, with git and make alone, in which `make demo`, the
commands of README.md, each command that Kansoku suggests after "next:", and every target of the Makefile and command of kansoku that
the pages name are run, as far as the tables of walk.py say.

  run.py [--root FOLDER] [--suite bookworm] [--mirror URL] [--test] [--keep]   prints a transcript; ends with 1 if a command failed
  run.py --list                                                                prints the tables, and runs nothing
Needs root, debootstrap and the network (apt). Takes half an hour. Nothing outside of the folder is changed; what is mounted in it is
gone with this process.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import walk  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HOME = "root/kansoku"  # of the clone, in the new root
TRUSTED = "/etc/host-proxy.pem"  # in the new root, if the host has such a file
MARK = ".kansoku-fresh-root"  # in a folder that may be made anew
HINTS_MAX = 20
LINES_MAX = 24  # of a command's output, in the transcript
LIMIT_S = {"make": 3600}
COMMAND_LIMIT_S = 120
# Commands that run until they are told to end: after so long they get SIGINT, as from Ctrl-C.
ENDLESS = {"watch": 20, "profile": 40}
# Statuses that are an answer: 0 nothing found, 10 findings, 11 not enough data.
ANSWERS = {"diagnose": (0, 10, 11), "profile": (0, 10), "jobs": (0,), "incidents": (0,), "diff": (0, 10)}
HINT = re.compile(r"next: (kansoku [^`;]+?)\s*$", re.MULTILINE)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(ROOT, "build/fresh-root"), help="made anew (build/fresh-root)")
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--test", action="store_true", help="`make test`, too: another half an hour")
    parser.add_argument("--keep", action="store_true", help="leave the root there afterwards")
    parser.add_argument("--list", action="store_true", help="how far each target and command is walked, and why no further")
    return parser.parse_args()


def alone():
    """Goes on in a mount namespace of its own, so that no mount outlives this process."""
    if os.environ.get("KANSOKU_FRESH_ROOT") != "mounts":
        os.environ["KANSOKU_FRESH_ROOT"] = "mounts"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def make_root(options):
    if os.path.exists(options.root):
        if not os.path.exists(os.path.join(options.root, MARK)):
            sys.exit(f"{options.root} exists, and this program has not made it")
        shutil.rmtree(options.root)
    os.makedirs(options.root)
    with open(os.path.join(options.root, MARK), "w", encoding="ascii"):
        pass
    subprocess.run(["debootstrap", "--variant=minbase", options.suite, options.root, options.mirror], check=True,
                   stdout=subprocess.DEVNULL)
    for name in ("proc", "sys", "dev"):
        subprocess.run(["mount", "--rbind", f"/{name}", os.path.join(options.root, name)], check=True)
    shutil.copy("/etc/resolv.conf", os.path.join(options.root, "etc/resolv.conf"))
    # Behind a proxy Node.js is told whose certificates to trust beside its own. The new root is behind the same.
    if trusted := os.environ.get("NODE_EXTRA_CA_CERTS"):
        shutil.copy(trusted, options.root + TRUSTED)


class Newcomer:
    """Types commands in the new root and keeps the transcript."""

    def __init__(self, root):
        self.root, self.failed, self.hints = root, [], []

    def popen(self, command, folder, **more):
        shell = f"cd /{folder} && {command}"
        trusted = [f"NODE_EXTRA_CA_CERTS={TRUSTED}"] if os.path.exists(self.root + TRUSTED) else []
        return subprocess.Popen(["env", "-i", "HOME=/root", "TERM=dumb", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                 "DEBIAN_FRONTEND=noninteractive", *trusted, "chroot", self.root, "bash", "-c", shell], text=True, errors="replace",
                                start_new_session=True, stdin=subprocess.DEVNULL, **more)

    def type(self, command, folder=HOME):
        """Runs one command; its output, shortened, goes to the transcript."""
        began = time.monotonic()
        process = self.popen(command, folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        words = command.split()
        verb = words[1] if os.path.basename(words[0]) == "kansoku" and len(words) > 1 else ""
        limit_s, is_told_to_end = ENDLESS.get(verb, LIMIT_S.get(words[0], COMMAND_LIMIT_S)), verb in ENDLESS
        try:
            output = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT if is_told_to_end else signal.SIGKILL)
            try:
                output = process.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output = process.communicate()[0]
        except BaseException:  # Ctrl-C: it has a session of its own
            os.killpg(process.pid, signal.SIGKILL)
            raise
        lines = output.rstrip("\n").split("\n") if output.strip() else []
        is_good = process.returncode in ANSWERS.get(verb, (0,)) or (is_told_to_end and process.returncode in (0, 130))
        if not is_good:
            self.failed.append(command)
        print(f"# {command}")
        if len(lines) > LINES_MAX:
            print(f"[{len(lines) - LINES_MAX} lines left out]")
        print("\n".join(line.expandtabs() for line in lines[-LINES_MAX:]))
        took = time.monotonic() - began
        print(f"[status {process.returncode}{'' if is_good else ': NOT AS PROMISED'}; {took:.0f} s]\n", flush=True)
        self.hints += [hint for hint in HINT.findall(output) if hint not in self.hints]
        return output

    def wait_for(self, command, text, limit_s=120):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            done = self.popen(command, HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).communicate()[0]
            if text in done:
                return True
            time.sleep(1)
        return False


def readme_commands():
    """The indented command lines of README.md, without what follows two spaces and a hash."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        for line in file:
            found = re.match(r" {4}((?:make|build/kansoku) .*?)(?:\s{2,}#.*)?$", line)
            if found:
                yield found.group(1)


def run_all(newcomer, with_tests):
    newcomer.type("apt-get update -qq && apt-get install -y -qq --no-install-recommends git make ca-certificates", "root")
    newcomer.type("git clone -q /source kansoku", "root")
    newcomer.type("make demo")
    newcomer.type("make install")
    # A job for the commands that want one, and traces of another tool's.
    job = newcomer.popen("MASTER_PORT=29500 STEPS=1000000 RANKS=2 exec examples/ddp/launch.sh", HOME, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    try:
        newcomer.type("tests/data/import/make.py /tmp/made && mkdir traces && mv /tmp/made/rank-* traces && ls traces")
        newcomer.type("tests/data/diff/make.py /tmp/made && mv /tmp/made/before.json before.pftrace && mv /tmp/made/slow.json after.pftrace")
        if not newcomer.wait_for("build/kansoku jobs", "127.0.0.1:29500"):
            newcomer.failed.append("examples/ddp/launch.sh: no job after two minutes")
        commands = [command for command in readme_commands() if command not in ("make demo", "make test")]
        for command in commands:
            newcomer.type(command)
        done = 0
        while done < min(len(newcomer.hints), HINTS_MAX):  # a hint may give another
            newcomer.type(newcomer.hints[done])
            done += 1
        if len(commands) < 5 or done == 0:
            newcomer.failed.append(f"only {len(commands)} commands in README.md and {done} hints: this program reads them wrongly")
        if len(newcomer.hints) > done:
            print(f"{len(newcomer.hints) - done} further hints were not tried\n")
        for command in walk.typed():
            newcomer.type(command)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    if with_tests:
        newcomer.type("make test")


def show_tables():
    for begin, table in (("make ", walk.TARGETS), ("kansoku ", walk.KANSOKU)):
        for name, row in table.items():
            print(f"{begin + name:28} {'; '.join(row.commands) or 'at the beginning'}{'   # ' + row.why if row.why else ''}")
    return 0


def main():
    options = parse()
    if options.list:
        return show_tables()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("fresh-root: needs root and debootstrap (apt-get install debootstrap)", file=sys.stderr)
        return 3
    alone()
    began = time.monotonic()
    make_root(options)
    source = os.path.join(options.root, "source")
    os.mkdir(source)
    subprocess.run(["mount", "--bind", "-o", "ro", ROOT, source], check=True)
    newcomer = Newcomer(options.root)
    run_all(newcomer, options.test)
    print(f"{len(newcomer.failed)} commands failed{': ' if newcomer.failed else ''}{'; '.join(newcomer.failed)}; "
          f"{(time.monotonic() - began) / 60:.0f} minutes in all")
    subprocess.run(["umount", "-R", "-l", *(os.path.join(options.root, name) for name in ("proc", "sys", "dev", "source"))], check=True)
    if not options.keep:
        shutil.rmtree(options.root)
    return 1 if newcomer.failed else 0


sys.exit(main())
