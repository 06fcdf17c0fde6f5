/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the library that stands for libcuda.so.1 in a watched process. A guest there: plain C,
 * one thread of its own, nothing allocated and no lock taken on the way of a launch, no lock held
 * across a call into the driver except by its own thread. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include <cuda.h>

#include "wire/cuda.h"

typedef void (*kansoku_function)(void); /* of any type: cast before a call */

struct kansoku_hook {
  const char* symbol;
  unsigned slot;
  uint32_t what; /* enum wire_cuda_class */
  int is_always; /* also while dormant */
  kansoku_function function;
};
struct kansoku_name { /* one form of an entry point */
  const char* base;
  int version;
  int is_per_thread;
  unsigned slot;
};
/* Generated: see tools/gen_cuda_shim.py. */
extern const struct kansoku_hook kansoku_hooks[];
extern const unsigned kansoku_hook_count;
extern const struct kansoku_name kansoku_names[];
extern const unsigned kansoku_name_count;
extern const char* const kansoku_symbols[];
extern const unsigned kansoku_symbol_count;
#define KANSOKU_SLOTS_MAX 1024
extern _Atomic(kansoku_function) kansoku_slots[]; /* targets of the thunks */
extern kansoku_function
    kansoku_real[KANSOKU_SLOTS_MAX]; /* the driver's; never null after loading */

/* The driver's functions that the library calls for itself: never through the thunks. */
struct kansoku_driver {
  __typeof__(&cuCtxGetCurrent) ctx_get_current;
  __typeof__(&cuCtxSetCurrent) ctx_set_current;
  __typeof__(&cuCtxGetDevice) ctx_get_device;
  __typeof__(&cuStreamGetCtx) stream_get_ctx;
  __typeof__(&cuStreamIsCapturing) stream_is_capturing;
  __typeof__(&cuStreamCreateWithPriority) stream_create;
  __typeof__(&cuStreamGetFlags) stream_get_flags; /* may be null */
  __typeof__(&cuEventCreate) event_create;
  __typeof__(&cuEventRecord) event_record;
  __typeof__(&cuEventQuery) event_query;
  __typeof__(&cuStreamQuery) stream_query;
  __typeof__(&cuEventElapsedTime) event_elapsed;
  __typeof__(&cuThreadExchangeStreamCaptureMode) exchange_mode;
  __typeof__(&cuKernelGetName) kernel_name; /* may be null: an old driver */
  __typeof__(&cuFuncGetName) function_name; /* likewise */
  __typeof__(&cuFuncGetAttribute) function_attribute;
  __typeof__(&cuKernelGetAttribute) kernel_attribute;
  __typeof__(&cuDeviceGetAttribute) device_attribute;
  __typeof__(&cuDriverGetVersion) version;
  __typeof__(&cuDevicePrimaryCtxGetState) primary_state;
  __typeof__(&cuGraphGetNodes) graph_nodes;
  __typeof__(&cuGraphNodeGetType) node_type;
  __typeof__(&cuGraphKernelNodeGetParams_v2) kernel_params;
  __typeof__(&cuGraphChildGraphNodeGetGraph) child_graph;
  /* For twins of graphs; an old driver lacks some. */
  __typeof__(&cuGraphClone) graph_clone;
  __typeof__(&cuGraphDestroy) graph_destroy;
  __typeof__(&cuGraphGetEdges) graph_edges;
  __typeof__(&cuGraphAddDependencies) add_edges;
  __typeof__(&cuGraphRemoveDependencies) remove_edges;
  __typeof__(&cuGraphAddEventRecordNode) add_event_node;
  __typeof__(&cuGraphMemcpyNodeGetParams) copy_params;
  __typeof__(&cuGraphMemsetNodeGetParams) set_params;
  __typeof__(&cuGraphInstantiateWithFlags) instantiate;
  __typeof__(&cuGraphExecDestroy) exec_destroy;
  __typeof__(&cuEventDestroy_v2) event_destroy;
  __typeof__(&cuStreamWaitEvent) stream_wait_event;
  int can_time; /* all that timing needs is there */
};
extern struct kansoku_driver kansoku_driver;
extern char kansoku_driver_path[WIRE_CUDA_PATH_BYTES];

