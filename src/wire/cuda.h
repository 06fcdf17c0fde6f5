/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* The memory that the library in a CUDA process shares with a recorder: a sealed memfd of
 * sizeof(struct wire_cuda) bytes, named WIRE_CUDA_MEMFD, mapped by the process for as long as it
 * lives. All times are CLOCK_BOOTTIME in ns unless they are called device times. Words that both
 * sides touch are read and written with atomic operations; each has one writer side, named at the
 * structure. A recorder trusts nothing that the process writes: every index and offset is checked
 * against the constants below, never against a number that stands in the memory. */

#include <linux/types.h>

#include "wire/version.h"

#define WIRE_CUDA_MAGIC 0x55445543554b534bULL
#define WIRE_CUDA_VERSION 5
#define WIRE_CUDA_MEMFD "kansoku-cuda"
/* A page that shows that the library was called as the driver, and looked for the machine's. */
#define WIRE_CUDA_MARK_MEMFD "kansoku-as-driver"
#define WIRE_CUDA_RING_SLOTS (1U << 18) /* of 64 bytes: 16 MiB */
#define WIRE_CUDA_KERNELS_MAX (1U << 15)
#define WIRE_CUDA_NAMES_BYTES (4U << 20)
#define WIRE_CUDA_STREAMS_MAX 4096U
#define WIRE_CUDA_CONTEXTS_MAX 32U
#define WIRE_CUDA_ENTRIES_MAX 254U
#define WIRE_CUDA_SHARDS 64U /* the last one is shared by all further threads */
#define WIRE_CUDA_PATH_BYTES 256U

/* Mode of the library. The recorder asks for one; without a living lease it is dormant. */
enum wire_cuda_mode {
  WIRE_CUDA_DORMANT = 0, /* calls go straight to the driver; nothing is counted */
  WIRE_CUDA_SAMPLED = 1, /* every call is counted, one stream operation in `every_n` is timed */
  WIRE_CUDA_EVERY = 2    /* every stream operation is timed, every call of interest is a record */
};

/* Class of an entry point. */
enum wire_cuda_class {
  WIRE_CUDA_LAUNCH = 1,
  WIRE_CUDA_GRAPH_LAUNCH = 2,
  WIRE_CUDA_COPY = 3,
  WIRE_CUDA_SET = 4,
  WIRE_CUDA_HOST_FUNCTION = 5,
  WIRE_CUDA_VALUE = 6, /* a stream waits for, or writes, a value in memory */
  WIRE_CUDA_ALLOC = 7,
  WIRE_CUDA_FREE = 8,
  WIRE_CUDA_SYNC = 9, /* the host waits */
  WIRE_CUDA_QUERY = 10,
  WIRE_CUDA_EVENT = 11, /* events recorded and waited for by streams */
  WIRE_CUDA_MODULE = 12,
  WIRE_CUDA_LOOKUP = 13,
  WIRE_CUDA_OBJECT = 14, /* streams, graphs, contexts made and destroyed */
  WIRE_CUDA_CLASSES = 15
};

/* In place of an entry: no call, but a reading of a context's event clock. */
#define WIRE_CUDA_CLOCK 255U
/* Likewise: a range or mark of NVTX that has ended. `stream` is 0, `device_ns` how long it lasted.
 */
#define WIRE_CUDA_RANGE 254U
/* Likewise: work of the library itself on the thread `tid` of the program, within one of its calls,
 * that took `device_ns`: the second executable of a graph. */
#define WIRE_CUDA_OWN 253U

enum wire_cuda_range_kind {
  WIRE_CUDA_PUSHED = 1,  /* of a thread: pushed and popped */
  WIRE_CUDA_STARTED = 2, /* of the process: started and ended, by any threads */
  WIRE_CUDA_MARK = 3     /* a moment */
};

/* Texts of ranges and their domains, by index; index 0 has none. UTF-8 as the program wrote it, cut
 * to fit, with a zero behind. */
#define WIRE_CUDA_RANGE_NAMES_MAX 8192U
#define WIRE_CUDA_RANGE_NAME_BYTES 128U
#define WIRE_CUDA_RANGE_DOMAINS_MAX 64U

