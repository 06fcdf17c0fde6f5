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
  out->values[7] = 0;
}

/* Follows one capture. Returns 0 and the value (or the address of the text), or -1 if user memory
 * could not be read. */
static __always_inline int follow(const struct wire_capture* capture, const struct sources* sources,
                                  __u64* out) {
  __u64 value = sources->values[capture->source & 7];
#pragma unroll
  for (int i = 0; i < WIRE_STEPS_MAX; ++i) {
    if (i >= capture->step_count) break;
    __u64 address = value + capture->offset[i];
    int last = i + 1 == capture->step_count;
    if (last && capture->is_text) {
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
  *out = value;
  return 0;
}
