# SPDX-License-Identifier: Apache-2.0
"""The tables of the CUDA interfaces: src/cuda/interface/*.txt, whose first lines say what the columns mean."""
import collections
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join("src", "cuda", "interface")
STREAMS = ("CUstream", "cudaStream_t")
Row = collections.namedtuple("Row", "base since symbol is_per_thread kind stream until types result", defaults=(None,))

# What our sources take for a type of the interface: numbers for enumerations that abi.h does not name.
TAKEN_AS = {"CUctxCreateParams*": "const void*", "CUlibraryOption*": "const void*", "CUlinkState": "void*"}
TAKEN_AS.update(dict.fromkeys(
    ("CUdevice_P2PAttribute", "CUdriverProcAddressQueryResult", "CUfunc_cache", "CUfunctionLoadingState", "CUjitInputType",
     "CUmemAccess_flags", "CUmemAllocationGranularity_flags", "CUmemAllocationHandleType", "CUmem_advise", "CUmoduleLoadingMode",
     "CUsharedconfig"), "int"))


class TableError(Exception):
    """What is wrong, with file and line."""


def path(library):
    return os.path.join(FOLDER, library + ".txt")


def split_types(text):
    """The types of a signature; None where it is unknown."""
    if text == "?":
        return None
    return [] if text == "void" else text.split(",")


def stream_of(types):
    """Index of the first argument that is a stream."""
    return next((i for i, kind in enumerate(types or []) if kind in STREAMS), -1)


def result_and_types(text, result):
    """Of a signature: "const char*(int)" -> "const char*", ["int"]."""
    match = re.fullmatch(r"([^()]+)\((.*)\)", text)
    return (match.group(1), split_types(match.group(2))) if match else (result, split_types(text))


def parse_row(line, classes, result, where):
    words = line.split(None, 7)
    if len(words) != 8:
        raise TableError(f"{where}: a row has 8 columns")
    base, since, symbol, thread, kind, stream, until, signature = words
    if not since.isdigit() or not (until == "-" or until.isdigit()) or thread not in ("-", "per-thread"):
        raise TableError(f"{where}: {symbol}: since, until and thread are numbers, `-` or per-thread")
    if kind not in classes:
        raise TableError(f"{where}: {symbol}: no class {kind}")
    result, types = result_and_types(signature, result)
    if any(not re.fullmatch(r"(const )?[A-Za-z_]\w*( [a-z]+)*\**( const\*)?", text) for text in types or []):
        raise TableError(f"{where}: {symbol}: not a list of types: {signature}")
    row = Row(base, int(since), symbol, thread != "-", kind, int(stream), None if until == "-" else int(until), types, result)
    if row.stream != -2 and types is not None and row.stream != stream_of(types):
        raise TableError(f"{where}: {symbol}: the stream is argument {stream_of(types)}, not {stream}")
    return row


def parse(text, name):
    """The rows and the classes (name -> meaning) of a table's text."""
    classes = dict(re.findall(r"^# class (\w+)\s+(.+)$", text, re.M))
    result = (re.findall(r"^# result (\w+)$", text, re.M) + ["CUresult"])[0]
    rows, seen, last = [], set(), {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{name}:{number}"
        row = parse_row(line, classes, result, where)
        if row.symbol in seen:
            raise TableError(f"{where}: {row.symbol} stands twice")
        seen.add(row.symbol)
        key = row.base, row.is_per_thread
        if last.get(key, 0) > row.since:
            raise TableError(f"{where}: {row.symbol}: older forms first")
        last[key] = row.since
        rows.append(row)
    unused = sorted(set(classes) - {row.kind for row in rows})
    if unused:
        raise TableError(f"{name}: no row of class {' '.join(unused)}")
    return rows, classes


def read(library):
    name = path(library)
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return parse(file.read(), name)[0]


def table(library):
    """The rows; ends with a message where the table is wrong."""
    try:
        return read(library)
    except TableError as error:
        raise SystemExit(str(error)) from None


def driver():
    return table("driver")


def of_version(rows, version):
    """What a library of that version has by the names of today."""
    return [row for row in rows if row.since <= version and (row.until is None or version < row.until)]


def as_abi(kind):
    """The type as our sources have it."""
    base = kind.rstrip("*")
    return TAKEN_AS.get(kind, TAKEN_AS.get(base, base) + kind[len(base):])
