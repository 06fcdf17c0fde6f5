// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// Generic programs: one for a place in a file, whatever comes of it. Its cookie identifies the
// place; the map `probes` tells how its calls are kept: records in the ring, totals in a map, or
// both.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "capture/bpf/internal/arguments.bpf.h"
#include "capture/bpf/internal/calls.bpf.h"
#include "capture/bpf/internal/observed.bpf.h"
#include "capture/bpf/internal/outs.bpf.h"
#include "capture/bpf/internal/ring.bpf.h"
#include "capture/bpf/internal/totals.bpf.h"

// Only the members of the kernel's structures that are read; CO-RE relocates the offsets.
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
  __u64 stime;
  unsigned long nvcsw, nivcsw, min_flt, maj_flt;
  struct task_io_accounting ioac;
  char comm[WIRE_COMM_BYTES];
} __attribute__((preserve_access_index));

struct seq_file;
struct bpf_iter_meta {
  struct seq_file* seq;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
  struct bpf_iter_meta* meta;
  struct task_struct* task;
} __attribute__((preserve_access_index));

// A search for new processes wants every exec of the host.
const volatile __u8 all_execs = 0; /* a truth value */
// Place of the kernel's counts, by processor, of the interrupts that it serves: the address of the
// table of offsets by processor, and the counter's without that. 0: the kernel does not tell.
const volatile __u64 per_cpu_offsets = 0, preempt_count_at = 0;

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, WIRE_PROBES_MAX);
  __type(key, __u32);
  __type(value, struct wire_probe);
} probes SEC(".maps");

static __always_inline const struct wire_probe* probe_of(__u64 cookie) {
  __u32 index = (__u32)cookie;
  return bpf_map_lookup_elem(&probes, &index);
}

// Ends go to whom their begins were told, whoever wants begins now.
static __always_inline int matters(const struct hit* hit) {
  return hit->probe &&
         (hit->probe->sinks || hit->cookie & (WIRE_COOKIE_EXIT | WIRE_COOKIE_PAIR_END));
}

// Sinks that are told of a call that begins now.
static __always_inline __u32 told_of(const struct wire_probe* probe, __u64 now) {
  __u32 told = probe->sinks & WIRE_SINK_TOTALS ? TOLD_TOTALS : 0;
  if (!(probe->sinks & WIRE_SINK_RING) || probe->flags & WIRE_PROBE_INSTANT) return told;
  if (probe->flags & WIRE_PROBE_SAMPLED && now % WIRE_SLICE_PERIOD_NS >= WIRE_SLICE_NS) return told;
  return told | (probe->flags & WIRE_PROBE_AT_END ? TOLD_SLICE : TOLD_RING);
}

static __always_inline void read_captures(const struct hit* hit, __u16 wanted,
                                          struct values* values) {
  struct sources sources;
  read_sources(hit->regs, &sources);
  sources.values[WIRE_RETURN] = returned_value(hit->regs, hit->cookie);
  read_values(hit->probe, &sources, wanted, values);
}

