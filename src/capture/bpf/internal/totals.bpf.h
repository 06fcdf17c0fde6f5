/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* The sink that adds calls up in a map. For BPF programs only; include after arguments.bpf.h and
 * observed.bpf.h. */

#include "wire/totals.h"

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 32768);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct wire_total_key);
  __type(value, struct wire_total);
} totals SEC(".maps");

// Open calls of threads where no session keeps them; the oldest give way.
struct open_key {
  __u64 pid_tgid;
  __u32 probe;
  __u32 times;  // of scopes, from the cookie
};
struct open_call {
  __u64 start_ns;
  __u32 depth;  // of scopes
  __u32 probe;  // probe that the outermost scope counts for
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct open_key);
  __type(value, struct open_call);
} open_calls SEC(".maps");

// A zero total to insert: too large for the stack.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wire_total);
} nothing SEC(".maps");

static __always_inline struct wire_total* total_of(__u32 tgid, __u32 probe, __u32 kind) {
  struct wire_total_key key = {.tgid = tgid, .probe_kind = probe * 4 + kind};
  struct wire_total* total = bpf_map_lookup_elem(&totals, &key);
  if (total) return total;
  __u32 zero = 0;
  struct wire_total* fresh = bpf_map_lookup_elem(&nothing, &zero);
  if (!fresh) return 0;
  bpf_map_update_elem(&totals, &key, fresh, BPF_NOEXIST);
  total = bpf_map_lookup_elem(&totals, &key);
  if (!total) count_one(COUNT_TOTALS);
  return total;
}

static __always_inline __u32 bucket_of(__u64 ns) {
  if (ns < (1ULL << WIRE_BUCKET_FIRST_POWER)) return 0;
  __u32 power = 0;
  __u64 rest = ns;
  if (rest >> 32) {
    power += 32;
    rest >>= 32;
  }
  if (rest >> 16) {
    power += 16;
    rest >>= 16;
  }
  if (rest >> 8) {
    power += 8;
    rest >>= 8;
  }
  if (rest >> 4) {
    power += 4;
    rest >>= 4;
  }
  if (rest >> 2) {
    power += 2;
    rest >>= 2;
  }
  if (rest >> 1) power += 1;
  if (power >= WIRE_BUCKET_FIRST_POWER + WIRE_BUCKET_POWERS) return WIRE_BUCKETS - 1;
  return 1 + (power - WIRE_BUCKET_FIRST_POWER) * 4 + ((ns >> (power - 2)) & 3);
}

static __always_inline void add_duration(struct wire_total* total, __u64 ns) {
  __sync_fetch_and_add(&total->count, 1);
  __sync_fetch_and_add(&total->sum_ns, ns);
  __u64 bucket = bucket_of(ns);
  // One register for the comparison and the address: older verifiers (Linux 6.1) see no other
  // bound.
  asm volatile("" : "+r"(bucket));
  if (bucket < WIRE_BUCKETS) __sync_fetch_and_add(&total->buckets[bucket], 1);
}

static __always_inline void add_to(__u32 tgid, __u32 probe, __u32 kind, __u64 ns) {
  struct wire_total* total = total_of(tgid, probe, kind);
  if (total) add_duration(total, ns);
}

static __always_inline __u16 captures_of_bytes(const struct wire_probe* probe) {
  return probe->factors | (probe->type ? 1 << ((probe->type - 1) & 15) : 0);
}

static __always_inline __u64 bytes_of(const struct wire_probe* probe, const struct values* values) {
  __u16 counted = captures_of_bytes(probe);
  if (!counted || values->failed & counted) return 0;
  __u64 product = 1;
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i) {
    if (probe->factors >> i & 1) product *= values->value[i];
    if (probe->type != i + 1) continue;
    __u64 type = values->value[i];
    /* One register for the comparison and the address: older verifiers see no other bound. */
    asm volatile("" : "+r"(type));
    if (type < WIRE_SIZES_MAX) product *= probe->sizes[type];
  }
  return product;
}

/* The begin of a call: intervals and gaps, bytes, open calls. These are functions of their own for
 * the verifier, which looks at each once. */
