# SPDX-License-Identifier: Apache-2.0
"""cuda.h and softgpu_driver_types.h of share/softgpu/toolkit/include: types from src/cuda/abi.h, functions from the driver's entry
points, the rest from src/softcuda/public_*.h.in."""
import os
import re

# Where abi.h has a number and the interface an enumeration: "structure.member".
TYPES = {
    "CUmemLocation.type": "CUmemLocationType",
    "CUmemAccessDesc.flags": "CUmemAccess_flags",
    "CUmemAllocationProp.type": "CUmemAllocationType",
    "CUmemAllocationProp.requestedHandleTypes": "CUmemAllocationHandleType",
    "CUmemPoolProps.allocType": "CUmemAllocationType",
    "CUmemPoolProps.handleTypes": "CUmemAllocationHandleType",
    "CUgraphExecUpdateResultInfo.result": "CUgraphExecUpdateResult",
}
VERSION = 12040  # what the header claims: forms that came later are not in it
NOT_PLAIN = {"cuGraphAddDependencies_v2", "cuGraphGetEdges_v2"}  # 12 has them by their full names only
RENAMED = {"cuGraphInstantiate": "cuGraphInstantiateWithFlags"}  # since 12.0
SPECIAL = {"CUuuid"}  # in the template


def plain(text):
    """C++ of the sources as C."""
    text = re.sub(r"//[^\n]*", "", text)
    text = text.replace("std::uint64_t", "cuuint64_t").replace("std::uint32_t", "cuuint32_t").replace("std::size_t", "size_t")
    return text.replace("std::", "").replace(" * ", "* ")


def wrapped(head, items, width=100):
    """`head`, items divided by commas and `);`, as clang-format would: aligned behind the parenthesis where that fits."""
    lines, line = [], head
    indent = " " * len(head)
    for i, item in enumerate(items):
        piece = item + (", " if i + 1 < len(items) else ");")
        if len((line + piece).rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece
    lines.append(line)
    return "\n".join(lines) if items else head + "void);"


def errors(abi):
    rows = re.findall(r"X\((CUDA_\w+), (\d+), \"", abi)
    body = ",\n".join(f"  {name} = {number}" for name, number in rows)
    return "typedef enum cudaError_enum {\n" + body + "\n} CUresult;"


def handles(abi):
    lines = [f"typedef struct {tag}* {name};" for name, tag in re.findall(r"using (\w+) = struct (\w+)\*;", abi)]
    return "\n".join(lines + ["typedef unsigned long long CUmemGenericAllocationHandle;"])


def structure(kind, name, body):
    body = plain(body).strip("\n")
    if kind == "enum":
        body = "\n".join(line for line in body.splitlines() if line.strip()).rstrip().rstrip(",")
        return f"typedef enum {name}_enum {{\n{body}\n}} {name};"
    for key, wanted in TYPES.items():
        owner, member = key.split(".")
        if owner == name:
            body, count = re.subn(rf"^  \w+ {member};", f"  {wanted} {member};", body, flags=re.M)
            if count != 1:
                raise SystemExit(f"cuda.h: no member {key}")
    body = "\n".join(line.rstrip() for line in body.splitlines() if line.strip())
    return f"typedef {kind} {name}_st {{\n{body}\n}} {name};"


def types(abi):
    out = []
    for match in re.finditer(r"^(enum|struct|union) (CU\w+)(?: : \w+)? \{\n(.*?)^\};", abi, re.S | re.M):
        kind, name, body = match.groups()
        if name == "CUresult" or name in SPECIAL:
            continue
        out.append(structure(kind, name, body))
    return "\n".join(out)


def split(parameters):
    """At the commas: no parameter of the interface has one in itself."""
    return [item.strip() for item in parameters.split(",")] if parameters.strip() else []


def type_and_name(text):
    """Of a parameter as the sources have it; the name is None where they give none."""
    text = plain(text)
    match = re.fullmatch(r"(.*[\s*])(\w+)", text)
    known = {"CUcontext", "CUdevice", "CUgraphEdgeData", "CUuuid", "unsigned", "size_t"}
    if match is None or match.group(2) in known:
        return text.replace(" *", "*"), None
    return match.group(1).strip().replace(" *", "*"), match.group(2)


def named(types, parameters):
    """The types of the table with the names of the sources."""
    names = [type_and_name(item)[1] for item in split(parameters)]
    return [f"{kind} {name}" if name else kind for kind, name in zip(types, names)]


def declarations(found, rows):
    out = []
    for row in sorted(rows, key=lambda row: row.symbol):
        out.append(wrapped(f"{found[row.symbol][0]} {row.symbol}(", named(row.types, found[row.symbol][1])))
    return out


def functions(found, rows):
    """`found`: name -> (result, parameters), as implemented; `rows`: the table's. Forms for the thread's own default stream behind the toolkit's switch."""
    known = [row for row in rows if row.symbol in found and row.since <= VERSION]
    out = declarations(found, [row for row in known if not row.is_per_thread])
    out += ["#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM"]
    out += declarations(found, [row for row in known if row.is_per_thread])
    return "\n".join(out + ["#endif"])


def names(found, rows):
    """The newest form up to the header's version has the plain name; per-thread forms behind the toolkit's switch."""
    best, best_thread = {}, {}
    for row in rows:
        if row.since <= VERSION and row.symbol in found and row.symbol not in NOT_PLAIN:
            (best_thread if row.is_per_thread else best)[row.base] = row.symbol
    best.update(RENAMED)
    both = sorted(base for base in best if base in best_thread)
    lines = [f"#define {base} {symbol}" for base, symbol in sorted(best.items()) if symbol != base and base not in both]
    lines += ["#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM"] + [f"#define {base} {best_thread[base]}" for base in both]
    lines += ["#else"] + [f"#define {base} {best[base]}" for base in both if best[base] != base]
    return "\n".join(lines + ["#endif"])


def texts(root, found, rows):
    """Name of the header -> its text."""
    def template(name):
        with open(os.path.join(root, "src", "softcuda", name), encoding="utf-8") as file:
            return file.read()

    with open(os.path.join(root, "src", "cuda", "abi.h"), encoding="utf-8") as file:
        abi = file.read()
    parts = {"errors": errors(abi), "handles": handles(abi), "types": types(abi), "names": names(found, rows),
             "functions": functions(found, rows)}
    out = {"cuda.h": template("public_header.h.in"), "softgpu_driver_types.h": template("public_types.h.in")}
    for name, part in parts.items():
        out = {header: text.replace(f"@{name}@", part) for header, text in out.items()}
    return out
