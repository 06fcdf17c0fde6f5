#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What an application gets for bad input, and how it ends: bad_input.py images | files | memory | faults | processes

Compiles bad_input.cu, an application that tells the name of each call's error and ends with 1 if there was one, and runs it on the
software device: with damaged images, without memory, with kernels that fail, beside another process. A row is right if the errors
are the ones that it lists, the exit status is the application's own, and it ends within LIMIT_S. Needs kansoku in PATH or KANSOKU.
"""
import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

SOURCES = os.path.dirname(os.path.abspath(__file__))
KANSOKU = os.path.realpath(os.environ.get("KANSOKU") or shutil.which("kansoku"))
LIBRARIES = os.path.join(os.path.dirname(KANSOKU), "softgpu")
LIMIT_S = 120  # only what hangs takes so long
RUNTIMES = (12, 13)
HEADER, ENTRY = 16, 64  # bytes of the header of a fatbin, and of an entry
KERNEL = ".visible .entry k() { ret; }\n"
failed = []


def text_for(version="8.0", body=KERNEL):
    return f".version {version}\n.target sm_80\n.address_size 64\n{body}"


class Builder:
    """The application, with its own image or another one in its place."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        for name in ("bad_input", "bad_input_big"):
            kit.compile_for_device(KANSOKU, self.path(name + ".o"), "-c", os.path.join(SOURCES, name + ".cu"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self):
        kit.compile_for_device(KANSOKU, self.path("own.ptx"), "-ptx", os.path.join(SOURCES, "bad_input.cu"))
        with open(self.path("own.ptx"), encoding="utf-8") as file:
            return file.read()

    def fatbin(self, text, compression):
        with open(self.path("in.ptx"), "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([KANSOKU, "gpu", "fatbin", self.path("in.ptx"), "-o", self.path("out.fatbin"), "--compress", compression],
                       check=True)
        with open(self.path("out.fatbin"), "rb") as file:
            return bytearray(file.read())

    def program(self, image=None, runtime=12):
        """Links; `image` takes the place of the compiler's in the section that holds it."""
        self.count += 1
        main, out = self.path("bad_input.o"), self.path(f"program{self.count}")
        if image is not None:
            with open(self.path("image"), "wb") as file:
                file.write(image)
            subprocess.run(["objcopy", "--update-section", f".nv_fatbin={self.path('image')}", main, self.path("row.o")], check=True)
            main = self.path("row.o")
        subprocess.run(["clang++-19", main, self.path("bad_input_big.o"), "-o", out, "-L" + LIBRARIES, "-L" + LIBRARIES + "/toolkit/lib64",
                        f"-l:libcudart.so.{runtime}", "-lcuda", "-Wl,--allow-shlib-undefined"], check=True)
        return out


def run(program, *arguments, options=(), environment=None):
    done = subprocess.run([KANSOKU, "run", "--softgpu", *options, "--", program, *arguments], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **(environment or {})), timeout=LIMIT_S,
                          check=False)
    return done.returncode, done.stderr


def judge(name, got, status, lines, also=()):
    """`lines`: the calls with their errors, all of them in their order; `also`: what else standard error holds."""
    told = [line for line in got[1].splitlines() if not line.startswith("kansoku ") and "Assertion" not in line]
    if got[0] != status or told != list(lines) or any(word not in got[1] for word in also):
        failed.append(name)
        print(f"{name}: exit status {got[0]}, expected {status}; expected {lines} and {also}, got:\n{got[1]}")
    else:
        print(f"{name}: {next((line for line in told if 'Success' not in line), 'no error')}, exit status {got[0]}")


def patched(image, offset, form, value):
    image = bytearray(image)
    struct.pack_into(form, image, offset, value)
    return image


def cut(image, at):
    """As a file of which the end was never written: zeros."""
    return bytearray(image[:at]) + bytes(len(image) - at)