enum wire_cuda_record_flag {
  WIRE_CUDA_TIMED = 1,      /* device_begin_ns and device_ns are set */
  WIRE_CUDA_PER_THREAD = 2, /* the default stream of the thread */
  WIRE_CUDA_LEGACY = 4,     /* the default stream that waits for all others */
  WIRE_CUDA_FAILED = 8,
  WIRE_CUDA_FIRST = 16,        /* first operation of this kernel that was timed */
  WIRE_CUDA_CAPTURED = 32,     /* went into a graph that is being captured: nothing ran */
  WIRE_CUDA_PROGRAMMATIC = 64, /* a launch that may overlap the one in front of it; with TIMED: a
                                  chain of several, which have one time */
  WIRE_CUDA_NODE = 128         /* of a graph; the correlation is that of the graph's launch */
};

enum wire_cuda_copy_kind {
  WIRE_CUDA_UNKNOWN_COPY = 0,
  WIRE_CUDA_HTOD = 1,
  WIRE_CUDA_DTOH = 2,
  WIRE_CUDA_DTOD = 3,
  WIRE_CUDA_HTOH = 4,
  WIRE_CUDA_PEER = 5
};

/* One operation or call, 64 bytes. Written by the library's threads; `turn` is stored last. */
struct wire_cuda_record {
  __u64 turn;            /* number of the record + 1: it is complete */
  __u64 host_begin_ns;   /* of the call; WIRE_CUDA_CLOCK: before the event was recorded */
  __s64 device_begin_ns; /* device time of its context; the earliest possible begin; ALLOC that is
                            not timed: 1 + index into `stacks`, 0: who called is not known */
  __u64 device_ns;       /* WIRE_CUDA_CLOCK: boot time at which the event was seen complete;
                            WIRE_CUDA_FAILED: the error */
  __u32 host_ns;         /* duration of the call; saturates */
  __u32 tid;             /* as the process sees it */
  __u32 correlation;     /* counts the operations of the process */
  __u16 stream;          /* index into `streams`; WIRE_CUDA_CLOCK: context */
  __u8 entry;            /* index into `entries`; WIRE_CUDA_CLOCK */
  __u8 flags;            /* enum wire_cuda_record_flag */
  union {
    struct { /* of WIRE_CUDA_LAUNCH */
      __u32 grid_x;
      __u16 grid_y, grid_z, block_x, block_y;
      __u16 kernel;    /* index into `kernels`; WIRE_CUDA_NO_KERNEL */
      __u8 block_z;    /* 64 at most */
      __u8 shared_kib; /* dynamic shared memory, rounded up */
    } launch;
    struct { /* of a chain, in place of `launch` */
      __u32 launches;
      __u16 unused[4];
      __u16 kernel; /* of the first, where `launch` has it */
    } chain;
    struct { /* copies, sets, allocations and frees */
      __u64 bytes;
      __u64
          detail; /* enum wire_cuda_copy_kind; ALLOC and FREE: the pointer; GRAPH_LAUNCH: handle */
    } memory;
    struct {        /* of WIRE_CUDA_RANGE; `tid` is the thread that began it */
      __u16 name;   /* index into `range_names`; 0: it has none */
      __u16 domain; /* index into `range_domains`; 0: the default one */
      __u32 kind;   /* enum wire_cuda_range_kind */
      __u64 unused;
    } range;
  } u;
};
WIRE_ASSERT(sizeof(struct wire_cuda_record) == 64, "part of the ABI: bump WIRE_CUDA_VERSION");

#define WIRE_CUDA_NO_KERNEL 0xffffU
/* In `detail` of a copy, beside its kind: what is known of the host's memory; without either flag
 * it is not known. And of a batch, how many copies it has. */
#define WIRE_CUDA_PAGEABLE (1ULL << 8)
#define WIRE_CUDA_PINNED (1ULL << 9) /* or managed, or in a range of device addresses */
#define WIRE_CUDA_BATCH_SHIFT 16

/* Page 0: written by the library once, before `magic`. */
struct wire_cuda_head {
  __u64 magic;
  __u32 version, bytes_low;
  __s32 pid; /* in the process's own namespace */
  __s32 driver_version;
  __u32 entry_count, reserved;
  __u64 started_ns;
  char driver_path[WIRE_CUDA_PATH_BYTES];
};

