/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Open calls of threads whose ends are probed at the functions' own exits. A call is known by its
 * stack pointer, which at its exit is that of its entry; a nested one has a lower one. Calls that
 * an exception or longjmp() has ended are noticed when the next probe of their thread fires. For
 * BPF programs only; include after the kernel's and libbpf's headers. */

#define CALLS_MAX 16 /* of one thread; a power of two */

struct call {
  __u64 stack, caller; /* stack pointer at the entry, and the return address that lies there */
  __u64 start_ns;
  __u32 probe;
  __u32 told; /* enum told: who heard of its begin */
};

/* Sinks that were told of the begin of a call, and hear of its end. */
enum told {
  TOLD_RING = 1,  /* a WIRE_BEGIN, which wants a WIRE_END */
  TOLD_SLICE = 2, /* nothing yet: its end writes both */
  TOLD_TOTALS = 4,
  TOLD_END = 8 /* all: it has ended, and others at its place have not */
};

struct calls {
  __u32 count, reserved;
  struct call open[CALLS_MAX];
};

/* Comes with a thread's first call and goes with the thread. */
struct {
  __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct calls);
} calls_of_threads SEC(".maps");

/* Those of this thread; 0: it has none, or with `create` no memory. */
static __always_inline struct calls* calls_of_thread(int create) {
  return bpf_task_storage_get(&calls_of_threads, bpf_get_current_task_btf(), 0,
                              create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
}

/* At exec: its stack is gone. */
static __always_inline void forget_calls(void) {
  struct calls* calls = calls_of_thread(0);
  if (calls) calls->count = 0;
}

/* The innermost open call. */
static __always_inline struct call* last_call(struct calls* calls) {
  __u32 count = calls->count;
  if (count == 0 || count > CALLS_MAX) return 0;
  return &calls->open[(count - 1) & (CALLS_MAX - 1)];
}

/* True if the condition of a conditional jump holds; `condition` as in its opcode. */
static __always_inline __u64 holds(__u64 flags, __u64 condition) {
  __u64 carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1;
  __u64 sign = flags >> 7 & 1, overflow = flags >> 11 & 1;
  __u64 kind = condition >> 1;
  __u64 value = kind == 0   ? overflow
                : kind == 1 ? carry
                : kind == 2 ? zero
                : kind == 3 ? carry | zero
                : kind == 4 ? sign
                : kind == 5 ? parity
                : kind == 6 ? sign ^ overflow
                            : zero | (sign ^ overflow);
  return value ^ (condition & 1);
}

/* True if the call ends at this exit; `stack`: the place of its return address. */
static __always_inline int ends_here(struct pt_regs* regs, __u64 cookie, __u64* stack) {
  __u64 when = cookie >> WIRE_COOKIE_WHEN_SHIFT & 3;
  if (when && holds(regs->eflags, cookie >> WIRE_COOKIE_CONDITION_SHIFT & 15) != (when == 1))
    return 0;
  __u64 rsp = regs->rsp, rbp = regs->rbp;
  /* Or the compiler makes one read at a computed place of both, which the verifier refuses. */
  asm volatile("" : "+r"(rsp), "+r"(rbp));
  *stack =
      (cookie >> WIRE_COOKIE_FRAME_SHIFT & 1 ? rbp : rsp) + (cookie >> WIRE_COOKIE_STACK_SHIFT) * 8;
  return 1;
}

/* Return value of the call, at one of its exits, or behind its return. Only registers that a call
 * keeps stand in for rax. */
static __always_inline __u64 returned_value(struct pt_regs* regs, __u64 cookie) {
  __u64 number = cookie >> WIRE_COOKIE_VALUE_SHIFT & 15, value = regs->rax;
  /* Each is read by itself: the verifier refuses a read at a computed place. */
#define READ_IF(wanted, name)      \
  if (number == (wanted)) {        \
    __u64 kept = regs->name;       \
    asm volatile("" : "+r"(kept)); \
    value = kept;                  \
  }
  READ_IF(3, rbx)
  READ_IF(5, rbp)
  READ_IF(12, r12)
  READ_IF(13, r13)
  READ_IF(14, r14)
  READ_IF(15, r15)
#undef READ_IF
  return value;
}

static __always_inline __u64 caller_at(__u64 stack) {
  __u64 caller = 0;
  bpf_probe_read_user(&caller, sizeof(caller), (void*)stack);
  return caller; /* 0: the page is not there, which says nothing */
}

/* True if a call of the same probe is open at `stack`: it is over, or there could be no other. */
static __always_inline int begins_again(const struct calls* calls, __u64 stack, __u32 probe) {
  for (__u32 i = 0; i < CALLS_MAX; ++i) {
    if (i >= calls->count) break;
    const struct call* call = &calls->open[(calls->count - 1 - i) & (CALLS_MAX - 1)];
    if (call->stack > stack) break;
    if (call->stack == stack && call->probe == probe) return 1;
  }
  return 0;
}

/* True if the totals know of an open call of the same probe. */
static __always_inline int is_nested(const struct calls* calls, __u32 probe) {
  for (__u32 i = 0; i < CALLS_MAX; ++i) {
    if (i >= calls->count) break;
    const struct call* call = &calls->open[i];
    if (call->probe == probe && call->told & TOLD_TOTALS && !(call->told & TOLD_END)) return 1;
  }
  return 0;
}

/* True if a call is over that nobody saw return, now that another one begins at `stack`: its place
 * on the stack is used again, or its return address is gone. Two probes of one function, and of one
 * that only jumps to the other, have the same place and return address. */
static __always_inline int is_over(const struct call* call, __u64 stack, int is_again) {
  if (call->stack < stack || (call->stack == stack && is_again)) return 1;
  __u64 caller = caller_at(call->stack);
  return caller && call->caller && caller != call->caller;
}

/* False: too many are open. */
static __always_inline int add_call(struct calls* calls, __u64 stack, __u32 probe, __u32 told,
                                    __u64 now) {
  __u32 count = calls->count;
  if (count >= CALLS_MAX) return 0;
  struct call* call = &calls->open[count & (CALLS_MAX - 1)];
  call->caller = caller_at(stack);
  call->stack = stack;
  call->start_ns = now;
  call->probe = probe;
  call->told = told;
  calls->count = count + 1;
  return 1;
}

/* Ends the call of a probe that lies at `stack` and gives its begin, and who heard of it; 0: there
 * is none. Those of other probes there stay open until their own exits, at the same instruction,
 * have fired. */
static __always_inline __u32 end_call(struct calls* calls, __u64 stack, __u32 probe, __u64* start) {
  __u32 told = 0;
  for (__u32 i = 0; i < CALLS_MAX; ++i) {
    if (i >= calls->count) break;
    struct call* call = &calls->open[(calls->count - 1 - i) & (CALLS_MAX - 1)];
    if (call->stack != stack) break;
    if (call->probe != probe || call->told & TOLD_END) continue;
    *start = call->start_ns;
    told = call->told;
    call->told |= TOLD_END;
    break;
  }
  for (__u32 i = 0; i < CALLS_MAX; ++i) {
    struct call* last = last_call(calls);
    if (!last || !(last->told & TOLD_END)) break;
    --calls->count;
  }
  return told;
}
