# SPDX-License-Identifier: Apache-2.0
"""What the suites that plant faults change on the host: control groups, network namespaces, processes.

Whatever is made is undone by a function of this file that takes plain values only: an ExitStack can call it, and so can the guard
process of tests/watch when the runner itself is gone. `stack` is either of them: it has callback(function, *arguments).
"""
import contextlib
import os
import shutil
import signal
import subprocess
import time

from kit import Impossible, end_process, need, need_root, start_ticks  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
RELAY, LAUNCH = os.path.join(HERE, "relay.py"), os.path.join(HERE, "launch.py")
REMOVE_TRIES = 400  # of 50 ms: a data-loader worker takes seconds to see that its rank is gone


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    if check and done.returncode:
        raise Impossible(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def run_quietly(*command):
    """For undoing: what is gone already is no error."""
    run(*command, check=False)


def write_file(path, text):
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(text))
    except OSError as error:
        raise Impossible(f"write {text} to {path}: {error.strerror}") from error


def remove_file(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path):
    for _ in range(REMOVE_TRIES):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise Impossible(f"remove {path}: still in use")


def continue_process(pid, ticks):
    if start_ticks(pid) == ticks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def end(process):
    process.kill()
    process.communicate()


class ControlGroup:
    """A version 1 control group below the runner's own."""

    def __init__(self, controller, stack, name=None):
        need_root()
        need(os.path.isdir(f"/sys/fs/cgroup/{controller}"), f"no version 1 control group controller {controller}")
        with open("/proc/self/cgroup", encoding="ascii") as file:
            own = next((line.strip().split(":", 2)[2] for line in file if controller in line.split(":")[1].split(",")), "/")
        self.path = f"/sys/fs/cgroup/{controller}{own.rstrip('/')}/{name or f'kansoku-faults-{os.getpid()}'}"
        stack.callback(remove_folder, self.path)
        os.mkdir(self.path)

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, value):
        write_file(self.file(name), value)

    def read(self, name):
        with open(self.file(name), encoding="ascii") as file:
            return file.read()

    def statistic(self, name, row):
        """A row of a file of rows such as memory.stat."""
        return next(int(line.split()[1]) for line in self.read(name).splitlines() if line.startswith(row + " "))


class Namespaces:
    """Network namespaces with lo up and nothing else."""

    def __init__(self, count, stack, prefix="kf"):
        need_root()
        for tool in ("ip", "tc", "nsenter"):
            need(shutil.which(tool), f"{tool} not found (apt-get install iproute2 util-linux)")
        self.names = [f"{prefix}{os.getpid()}-{index}" for index in range(count)]
        for name in self.names:
            stack.callback(run_quietly, "ip", "netns", "del", name)
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
