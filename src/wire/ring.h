/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Records that the BPF programs put into the ring buffer, and the probe descriptions they read from
 * a map. Plain C: compiled by the host compiler, by C++ and by clang -target bpf. */

#include <linux/types.h>

#include "wire/version.h"

enum wire_kind {
  WIRE_SLICE = 1,   /* struct wire_slice: a whole call, written at its return */
  WIRE_BEGIN = 2,   /* struct wire_event, wire_args or wire_text, by `layout` */
  WIRE_END = 3,     /* as WIRE_BEGIN */
  WIRE_INSTANT = 4, /* as WIRE_BEGIN */
  WIRE_SWITCH = 5,  /* struct wire_switch */
  WIRE_WAKE = 6,    /* struct wire_switch: tid = waker, next_* = woken */
  WIRE_FORK = 7,    /* struct wire_switch: tgid = parent, next_tgid = child */
  WIRE_EXEC = 8,    /* struct wire_event */
  WIRE_EXIT = 9,    /* struct wire_event; `probe` is the exit code as wait() gives it */
  WIRE_STACK = 10,  /* struct wire_stack: on-CPU sample with native frames */
  WIRE_SIGNAL = 11, /* struct wire_switch: next_* get the signal `prev_state` from tid; 0: kernel */
  WIRE_CALL_STACK = 12 /* struct wire_call_stack: who makes the call of the probe that comes next */
};

enum wire_layout {
  WIRE_PLAIN = 0,
  WIRE_WITH_ARGS = 1,
  WIRE_WITH_TEXT = 2,
  WIRE_WITH_LONG_TEXT = 3 /* struct wire_long_text */
};

#define WIRE_ARGS_MAX 10
#define WIRE_TEXT_BYTES 96
#define WIRE_LONG_TEXT_BYTES 2048 /* mangled names of kernels */
#define WIRE_STEPS_MAX 4
#define WIRE_STACK_MAX 64
#define WIRE_COMM_BYTES 16

struct wire_event {
  __u64 t_boot_ns;
  __u32 tgid, tid;
  __u32 probe;
  __u8 kind, layout;
  __u16 failed_args; /* bit i: argument i could not be read */
};
WIRE_ASSERT(sizeof(struct wire_event) == 24, "part of the ABI: bump WIRE_VERSION");

struct wire_slice {
  struct wire_event head; /* t_boot_ns = start */
  __u64 duration_ns;
};
WIRE_ASSERT(sizeof(struct wire_slice) == 32, "part of the ABI: bump WIRE_VERSION");

struct wire_args {
  struct wire_event head;
  __u64 args[WIRE_ARGS_MAX];
};
WIRE_ASSERT(sizeof(struct wire_args) == 104, "part of the ABI: bump WIRE_VERSION");

struct wire_text {
  struct wire_event head;
  __u64 args[WIRE_ARGS_MAX];
  char text[WIRE_TEXT_BYTES]; /* of the one textual argument, NUL-terminated */
};
WIRE_ASSERT(sizeof(struct wire_text) == 200, "part of the ABI: bump WIRE_VERSION");

struct wire_long_text {
  struct wire_event head;
  __u64 args[WIRE_ARGS_MAX];
  char text[WIRE_LONG_TEXT_BYTES];
};
WIRE_ASSERT(sizeof(struct wire_long_text) == 104 + WIRE_LONG_TEXT_BYTES,
            "part of the ABI: bump WIRE_VERSION");

struct wire_switch {
  struct wire_event head; /* tgid, tid = previous thread */
  __u32 next_tgid, next_tid;
  __u32 cpu, prev_state;
  char prev_comm[WIRE_COMM_BYTES];
  char next_comm[WIRE_COMM_BYTES];
};
WIRE_ASSERT(sizeof(struct wire_switch) == 72, "part of the ABI: bump WIRE_VERSION");

struct wire_stack {
  struct wire_event head;
  __u32 cpu, frame_count;
  __u64 frames[WIRE_STACK_MAX]; /* innermost first, user addresses */
};
WIRE_ASSERT(sizeof(struct wire_stack) == 32 + 8 * WIRE_STACK_MAX,
            "part of the ABI: bump WIRE_VERSION");

#define WIRE_CALL_FRAMES 32
struct wire_call_stack {
  struct wire_event head;
  __u32 frame_count, reserved;
  __u64 frames[WIRE_CALL_FRAMES]; /* innermost first, user addresses */
};
WIRE_ASSERT(sizeof(struct wire_call_stack) == 32 + 8 * WIRE_CALL_FRAMES,
            "part of the ABI: bump WIRE_VERSION");

/* Source of an argument's value: a register of the entry, the return value, or the
 * stack pointer of the entry, at which the return address lies and behind it the seventh argument.
 */
enum wire_source { WIRE_ARG0 = 0, WIRE_ARG5 = 5, WIRE_RETURN = 6, WIRE_STACK_POINTER = 7 };
/* Flag of a source: the value that the function wrote through that argument. The argument is kept
 * at the entry, and the steps are gone at the end. */
#define WIRE_SOURCE_OUT 0x80
#define WIRE_SOURCE_MASK 7

/* value = source; for each step: value = *(value + offset), the last with `size` bytes.
 * For a text of C the last step only adds its offset: the characters lie there. Of one of Python
 * the value is the address of the object. */
