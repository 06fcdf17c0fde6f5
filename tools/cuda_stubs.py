# SPDX-License-Identifier: Apache-2.0
"""Exported functions as stubs in assembly: a nop of 5 bytes, on which a uprobe is cheapest, and a jump to the code.

The code has a symbol of its own, which is local to the library. So nothing outside can take a function's place in it: what the library
itself finds under a name, `own(name)`, is its own stub even where another library of these names was loaded first.
"""
NOP5 = "0x0f, 0x1f, 0x44, 0x00, 0x00"
CODE = "softgpu_"  # in front of the name of a function's code
OWN = "softgpu_stub_"  # in front of the name by which the library knows its own stub


def code(name):
    return CODE + name


def own(name):
    return OWN + name


def stub(name, body):
    return (f".globl {name}\n.type {name}, @function\n.p2align 4, 0xcc\n{name}:\n{own(name)}:\n"
            f".cfi_startproc\n.byte {NOP5}\n{body}.cfi_endproc\n.size {name}, . - {name}\n")


def to_code(name):
    """A stub for what is implemented."""
    return f".hidden {code(name)}\n" + stub(name, f"jmp {code(name)}\n")


def to_code_with_faults(name, index):
    """The same; while the byte softgpu_faults_set is not 0 it asks softgpu_fault_of_call(index) first: -1, or the result."""
    return (".hidden softgpu_faults_set\n"
            f".hidden {code(name)}\n" + stub(name, "cmpb $0, softgpu_faults_set(%rip)\njne 2f\n"
                                             f"1: jmp {code(name)}\n"
                                             f"2: movl ${index}, %eax\ncall softgpu_fault_gate\ntestl %eax, %eax\njs 1b\nret\n"))


def fault_gate():
    """Called with the number in eax; keeps the registers of arguments (none is a floating-point number)."""
    registers = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
    saved = "".join(f"pushq %{name}\n.cfi_adjust_cfa_offset 8\n" for name in registers)
    restored = "".join(f"popq %{name}\n.cfi_adjust_cfa_offset -8\n" for name in reversed(registers))
    return (".hidden softgpu_fault_of_call\n.type softgpu_fault_gate, @function\n.p2align 4, 0xcc\nsoftgpu_fault_gate:\n.cfi_startproc\n"
            f"{saved}movl %eax, %edi\ncall softgpu_fault_of_call\n{restored}ret\n.cfi_endproc\n"
            ".size softgpu_fault_gate, . - softgpu_fault_gate\n")


def with_name(name, target):
    """A stub that calls `target` with the function's name instead of the arguments."""
    text = f".Lname_{name}"
    return (stub(name, f"leaq {text}(%rip), %rdi\njmp {target}\n") +
            f'.pushsection .rodata.str1.1, "aMS", @progbits, 1\n{text}: .string "{name}"\n.popsection\n')


def assembly(stubs):
    """Definition at file level of a C++ file."""
    return 'asm(R"(\n.pushsection .text\n' + "".join(stubs) + '.popsection\n)");\n'


def renaming(names):
    """To be read before the declarations of `names`: functions of C whose code gets its own symbol."""
    return "".join(f"#pragma redefine_extname {name} {code(name)}\n" for name in names)
