/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Reading the arguments of a probed function, as captures describe them. For BPF programs only;
 * include after the kernel's and libbpf's headers. */

#include "wire/ring.h"

/* Argument registers and return value, copied once: the verifier refuses a context pointer with a
 * computed offset. */
struct sources {
  __u64 values[8];
};

static __always_inline void read_sources(struct pt_regs* regs, struct sources* out) {
  out->values[0] = regs->rdi;
  out->values[1] = regs->rsi;
  out->values[2] = regs->rdx;
  out->values[3] = regs->rcx;
  out->values[4] = regs->r8;
  out->values[5] = regs->r9;
  out->values[6] = regs->rax;
  out->values[7] = regs->rsp;
}

/* Head of a str of CPython 3.8 and later with a global lock; the characters of a compact ASCII one
 * follow it, in versions that knew `ready` (to 3.11) behind another pointer. */
struct python_str {
  __u64 refcount, type, length, hash;
  __u32 state; /* interned:2, kind:3, compact:1, ascii:1, then ready:1 or statically_allocated:1 */
  __u32 reserved;
};
#define PYTHON_TYPE_FLAGS 168      /* tp_flags of a type */
#define PYTHON_IS_STR (1ULL << 28) /* Py_TPFLAGS_UNICODE_SUBCLASS */
#define PYTHON_ASCII_BITS 0x7c     /* of the state, without whether it is interned */
#define PYTHON_ASCII 0x64          /* one byte a character, compact, ascii */
#define PYTHON_READY 0x80          /* of no str made at run time since 3.12 */

/* Address of the characters of a str; 0: they are not all ASCII. -1 if it is no str. */
static __always_inline int python_text(__u64 object, __u64* text) {
  struct python_str head = {};
  __u64 flags = 0;
  if (bpf_probe_read_user(&head, sizeof(head), (void*)object) ||
      bpf_probe_read_user(&flags, sizeof(flags), (void*)(head.type + PYTHON_TYPE_FLAGS)) ||
      !(flags & PYTHON_IS_STR))
    return -1;
  *text = 0;
  if ((head.state & PYTHON_ASCII_BITS) == PYTHON_ASCII)
    *text = object + sizeof(head) + (head.state & PYTHON_READY ? 8 : 0);
  return 0;
}

/* Follows one capture. Returns 0 and the value, the address of a text of C or of an object of
 * Python; -1 if user memory could not be read. */
static __always_inline int follow_path(const struct wire_capture* capture,
                                       const struct sources* sources, __u64* out) {
  __u64 value = sources->values[capture->source & WIRE_SOURCE_MASK];
#pragma unroll
  for (int i = 0; i < WIRE_STEPS_MAX; ++i) {
    if (i >= capture->step_count) break;
    __u64 address = value + capture->offset[i];
    int last = i + 1 == capture->step_count;
    if (last && capture->is_text == WIRE_TEXT_C) {
      value = address;
      break;
    }
    __u64 loaded = 0;
    __u32 size = last ? capture->size : 8;
    long failed = size == 4   ? bpf_probe_read_user(&loaded, 4, (void*)address)
                  : size == 1 ? bpf_probe_read_user(&loaded, 1, (void*)address)
                  : size == 2 ? bpf_probe_read_user(&loaded, 2, (void*)address)
                              : bpf_probe_read_user(&loaded, 8, (void*)address);
    if (failed) return -1;
    value = loaded;
  }
  // Above its type the bits of a register are anything.
  if (capture->step_count == 0 && !capture->is_text) {
    if (capture->size == 4) value &= 0xffffffff;
    if (capture->size == 2) value &= 0xffff;
    if (capture->size == 1) value &= 0xff;
  }
  *out = value;
  return 0;
}

/* The same; of any text the address of its characters, -1 if there are none. */
static __always_inline int follow(const struct wire_capture* capture, const struct sources* sources,
                                  __u64* out) {
  if (follow_path(capture, sources, out)) return -1;
  if (capture->is_text != WIRE_TEXT_PYTHON) return 0;
  return python_text(*out, out) || *out == 0 ? -1 : 0;
}

/* A place of a probe that was hit. */
struct hit {
  struct pt_regs* regs;
  const struct wire_probe* probe;
  __u64 cookie, pid_tgid, now;
  __u64 stack; /* address of the call's return address, now or once */
};

/* The captures of a probe that were read: an address for a text. */
struct values {
  __u64 value[WIRE_ARGS_MAX];
  __u16 failed; /* bit i: capture i could not be read */
};

/* Reads those in `wanted` into `out`, which is zero. A function of its own for the verifier, which
 * looks at it once. */
__noinline int read_values(const struct wire_probe* probe, const struct sources* sources,
                           __u16 wanted, struct values* out) {
  if (!probe || !sources || !out) return 0;
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i) {
    if (!(wanted >> i & 1)) continue;
    __u64 value = 0;
    if (follow(&probe->captures[i], sources, &value)) {
      out->failed |= 1 << i;
    } else {
      out->value[i] = value;
    }
  }
  return 0;
}