enum wire_text_kind { WIRE_TEXT_NONE = 0, WIRE_TEXT_C = 1, WIRE_TEXT_PYTHON = 2 };
struct wire_capture {
  __u8 source;     /* enum wire_source, maybe with WIRE_SOURCE_OUT */
  __u8 step_count; /* <= WIRE_STEPS_MAX */
  __u8 size;       /* 1, 2, 4 or 8 */
  __u8 is_text;    /* enum wire_text_kind */
  __u16 offset[WIRE_STEPS_MAX];
};
WIRE_ASSERT(sizeof(struct wire_capture) == 12, "part of the ABI: bump WIRE_VERSION");

/* Sinks of the calls of a probe: records in the ring, totals in a map, or both. */
enum wire_sink { WIRE_SINK_RING = 1, WIRE_SINK_TOTALS = 2 };

enum wire_probe_flag {
  WIRE_PROBE_INSTANT = 1, /* ring: a WIRE_INSTANT at the begin, nothing at the end */
  WIRE_PROBE_AT_END = 2,  /* ring: one WIRE_SLICE at the end, no pair; of the kernel's return probes
                             in sessions only */
  WIRE_PROBE_TEXT = 4,    /* ring: one of the captures is a text */
  WIRE_PROBE_HOST = 8,    /* not filtered by process */
  WIRE_PROBE_STEPS = 16,  /* totals: also the times from call to call, and from return to call */
  WIRE_PROBE_SCOPE = 32,  /* enter and exit of named scopes, told apart by two of the captures */
  WIRE_PROBE_OUT = 64,    /* ring: some captures are WIRE_SOURCE_OUT */
  /* Ring, sessions only: a pair of records for calls that begin in a slice of each second
   * (WIRE_SLICE_NS of each WIRE_SLICE_PERIOD_NS of the boot clock), a WIRE_INSTANT for others. */
  WIRE_PROBE_SAMPLED = 128,
  WIRE_PROBE_LONG_TEXT = 256, /* ring: with WIRE_PROBE_TEXT: it may be long */
  WIRE_PROBE_FRAMES = 512     /* ring: a WIRE_CALL_STACK before the begin */
};

#define WIRE_SLICE_PERIOD_NS 1000000000ULL
#define WIRE_SLICE_NS 20000000ULL

#define WIRE_PROBES_MAX 8192
#define WIRE_SIZES_MAX 16
#define WIRE_SCOPES_MAX 4
#define WIRE_PREFIX_BYTES 16

/* The first bytes of the names of one kind of scope. */
struct wire_scope {
  __u64 prefix[2]; /* as the bytes lie in memory */
  __u64 mask[2];   /* which of them count */
};
WIRE_ASSERT(sizeof(struct wire_scope) / 2 == WIRE_PREFIX_BYTES,
            "part of the ABI: bump WIRE_VERSION");

/* One probe, by index in the map `probes`. It may change while the probe is attached: a call is
 * told to its end to those sinks that were told of its begin. */
struct wire_probe {
  __u8 sinks; /* enum wire_sink; 0: a hit does nothing */
  __u8 capture_count;
  __u16 flags; /* enum wire_probe_flag */
  /* Totals: the bytes of a call are the product of the captures in `factors` (bit i: capture i),
   * times the entry of `sizes` that capture `type` - 1 chooses (0: none does; beyond them: 1). */
  __u16 factors;
  __u16 at_begin; /* ring: bit i: capture i is told with the begin */
  __u16 at_end;   /* ring: bit i: with the end */
  __u8 type;
  /* For scopes: captures that hold the name, an object of Python, and the count of arguments: two
   * enter, one leaves. Totals count those of scopes[i] for the index of the probe plus i. */
  __u8 scope_name, scope_arguments, scope_count;
  __u8 text; /* WIRE_PROBE_TEXT: which capture it is */
  __u8 reserved;
  struct wire_capture captures[WIRE_ARGS_MAX];
  __u8 sizes[WIRE_SIZES_MAX];
  struct wire_scope scopes[WIRE_SCOPES_MAX];
};
WIRE_ASSERT(sizeof(struct wire_probe) == 280, "part of the ABI: bump WIRE_VERSION");

/* The cookie of an attached place: low 32 bits = probe index, high bits = what this place is of it.
 * Without one of the first five it is a begin that the kernel's return probe ends. */
#define WIRE_COOKIE_INSTANT (1ULL << 32) /* alone */
#define WIRE_COOKIE_CALL (1ULL << 33)    /* entry of a call whose exits have probes of their own */
#define WIRE_COOKIE_EXIT (1ULL << 34)    /* one of those; an INSTANT: its begin is not probed */
#define WIRE_COOKIE_PAIR_BEGIN (1ULL << 35) /* of a pair of USDT probes */
#define WIRE_COOKIE_PAIR_END (1ULL << 36)
#define WIRE_COOKIE_SINGLE (31ULL << 32) /* any of those: no return probe belongs to it */
#define WIRE_COOKIE_JUMP (1ULL << 37)    /* an exit that jumps on: nothing is returned yet */
/* For exits: a conditional jump has to be taken (1), or not (2), or does not matter (0); its
 * condition as in the opcode; and the place of the return address: rbp or else rsp, plus so many
 * times 8 bytes. */
/* The register that holds what will be returned, by its number in instructions: rax is 0. */
#define WIRE_COOKIE_VALUE_SHIFT 38     /* 4 bits */
#define WIRE_COOKIE_WHEN_SHIFT 44      /* 2 bits */
#define WIRE_COOKIE_CONDITION_SHIFT 46 /* 4 bits */
#define WIRE_COOKIE_FRAME_SHIFT 50     /* 1 bit */
#define WIRE_COOKIE_STACK_SHIFT 51     /* 13 bits */
/* For scopes, from there: how often the probe was attached. What is open when it is taken off never
 * ends. */
#define WIRE_COOKIE_TIMES_SHIFT 48
