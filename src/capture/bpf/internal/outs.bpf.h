/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Values that functions write through their arguments: those are kept from the entry to the end.
 * For BPF programs only; include after arguments.bpf.h. */

struct kept_key {
  __u64 pid_tgid;
  __u32 probe, reserved;
};

/* Arguments of the last call of the probe in the thread. */
struct kept_arguments {
  __u64 stack; /* of the call: another one's are not taken for it */
  struct sources sources;
};

/* The oldest give way. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct kept_key);
  __type(value, struct kept_arguments);
} kept SEC(".maps");

/* Functions of their own for the verifier. */
static __noinline int keep_arguments(const struct hit* hit) {
  struct kept_key key = {.pid_tgid = hit->pid_tgid, .probe = (__u32)hit->cookie};
  struct kept_arguments value = {.stack = hit->stack};
  read_sources(hit->regs, &value.sources);
  bpf_map_update_elem(&kept, &key, &value, BPF_ANY);
  return 0;
}

/* Reads the captures in `wanted` at the end of a call. If its arguments were not kept, those that
 * want them have failed: a call inside it was one of the same function. */
static __noinline int read_outs(const struct hit* hit, __u16 wanted, struct values* values) {
  struct kept_key key = {.pid_tgid = hit->pid_tgid, .probe = (__u32)hit->cookie};
  struct sources sources = {};
  struct kept_arguments* found = bpf_map_lookup_elem(&kept, &key);
  __u16 lost = 0;
  if (found && found->stack == hit->stack) {
    sources = found->sources;
    bpf_map_delete_elem(&kept, &key);
  } else {
#pragma unroll
    for (int i = 0; i < WIRE_ARGS_MAX; ++i)
      if (hit->probe->captures[i].source & WIRE_SOURCE_OUT) lost |= 1 << i;
  }
  sources.values[WIRE_RETURN] = returned_value(hit->regs, hit->cookie);
  read_values(hit->probe, &sources, wanted & ~lost, values);
  values->failed |= lost & wanted;
  return 0;
}
