// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// Metering: calls become totals and histograms in a map, threads are read by an iterator, and only
// processes that come and go are events. What a probe counts is decided by its cookie and the map
// `probes`, not by code.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// Per-CPU totals: [0] records that found the ring full, [1] processes and [2] totals over the limit
// of their maps (or open calls over that of a thread), [3] probe hits.
#define LOSS_COUNT 4
#define CALLS_MAX 8
#include "capture/bpf/internal/arguments.bpf.h"
#include "capture/bpf/internal/calls.bpf.h"
#include "capture/bpf/internal/observed.bpf.h"
#include "wire/meter.h"
#include "wire/ring.h"

// Only what is read of the kernel's structures; CO-RE relocates the offsets.
struct sched_entity {
  __u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct sched_info {
  unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct task_io_accounting {
  __u64 read_bytes, write_bytes;
} __attribute__((preserve_access_index));

struct task_struct {
  int pid;
  int tgid;
  unsigned int __state;
  int exit_code;
  struct signal_struct* signal;
  struct sched_entity se;
  struct sched_info sched_info;
  unsigned long nvcsw, nivcsw, min_flt, maj_flt;
  struct task_io_accounting ioac;
} __attribute__((preserve_access_index));

struct seq_file;
struct bpf_iter_meta {
  struct seq_file* seq;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
  struct bpf_iter_meta* meta;
  struct task_struct* task;
} __attribute__((preserve_access_index));

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 256 * 1024);
} ring SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, struct wire_meter_probe);
} probes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 32768);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct wire_total_key);
  __type(value, struct wire_total);
} totals SEC(".maps");

#define PROBE_STOPS 1
#define SIGNAL_CONT 18 /* then SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU */
#define SIGNAL_TTOU 22
#define TRACE_SIGNAL_DELIVERED 0

// Open calls of threads where no session keeps them; the oldest give way.
struct open_key {
  __u64 pid_tgid;
  __u32 probe;
  __u32 times;  // of scopes, from the cookie: what is open when a probe is taken off never ends
};
struct open_call {
  __u64 start_ns;
  __u32 depth;  // of scopes
  __u32 probe;  // what the outermost scope counts for
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct open_key);
  __type(value, struct open_call);
} open_calls SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 8192);
  __type(key, __u64);               // address of the request
  __type(value, struct open_call);  // probe: process
} requests SEC(".maps");

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
  if (!total) count_loss(2);
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

// Sizes of ncclDataType_t in order; more than there are count as one byte.
static __always_inline __u64 nccl_bytes(__u64 type) {
  return type == 2 || type == 3 || type == 7   ? 4
         : type == 4 || type == 5 || type == 8 ? 8
         : type == 6 || type == 9              ? 2
                                               : 1;
}

static __always_inline __u64 captured_bytes(struct pt_regs* regs, __u32 probe) {
  const struct wire_meter_probe* config = bpf_map_lookup_elem(&probes, &probe);
  if (!config) return 0;
  struct sources sources;
  read_sources(regs, &sources);
  __u64 product = 1;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (i >= config->capture_count) break;
    int is_type = config->type_index == i + 1;
    if (!(config->factors >> i & 1) && !is_type) continue;
    __u64 value = 0;
    if (follow(&config->captures[i], &sources, &value)) return 0;
    product *= is_type ? nccl_bytes(value) : value;
  }
  return product;
}

// The begin of a call: intervals and gaps, bytes, open calls.
static __always_inline void on_begin(struct pt_regs* regs, __u64 cookie, __u32 tgid, __u64 now) {
  __u32 probe = (__u32)cookie;
  count_loss(3);
  struct wire_total* total = total_of(tgid, probe, WIRE_TOTAL_CALL);
  if (!total) return;
  if (cookie & WIRE_COOKIE_STEPS) {
    __u64 last_entry = total->last_entry_ns;
    __u64 last_exit = total->last_exit_ns;
    if (last_entry && now > last_entry) add_to(tgid, probe, WIRE_TOTAL_INTERVAL, now - last_entry);
    if (last_exit > last_entry && now > last_exit)
      add_to(tgid, probe, WIRE_TOTAL_GAP, now - last_exit);
  }
  __sync_fetch_and_add(&total->entries, 1);
  total->last_entry_ns = now;
  if (cookie & WIRE_COOKIE_CAPTURES)
    __sync_fetch_and_add(&total->bytes, captured_bytes(regs, probe));
}