def image_rows(builder):
    own = builder.text()
    plain, lz4, zstd = (builder.fatbin(own, name) for name in ("none", "lz4", "zstd"))
    payload = HEADER + ENTRY
    middle = payload + own.index(".entry") + 40  # within the first kernel
    sound, none, invalid, ptx = "Success", "NoKernelImageForDevice", "InvalidKernelImage", "InvalidPtx"
    newer = own.replace(".version ", ".version 1", 1)  # 18.x
    rows = [("whole, plain", plain, sound), ("whole, LZ4", lz4, sound), ("whole, zstd", zstd, sound),
            ("nothing is left", cut(plain, 0), invalid), ("cut in the header behind the magic", cut(plain, 4), invalid),
            ("cut in the header before the size", cut(plain, 8), none), ("cut in an entry's header", cut(plain, HEADER + 4), invalid),
            ("cut in an entry's header behind its size", cut(plain, HEADER + 16), ptx), ("cut before the payload", cut(plain, payload), ptx),
            ("cut in the payload", cut(plain, middle), ptx), ("LZ4, cut in the payload", cut(lz4, payload + 200), invalid),
            ("zstd, cut in the payload", cut(zstd, payload + 200), invalid), ("zstd, cut before the payload", cut(zstd, payload), invalid),
            ("zstd, another size promised", patched(zstd, HEADER + 56, "<Q", len(own) + 9), invalid),
            ("a container longer than the program", patched(plain, 8, "<Q", 200 << 20), invalid),
            ("an entry longer than the container", patched(plain, HEADER + 8, "<Q", 200 << 20), invalid),
            ("machine code only", patched(plain, HEADER, "<H", 2), none), ("PTX for a newer architecture", patched(plain, HEADER + 28, "<I", 90), none),
            ("a newer version of PTX", replaced(plain, own, newer), "UnsupportedPtxVersion"),
            ("a newer version of PTX, with words of its own", replaced(plain, own, newer.replace("ret;", "§§§;", 1)), "UnsupportedPtxVersion"),
            ("PTX signed by nvcc", replaced(plain, own, "//\n// Generated by NVIDIA NVVM Compiler\n//\n" + own), "UnsupportedPtxVersion"),
            ("PTX with an instruction that is none", replaced(plain, own, own.replace("ret;", "rot;")), ptx),
            ("PTX without the kernel", replaced(plain, own, own.replace("6answer", "6anders")), "InvalidDeviceFunction")]
    return [(name, image, "cuda" + (error if error == sound else "Error" + error)) for name, image, error in rows]


def replaced(image, old, new):
    """Another text in the place of a plain payload."""
    text = new.encode()
    text += bytes(max(0, len(image) - HEADER - ENTRY - len(text)) or 8 - len(text) % 8)
    grown = patched(patched(image, 8, "<Q", ENTRY + len(text)), HEADER + 8, "<Q", len(text))
    assert image[HEADER + ENTRY:].startswith(old.encode())
    return grown[:HEADER + ENTRY] + text


def images(builder):
    for name, image, error in image_rows(builder):
        sound = error == "cudaSuccess"
        launches = [f"launch: {error}"] * 2
        answer = "answer: 42" if sound else "answer: 0"
        for runtime in RUNTIMES:
            judge(f"image, libcudart.so.{runtime}: {name}", run(builder.program(image, runtime), "image"), 0 if sound else 1,
                  ["malloc: cudaSuccess", *launches, *(f"{call}: cudaSuccess" for call in ("synchronize", "copy", "free")), answer])


def files(builder):
    program = builder.program()
    zstd = builder.fatbin(text_for(), "zstd")
    whole = text_for().encode()
    invalid, ptx = "cudaErrorInvalidKernelImage", "cudaErrorInvalidPtx"
    rows = [("a fatbin", zstd, "cudaSuccess"), ("PTX text", whole, "cudaSuccess"), ("an empty file", b"", invalid),
            ("PTX cut in a kernel", whole[:-6], ptx), ("PTX cut in the version", whole[:10], ptx), ("bytes that are nothing", b"\1\2\3\4" * 9, invalid),
            ("an ELF file", b"\x7fELF\2\1\1" + bytes(57), "cudaErrorNoKernelImageForDevice"),
            ("a newer version of PTX", text_for("10.0").encode(), "cudaErrorUnsupportedPtxVersion")]
    rows += [(f"the first {count} bytes of a fatbin", zstd[:count], invalid) for count in (4, 6, 12, 16, 17, 40, 79, 80, 90, len(zstd) - 8)]
    for name, content, error in rows:
        with open(builder.path("file"), "wb") as file:
            file.write(content)
        found = ["function: cudaSuccess"] if error == "cudaSuccess" else []
        judge(f"file: {name}", run(program, "file", builder.path("file")), 1 if not found else 0,
              ["context: cudaSuccess", f"load: {error}", f"load data: {error}", *found, "synchronize: cudaSuccess"])


def memory(builder):
    full = "launch big: cudaErrorMemoryAllocation"
    lines = ["malloc: cudaSuccess", "memory: cudaSuccess", full, full, "memory: cudaSuccess", "as before: 1", "malloc: cudaSuccess",
             "launch small: cudaSuccess", "copy: cudaSuccess", "answer: 42", "free: cudaSuccess", "launch big at last: cudaSuccess",
             "synchronize: cudaSuccess"]
    for runtime in RUNTIMES:
        judge(f"memory, libcudart.so.{runtime}: a variable of an image does not fit",
              run(builder.program(runtime=runtime), "memory", options=("--memory", "64M")), 1, lines)


