# SPDX-License-Identifier: Apache-2.0
"""cuda.h and softgpu_driver_types.h of share/softgpu/toolkit/include: types from src/cuda/abi.h, functions from the driver's entry
points, the rest from src/softcuda/public_*.h.in."""
import os
import re

# Where the library takes a number and the interface an enumeration. A member: "structure.member"; a parameter: "function.parameter".
TYPES = {
    "CUmemLocation.type": "CUmemLocationType",
    "CUmemAccessDesc.flags": "CUmemAccess_flags",
    "CUmemAllocationProp.type": "CUmemAllocationType",
    "CUmemAllocationProp.requestedHandleTypes": "CUmemAllocationHandleType",
    "CUmemPoolProps.allocType": "CUmemAllocationType",
    "CUmemPoolProps.handleTypes": "CUmemAllocationHandleType",
    "CUgraphExecUpdateResultInfo.result": "CUgraphExecUpdateResult",
    "cuCtxGetCacheConfig.config": "CUfunc_cache*",
    "cuCtxSetCacheConfig.config": "CUfunc_cache",
    "cuCtxGetSharedMemConfig.config": "CUsharedconfig*",
    "cuCtxSetSharedMemConfig.config": "CUsharedconfig",
    "cuDeviceGetP2PAttribute.attribute": "CUdevice_P2PAttribute",
    "cuFuncIsLoaded.state": "CUfunctionLoadingState*",
    "cuFuncSetCacheConfig.config": "CUfunc_cache",
    "cuFuncSetSharedMemConfig.config": "CUsharedconfig",
    "cuGetProcAddress_v2.query": "CUdriverProcAddressQueryResult*",
    "cuKernelSetCacheConfig.config": "CUfunc_cache",
    "cuLinkAddData_v2.state": "CUlinkState",
    "cuLinkAddData_v2.type": "CUjitInputType",
    "cuLinkComplete.state": "CUlinkState",
    "cuLinkCreate_v2.state": "CUlinkState*",
    "cuLinkDestroy.state": "CUlinkState",
    "cuMemAdvise.advice": "CUmem_advise",
    "cuMemExportToShareableHandle.type": "CUmemAllocationHandleType",
    "cuMemGetAllocationGranularity.option": "CUmemAllocationGranularity_flags",
    "cuMemImportFromShareableHandle.type": "CUmemAllocationHandleType",
    "cuMemPoolGetAccess.flags": "CUmemAccess_flags*",
    "cuModuleGetLoadingMode.mode": "CUmoduleLoadingMode*",
}
# By position where the library does not name it: "function.position".
UNNAMED = {
    "cuLibraryLoadData.5": "CUlibraryOption*", "cuLibraryLoadData.6": "void**",
    "cuLibraryLoadFromFile.5": "CUlibraryOption*", "cuLibraryLoadFromFile.6": "void**",
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


def parameter(function, position, text):
    text = plain(text)
    match = re.fullmatch(r"(.*[\s*])(\w+)", text)
    known = {"CUcontext", "CUdevice", "CUgraphEdgeData", "CUuuid", "unsigned", "size_t"}
    name = match.group(2) if match and match.group(2) not in known else None
    if name is None:
        return UNNAMED.get(f"{function}.{position}", text)
    wanted = TYPES.get(f"{function}.{name}")
    kind = wanted if wanted else match.group(1).strip()
    return f"{kind} {name}"


def declarations(found, symbols):
    out = []
    for name in sorted(symbols):
        result, parameters = found[name]
        plain_name = re.sub(r"_pt[sd][sz]$", "", name)
        items = [parameter(plain_name, i, item) for i, item in enumerate(split(parameters))]
        out.append(wrapped(f"{result} {name}(", items))
    return out


def functions(found, rows):
    """`found`: name -> (result, parameters), as implemented. Forms for the thread's own default stream behind the toolkit's switch."""
    known = [row for row in rows if row[2] in found and row[1] <= VERSION]
    out = declarations(found, {symbol for _, _, symbol, is_per_thread in known if not is_per_thread})
    out += ["#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM"]
    out += declarations(found, {symbol for _, _, symbol, is_per_thread in known if is_per_thread})
    return "\n".join(out + ["#endif"])


def names(found, rows):
    """The newest form up to the header's version has the plain name; per-thread forms behind the toolkit's switch."""
    best, best_thread = {}, {}
    for base, version, symbol, is_per_thread in rows:
        if version <= VERSION and symbol in found and symbol not in NOT_PLAIN:
            (best_thread if is_per_thread else best)[base] = symbol
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