__noinline int total_begin(__u32 index, __u32 tgid, __u64 now, __u64 bytes, int has_steps) {
  count_one(COUNT_HITS);
  struct wire_total* total = total_of(tgid, index, WIRE_TOTAL_CALL);
  if (!total) return 0;
  if (has_steps) {
    __u64 last_entry = total->last_entry_ns;
    __u64 last_exit = total->last_exit_ns;
    if (last_entry && now > last_entry) add_to(tgid, index, WIRE_TOTAL_INTERVAL, now - last_entry);
    if (last_exit > last_entry && now > last_exit)
      add_to(tgid, index, WIRE_TOTAL_GAP, now - last_exit);
  }
  __sync_fetch_and_add(&total->entries, 1);
  total->last_entry_ns = now;
  if (bytes) __sync_fetch_and_add(&total->bytes, bytes);
  return 0;
}

__noinline int total_end(__u32 index, __u32 tgid, __u64 start, __u64 now) {
  struct wire_total* total = total_of(tgid, index, WIRE_TOTAL_CALL);
  if (!total) return 0;
  total->last_exit_ns = now;
  add_duration(total, now - start);
  return 0;
}

/* A call that nobody saw return: an exception, longjmp() or the end of its thread. */
__noinline int total_drop(__u32 index, __u32 tgid) {
  struct wire_total* total = total_of(tgid, index, WIRE_TOTAL_CALL);
  if (total) __sync_fetch_and_add(&total->dropped, 1);
  return 0;
}

static __always_inline void open_call(__u64 pid_tgid, __u32 probe, __u64 now) {
  struct open_key key = {.pid_tgid = pid_tgid, .probe = probe};
  struct open_call call = {.start_ns = now, .probe = probe};
  bpf_map_update_elem(&open_calls, &key, &call, BPF_ANY);
}

static __always_inline void close_call(__u64 pid_tgid, __u32 probe, __u64 now) {
  struct open_key key = {.pid_tgid = pid_tgid, .probe = probe};
  struct open_call* call = bpf_map_lookup_elem(&open_calls, &key);
  if (!call) return;
  total_end(probe, pid_tgid >> 32, call->start_ns, now);
  bpf_map_delete_elem(&open_calls, &key);
}

/* Which kind of scope has the name that this object is, counted from 1; 0: it is no name; one more
 * than there are: none. */
static __always_inline __u32 scope_class(const struct wire_probe* probe, __u64 object) {
  __u64 text = 0;
  __u64 head[3] = {};
  __u32 none = WIRE_SCOPES_MAX + 1;
  if (python_text(object, &text)) return 0;
  if (!text || bpf_probe_read_user_str(head, WIRE_PREFIX_BYTES + 1, (void*)text) < 0) return none;
#pragma unroll
  for (int i = 0; i < WIRE_SCOPES_MAX; ++i) {
    if (i >= probe->scope_count) break;
    const struct wire_scope* scope = &probe->scopes[i];
    if ((head[0] & scope->mask[0]) == scope->prefix[0] &&
        (head[1] & scope->mask[1]) == scope->prefix[1])
      return i + 1;
  }
  return none;
}

/* Enter and exit of scopes: enter has two arguments, a text first; exit has one. Scopes nest; the
 * outermost that has a class counts. */
static __noinline int total_scope(const struct hit* hit) {
  const struct wire_probe* probe = hit->probe;
  struct sources sources;
  read_sources(hit->regs, &sources);
  __u64 count = 0, object = 0;
  int has_count = 0, has_name = 0;
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i) {
    if (i == probe->scope_arguments)
      has_count = !follow_path(&probe->captures[i], &sources, &count);
    if (i == probe->scope_name) has_name = !follow_path(&probe->captures[i], &sources, &object);
  }
  if (!has_count) return 0;
  struct open_key key = {.pid_tgid = hit->pid_tgid,
                         .probe = (__u32)hit->cookie,
                         .times = (__u32)(hit->cookie >> WIRE_COOKIE_TIMES_SHIFT)};
  struct open_call* call = bpf_map_lookup_elem(&open_calls, &key);
  if (count == 1 && call) {
    if (--call->depth > 0) return 0;
    total_end(call->probe, hit->pid_tgid >> 32, call->start_ns, hit->now);
    bpf_map_delete_elem(&open_calls, &key);
    return 0;
  }
  if (count != 2 || !has_name) return 0;
  __u32 class = scope_class(probe, object);
  if (class == 0) return 0;
  if (call) {
    ++call->depth;
  } else if (class <= WIRE_SCOPES_MAX) {
    __u32 index = (__u32)hit->cookie + class - 1;
    struct open_call fresh = {.start_ns = hit->now, .depth = 1, .probe = index};
    bpf_map_update_elem(&open_calls, &key, &fresh, BPF_ANY);
    total_begin(index, hit->pid_tgid >> 32, hit->now, 0, 0);
  }
  return 0;
}
