#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what Kansoku declares of the CUDA driver's interface with a cuda.h: tools/check_abi.py [--cuda-h FILE] [--part]

  src/cuda/interface/driver.txt    which forms the header declares, and the types of their arguments
  src/cuda/abi.h                   numbers of enumerators and flags
  src/cuda/interface/layout.inc    sizes of structures, offsets of members; every one of abi.h has to be there

  runtime.txt, cublas.txt, nccl.txt, nvml.txt beside it: the functions' types in the headers of these libraries, where they lie beside FILE

Without --cuda-h it takes the header of the software device's toolkit, which has a part of the interface. --part: what FILE lacks is no
difference. Types are compared as text first, then by the C compiler, to which two names of a type are the same.
"""
import argparse
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import cuda_table  # noqa: E402
from source_text import SKIP_EXIT  # noqa: E402

OWN = os.path.join("share", "softgpu", "toolkit", "include", "cuda.h")
OLD_FORMS = "-D__CUDA_API_VERSION_INTERNAL"  # a toolkit's header: those of old versions, too
PER_THREAD = "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"
ELSEWHERE = re.compile(r"cuProfiler|cudaProfiler|__cuda")  # in other headers of a toolkit
COMPANIONS = (("runtime", "cuda_runtime_api.h"), ("cublas", "cublas_v2.h"), ("nccl", "nccl.h"), ("nvml", "nvml.h"))
BARE = {"int", "char", "short", "long", "unsigned", "float", "void"}
FLAGS = {"kStreamNonBlocking": "CU_STREAM_NON_BLOCKING", "kEventDisableTiming": "CU_EVENT_DISABLE_TIMING",
         "kContextFlagsMask": "CU_CTX_FLAGS_MASK"}
# Names of ours, as what a toolkit's header has for them.
OURS = {"CU_DEVICE_ATTRIBUTE_LAST": ("CU_DEVICE_ATTRIBUTE_MAX", "CU_DEVICE_ATTRIBUTE_MAX - 1")}
# Paddings.
NOT_COMPARED = {"CUlaunchAttribute.pad", "CUlaunchAttributeValue.pad"}


class Header:
    """A cuda.h, through the C compiler."""

    def __init__(self, path, language="c"):
        compiler, standard = ("cc", "c11") if language == "c" else ("c++", "c++17")
        self.path, self.command = path, [compiler, f"-std={standard}", "-x", language, "-I", os.path.dirname(path)]

    def compiled(self, mode, text, flags):
        return subprocess.run([*self.command, *mode, *flags, "-"], input=f'#include "{self.path}"\n{text}', capture_output=True,
                              text=True, check=False)

    def preprocessed(self, *flags, text=""):
        done = self.compiled(["-E", "-P"], text, flags)
        if done.returncode != 0:
            raise SystemExit(f"{self.path}: {done.stderr.strip()}")
        return done.stdout

    def prototypes(self, prefix, *flags):
        """Exported name -> types of the arguments, of each declaration in C++."""
        pattern = rf"\b(?:\w+\s+|\w+\s*\*+\s*)({prefix}\w+)\s*\(([^;{{}}]*?)\)\s*(?:__attribute__[^;]*)?;"
        found = {}
        for name, arguments in re.findall(pattern, self.preprocessed(*flags)):
            found.setdefault(name, []).append([type_of(item) for item in split(arguments)])
        return found

    def complaints(self, text, *flags):
        """Texts of the static assertions that fail; other errors end the check."""
        done = self.compiled(["-fsyntax-only"], text, flags)
        failed = re.findall(r'error: static(?: |_)assert(?:ion)? failed[^"\n]*?:? "?([^"\n]*)"?$', done.stderr, re.M)
        if done.returncode != 0 and not failed:
            raise SystemExit(f"{self.path}: {done.stderr.strip()[:2000]}")
        return failed

    def version(self):
        return int(self.preprocessed(text="\nCUDA_VERSION\n").split()[-1])


def split(arguments):
    arguments = " ".join(arguments.split())
    return [] if arguments in ("", "void") else arguments.split(",")


def type_of(argument):
    """Without the name; in our spelling."""
    argument = argument.split("=")[0]
    array = "[" in argument
    text = re.sub(r"\[[^\]]*\]|\b(__)?(restrict|extension)(__)?\b", "", argument).strip()
    match = re.fullmatch(r"(.*[\s*])(\w+)", text)
    if match and match.group(2) not in BARE:
        text = match.group(1)
    text = re.sub(r"\bunsigned int\b", "unsigned", text)
    text = re.sub(r"\blong long int\b", "long long", re.sub(r"\b(struct|enum) ", "", text))
    text = re.sub(r"\s*\*\s*", "*", text).strip() + ("*" if array else "")
    return text.replace("*const", "* const")


def same_to_compiler(header, rows):
    """Of `rows`, those whose types the compiler takes for other ones than the header's."""
    lines = []
    for row in rows:
        kind = f"CUresult (*)({', '.join(row.types) or 'void'})"
        lines.append(f'_Static_assert(__builtin_types_compatible_p(__typeof__(&{row.symbol}), {kind}), "{row.symbol}");')
    wrong = set(header.complaints("\n".join(lines), OLD_FORMS)) if lines else set()
    return [row for row in rows if row.symbol in wrong]


