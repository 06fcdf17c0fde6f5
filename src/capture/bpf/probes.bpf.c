// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// Generic slice and instant programs. What they record is decided by the attach cookie and the map
// `probes`, not by code.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// Per-CPU totals: [0] records that found the ring full, [1] processes over the limit of the map,
// [2] calls nested too deeply.
#define LOSS_COUNT 3
#define CALLS_MAX 16
#include "capture/bpf/internal/arguments.bpf.h"
#include "capture/bpf/internal/calls.bpf.h"
#include "capture/bpf/internal/observed.bpf.h"
#include "wire/ring.h"

// Only what is read of the kernel's structures; CO-RE relocates the offsets.
struct task_struct {
  int pid;
  int tgid;
  unsigned int __state;
  int exit_code;
  struct signal_struct* signal;
  char comm[WIRE_COMM_BYTES];
} __attribute__((preserve_access_index));

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 16 * 1024 * 1024);
} ring SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 8192);
  __type(key, __u32);
  __type(value, struct wire_probe);
} probes SEC(".maps");

static __always_inline void* reserve(__u64 bytes) {
  void* record = bpf_ringbuf_reserve(&ring, bytes, 0);
  if (!record) count_loss(0);
  return record;
}

static __always_inline void fill_head(struct wire_event* head, __u64 now, __u32 probe, __u16 kind,
                                      __u8 layout) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  head->t_boot_ns = now;
  head->tgid = pid_tgid >> 32;
  head->tid = (__u32)pid_tgid;
  head->probe = probe;
  head->kind = kind;
  head->layout = layout;
  head->failed_args = 0;
}

static __always_inline void emit_plain(__u64 now, __u32 probe, __u16 kind) {
  struct wire_event* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(record, now, probe, kind, WIRE_PLAIN);
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void emit_captured(struct pt_regs* regs, __u64 now, __u32 probe, __u16 kind,
                                          int at_return) {
  const struct wire_probe* config = bpf_map_lookup_elem(&probes, &probe);
  if (!config) {
    emit_plain(now, probe, kind);
    return;
  }
  struct wire_text* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(&record->head, now, probe, kind, WIRE_WITH_ARGS);
  record->text[0] = 0;
  struct sources sources;
  read_sources(regs, &sources);
  __u8 failed = 0;
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i) {
    record->args[i] = 0;
    if (i >= config->capture_count) continue;
    const struct wire_capture* capture = &config->captures[i];
    int from_return = capture->source == WIRE_RETURN;
    if (from_return != at_return) continue;
    __u64 value = 0;
    if (follow(capture, &sources, &value)) {
      failed |= 1 << i;
      continue;
    }
    if (!capture->is_text) {
      record->args[i] = value;
      continue;
    }
    record->head.layout = WIRE_WITH_TEXT;
    if (bpf_probe_read_user_str(record->text, sizeof(record->text), (void*)value) < 0)
      failed |= 1 << i;
  }
  record->head.failed_args = failed;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void emit(struct pt_regs* regs, __u64 cookie, __u16 kind, int at_return) {
  __u64 now = bpf_ktime_get_boot_ns();
  if (cookie & WIRE_COOKIE_CAPTURES) {
    emit_captured(regs, now, (__u32)cookie, kind, at_return);
  } else {
    emit_plain(now, (__u32)cookie, kind);
  }
}

static __always_inline void emit_slice(__u64 start, __u64 now, __u32 probe) {
  struct wire_slice* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(&record->head, start, probe, WIRE_SLICE, WIRE_PLAIN);
  record->duration_ns = now - start;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

// Nobody saw it return: it ends where that is noticed. A slice would be one that never was.
static __always_inline void drop_call(struct calls* calls, const struct call* call) {
  if (!(call->cookie & (WIRE_COOKIE_AT_END | WIRE_COOKIE_EXIT)))
    emit_plain(bpf_ktime_get_boot_ns(), (__u32)call->cookie, WIRE_END);
  --calls->count;
}

// False: nothing is to be told of this call now.
static __always_inline int on_call(struct pt_regs* regs, __u64 cookie) {
  struct calls* calls = calls_of_thread(1);
  if (!calls) {
    count_loss(2);
    return 0;
  }
  __u64 stack = regs->rsp;
  int is_again = begins_again(calls, stack, cookie);
  for (int i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || !is_over(last, stack, is_again)) break;
    drop_call(calls, last);
  }
  if (!add_call(calls, stack, cookie, bpf_ktime_get_boot_ns())) {
    count_loss(2);
    return 0;
  }
  return !(cookie & WIRE_COOKIE_AT_END);
}

// False: no call ends there, or its slice is written.
static __always_inline int on_exit_of_call(struct pt_regs* regs, __u64 cookie) {
  __u64 stack = 0;
  if (!ends_here(regs, cookie, &stack)) return 0;
  struct calls* calls = calls_of_thread(0);
  if (!calls) return 0;
  for (int i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || last->stack >= stack) break;
    drop_call(calls, last);
  }
  __u64 start = end_call(calls, stack, cookie);
  if (!start) return 0;
  if (!(cookie & WIRE_COOKIE_AT_END)) return 1;
  emit_slice(start, bpf_ktime_get_boot_ns(), (__u32)cookie);
  return 0;
}