/* A second executable of a graph, with events around its nodes. */
enum kansoku_twin_state {
  KANSOKU_TWIN_IDLE = 0,
  KANSOKU_TWIN_BUSY = 1, /* launched, and its events not read yet */
  KANSOKU_TWIN_GONE = 2
};
struct kansoku_twin_node {
  struct wire_cuda_record record; /* entry, shape or bytes */
  uint32_t begin, end;            /* indices of events */
};
struct kansoku_twin {
  _Atomic uint32_t state;      /* enum kansoku_twin_state */
  _Atomic uint32_t is_retired; /* ends as soon as it is idle */
  _Atomic uint32_t is_lost;    /* its context is gone, and its events with it */
  CUgraphExec exec;
  CUcontext context;
  uint32_t node_count, event_count, done; /* `done`: the event behind its last launch */
  struct kansoku_twin_node* nodes;
  CUevent* events;
  /* For the library's thread: times of the events of a launch, and the nodes by their begins. */
  int64_t* offset_ns;
  uint32_t* order;
  struct kansoku_twin* next_unused;
};

/* Operation in a thread's queue for the library's thread. */
struct kansoku_op {
  struct wire_cuda_record record;
  uint32_t pair; /* of events, in the pool of its context */
  uint16_t context;
  uint16_t base;             /* reading of the clock that its times count from */
  uint32_t number;           /* on its stream */
  uint16_t is_mark;          /* no operation: tells that all before it are complete */
  uint16_t launches;         /* of a chain, whose last one is `number`; else 1, of a mark 0 */
  struct kansoku_twin* twin; /* that ran in place of a graph; to be released */
};

#define KANSOKU_THREADS_MAX WIRE_CUDA_WAITERS_MAX
#define KANSOKU_QUEUE_SLOTS 8192U
struct kansoku_thread {
  struct wire_cuda_shard* shard;
  int is_exclusive; /* no other thread counts there */
  uint64_t random;
  uint32_t tid;
  struct wire_cuda_waiter* waiter;
  uint32_t correlation, correlations_left; /* taken from the process's in blocks */
  uint32_t until_timed;                    /* stream operations until the next one that is timed */
  uint64_t met_ns;      /* the last time that an operation that waits for others was timed */
  uint64_t last_handle; /* of the stream used last, and where it stands */
  uint32_t last_stream, last_generation;
  struct kansoku_op* queue; /* written by the thread, read by the library's */
  _Atomic uint32_t head, tail;
  _Atomic uint32_t state; /* 0: free, 1: a thread's, 2: the thread has ended */
};

enum kansoku_chain_part {
  KANSOKU_CHAIN_NONE = 0,  /* its stream has no chains */
  KANSOKU_CHAIN_OPENS = 1, /* the call has taken the chain until its end */
  KANSOKU_CHAIN_JOINS = 2, /* likewise */
  KANSOKU_CHAIN_PASSES = 3
};

/* One call, on the stack of the hook. */
struct kansoku_call {
  struct kansoku_thread* thread;
  struct wire_cuda_record record; /* as far as it is known */
  CUresult result;
  uint32_t entry, what, mode;
  uint32_t stream;   /* index; KANSOKU_NONE */
  uint32_t sequence; /* of the stream, when its begin was recorded */
  uint32_t pair;     /* KANSOKU_NONE: not timed */
  uint16_t context, base;
  int is_measured;                       /* its cost is */
  int is_waiter;                         /* shown as a thread that waits */
  struct kansoku_twin* twin;             /* that ran in place of a graph; null: none */
  int is_alone;                          /* no other thread worked in this context so far */
  uint64_t own_ticks, event_ticks, mark; /* of the time stamp counter */
  uint64_t bytes;
  int64_t more;      /* operations beyond one; -1: it has nothing to do */
  CUstream handle;   /* to record events in */
  uint64_t function; /* that is launched */
  uint32_t number;   /* of the operation on its stream; of a wait: operations that it waits for */
  uint32_t chain;    /* enum kansoku_chain_part */
};
#define KANSOKU_NONE 0xffffffffU