static __always_inline void on_end(__u64 cookie, __u32 tgid, __u64 start, __u64 now) {
  struct wire_total* total = total_of(tgid, (__u32)cookie, WIRE_TOTAL_CALL);
  if (!total) return;
  total->last_exit_ns = now;
  add_duration(total, now - start);
}

static __always_inline void open_call(__u64 pid_tgid, __u32 probe, __u64 now) {
  struct open_key key = {.pid_tgid = pid_tgid, .probe = probe};
  struct open_call call = {.start_ns = now, .probe = probe};
  bpf_map_update_elem(&open_calls, &key, &call, BPF_ANY);
}

static __always_inline void close_call(__u64 pid_tgid, __u64 cookie, __u64 now) {
  struct open_key key = {.pid_tgid = pid_tgid, .probe = (__u32)cookie};
  struct open_call* call = bpf_map_lookup_elem(&open_calls, &key);
  if (!call) return;
  on_end(cookie, pid_tgid >> 32, call->start_ns, now);
  bpf_map_delete_elem(&open_calls, &key);
}

// Which kind of scope has this name; 0: it is no name.
static __always_inline __u32 scope_class(__u64 object) {
  __u64 text = 0, head = 0;
  if (python_text(object, &text)) return 0;
  if (!text || bpf_probe_read_user(&head, sizeof(head), (void*)text)) return 3;
  if (head == 0x746172656d756e65ULL) return 1; /* "enumerat(e(DataLoader)...": its next() */
  if (head == 0x657a696d6974704fULL) return 2; /* "Optimize(r.step#..." */
  return 3;
}

// Enter and exit of record_function: enter has two arguments, a text first; exit has one. Scopes
// nest; the outermost that has a class counts.
static __always_inline void on_scope(struct pt_regs* regs, __u64 cookie, __u64 pid_tgid,
                                     __u64 now) {
  __u32 index = (__u32)cookie;
  const struct wire_meter_probe* config = bpf_map_lookup_elem(&probes, &index);
  if (!config) return;
  struct sources sources;
  read_sources(regs, &sources);
  __u64 count = 0, object = 0;
  if (follow_path(&config->captures[WIRE_SCOPE_COUNT], &sources, &count)) return;
  struct open_key key = {.pid_tgid = pid_tgid,
                         .probe = (__u32)cookie,
                         .times = (__u32)(cookie >> WIRE_COOKIE_TIMES_SHIFT)};
  struct open_call* call = bpf_map_lookup_elem(&open_calls, &key);
  if (count == 1 && call) {
    if (--call->depth > 0) return;
    on_end(call->probe, pid_tgid >> 32, call->start_ns, now);
    bpf_map_delete_elem(&open_calls, &key);
    return;
  }
  if (count != 2 || follow_path(&config->captures[WIRE_SCOPE_NAME], &sources, &object)) return;
  __u32 class = scope_class(object);
  if (class == 0) return;
  if (call) {
    ++call->depth;
  } else if (class < 3) {
    __u32 probe = (__u32)cookie + class - 1;
    struct open_call fresh = {.start_ns = now, .depth = 1, .probe = probe};
    bpf_map_update_elem(&open_calls, &key, &fresh, BPF_ANY);
    on_begin(regs, probe, pid_tgid >> 32, now);
  }
}

// A call that nobody saw return: an exception, longjmp() or the end of its thread.
static __always_inline void drop_call(struct calls* calls, const struct call* call,
                                      __u64 pid_tgid) {
  if (!(call->cookie & WIRE_COOKIE_EXIT)) {
    struct wire_total* total = total_of(pid_tgid >> 32, (__u32)call->cookie, WIRE_TOTAL_CALL);
    if (total) __sync_fetch_and_add(&total->dropped, 1);
  }
  --calls->count;
}

static __always_inline void on_call(struct pt_regs* regs, __u64 cookie, __u64 pid_tgid, __u64 now) {
  struct calls* calls = calls_of_thread(1);
  if (!calls) {
    count_loss(2);
    return;
  }
  __u64 stack = regs->rsp;
  int is_again = begins_again(calls, stack, cookie);
  for (int i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || !is_over(last, stack, is_again)) break;
    drop_call(calls, last, pid_tgid);
  }
  // What runs inside a call of the same function is part of it, as a backward pass inside another.
  for (__u32 i = 0; i < CALLS_MAX; ++i)
    if (i < calls->count && (__u32)calls->open[i].cookie == (__u32)cookie &&
        !(calls->open[i].cookie & WIRE_COOKIE_EXIT))
      return;
  if (!add_call(calls, stack, cookie, now)) {
    count_loss(2);
    return;
  }
  on_begin(regs, cookie, pid_tgid >> 32, now);
}