def compare_functions(header, rows, is_part):
    version = header.version()
    plain, everything = header.prototypes("cu"), {}
    for flags in ((PER_THREAD,), (OLD_FORMS, PER_THREAD), (OLD_FORMS,), ()):
        everything.update(header.prototypes("cu", *flags))
    known = {row.symbol: row for row in rows}
    problems = [f"{name}: not in the table" for name in sorted(set(everything) - set(known))]
    unlike = []
    for row in rows:
        if row.symbol not in everything:
            if row.since <= version and not is_part and not ELSEWHERE.match(row.base):
                problems.append(f"{row.symbol}: the table has it since {row.since}, the header of {version} not")
            continue
        if row.since > version:
            problems.append(f"{row.symbol}: the table has it since {row.since}, the header of {version} declares it")
        is_current = row.since <= version and (row.until is None or version < row.until)
        if not row.is_per_thread and not is_part and (row.symbol in plain) != is_current:
            problems.append(f"{row.symbol}: the table has it until {row.until}; in the header of {version} it is "
                            f"{'current' if row.symbol in plain else 'an old form'}")
        if row.types is not None and row.types not in everything[row.symbol]:
            unlike.append(row)
    for row in same_to_compiler(header, unlike):
        problems.append(f"{row.symbol}: the table takes ({', '.join(row.types)}), the header ({', '.join(everything[row.symbol][0])})")
    return problems, len(everything)


def compare_companion(library, path, rows, version, is_part):
    """`rows` of another library with its own header: what the table has, the header has, with these types."""
    header = Header(path, "c++")  # cuBLAS declares some for C++ only
    declared = header.prototypes(r"(?:__)?(?:cuda|cublas|nccl|nvml)[A-Z]", f"-DCUDART_VERSION={version}")
    problems, unlike, count = [], [], 0
    for row in cuda_table.of_version(rows, version):
        if row.symbol not in declared:
            problems += [] if is_part or ELSEWHERE.match(row.symbol) else [f"{row.symbol}: not in {os.path.basename(path)}"]
            continue
        count += 1
        if row.types not in declared[row.symbol]:
            unlike.append(row)
    lines = ["#include <type_traits>", "typedef struct CUstream_st* cudaStream_t;"]
    for row in unlike:
        kind = f"{row.result} (*)({', '.join(row.types)})"
        lines.append(f'static_assert(std::is_same<decltype(&{row.symbol}), {kind}>::value, "{row.symbol}");')
    wrong = set(header.complaints("\n".join(lines), f"-DCUDART_VERSION={version}")) if unlike else set()
    for row in (row for row in unlike if row.symbol in wrong):
        problems.append(f"{row.symbol}: the table of {library} takes ({', '.join(row.types)}), the header ({', '.join(declared[row.symbol][0])})")
    return problems, count


def compare_companions(root, folder, version, is_part):
    problems, counts = [], []
    for library, name in COMPANIONS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            found, count = compare_companion(library, path, table_of(root, library), version, is_part)
            problems += found
            counts.append(f"{count} of {library}")
    return problems, counts


def table_of(root, library):
    try:
        return cuda_table.parse(read(root, cuda_table.path(library)), cuda_table.path(library))[0]
    except cuda_table.TableError as error:
        raise SystemExit(str(error)) from None


def enumerators(abi):
    """Name -> number, of abi.h."""
    found = {name: number for name, number in re.findall(r"X\((CUDA_\w+), (\d+), \"", abi)}
    for body in re.findall(r"^enum CU\w+ : \w+ \{\n(.*?)^\};", abi, re.S | re.M):
        found.update(re.findall(r"^  (\w+) = (\w+),", body, re.M))
    for ours, theirs in FLAGS.items():
        found[theirs] = re.search(rf"\b{ours} = (\w+);", abi).group(1)
    return found