/* Written by the recorder. */
struct wire_cuda_control {
  __u32 wake; /* futex: grows with each change */
  __u32 mode; /* wanted: enum wire_cuda_mode */
  __u64 lease_until_ns;
  __u32 every_n;            /* 0: as the budget allows */
  __u32 budget_ns_a_launch; /* of own and driver time, on average over all launches; 0: 200 */
  __u64 tail;               /* records consumed */
  __u64 owner;              /* random, of the recorder that holds the lease; 0: free */
  __u32 ranges;             /* 1: ranges of NVTX are wanted, while it is not dormant */
};
/* In `owner`: it watches, and any recorder may take the lease over from it at once. */
#define WIRE_CUDA_OWNER_WATCHES (1ULL << 63)

/* Counts of losses and omissions, by reason; all grow. */
struct wire_cuda_losses {
  __u64 ring_full;    /* records */
  __u64 no_event;     /* operations not timed: no free pair of events */
  __u64 queue_full;   /* operations not timed: too many unfinished */
  __u64 legacy;       /* not timed: other threads use the legacy stream's context */
  __u64 programmatic; /* not timed: a chain of programmatic launches whose begin or end is not known
                       */
  __u64 parted;       /* programmatic launches that an event kept from overlapping, once */
  __u64 interleaved;  /* timed and dropped: another thread used the stream in between */
  __u64 negative;     /* an end before its begin; passed on as measured */
  __u64 event_error;  /* events that the driver refused */
  __u64 streams_over_limit, kernels_over_limit, names_over_limit, threads_over_limit;
  __u64 contexts_over_limit, graphs_over_limit;
  __u64 lost_context;    /* operations whose context was destroyed before they were read */
  __u64 graphs_excluded; /* graphs that cannot be instantiated twice: their nodes have no times */
  __u64 graphs_over_budget; /* graphs without a second executable: making them costs too much */
  __u64 graph_untimed;      /* timed launches of graphs whose nodes could not be timed this once */
  __u64 pins_over_limit;    /* pinned memory: of other memory it is not known then whether it is */
  __u64 ranges_unnamed;     /* ranges and marks: more names or domains than there is room for */
  __u64 ranges_unbegun;     /* that ended, and whose begin was not recorded */
  __u64 ranges_open;        /* that began, with too many open ones */
  __u64 stacks_skipped;     /* allocations without a stack: walking it would cost too much */
  __u64 stacks_over_limit;  /* likewise: more different ones than there is room for */
};

/* Written by the library. */
struct wire_cuda_state {
  __u32 mode; /* that it is in */
  __u32 every_n;
  __u64 head;         /* records written or being written */
  __u64 poller_ns;    /* the last sign of life of its thread */
  __u32 poller_phase; /* 0: asleep, 1: at work, 2: in a call of the driver */
  __u32 interval_us;  /* of polling */
  __u64 switched_ns;  /* into this mode */
  __u64 captures;     /* streams being captured now */
  /* Its own cost since the process began. */
  __u64 poller_cpu_ns, ticks;
  __u64 timed;           /* operations with events */
  __u64 own_ns;          /* of a sample of the timed ones, in the library's own code */
  __u64 event_ns;        /* of the same sample, in the driver's calls for the events */
  __u64 sampled;         /* their number */
  __u64 twins, twin_ns;  /* graphs that were instantiated twice, and what that took */
  __u64 nodes_timed;     /* of graphs */
  __u64 chains, chained; /* timed ones of several launches, and those in them */
  __u64 nvtx_clients;    /* libraries and programs that call it for their ranges */
  __u64 nvtx_elsewhere;  /* 1: the environment names another tool for them */
  /* Work that was handed over before it awoke is not known. */
  __u64 awake_ns; /* when it awoke; 0: before the process's first call */
  __u64
      streams_live; /* that the process made and did not destroy; those of a context stay counted */
  __u64 devices_used;  /* whose primary context the process made */
  __u64 whole_done_ns; /* the last wait for all of a context that returned: when it began */
  struct wire_cuda_losses losses;
};

struct wire_cuda_entry {
  __u32 name; /* offset into `names` */
  __u32 what; /* enum wire_cuda_class */
};