/* State of each stream in use, beside the one that the recorder sees. */
struct kansoku_stream_state {
  _Atomic uint32_t sequence;   /* stream operations begun, two for each timed one */
  _Atomic uint32_t has_chains; /* a launch overlapped its predecessor once */
};

#define KANSOKU_PAIRS_MAX 16384U
#define KANSOKU_PAIRS_SAMPLED 256U /* to begin with */
#define KANSOKU_PAIRS_FIRST 512U
#define KANSOKU_PAIRS_EVERY 4096U
enum kansoku_context_state {
  KANSOKU_CONTEXT_FREE = 0,
  KANSOKU_CONTEXT_USED = 1,
  KANSOKU_CONTEXT_GONE = 2, /* destroyed; the library's thread frees the place */
  KANSOKU_CONTEXT_NEW = 3,  /* no events yet */
  KANSOKU_CONTEXT_BUSY = 4  /* the library's thread leaves it alone */
};
#define KANSOKU_BASES 16U
struct kansoku_context {
  CUcontext handle;
  _Atomic int state;          /* enum kansoku_context_state */
  _Atomic uint32_t first_tid; /* the one thread that works in it; 0: none yet */
  _Atomic int has_many_threads;
  pthread_mutex_t lock; /* held by the library's thread while it is in the driver with it */
  CUevent begin[KANSOKU_PAIRS_MAX], end[KANSOKU_PAIRS_MAX];
  uint32_t next[KANSOKU_PAIRS_MAX];
  _Atomic uint64_t free_pairs; /* count of changes << 32 | first free pair */
  _Atomic uint32_t pairs_made, pairs_free;
  /* The event clock: readings on a stream of its own. */
  CUstream clock_stream;
  CUevent bases[KANSOKU_BASES];
  int64_t base_ns[KANSOKU_BASES]; /* device time of each */
  uint32_t base_count, readings;
  _Atomic uint32_t base; /* the newest that is complete; KANSOKU_BASES: none */
  uint64_t base_since_ns, asked_ns;
  CUevent probe;            /* of a reading between two bases */
  uint64_t probe_before_ns; /* 0: none on its way */
  int probe_is_base;
};

/* All that the process has of the library; zero until cuInit succeeded. */
struct kansoku_process {
  struct wire_cuda* shared; /* null: nothing can be recorded */
  _Atomic uint32_t mode;    /* enum wire_cuda_mode */
  _Atomic uint32_t every_n;
  _Atomic uint64_t
      meeting_ns; /* between two that are timed because they wait for other processes */
  volatile const uint32_t* canary; /* 1 in this process, 0 in its forked children */
  _Atomic uint32_t correlation;
  _Atomic uint32_t ranges; /* 0: those of NVTX are not recorded; else which time that they are */
  _Atomic int32_t captures;
  int keeps_graphs; /* also while dormant every graph gets a twin */
  double ns_a_tick; /* of the time stamp counter */
  struct kansoku_stream_state streams[WIRE_CUDA_STREAMS_MAX];
  struct kansoku_thread threads[KANSOKU_THREADS_MAX];
  struct kansoku_context* contexts; /* WIRE_CUDA_CONTEXTS_MAX */
};
extern struct kansoku_process kansoku;

#define KANSOKU_LOSE(member)                                                            \
  atomic_fetch_add_explicit((_Atomic uint64_t*)&kansoku.shared->state.losses.member, 1, \
                            memory_order_relaxed)

static inline uint64_t kansoku_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* load.c */
void kansoku_set_hooks(int are_on);
void kansoku_redirect(CUresult result, const char* name, void** function);
int kansoku_is_this_file(const char* path); /* this library's own */

/* calls.c: the size of an operation, as `recent` and histories have it */
uint32_t kansoku_size(const struct wire_cuda_record* record, uint32_t what);

/* share.c */
void kansoku_started(CUresult result); /* after cuInit */
struct kansoku_thread* kansoku_thread_new(void);
extern _Atomic uint32_t kansoku_threads_top;         /* places from it on were never used */
void kansoku_write(struct wire_cuda_record* record); /* into the ring, or counts it as lost */