// By frame pointers, as the kernel finds it.
static __always_inline void emit_frames(const struct hit* hit) {
  struct wire_call_stack* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(&record->head, hit->now, (__u32)hit->cookie, WIRE_CALL_STACK, WIRE_PLAIN);
  long bytes = bpf_get_stack(hit->regs, record->frames, sizeof(record->frames), BPF_F_USER_STACK);
  record->frame_count = bytes > 0 ? (__u32)bytes / 8 : 0;
  record->reserved = 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void tell_begin(const struct hit* hit, __u32 told) {
  const struct wire_probe* probe = hit->probe;
  int is_instant = probe->sinks & WIRE_SINK_RING && !(told & TOLD_RING) &&
                   probe->flags & (WIRE_PROBE_INSTANT | WIRE_PROBE_SAMPLED);
  int to_ring = told & TOLD_RING || is_instant;
  __u16 of_ring = to_ring ? probe->at_begin : 0;
  __u16 wanted = of_ring | (told & TOLD_TOTALS ? captures_of_bytes(probe) : 0);
  struct values values = {};
  if (wanted) read_captures(hit, wanted, &values);
  if (told & TOLD_RING && probe->flags & WIRE_PROBE_OUT) keep_arguments(hit);
  if (to_ring && probe->flags & WIRE_PROBE_FRAMES) emit_frames(hit);
  if (to_ring) emit(hit, is_instant ? WIRE_INSTANT : WIRE_BEGIN, of_ring, &values);
  if (told & TOLD_TOTALS)
    total_begin((__u32)hit->cookie, hit->pid_tgid >> 32, hit->now, bytes_of(probe, &values),
                probe->flags & WIRE_PROBE_STEPS);
}

static __always_inline void emit_end(const struct hit* hit, __u8 kind) {
  __u16 of_ring = hit->cookie & WIRE_COOKIE_JUMP ? 0 : hit->probe->at_end;
  struct values values = {};
  if (of_ring && hit->probe->flags & WIRE_PROBE_OUT) {
    read_outs(hit, of_ring, &values);
  } else if (of_ring) {
    read_captures(hit, of_ring, &values);
  }
  emit(hit, kind, of_ring, &values);
}

static __always_inline void tell_end(const struct hit* hit, __u32 told, __u64 start) {
  if (told & TOLD_RING) emit_end(hit, WIRE_END);
  if (told & TOLD_SLICE) emit_slice(start, hit->now, (__u32)hit->cookie);
  if (told & TOLD_TOTALS) total_end((__u32)hit->cookie, hit->pid_tgid >> 32, start, hit->now);
}

// Nobody saw it return: it ends where that is noticed. A slice would be one that never was.
static __noinline int drop_call(const struct hit* hit, struct calls* calls,
                                const struct call* call) {
  if (!(call->told & TOLD_END)) {
    if (call->told & TOLD_RING) emit_plain(hit->now, call->probe, WIRE_END);
    if (call->told & TOLD_TOTALS) total_drop(call->probe, hit->pid_tgid >> 32);
  }
  --calls->count;
  return 0;
}

static __always_inline void on_call(const struct hit* hit) {
  struct calls* calls = calls_of_thread(1);
  if (!calls) {
    count_one(COUNT_TOO_DEEP);
    return;
  }
  __u32 index = (__u32)hit->cookie;
  __u64 stack = hit->regs->rsp;
  int is_again = begins_again(calls, stack, index);
  if (is_again) count_one(COUNT_AGAIN);
  for (int i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || !is_over(last, stack, is_again)) break;
    drop_call(hit, calls, last);
  }
  __u32 told = told_of(hit->probe, hit->now);
  // For the totals, a call inside a call of the same function is part of it, as a backward pass
  // inside another.
  if (told & TOLD_TOTALS && is_nested(calls, index)) told &= ~TOLD_TOTALS;
  if (told && !add_call(calls, stack, index, told, hit->now)) {
    count_one(COUNT_TOO_DEEP);
    return;
  }
  tell_begin(hit, told);
}

static __always_inline void on_exit_of_call(struct hit* hit) {
  __u64 stack = 0, start = 0;
  if (!ends_here(hit->regs, hit->cookie, &stack)) return;
  hit->stack = stack;
  if (hit->cookie & WIRE_COOKIE_INSTANT) {
    // One that is an instant stands for a call whose begin cannot be seen.
    if (hit->probe->sinks & WIRE_SINK_RING)
      emit_end(hit, hit->probe->flags & WIRE_PROBE_INSTANT ? WIRE_INSTANT : WIRE_END);
    return;
  }
  struct calls* calls = calls_of_thread(0);
  if (!calls) return;
  for (int i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || last->stack >= stack) break;
    drop_call(hit, calls, last);
  }
  __u32 told = end_call(calls, stack, (__u32)hit->cookie, &start);
  if (told) tell_end(hit, told, start);
}

// A place that no return probe belongs to.
static __always_inline void on_single(struct hit* hit) {
  __u32 index = (__u32)hit->cookie, sinks = hit->probe->sinks;
  if (hit->cookie & WIRE_COOKIE_EXIT) {
    on_exit_of_call(hit);
  } else if (hit->cookie & WIRE_COOKIE_CALL) {
    on_call(hit);
  } else if (hit->cookie & WIRE_COOKIE_PAIR_END) {
    tell_end(hit, sinks & WIRE_SINK_RING ? TOLD_RING : 0, 0);
    if (sinks & WIRE_SINK_TOTALS) close_call(hit->pid_tgid, index, hit->now);
  } else if (hit->cookie & WIRE_COOKIE_PAIR_BEGIN) {
    __u32 told = told_of(hit->probe, hit->now);
    tell_begin(hit, told);
    if (told & TOLD_TOTALS) open_call(hit->pid_tgid, index, hit->now);
  } else {
    tell_begin(hit, 0);
    if (hit->probe->flags & WIRE_PROBE_SCOPE && sinks & WIRE_SINK_TOTALS) total_scope(hit);
  }
}

#define TOLD_SHIFT 60 /* of a session's 8 bytes; below lies the begin: 36 years of uptime */

