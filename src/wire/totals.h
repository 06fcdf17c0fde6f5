/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Contents of the BPF programs' maps: totals instead of events, so that cost and memory do
 * not grow with the rate of calls. Plain C, as wire/ring.h. */

#include <linux/types.h>

#include "wire/ring.h"

/* Durations fall into buckets of a quarter of an octave: bucket 0 is below 256 ns, then four
 * buckets for each power of two up to 2^36 ns (68 s); the last one holds everything longer. */
#define WIRE_BUCKET_FIRST_POWER 8
#define WIRE_BUCKET_POWERS 28
#define WIRE_BUCKETS 114

/* The same probe may feed three totals: of its calls, of the times from entry to entry in a
 * process, and of the times from return to the next entry. */
enum wire_total_kind { WIRE_TOTAL_CALL = 0, WIRE_TOTAL_INTERVAL = 1, WIRE_TOTAL_GAP = 2 };

/* Totals that belong to no probe of the map: requests of the block layer, and being stopped by a
 * signal, a call from SIGSTOP to SIGCONT. */
#define WIRE_TOTAL_BLOCK WIRE_PROBES_MAX
#define WIRE_TOTAL_STOPS (WIRE_PROBES_MAX + 1)

struct wire_total_key {
  __u32 tgid;       /* 0: the host */
  __u32 probe_kind; /* probe index * 4 + enum wire_total_kind */
};
WIRE_ASSERT(sizeof(struct wire_total_key) == 8, "part of the ABI: bump WIRE_VERSION");

/* All members only grow; they wrap at their type's end. */
struct wire_total {
  __u64 count;         /* durations added */
  __u64 sum_ns;        /* of them */
  __u64 bytes;         /* captured at the entries */
  __u64 entries;       /* calls begun; less `count` and `dropped` those that are open */
  __u64 dropped;       /* calls that an exception or longjmp() ended; it is noticed late */
  __u64 last_entry_ns; /* CLOCK_BOOTTIME; 0: none yet */
  __u64 last_exit_ns;
  __u32 buckets[WIRE_BUCKETS];
};
WIRE_ASSERT(sizeof(struct wire_total) == 56 + 4 * WIRE_BUCKETS,
            "part of the ABI: bump WIRE_VERSION");

/* One thread of an observed process, from the task iterator. Times in ns, counts since its start.
 */
struct wire_thread {
  __u32 tgid, tid;
  __u32 state; /* as wire_switch.prev_state; 0: running or runnable */
  __u32 reserved;
  __u64 runtime_ns, run_delay_ns;
  __u64 voluntary, involuntary; /* context switches */
  __u64 minor_faults, major_faults;
  __u64 read_bytes, written_bytes; /* block devices */
  __u64 system_ns;                 /* in the kernel, by its ticks where it counts so */
};
WIRE_ASSERT(sizeof(struct wire_thread) == 88, "part of the ABI: bump WIRE_VERSION");