def compare_numbers(header, abi):
    found = enumerators(abi)
    words = set(re.findall(r"\w+", header.preprocessed()))
    for ours, (word, theirs) in OURS.items():
        if word in words and ours in found:
            found[theirs] = found.pop(ours)
            words.add(theirs)
    problems = [f"{name}: not in the header" for name in sorted(set(found) - words)]
    asserts = [f'_Static_assert((long long){name} == {number}, "{name}: not {number}");' for name, number in found.items() if name in words]
    return problems + header.complaints("\n".join(asserts)), len(asserts)


def members_of(body):
    """Names of members, also of nested structures: "clusterDim.x"."""
    body = re.sub(r"//[^\n]*", "", body)
    names = []
    while inner := re.search(r"(?:struct|union) \{", body):
        depth, end = 1, inner.end()
        while depth > 0 and end < len(body):
            depth += {"{": 1, "}": -1}.get(body[end], 0)
            end += 1
        name, after = re.match(r"\s*(\w+)\s*;", body[end:]).group(1), body.index(";", end) + 1
        names += [f"{name}.{member}" for member in members_of(body[inner.end():end - 1])] + [name]
        body = body[:inner.start()] + body[after:]
    for statement in body.split(";"):
        statement = re.sub(r"\[[^\]]*\]", "", statement)
        names += [re.search(r"(\w+)\s*$", item).group(1) for item in statement.split(",") if item.strip()]
    return names


def structures(abi):
    """Name -> members, of abi.h."""
    return {name: members_of(body) for name, body in re.findall(r"^(?:struct|union) (\w+) \{\n(.*?)^\};", abi, re.S | re.M)}


def layout(text):
    sizes = re.findall(r"^KANSOKU_ABI_SIZE\((\w+), (\d+)\)", text, re.M)
    return dict(sizes), {(owner, name): number for owner, name, number in re.findall(r"^KANSOKU_ABI_MEMBER\((\w+), ([\w.]+), (\d+)\)", text, re.M)}


def compare_layout(header, abi, text):
    sizes, offsets = layout(text)
    problems = []
    for name, members in structures(abi).items():
        problems += [] if name in sizes else [f"{name}: its size is not in layout.inc"]
        problems += [f"{name}.{member}: its offset is not in layout.inc" for member in members if (name, member) not in offsets]
    words = set(re.findall(r"\w+", header.preprocessed()))
    asserts = []
    for name, number in sizes.items():
        if name in words:
            asserts.append(f'_Static_assert(sizeof({name}) == {number}, "{name}: not {number} bytes");')
        else:
            problems.append(f"{name}: not in the header")
    for (owner, member), number in offsets.items():
        if owner in words and f"{owner}.{member}" not in NOT_COMPARED:
            asserts.append(f'_Static_assert(__builtin_offsetof({owner}, {member}) == {number}, "{owner}.{member}: not at {number}");')
    return problems + header.complaints("\n".join(asserts)), len(asserts)


def read(root, *parts):
    with open(os.path.join(root, *parts), encoding="utf-8") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda-h", metavar="FILE")
    parser.add_argument("--part", action="store_true")
    parser.add_argument("--root", default=cuda_table.ROOT)
    options = parser.parse_args()
    if not os.path.isfile(os.path.join(options.root, "src", "cuda", "abi.h")):
        print("abi: no src/cuda/abi.h")
        sys.exit(SKIP_EXIT)
    path = os.path.abspath(options.cuda_h or os.path.join(options.root, OWN))
    if not os.path.isfile(path):
        sys.exit(f"{path}: not there")
    header = Header(path)
    try:
        version = header.version()
    except FileNotFoundError as error:
        print(f"abi: no C compiler ({error.filename})")
        sys.exit(SKIP_EXIT)
    abi = read(options.root, "src", "cuda", "abi.h")
    is_part = options.part or options.cuda_h is None
    wrong, functions = compare_functions(header, table_of(options.root, "driver"), is_part)
    more, numbers = compare_numbers(header, abi)
    rest, places = compare_layout(header, abi, read(options.root, "src", "cuda", "interface", "layout.inc"))
    others, counts = compare_companions(options.root, os.path.dirname(path), version, is_part)
    problems = wrong + more + rest + others
    counts = ", ".join([f"{functions} functions of the driver", *counts, f"{numbers} numbers", f"{places} sizes and offsets"])
    print("\n".join(problems + [f"abi: {counts} of headers of {version}: {len(problems)} differences"]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