static __always_inline void on_probe(struct pt_regs* regs, __u64 cookie) {
  __u16 kind = cookie & WIRE_COOKIE_INSTANT ? WIRE_INSTANT : WIRE_BEGIN;
  int at_return = 0;
  if (cookie & WIRE_COOKIE_EXIT) {
    __u64 stack = 0;
    int is_alone = (cookie & WIRE_COOKIE_INSTANT) != 0;
    if (is_alone ? !ends_here(regs, cookie, &stack) : !on_exit_of_call(regs, cookie)) return;
    kind = WIRE_END;
    at_return = 1;
    if (cookie & WIRE_COOKIE_JUMP) cookie &= ~WIRE_COOKIE_CAPTURES;
  } else if (cookie & WIRE_COOKIE_CALL) {
    if (!on_call(regs, cookie)) return;
  }
  emit(regs, cookie, kind, at_return);
}

// One program for entry and return of a call; 8 private bytes of the call hold its start time.
SEC("uprobe")
int on_session(struct pt_regs* regs) {
  __u64 cookie = bpf_get_attach_cookie(regs);
  if (!bpf_session_is_return()) {
    if (!is_observed(bpf_get_current_pid_tgid() >> 32)) return 1;
    int has_return = !(cookie & (WIRE_COOKIE_INSTANT | WIRE_COOKIE_CALL | WIRE_COOKIE_EXIT));
    if (has_return && cookie & WIRE_COOKIE_AT_END) {
      __u64* start = bpf_session_cookie();
      *start = bpf_ktime_get_boot_ns();
    } else {
      on_probe(regs, cookie);
    }
    return !has_return;
  }
  if (!(cookie & WIRE_COOKIE_AT_END)) {
    emit(regs, cookie, WIRE_END, 1);
    return 0;
  }
  __u64* start = bpf_session_cookie();
  emit_slice(*start, bpf_ktime_get_boot_ns(), (__u32)cookie);
  return 0;
}

// The pair for kernels without sessions: uprobe_multi links, or perf-event uprobes on older ones.
SEC("uprobe")
int on_entry(struct pt_regs* regs) {
  __u64 cookie = bpf_get_attach_cookie(regs);
  if (is_observed(bpf_get_current_pid_tgid() >> 32)) on_probe(regs, cookie);
  return 0;
}

SEC("uretprobe")
int on_return(struct pt_regs* regs) {
  __u64 cookie = bpf_get_attach_cookie(regs);
  if (!is_observed(bpf_get_current_pid_tgid() >> 32)) return 0;
  emit(regs, cookie, WIRE_END, 1);
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
  if (!(cookie & WIRE_COOKIE_HOST) && !is_observed(bpf_get_current_pid_tgid() >> 32)) return 0;
  emit_plain(bpf_ktime_get_boot_ns(), (__u32)cookie, WIRE_INSTANT);
  return 0;
}

static __always_inline struct wire_switch* reserve_switch(__u16 kind, struct task_struct* from,
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

static __always_inline int on_wake(struct task_struct* woken) {
  if (!is_observed(woken->tgid)) return 0;
  struct wire_switch* record = reserve_switch(WIRE_WAKE, bpf_get_current_task_btf(), woken);
  if (!record) return 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(__u64* ctx) {
  return on_wake((struct task_struct*)ctx[0]);
}

SEC("tp_btf/sched_wakeup_new")
int on_wakeup_new(__u64* ctx) {
  return on_wake((struct task_struct*)ctx[0]);
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64* ctx) {
  struct task_struct* parent = (struct task_struct*)ctx[0];
  struct task_struct* child = (struct task_struct*)ctx[1];
  if (child->pid != child->tgid || !is_observed(parent->tgid)) return 0;
  __u32 tgid = child->tgid;
  __u8 one = 1;
  if (bpf_map_update_elem(&processes, &tgid, &one, BPF_ANY)) count_loss(1);
  struct wire_switch* record = reserve_switch(WIRE_FORK, parent, child);
  if (!record) return 0;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  if (!is_observed(task->tgid)) return 0;
  forget_calls();
  emit_plain(bpf_ktime_get_boot_ns(), 0, WIRE_EXEC);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  if (!IS_LAST_OF_OBSERVED(task)) return 0;
  struct wire_event* record = reserve(sizeof(*record));
  if (!record) return 0;
  fill_head(record, bpf_ktime_get_boot_ns(), task->exit_code, WIRE_EXIT, WIRE_PLAIN);
  record->tid = record->tgid;
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

char bpf_license[] SEC("license") = "Dual BSD/GPL";