FAULTS = {"trap": "LaunchFailure", "address": "IllegalAddress", "misaligned": "MisalignedAddress", "assert": "Assert",
          "stack": "HardwareStackError", "time": "LaunchTimeout"}
CALLS = ("synchronize", "last error", "malloc", "copy", "copy async", "memset", "launch", "event", "stream", "query", "memory", "free",
         "once more")
ASSERTION = [f"thread: [{i},0,0] Assertion `*pointer == 3` failed." for i in range(4)] + ["bad_input.cu:", "block: ["]


def faults(builder):
    for runtime in RUNTIMES:
        program = builder.program(runtime=runtime)
        for kind, error in FAULTS.items():
            environment = {"KANSOKU_SOFTGPU_TIME_LIMIT": "300ms"} if kind == "time" else {}
            judge(f"fault, libcudart.so.{runtime}: {kind}", run(program, "fault", kind, environment=environment), 1,
                  [f"{call}: cudaError{error}" for call in CALLS], ASSERTION if kind == "assert" else [])
            # The time limit is that of the device here: the process does not wait for its kernel.
            judge(f"fault, libcudart.so.{runtime}: {kind}, the process ends at once", run(program, "fault", kind, "ends"), 3, [])


class Neighbour:
    """A process that computes when it is told to."""

    def __init__(self, program, mebibytes):
        self.process = subprocess.Popen([program, "beside", str(mebibytes << 20)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1, env=dict(os.environ, LD_LIBRARY_PATH=LIBRARIES))
        self.pid = self.process.pid

    def hears(self, answer):
        return self.process.stdout.readline() == answer + "\n"

    def does(self, what, answer):
        print(what, file=self.process.stdin, flush=True)
        return self.hears(answer)

    def ends(self):
        errors = self.process.communicate("end\n", timeout=LIMIT_S)[1]
        return self.process.returncode == 0 and all(line.endswith("cudaSuccess") for line in errors.splitlines())


class ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


class MemoryInfo(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Device:
    """What NVML and `kansoku gpu devices` tell of the first device."""

    def __init__(self):
        self.nvml = ctypes.CDLL(os.path.join(LIBRARIES, "libnvidia-ml.so.1"))
        self.handle = ctypes.c_void_p()
        assert self.nvml.nvmlInit_v2() == 0
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)) == 0

    def seen(self):
        """MiB by process, MiB in use; processes and MiB as `kansoku gpu devices` lists them."""
        return self.processes(), self.used(), self.listed()

    def processes(self):
        count, rows = ctypes.c_uint(64), (ProcessInfo * 64)()
        assert self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), rows) == 0
        return {row.pid: row.bytes >> 20 for row in rows[:count.value]}

    def used(self):
        info = MemoryInfo()
        assert self.nvml.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(info)) == 0
        return info.used >> 20

    @staticmethod
    def listed():
        told = subprocess.run([KANSOKU, "gpu", "devices", "--json"], check=True, stdout=subprocess.PIPE).stdout
        device = next(each for each in json.loads(told)["devices"] if each["kind"] == "software")
        return device["processes"], device["used_bytes"] >> 20


def check(what, got, expected=True):
    print(f"processes: {what}: {'yes' if got == expected else f'no: {got} instead of {expected}'}")
    if got != expected:
        failed.append(what)


def processes(builder):
    program, device = builder.program(), Device()
    first, second = Neighbour(program, 100), Neighbour(program, 200)
    check("both begin", first.hears("ready") and second.hears("ready"))
    check("the memory of both is seen", device.seen(), ({first.pid: 100, second.pid: 200}, 300, (2, 300)))
    check("both compute", all(each.does("compute", "right") for each in (first, second, first, second)))
    check("one computes while a kernel of the other runs", second.does("spin", "spins") and first.does("compute", "right"))
    os.kill(second.pid, signal.SIGKILL)
    second.process.wait()
    check("the other was killed", second.process.returncode, -signal.SIGKILL)
    check("its memory is free", device.seen(), ({first.pid: 100}, 100, (1, 100)))
    check("the one computes", first.does("compute", "right"))
    third = Neighbour(program, 200)
    check("a new one computes", third.hears("ready") and third.does("compute", "right"))
    check("both end", third.ends() and first.ends())
    check("nobody is left", device.seen(), ({}, 0, (0, 0)))


PARTS = {part.__name__: part for part in (images, files, memory, faults, processes)}


def main(report):
    if len(sys.argv) != 2 or sys.argv[1] not in PARTS:
        sys.exit(f"usage: {sys.argv[0]} {' | '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KANSOKU_SOFTGPU_DIR"] = os.path.join(folder, "state")
        PARTS[sys.argv[1]](Builder(folder))
    report.judge(sys.argv[1], failed)


if __name__ == "__main__":
    kit.run(main)