static __always_inline void on_exit_of_call(struct pt_regs* regs, __u64 cookie, __u64 pid_tgid,
                                            __u64 now) {
  __u64 stack = 0;
  if (!ends_here(regs, cookie, &stack)) return;
  struct calls* calls = calls_of_thread(0);
  if (!calls) return;
  for (int i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || last->stack >= stack) break;
    drop_call(calls, last, pid_tgid);
  }
  __u64 start = end_call(calls, stack, cookie);
  if (start) on_end(cookie, pid_tgid >> 32, start, now);
}

// Of calls whose exits are probed: true if it was one.
static __always_inline int on_own_exits(struct pt_regs* regs, __u64 cookie, __u64 pid_tgid,
                                        __u64 now) {
  if (cookie & WIRE_COOKIE_EXIT) {
    on_exit_of_call(regs, cookie, pid_tgid, now);
  } else if (cookie & WIRE_COOKIE_CALL) {
    on_call(regs, cookie, pid_tgid, now);
  } else {
    return 0;
  }
  return 1;
}

static __always_inline void on_single(struct pt_regs* regs, __u64 cookie, __u64 pid_tgid,
                                      __u64 now) {
  if (cookie & WIRE_COOKIE_SCOPE) {
    on_scope(regs, cookie, pid_tgid, now);
  } else if (cookie & WIRE_COOKIE_METER_END) {
    close_call(pid_tgid, cookie, now);
  } else {  // the begin of a USDT pair
    on_begin(regs, cookie, pid_tgid >> 32, now);
    open_call(pid_tgid, (__u32)cookie, now);
  }
}

SEC("uprobe")
int meter_session(struct pt_regs* regs) {
  __u64 cookie = bpf_get_attach_cookie(regs);
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  if (bpf_session_is_return()) {
    on_end(cookie, pid_tgid >> 32, *bpf_session_cookie(), bpf_ktime_get_boot_ns());
    return 0;
  }
  if (!is_observed(pid_tgid >> 32)) return 1;
  __u64 now = bpf_ktime_get_boot_ns();
  if (on_own_exits(regs, cookie, pid_tgid, now)) return 1;
  if (cookie & WIRE_COOKIE_INSTANT) {
    on_single(regs, cookie, pid_tgid, now);
    return 1;
  }
  on_begin(regs, cookie, pid_tgid >> 32, now);
  *bpf_session_cookie() = now;
  return 0;
}

SEC("uprobe")
int meter_entry(struct pt_regs* regs) {
  __u64 cookie = bpf_get_attach_cookie(regs);
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  if (!is_observed(pid_tgid >> 32)) return 0;
  __u64 now = bpf_ktime_get_boot_ns();
  if (on_own_exits(regs, cookie, pid_tgid, now)) return 0;
  if (cookie & WIRE_COOKIE_INSTANT) {
    on_single(regs, cookie, pid_tgid, now);
    return 0;
  }
  on_begin(regs, cookie, pid_tgid >> 32, now);
  open_call(pid_tgid, (__u32)cookie, now);
  return 0;
}

SEC("uretprobe")
int meter_return(struct pt_regs* regs) {
  __u64 cookie = bpf_get_attach_cookie(regs);
  close_call(bpf_get_current_pid_tgid(), cookie, bpf_ktime_get_boot_ns());
  return 0;
}