/* names.c: handles of kernels and what they are called. Any thread. */
void kansoku_learn(uint64_t handle, uint64_t module, const char* name, int is_kernel);
void kansoku_learn_attributes(uint32_t kernel, uint64_t handle, CUdevice device);
void kansoku_learn_same(uint64_t function, uint64_t kernel);
void kansoku_learn_functions(const CUfunction* functions, unsigned count, CUmodule module);
void kansoku_learn_kernels(const CUkernel* kernels, unsigned count, CUlibrary library);
void kansoku_forget_module(uint64_t module);
uint32_t kansoku_kernel_index(uint64_t handle); /* WIRE_CUDA_NO_KERNEL: not known */
uint32_t kansoku_text(const char* text);        /* offset in `names`; 0: no room */
int kansoku_is_collective(uint32_t kernel);     /* by its name */

/* streams.c */
extern _Atomic uint32_t kansoku_streams_top; /* streams from it on were never used */
void kansoku_known_done(uint32_t stream, uint32_t count);
uint32_t kansoku_stream_index(struct kansoku_thread* thread, CUstream handle, int is_per_thread);
void kansoku_stream_made(CUresult result, unsigned flags);
void kansoku_stream_gone(CUstream handle);
int kansoku_legacy_is_awaited(void); /* other streams wait for the legacy one */
void kansoku_context_gone(CUcontext handle);
extern pthread_mutex_t kansoku_mark_lock; /* a stream is neither destroyed nor captured meanwhile */
int kansoku_lock_for_a_moment(pthread_mutex_t* mutex);
void kansoku_wait_for_poller(uint32_t place);
void kansoku_primary_made(CUdevice device, CUcontext handle);
void kansoku_primary_pause(CUdevice device);                /* before a call that may destroy it */
void kansoku_primary_resume(CUdevice device, int is_reset); /* after it */
void kansoku_thread_streams_gone(uint32_t tid);
uint32_t kansoku_take_pair(struct kansoku_context* context);
void kansoku_give_pair(struct kansoku_context* context, uint32_t pair);
uint32_t kansoku_make_pairs(struct kansoku_context* context, uint32_t count);

/* calls.c */
void kansoku_forget_self(void); /* this thread ends */
void kansoku_before_capture(void);
int kansoku_is_captured(CUstream handle, int is_per_thread);
void kansoku_hand_over(struct kansoku_thread* thread, const struct kansoku_op* op);
int kansoku_begin(struct kansoku_call* call, uint32_t entry, uint32_t what);
int kansoku_begin_always(struct kansoku_call* call, uint32_t entry, uint32_t what);
void kansoku_stream_begin(struct kansoku_call* call, CUstream handle, int is_per_thread);
void kansoku_stream_end(struct kansoku_call* call);
void kansoku_blocks(struct kansoku_call* call); /* the host waits in this call */
void kansoku_note(struct kansoku_call* call, CUstream handle, int is_per_thread);
void kansoku_wait_stream(struct kansoku_call* call, CUstream handle, int is_per_thread);
void kansoku_wait_ended(struct kansoku_call* call);
void kansoku_context_waited(struct kansoku_call* call);
void kansoku_end(struct kansoku_call* call);
void kansoku_kernel(struct kansoku_call* call, CUfunction function, unsigned grid_x,
                    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                    unsigned block_z, unsigned shared_bytes);
void kansoku_config(struct kansoku_call* call, const CUlaunchConfig* config, CUfunction function);
void kansoku_bytes(struct kansoku_call* call, uint64_t bytes, uint64_t detail);
void kansoku_detail(struct kansoku_call* call, uint64_t detail);
void kansoku_pointer(struct kansoku_call* call, const void* where);
void kansoku_copy_2d(struct kansoku_call* call, const CUDA_MEMCPY2D* shape);
void kansoku_copy_3d(struct kansoku_call* call, const CUDA_MEMCPY3D* shape);
void kansoku_capturing(int change);
void kansoku_capture_ended(CUresult result);

