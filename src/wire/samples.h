/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Counts of the samples of threads' clocks, which a BPF program keeps in a map. Plain C: compiled
 * by the host compiler, by C++ and by clang -target bpf. */

#include <linux/types.h>

#include "wire/version.h"

#define WIRE_KERNEL_FRAMES 48
#define WIRE_IN_USER (-1)
#define WIRE_STACK_UNKNOWN (-2)

/* Key of the map; the value is the number of samples. */
struct wire_sampled {
  __u32 tid;
  __s32 stack; /* of the map of kernel stacks, or WIRE_IN_USER, WIRE_STACK_UNKNOWN */
};
WIRE_ASSERT(sizeof(struct wire_sampled) == 8, "part of the ABI: bump WIRE_VERSION");

#define WIRE_FAULT_RING_BYTES (1 << 18)

/* A page fault, of so many of a thread (ThreadSampler::kFaultsPerSample). */
struct wire_faulted {
  __u64 address;
  __u32 tid;
  __u32 padding;
};
WIRE_ASSERT(sizeof(struct wire_faulted) == 16, "part of the ABI: bump WIRE_VERSION");
