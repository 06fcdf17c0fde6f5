#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stubs.py OUT.s LIBRARY... -- OBJECT...: functions that objects call and that neither they nor the libraries define, each as a stub that
ends the program and names itself. For a backend of which a part is compiled: whoever reaches the rest learns what is missing."""
import subprocess
import sys


def symbols(files, *options):
    """Names that nm lists of files."""
    lines = subprocess.run(["nm", "--format=posix", *options, *files], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[0].split("@")[0] for line in lines if len(line.split()) > 1}


OF_THE_LINKER = {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "__tls_get_addr", "atexit"}


def system_libraries():
    """The shared libraries of C and C++, as the compiler finds them."""
    names = ["libstdc++.so.6", "libm.so.6", "libc.so.6", "libgcc_s.so.1"]
    return [subprocess.run(["c++", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip() for name in names]


def main():
    out, rest = sys.argv[1], sys.argv[2:]
    at = rest.index("--")
    libraries, objects = rest[:at], rest[at + 1:]
    undefined = symbols(objects, "--undefined-only") - symbols(objects, "--defined-only", "--extern-only")
    wanted = sorted(undefined - symbols(libraries + system_libraries(), "--dynamic", "--defined-only") - OF_THE_LINKER)
    data = [name for name in wanted if name.startswith(("_ZTV", "_ZTI", "_ZTS"))]
    if data:
        sys.exit(f"not functions, so not to be stubbed: {' '.join(data)}")
    plain = subprocess.run(["c++filt", *wanted], check=True, capture_output=True, text=True).stdout.splitlines() if wanted else []
    with open(out, "w") as file:
        file.write(".text\n")
        for number, (name, text) in enumerate(zip(wanted, plain)):
            # Weak: where a later list of files defines it, that counts.
            file.write(f".weak {name}\n.type {name}, @function\n{name}:\n  leaq .L{number}(%rip), %rdi\n  jmp kansoku_missing_operator@PLT\n")
        file.write(".section .rodata\n")
        for number, text in enumerate(plain):
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            file.write(f'.L{number}: .string "{escaped}"\n')
        file.write('.section .note.GNU-stack,"",@progbits\n')
    print(f"{len(wanted)} stubs")


if __name__ == "__main__":
    main()
