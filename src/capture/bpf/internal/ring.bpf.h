/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* The sink that writes records into the ring. For BPF programs only; include after
 * arguments.bpf.h and observed.bpf.h. */

#include "wire/ring.h"

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 16 * 1024 * 1024);
} ring SEC(".maps");

static __always_inline void* reserve(__u64 bytes) {
  void* record = bpf_ringbuf_reserve(&ring, bytes, 0);
  if (!record) count_one(COUNT_RING_FULL);
  return record;
}

static __always_inline void fill_head(struct wire_event* head, __u64 now, __u32 probe, __u8 kind,
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

static __always_inline void emit_plain(__u64 now, __u32 probe, __u8 kind) {
  struct wire_event* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(record, now, probe, kind, WIRE_PLAIN);
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Contents of a record of a hit: bit i of `told`: value i is one of it. */
struct record {
  __u64 now;
  __u32 probe;
  __u16 told;
  __u8 kind, has_text;
};

static __always_inline void emit_args(const struct record* what, const struct values* values) {
  struct wire_args* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(&record->head, what->now, what->probe, what->kind, WIRE_WITH_ARGS);
#pragma unroll
  for (int i = 0; i < WIRE_ARGS_MAX; ++i)
    record->args[i] = values->value[i];
  record->head.failed_args = values->failed & what->told;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Two kinds of record that differ in their size. */
#define EMIT_TEXT(kind_of_record, with_text)                                                     \
  do {                                                                                           \
    struct kind_of_record* record = reserve(sizeof(*record));                                    \
    if (!record) return;                                                                         \
    fill_head(&record->head, what->now, what->probe, what->kind, WIRE_WITH_ARGS);                \
    record->text[0] = 0;                                                                         \
    __u16 failed = values->failed & what->told;                                                  \
    for (int i = 0; i < WIRE_ARGS_MAX; ++i) {                                                    \
      int is_text = (what->told >> i & 1) && !(failed >> i & 1) && probe->captures[i].is_text;   \
      record->args[i] = is_text ? 0 : values->value[i];                                          \
      if (!is_text) continue;                                                                    \
      record->head.layout = with_text;                                                           \
      if (bpf_probe_read_user_str(record->text, sizeof(record->text), (void*)values->value[i]) < \
          0)                                                                                     \
        failed |= 1 << i;                                                                        \
    }                                                                                            \
    record->head.failed_args = failed;                                                           \
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                                \
  } while (0)

static __always_inline void emit_text(const struct record* what, const struct wire_probe* probe,
                                      const struct values* values) {
  EMIT_TEXT(wire_text, WIRE_WITH_TEXT);
}

static __always_inline void emit_long_text(const struct record* what,
                                           const struct wire_probe* probe,
                                           const struct values* values) {
  EMIT_TEXT(wire_long_text, WIRE_WITH_LONG_TEXT);
}

/* A record with captures. A function of its own for the verifier. */
__noinline int emit_captured(const struct record* what, const struct wire_probe* probe,
                             const struct values* values) {
  if (!what || !probe || !values) return 0;
  if (what->has_text && probe->flags & WIRE_PROBE_LONG_TEXT) {
    emit_long_text(what, probe, values);
  } else if (what->has_text) {
    emit_text(what, probe, values);
  } else {
    emit_args(what, values);
  }
  return 0;
}

static __always_inline void emit(const struct hit* hit, __u8 kind, __u16 told,
                                 const struct values* values) {
  if (!told) {
    emit_plain(hit->now, (__u32)hit->cookie, kind);
    return;
  }
  struct record what = {
      .now = hit->now,
      .probe = (__u32)hit->cookie,
      .kind = kind,
      .told = told,
      .has_text = (hit->probe->flags & WIRE_PROBE_TEXT) != 0 && told >> hit->probe->text & 1};
  emit_captured(&what, hit->probe, values);
}

static __always_inline void emit_slice(__u64 start, __u64 now, __u32 probe) {
  struct wire_slice* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(&record->head, start, probe, WIRE_SLICE, WIRE_PLAIN);
  record->duration_ns = now - start;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}
