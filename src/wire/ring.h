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
  WIRE_STACK = 10   /* struct wire_stack: on-CPU sample with native frames */
};

enum wire_layout { WIRE_PLAIN = 0, WIRE_WITH_ARGS = 1, WIRE_WITH_TEXT = 2 };

#define WIRE_ARGS_MAX 6
#define WIRE_TEXT_BYTES 96
#define WIRE_STEPS_MAX 4
#define WIRE_STACK_MAX 64
#define WIRE_COMM_BYTES 16

struct wire_event {
  __u64 t_boot_ns;
  __u32 tgid, tid;
  __u32 probe;
  __u16 kind;
  __u8 layout;
  __u8 failed_args; /* bit i: argument i could not be read */
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
WIRE_ASSERT(sizeof(struct wire_args) == 72, "part of the ABI: bump WIRE_VERSION");

struct wire_text {
  struct wire_event head;
  __u64 args[WIRE_ARGS_MAX];
  char text[WIRE_TEXT_BYTES]; /* of the one textual argument, NUL-terminated */
};
WIRE_ASSERT(sizeof(struct wire_text) == 168, "part of the ABI: bump WIRE_VERSION");

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

/* Where the value of an argument comes from. */
enum wire_source { WIRE_ARG0 = 0, WIRE_ARG5 = 5, WIRE_RETURN = 6 };

/* value = source; for each step: value = *(value + offset), the last with `size` bytes.
 * For a text of C the last step only adds its offset: the characters lie there. Of one of Python
 * the value is the address of the object. */
enum wire_text_kind { WIRE_TEXT_NONE = 0, WIRE_TEXT_C = 1, WIRE_TEXT_PYTHON = 2 };
struct wire_capture {
  __u8 source;     /* enum wire_source */
  __u8 step_count; /* <= WIRE_STEPS_MAX */
  __u8 size;       /* 1, 2, 4 or 8 */
  __u8 is_text;    /* enum wire_text_kind */
  __u16 offset[WIRE_STEPS_MAX];
};
WIRE_ASSERT(sizeof(struct wire_capture) == 12, "part of the ABI: bump WIRE_VERSION");

/* One probe, by index in the map `probes`. */
struct wire_probe {
  __u8 capture_count;
  __u8 reserved[3];
  struct wire_capture captures[WIRE_ARGS_MAX];
};
WIRE_ASSERT(sizeof(struct wire_probe) == 76, "part of the ABI: bump WIRE_VERSION");

/* The cookie of an attached probe: low 32 bits = probe index, high bits = flags. */
#define WIRE_COOKIE_INSTANT (1ULL << 32) /* no return wanted */
#define WIRE_COOKIE_AT_END                                                   \
  (1ULL << 33) /* one WIRE_SLICE at the end, no pair; of the kernel's return \
                  probes in sessions only */
#define WIRE_COOKIE_CAPTURES (1ULL << 34) /* the probe has captures in the map */
#define WIRE_COOKIE_HOST (1ULL << 35)     /* do not filter by process */
#define WIRE_COOKIE_CALL (1ULL << 39)     /* entry of a call whose exits have probes of their own */
#define WIRE_COOKIE_EXIT (1ULL << 40)     /* one of those; an INSTANT: its begin does not matter */
#define WIRE_COOKIE_JUMP (1ULL << 41)     /* it jumps on: nothing is returned yet */
/* Of exits: whether a conditional jump has to be taken (1) or not (2) or does not matter (0), its
 * condition as in the opcode, and where the return address lies: at rbp or else rsp, plus so many
 * times 8 bytes. */
#define WIRE_COOKIE_WHEN_SHIFT 44      /* 2 bits */
#define WIRE_COOKIE_CONDITION_SHIFT 46 /* 4 bits */
#define WIRE_COOKIE_FRAME_SHIFT 50     /* 1 bit */
#define WIRE_COOKIE_STACK_SHIFT 51     /* 13 bits */