// One program for entry and return of a call; 8 private bytes of the call hold its begin and who
// was told.
SEC("uprobe")
int on_session(struct pt_regs* regs) {
  struct hit hit = {.regs = regs, .cookie = bpf_get_attach_cookie(regs)};
  int is_return = bpf_session_is_return();
  hit.probe = probe_of(hit.cookie);
  if (!is_return && !matters(&hit)) return 1;
  hit.pid_tgid = bpf_get_current_pid_tgid();
  if (!is_return && !is_observed(hit.pid_tgid >> 32)) return 1;
  hit.now = bpf_ktime_get_boot_ns();
  hit.stack = regs->rsp - (is_return ? 8 : 0);
  if (is_return) {
    __u64 begin = *bpf_session_cookie();
    if (hit.probe) tell_end(&hit, begin >> TOLD_SHIFT, begin & ((1ULL << TOLD_SHIFT) - 1));
    return 0;
  }
  if (hit.cookie & WIRE_COOKIE_SINGLE) {
    on_single(&hit);
    return 1;
  }
  __u32 told = told_of(hit.probe, hit.now);
  tell_begin(&hit, told);
  if (!told) return 1;  // nobody waits for its end, which would cost as much again
  *bpf_session_cookie() = hit.now | (__u64)told << TOLD_SHIFT;
  return 0;
}

// The pair for kernels without sessions: uprobe_multi links, or perf-event uprobes on older ones.
SEC("uprobe")
int on_entry(struct pt_regs* regs) {
  struct hit hit = {.regs = regs, .cookie = bpf_get_attach_cookie(regs)};
  hit.probe = probe_of(hit.cookie);
  hit.pid_tgid = bpf_get_current_pid_tgid();
  if (!matters(&hit) || !is_observed(hit.pid_tgid >> 32)) return 0;
  hit.now = bpf_ktime_get_boot_ns();
  hit.stack = regs->rsp;
  if (hit.cookie & WIRE_COOKIE_SINGLE) {
    on_single(&hit);
    return 0;
  }
  __u32 told = told_of(hit.probe, hit.now);
  tell_begin(&hit, told);
  if (told & TOLD_TOTALS) open_call(hit.pid_tgid, (__u32)hit.cookie, hit.now);
  return 0;
}

SEC("uretprobe")
int on_return(struct pt_regs* regs) {
  struct hit hit = {.regs = regs, .cookie = bpf_get_attach_cookie(regs)};
  hit.probe = probe_of(hit.cookie);
  hit.pid_tgid = bpf_get_current_pid_tgid();
  if (!hit.probe || !is_observed(hit.pid_tgid >> 32)) return 0;
  hit.now = bpf_ktime_get_boot_ns();
  hit.stack = regs->rsp - 8;
  tell_end(&hit, told_of(hit.probe, hit.now) & TOLD_RING, 0);
  if (hit.probe->sinks & WIRE_SINK_TOTALS) close_call(hit.pid_tgid, (__u32)hit.cookie, hit.now);
  return 0;
}

struct sys_enter {
  __u64 common;
  long number;
  unsigned long args[6];
};

// `count` arguments: the kernel refuses a program that reads beyond the record of the system call
// it is attached to.
static __always_inline int syscall_enter(struct sys_enter* ctx, int count) {
  if (!is_observed(bpf_get_current_pid_tgid() >> 32)) return 0;
  __u64 now = bpf_ktime_get_boot_ns();
  struct wire_args* record = reserve(sizeof(*record));
  if (!record) return 0;
  fill_head(&record->head, now, (__u32)bpf_get_attach_cookie(ctx), WIRE_BEGIN, WIRE_WITH_ARGS);
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i)
    record->args[i] = i < count ? ctx->args[i] : 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("tp")
int on_syscall_enter_3(struct sys_enter* ctx) {
  return syscall_enter(ctx, 3);
}

SEC("tp")
int on_syscall_enter_1(struct sys_enter* ctx) {
  return syscall_enter(ctx, 1);
}

struct sys_exit {
  __u64 common;
  long number;
  long result;
};

SEC("tp")
int on_syscall_exit(struct sys_exit* ctx) {
  if (!is_observed(bpf_get_current_pid_tgid() >> 32)) return 0;
  __u64 now = bpf_ktime_get_boot_ns();
  struct wire_args* record = reserve(sizeof(*record));
  if (!record) return 0;
  fill_head(&record->head, now, (__u32)bpf_get_attach_cookie(ctx), WIRE_END, WIRE_WITH_ARGS);
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i)
    record->args[i] = 0;
  record->args[0] = ctx->result;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