/* chains.c */
void kansoku_chain_expect(const struct kansoku_call* call);
int kansoku_chain_begin(struct kansoku_call* call, int is_turn); /* 1: events may go around */
int kansoku_chain_puts_off(struct kansoku_call* call);
void kansoku_chain_open(struct kansoku_call* call, const struct kansoku_op* op);
void kansoku_chain_joined(struct kansoku_call* call);
void kansoku_chain_passed(struct kansoku_call* call, int is_ended);
void kansoku_settle(struct kansoku_call* call, CUstream handle, int is_per_thread, int parts);
void kansoku_settle_context(struct kansoku_call* call);
int kansoku_chain_is_closed(uint32_t stream);
int kansoku_chains_are_closed(void);
void kansoku_chain_forget(uint32_t stream);
void kansoku_chain_drop(uint32_t stream);
int kansoku_chain_end_quiet(uint32_t stream, int is_hurried, struct kansoku_op* op);

/* nvtx.c */
void kansoku_follow_ranges(int are_wanted); /* the library's thread, and the end */
void kansoku_nvtx_shared(void);             /* the memory is there */

/* stacks.c */
void kansoku_stacks_load(void);
uint32_t kansoku_stack_here(uint32_t mode); /* 1 + index of the caller's stack; 0: none */

/* pinned.c: host memory that the driver pinned, and the ends of copies there. Any thread. */
void kansoku_pin(CUresult result, const void* begin, uint64_t bytes);
void kansoku_pin_at(CUresult result, const void* where, uint64_t bytes); /* it stands at `where` */
void kansoku_unpin(uint64_t begin);                                      /* before the call */
void kansoku_unpinned(CUresult result);                                  /* after it */
void kansoku_unpin_context(CUcontext context);
void kansoku_host_pool(CUresult result, const CUmemLocation* location);
void kansoku_host(struct kansoku_call* call, const void* begin, uint64_t bytes);
void kansoku_host_2d(struct kansoku_call* call, const CUDA_MEMCPY2D* flat);
void kansoku_host_3d(struct kansoku_call* call, const CUDA_MEMCPY3D* shape);
void kansoku_batch(struct kansoku_call* call, const size_t* sizes, size_t count);
void kansoku_batch_3d(struct kansoku_call* call, const CUDA_MEMCPY3D_BATCH_OP* boxes, size_t count);
void kansoku_peer_3d(struct kansoku_call* call, const void* shape);

/* graphs.c */
void kansoku_graph_made(CUgraphExec exec, CUgraph graph, uint64_t flags);
void kansoku_graph_gone(CUgraphExec exec);
void kansoku_graph_updated(CUresult result, CUgraphExec exec, CUgraph graph);
void kansoku_graph_node_set(CUgraphExec exec, CUgraphNode node, CUfunction function);
void kansoku_graph_changed(CUgraphExec exec);   /* in a way that is not looked at */
uint32_t kansoku_graph_index(CUgraphExec exec); /* WIRE_CUDA_GRAPHS_MAX: not known */
void kansoku_graph(struct kansoku_call* call, CUgraphExec exec);
void kansoku_graph_launched(const struct kansoku_call* call);

/* twins.c */
int kansoku_has_twins(void);     /* or had */
void kansoku_twins_refuse(void); /* none from now on */
void kansoku_twin_make(uint32_t index, CUgraph graph, uint64_t flags);
void kansoku_twin_gone(uint32_t graph);
void kansoku_twin_release(struct kansoku_twin* twin);
void kansoku_twins_of_context_gone(CUcontext context);
void kansoku_twins_stream_gone(CUstream stream);
CUresult kansoku_graph_launch(struct kansoku_call* call, CUgraphExec exec, CUstream stream,
                              int is_per_thread, CUresult (*launch)(CUgraphExec, CUstream));

/* poll.c */
void kansoku_start_poller(void);
void kansoku_stop(void);      /* no call of the driver from now on */
void kansoku_hurry(void);     /* the program ends: read what there is */
int kansoku_is_drained(void); /* nothing that was handed over before is left */