struct wire_cuda_tally {
  __u64 calls, failed, bytes;
  __u64 captured; /* of the calls: those that went into a graph */
  __u64 more;     /* operations beyond the one of each other call: batches have more, those without
                     bytes     less; modulo 2^64 */
};

/* Counters of one thread, of the last shard of several; a sum over all shards is the process's. */
struct wire_cuda_shard {
  struct wire_cuda_tally entries[WIRE_CUDA_ENTRIES_MAX];
};

struct wire_cuda_stream {
  __u64 handle;
  __u32 generation; /* of this index: it is used again */
  __u16 context;
  __u8 state;                 /* 0: free, 1: in use, 2: destroyed, not yet drained */
  __u8 kind;                  /* enum wire_cuda_record_flag: PER_THREAD, LEGACY */
  __u64 submitted, completed; /* timed operations */
  /* The oldest timed operation that is not complete; `waiting_since_ns` 0: none. */
  __u64 waiting_since_ns; /* host time of its call */
  __u32 correlation, tid;
  __u32 done_correlation; /* of the last complete one */
  __u16 kernel;
  __u8 what;
  __u8 is_begun;        /* its begin event is complete: what it waited for is done, and it runs */
  __u64 detail;         /* of the oldest: the graph's handle, or the host function */
  __u64 host_functions; /* timed ones that were submitted */
  __u64 done_ns;        /* boot time of the last completion that is known */
  /* All operations, timed or not, by their number on the stream: how many there are, how many of
   * them are known to be complete, and the number of the oldest timed one that is not. */
  __u32 operations, known_done, oldest;
  __u16 is_mark;   /* the oldest is an event of the library's own, behind operation `oldest` */
  __u16 at_kernel; /* of a graph that runs for long: the kernel that it is at; or NO_KERNEL */
};
WIRE_ASSERT(sizeof(struct wire_cuda_stream) == 96, "part of the ABI: bump WIRE_CUDA_VERSION");

/* The last operations of a stream: size << 20 | enum wire_cuda_class << 16 | index of the kernel,
 * of the graph, or 0xffff. The size is the power of two below its threads (kernels) or bytes. */
#define WIRE_CUDA_RECENT 1024U /* drivers take about as many before a launch waits */
#define WIRE_CUDA_RECENT_SIZE(word) ((word) >> 20 & 0x3fU)
#define WIRE_CUDA_RECENT_WHAT(word) ((word) >> 16 & 0xfU)
#define WIRE_CUDA_RECENT_INDEX(word) ((word)&0xffffU)
struct wire_cuda_recent {
  __u32 operations[WIRE_CUDA_RECENT]; /* by number modulo WIRE_CUDA_RECENT */
};

/* A thread that waits in a call of class SYNC. */
struct wire_cuda_waiter {
  __u64 since_ns; /* 0: it does not; stored last, cleared first */
  __u32 tid, entry;
};
WIRE_ASSERT(sizeof(struct wire_cuda_waiter) == 16, "part of the ABI: bump WIRE_CUDA_VERSION");
#define WIRE_CUDA_WAITERS_MAX 256U

struct wire_cuda_context {
  __u64 handle;
  __s32 device;
  __u32 state; /* 0: free, 1: in use, 2: destroyed */
  /* Resources of one multiprocessor of the device; 0: not known. */
  __u32 major, threads, blocks, registers, shared_bytes;
  __u64 default_done_ns; /* its default stream completed work, or had none left */
};

/* Durations on the device fall into buckets of half an octave: bucket 0 is below 2^8 ns, then two
 * for each power of two up to 2^40 ns (18 minutes); the last one holds everything longer. */
#define WIRE_CUDA_BUCKETS 66
#define WIRE_CUDA_BUCKET_FIRST_POWER 8
struct wire_cuda_durations {
  __u64 count, total_ns, longest_ns;
  __u32 buckets[WIRE_CUDA_BUCKETS];
  __u64 largest; /* of their sizes, as in `recent` */
};
WIRE_ASSERT(sizeof(struct wire_cuda_durations) == 32 + 4 * WIRE_CUDA_BUCKETS,
            "part of the ABI: bump WIRE_CUDA_VERSION");