// Any other tracepoint, as an instant without arguments.
SEC("tp")
int on_tracepoint(void* ctx) {
  __u64 cookie = bpf_get_attach_cookie(ctx);
  const struct wire_probe* probe = probe_of(cookie);
  if (!probe) return 0;
  if (!(probe->flags & WIRE_PROBE_HOST) && !is_observed(bpf_get_current_pid_tgid() >> 32)) return 0;
  emit_plain(bpf_ktime_get_boot_ns(), (__u32)cookie, WIRE_INSTANT);
  return 0;
}

static __always_inline struct wire_switch* reserve_switch(__u8 kind, struct task_struct* from,
                                                          struct task_struct* to) {
  __u64 now = bpf_ktime_get_boot_ns();
  struct wire_switch* record = reserve(sizeof(*record));
  if (!record) return 0;
  record->head.t_boot_ns = now;
  record->head.tgid = from->tgid;
  record->head.tid = from->pid;
  record->head.probe = 0;
  record->head.kind = kind;
  record->head.layout = WIRE_PLAIN;
  record->head.failed_args = 0;
  record->next_tgid = to->tgid;
  record->next_tid = to->pid;
  record->cpu = bpf_get_smp_processor_id();
  record->prev_state = 0;
  bpf_probe_read_kernel(record->prev_comm, sizeof(record->prev_comm), from->comm);
  bpf_probe_read_kernel(record->next_comm, sizeof(record->next_comm), to->comm);
  return record;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64* ctx) {
  _Bool preempted = ctx[0];
  struct task_struct* prev = (struct task_struct*)ctx[1];
  struct task_struct* next = (struct task_struct*)ctx[2];
  if (!is_observed(prev->tgid) && !is_observed(next->tgid)) return 0;
  struct wire_switch* record = reserve_switch(WIRE_SWITCH, prev, next);
  if (!record) return 0;
  record->prev_state = preempted ? 0 : prev->__state;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

// By addresses, and no types and symbols that only some kernels have: to look for those in modules
// takes more rights.
static __always_inline _Bool is_in_interrupt(void) {
  const int kServing = 0x00ff0100;  // interrupts, also those that cannot be masked, and soft ones
  if (!per_cpu_offsets || !preempt_count_at) return 0;
  __u64 base = 0;
  __u64 slot = per_cpu_offsets + 8 * bpf_get_smp_processor_id();
  if (bpf_probe_read_kernel(&base, sizeof(base), (void*)slot)) return 0;
  int count = 0;
  if (bpf_probe_read_kernel(&count, sizeof(count), (void*)(base + preempt_count_at))) return 0;
  return (count & kServing) != 0;
}

static __always_inline int on_wake(struct task_struct* woken, _Bool is_interrupt) {
  if (!is_observed(woken->tgid)) return 0;
  struct wire_switch* record = reserve_switch(WIRE_WAKE, bpf_get_current_task_btf(), woken);
  if (!record) return 0;
  if (is_interrupt) record->head.tid = 0;  // the interrupted thread has woken nobody
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

// In the context of the waker; sched_wakeup may come later, on the processor of the woken thread.
SEC("tp_btf/sched_waking")
int on_waking(__u64* ctx) {
  return on_wake((struct task_struct*)ctx[0], is_in_interrupt());
}

SEC("tp_btf/sched_wakeup_new")
int on_wakeup_new(__u64* ctx) {
  return on_wake((struct task_struct*)ctx[0], 0);
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64* ctx) {
  struct task_struct* parent = (struct task_struct*)ctx[0];
  struct task_struct* child = (struct task_struct*)ctx[1];
  if (child->pid != child->tgid || !is_observed(parent->tgid)) return 0;
  __u32 tgid = child->tgid;
  __u8 one = 1;
  if (bpf_map_update_elem(&processes, &tgid, &one, BPF_ANY)) count_one(COUNT_PROCESSES);
  struct wire_switch* record = reserve_switch(WIRE_FORK, parent, child);
  if (!record) return 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  forget_calls();
  if (!all_execs && !is_observed(task->tgid)) return 0;
  emit_plain(bpf_ktime_get_boot_ns(), 0, WIRE_EXEC);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  if (!IS_LAST_OF_OBSERVED(task)) return 0;
  // One that is killed while it is stopped: its pid is used again.
  __u32 tgid = task->tgid;
  struct open_key stop = {.pid_tgid = (__u64)tgid << 32 | tgid, .probe = WIRE_TOTAL_STOPS};
  bpf_map_delete_elem(&open_calls, &stop);
  struct wire_event* record = reserve(sizeof(*record));
  if (!record) return 0;
  fill_head(record, bpf_ktime_get_boot_ns(), task->exit_code, WIRE_EXIT, WIRE_PLAIN);
  record->tid = record->tgid;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

#define TRACE_SIGNAL_DELIVERED 0
#define SIGNALS_THAT_END \
  (1U << 1 | 1U << 2 | 1U << 3 | 1U << 9 | 1U << 15) /* HUP INT QUIT KILL TERM */

// Somebody asks an observed process to end: a program that catches it looks as if it failed.
SEC("tp_btf/signal_generate")
int on_end_signal(__u64* ctx) {
  __u64 number = ctx[0], info = ctx[1];
  struct task_struct* task = (struct task_struct*)ctx[2];
  if (number > 31 || !(SIGNALS_THAT_END & 1U << number)) return 0;
  if ((int)ctx[4] != TRACE_SIGNAL_DELIVERED || !is_observed(task->tgid)) return 0;
  struct wire_switch* record = reserve_switch(WIRE_SIGNAL, bpf_get_current_task_btf(), task);
  if (!record) return 0;
  record->prev_state = number;
  // By the kernel (SEND_SIG_PRIV), or by a timer that interrupts whoever runs.
  if (info == 1 || is_in_interrupt()) record->head.tgid = record->head.tid = 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("perf_event")
int on_cpu_sample(void* ctx) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  if (!is_observed(pid_tgid >> 32)) return 0;
  struct wire_stack* record = reserve(sizeof(*record));
  if (!record) return 0;
  fill_head(&record->head, bpf_ktime_get_boot_ns(), 0, WIRE_STACK, WIRE_PLAIN);
  record->cpu = bpf_get_smp_processor_id();
  long bytes = bpf_get_stack(ctx, record->frames, sizeof(record->frames), BPF_F_USER_STACK);
  record->frame_count = bytes > 0 ? (__u32)bytes / 8 : 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 8192);
  __type(key, __u64);               // address of the request
  __type(value, struct open_call);  // probe: process
} requests SEC(".maps");

#define SIGNAL_CONT 18 /* then SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU */
#define SIGNAL_TTOU 22

// Being stopped by a signal is a call that SIGSTOP or one of its kind begins and SIGCONT ends,
// whoever sends them. One that the process ignores does not stop it.
SEC("tp_btf/signal_generate")
int on_signal(__u64* ctx) {
  int number = (int)ctx[0], result = (int)ctx[4];
  if (number < SIGNAL_CONT || number > SIGNAL_TTOU) return 0;
  if (number != SIGNAL_CONT && result != TRACE_SIGNAL_DELIVERED) return 0;
  struct task_struct* task = (struct task_struct*)ctx[2];
  __u32 tgid = task->tgid;
  if (!is_observed(tgid)) return 0;
  __u64 process = (__u64)tgid << 32 | tgid, now = bpf_ktime_get_boot_ns();
  if (number == SIGNAL_CONT) {
    close_call(process, WIRE_TOTAL_STOPS, now);
    return 0;
  }
  struct open_key key = {.pid_tgid = process, .probe = WIRE_TOTAL_STOPS};
  struct wire_total* total = total_of(tgid, WIRE_TOTAL_STOPS, WIRE_TOTAL_CALL);
  if (!total || bpf_map_lookup_elem(&open_calls, &key)) return 0;
  __sync_fetch_and_add(&total->entries, 1);
  total->last_entry_ns = now;
  open_call(process, WIRE_TOTAL_STOPS, now);
  return 0;
}

SEC("tp_btf/block_rq_issue")
int on_block_issue(__u64* ctx) {
  __u64 request = ctx[0];
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct open_call call = {.start_ns = bpf_ktime_get_boot_ns(),
                           .probe = is_observed(tgid) ? tgid : 0};
  bpf_map_update_elem(&requests, &request, &call, BPF_ANY);
  return 0;
}

SEC("tp_btf/block_rq_complete")
int on_block_complete(__u64* ctx) {
  __u64 request = ctx[0];
  struct open_call* call = bpf_map_lookup_elem(&requests, &request);
  if (!call) return 0;
  add_to(call->probe, WIRE_TOTAL_BLOCK, WIRE_TOTAL_CALL, bpf_ktime_get_boot_ns() - call->start_ns);
  bpf_map_delete_elem(&requests, &request);
  return 0;
}

SEC("iter/task")
int on_thread(struct bpf_iter__task* ctx) {
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
      .system_ns = task->stime,
  };
  bpf_seq_write(ctx->meta->seq, &thread, sizeof(thread));
  return 0;
}

char bpf_license[] SEC("license") = "Dual BSD/GPL";
