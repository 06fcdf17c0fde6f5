/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Which processes are observed, and per-CPU counts of what was lost. For BPF programs only; include
 * after the kernel's and libbpf's headers. */

/* In the order of Engine::Counters. */
enum count {
  COUNT_RING_FULL = 0, /* records that found the ring full */
  COUNT_PROCESSES = 1, /* processes over the limit of their map */
  COUNT_TOO_DEEP = 2,  /* calls over that of a thread */
  COUNT_TOTALS = 3,    /* totals over that of their map */
  COUNT_HITS = 4,      /* begins that the totals were told of */
  COUNT_AGAIN = 5,     /* begins of a call at the place of one whose end nobody saw */
  COUNTS = 6
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, __u32);
  __type(value, __u8);
} processes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, COUNTS);
  __type(key, __u32);
  __type(value, __u64);
} counts SEC(".maps");

extern _Bool bpf_session_is_return(void) __ksym __weak;
extern __u64* bpf_session_cookie(void) __ksym __weak;

static __always_inline void count_one(__u32 which) {
  __u64* total = bpf_map_lookup_elem(&counts, &which);
  if (total) ++*total;
}

static __always_inline int is_observed(__u32 tgid) {
  return bpf_map_lookup_elem(&processes, &tgid) != 0;
}

/* Only what is read of the kernel's structures; CO-RE relocates the offsets. */
typedef struct {
  int counter;
} __attribute__((preserve_access_index)) atomic_t;
struct signal_struct {
  atomic_t live; /* threads */
} __attribute__((preserve_access_index));

/* For sched_process_exit: true once for a process, when its last thread ends. The main thread may
 * end before the others, by itself or because another one calls exec, which makes that one the main
 * thread. A macro: whoever includes this says what else a task has. */
#define IS_LAST_OF_OBSERVED(task)                                  \
  ({                                                               \
    __u32 last_tgid = (task)->tgid;                                \
    is_observed(last_tgid) && (task)->signal->live.counter == 0 && \
        bpf_map_delete_elem(&processes, &last_tgid) == 0;          \
  })