/* An executable graph, by what it was instantiated from; child graphs count as their nodes. */
#define WIRE_CUDA_GRAPHS_MAX 1024U
#define WIRE_CUDA_GRAPH_KERNELS 256U
struct wire_cuda_graph {
  __u64 handle;   /* of the executable; 0: free. It may be given out again after it was destroyed */
  __u64 launches; /* while the library was switched on */
  __u32 kernels, copies, sets, others;  /* nodes that run; of memory, conditions, hosts: others */
  __u16 nodes[WIRE_CUDA_GRAPH_KERNELS]; /* indices of the first kernels' nodes */
  struct wire_cuda_durations durations; /* of the timed launches that are complete */
};
WIRE_ASSERT(sizeof(struct wire_cuda_graph) ==
                32 + 2 * WIRE_CUDA_GRAPH_KERNELS + sizeof(struct wire_cuda_durations),
            "part of the ABI: bump WIRE_CUDA_VERSION");

#define WIRE_CUDA_SITES 4U
struct wire_cuda_kernel {
  __u64 handle, module;
  __u32 name;                 /* offset into `names` */
  __u16 registers, is_kernel; /* its handle is a CUkernel */
  __u32 static_shared, local_bytes;
  __u64 launches;
  __u64 captured;                       /* launches that went into a graph */
  __u16 sites[WIRE_CUDA_SITES];         /* its first launch sites: 1 + indices into `stacks` */
  struct wire_cuda_durations durations; /* of the timed ones that are complete */
};
WIRE_ASSERT(sizeof(struct wire_cuda_kernel) == 352, "part of the ABI: bump WIRE_CUDA_VERSION");

/* Stack of an allocation, or of a kernel's first launches: return addresses, innermost first. */
#define WIRE_CUDA_STACKS_MAX 4096U
#define WIRE_CUDA_STACK_FRAMES 24U
struct wire_cuda_stack {
  __u64 hash;  /* 0: free */
  __u32 count; /* stored last: of those that are set */
  __u32 unused;
  __u64 addresses[WIRE_CUDA_STACK_FRAMES];
};
WIRE_ASSERT(sizeof(struct wire_cuda_stack) == 208, "part of the ABI: bump WIRE_CUDA_VERSION");

/* Parts that different sides write lie on different pages. */
#define WIRE_CUDA_PAGE 4096
struct wire_cuda {
  union {
    struct wire_cuda_head head;
    __u8 head_page[WIRE_CUDA_PAGE];
  };
  union {
    struct wire_cuda_control control;
    __u8 control_page[WIRE_CUDA_PAGE];
  };
  union {
    struct wire_cuda_state state;
    __u8 state_page[WIRE_CUDA_PAGE];
  };
  struct wire_cuda_entry entries[WIRE_CUDA_ENTRIES_MAX];
  struct wire_cuda_context contexts[WIRE_CUDA_CONTEXTS_MAX];
  struct wire_cuda_waiter waiters[WIRE_CUDA_WAITERS_MAX];
  struct wire_cuda_shard shards[WIRE_CUDA_SHARDS];
  struct wire_cuda_stream streams[WIRE_CUDA_STREAMS_MAX];
  struct wire_cuda_recent recent[WIRE_CUDA_STREAMS_MAX];
  /* Durations of other operations; WIRE_CUDA_LAUNCH: of chains of several. */
  struct wire_cuda_durations classes[WIRE_CUDA_CLASSES + 1];
  __u64 graph_count; /* entries of `graphs` in use; they are never used again */
  struct wire_cuda_graph graphs[WIRE_CUDA_GRAPHS_MAX];
  __u64 kernel_count; /* entries of `kernels` in use; they are never used again */
  __u64 names_used;
  struct wire_cuda_kernel kernels[WIRE_CUDA_KERNELS_MAX];
  char names[WIRE_CUDA_NAMES_BYTES];
  struct wire_cuda_stack stacks[WIRE_CUDA_STACKS_MAX];
  char range_names[WIRE_CUDA_RANGE_NAMES_MAX][WIRE_CUDA_RANGE_NAME_BYTES];
  char range_domains[WIRE_CUDA_RANGE_DOMAINS_MAX][WIRE_CUDA_RANGE_NAME_BYTES];
  struct wire_cuda_record ring[WIRE_CUDA_RING_SLOTS];
};