static __always_inline void emit(__u16 kind, __u32 tgid, __u32 tid, __u32 probe) {
  struct wire_event* record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
  if (!record) {
    count_loss(0);
    return;
  }
  record->t_boot_ns = bpf_ktime_get_boot_ns();
  record->tgid = tgid;
  record->tid = tid;
  record->probe = probe;
  record->kind = kind;
  record->layout = WIRE_PLAIN;
  record->failed_args = 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

// A child of an observed process is observed from its first instruction; the record holds the
// child's pid and, as tid, the parent's.
SEC("tp_btf/sched_process_fork")
int meter_fork(__u64* ctx) {
  struct task_struct* parent = (struct task_struct*)ctx[0];
  struct task_struct* child = (struct task_struct*)ctx[1];
  if (child->pid != child->tgid || !is_observed(parent->tgid)) return 0;
  __u32 tgid = child->tgid;
  __u8 one = 1;
  if (bpf_map_update_elem(&processes, &tgid, &one, BPF_ANY)) count_loss(1);
  emit(WIRE_FORK, tgid, parent->tgid, 0);
  return 0;
}

// Of every process: this is how new ones are found.
SEC("tp_btf/sched_process_exec")
int meter_exec(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  forget_calls();
  emit(WIRE_EXEC, task->tgid, task->pid, 0);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int meter_exit(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  if (!IS_LAST_OF_OBSERVED(task)) return 0;
  __u32 tgid = task->tgid;
  // One that is killed while it is stopped: its pid is used again.
  struct open_key stop = {.pid_tgid = (__u64)tgid << 32 | tgid, .probe = PROBE_STOPS};
  bpf_map_delete_elem(&open_calls, &stop);
  emit(WIRE_EXIT, tgid, tgid, task->exit_code);
  return 0;
}

// Index 1 of the probes is being stopped by a signal: a call that SIGSTOP or one of its kind begins
// and SIGCONT ends, whoever sends them. One that the process ignores does not stop it.
SEC("tp_btf/signal_generate")
int meter_signal(__u64* ctx) {
  int number = (int)ctx[0], result = (int)ctx[4];
  if (number < SIGNAL_CONT || number > SIGNAL_TTOU) return 0;
  if (number != SIGNAL_CONT && result != TRACE_SIGNAL_DELIVERED) return 0;
  struct task_struct* task = (struct task_struct*)ctx[2];
  __u32 tgid = task->tgid;
  if (!is_observed(tgid)) return 0;
  __u64 process = (__u64)tgid << 32 | tgid, now = bpf_ktime_get_boot_ns();
  if (number == SIGNAL_CONT) {
    close_call(process, PROBE_STOPS, now);
    return 0;
  }
  struct open_key key = {.pid_tgid = process, .probe = PROBE_STOPS};
  struct wire_total* total = total_of(tgid, PROBE_STOPS, WIRE_TOTAL_CALL);
  if (!total || bpf_map_lookup_elem(&open_calls, &key)) return 0;
  __sync_fetch_and_add(&total->entries, 1);
  total->last_entry_ns = now;
  open_call(process, PROBE_STOPS, now);
  return 0;
}

// Index 0 of the probes is the block layer.
SEC("tp_btf/block_rq_issue")
int meter_block_issue(__u64* ctx) {
  __u64 request = ctx[0];
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct open_call call = {.start_ns = bpf_ktime_get_boot_ns(),
                           .probe = is_observed(tgid) ? tgid : 0};
  bpf_map_update_elem(&requests, &request, &call, BPF_ANY);
  return 0;
}

SEC("tp_btf/block_rq_complete")
int meter_block_complete(__u64* ctx) {
  __u64 request = ctx[0];
  struct open_call* call = bpf_map_lookup_elem(&requests, &request);
  if (!call) return 0;
  add_to(call->probe, 0, WIRE_TOTAL_CALL, bpf_ktime_get_boot_ns() - call->start_ns);
  bpf_map_delete_elem(&requests, &request);
  return 0;
}

SEC("iter/task")
int meter_threads(struct bpf_iter__task* ctx) {
  struct task_struct* task = ctx->task;
  if (!task) return 0;
  __u32 tgid = task->tgid;
  if (!is_observed(tgid)) return 0;
  struct wire_thread thread = {
      .tgid = tgid,
      .tid = task->pid,
      .state = task->__state,
      .runtime_ns = task->se.sum_exec_runtime,
      .run_delay_ns = task->sched_info.run_delay,
      .voluntary = task->nvcsw,
      .involuntary = task->nivcsw,
      .minor_faults = task->min_flt,
      .major_faults = task->maj_flt,
      .read_bytes = task->ioac.read_bytes,
      .written_bytes = task->ioac.write_bytes,
  };
  bpf_seq_write(ctx->meta->seq, &thread, sizeof(thread));
  return 0;
}

char bpf_license[] SEC("license") = "Dual BSD/GPL";
