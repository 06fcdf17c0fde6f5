// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// A thread's processor clock, counted by the kernel's code that it interrupts; and the addresses of
// some of its page faults.
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <linux/types.h>

#include <bpf/bpf_helpers.h>

#include "wire/samples.h"

#define USER_MODE (-14) /* -EFAULT: there is no kernel stack */

struct {
  __uint(type, BPF_MAP_TYPE_STACK_TRACE);
  __uint(max_entries, 16384);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, WIRE_KERNEL_FRAMES * sizeof(__u64));
} stacks SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __type(key, struct wire_sampled);
  __type(value, __u64);
} samples SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} lost SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, WIRE_FAULT_RING_BYTES);
} faults SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} faults_lost SEC(".maps");

SEC("perf_event")
int on_fault(struct bpf_perf_event_data* ctx) {
  struct wire_faulted fault = {.address = ctx->addr, .tid = (__u32)bpf_get_attach_cookie(ctx)};
  if (bpf_ringbuf_output(&faults, &fault, sizeof(fault), BPF_RB_NO_WAKEUP) != 0) {
    __u32 zero = 0;
    __u64* count = bpf_map_lookup_elem(&faults_lost, &zero);
    if (count) __sync_fetch_and_add(count, 1);
  }
  return 0;
}

SEC("perf_event")
int on_clock(void* ctx) {
  struct wire_sampled key = {.tid = (__u32)bpf_get_attach_cookie(ctx)};
  long stack = bpf_get_stackid(ctx, &stacks, 0);
  key.stack = stack >= 0 ? (int)stack : stack == USER_MODE ? WIRE_IN_USER : WIRE_STACK_UNKNOWN;
  __u64* count = bpf_map_lookup_elem(&samples, &key);
  if (!count) {
    __u64 none = 0;
    bpf_map_update_elem(&samples, &key, &none, BPF_NOEXIST);
    count = bpf_map_lookup_elem(&samples, &key);
  }
  if (!count) {
    __u32 zero = 0;
    count = bpf_map_lookup_elem(&lost, &zero);
  }
  if (count) __sync_fetch_and_add(count, 1);
  return 0;
}

char bpf_license[] SEC("license") = "Dual BSD/GPL";
