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


def main():
    out, rest = sys.argv[1], sys.argv[2:]
    at = rest.index("--")
    libraries, objects = rest[:at], rest[at + 1:]
    undefined = symbols(objects, "--undefined-only") - symbols(objects, "--defined-only", "--extern-only")
    # The runtime's of C and C++ are found by the linker; a stub is only ever one of ggml's own.
    undefined -= symbols(libraries, "--dynamic", "--defined-only")
    wanted = sorted(name for name in undefined if "ggml" in name or "mul_mat_q_case" in name)
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
