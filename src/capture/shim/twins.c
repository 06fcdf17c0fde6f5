/* SPDX-License-Identifier: Apache-2.0 */
/* Times of the nodes of a graph. An executable graph cannot gain nodes, so it gets a twin: the same
 * graph with an event behind each kernel, copy and fill, made while its source is at hand. A launch
 * that is timed runs the twin in its place.
 *
 * Invariants:
 * 1. The driver orders the launches of one executable. A twin is another one: it is used only where
 *    the stream orders it behind the launch before it, and a launch on another stream waits for it.
 * 2. Whatever changes the executable ends its twin.
 * 3. Its events are read before it runs again: until then launches run the program's own. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/shim/internal/shim.h"

#define NODES_MAX 8192U
#define EVENTS_MAX 65536U /* of all twins */
#define DEPTH_MAX 16

/* Per graph, by its index: the twin, and the stream of the last launch of either. */
static _Atomic(struct kansoku_twin*) twins[WIRE_CUDA_GRAPHS_MAX];
static _Atomic uint64_t last_streams[WIRE_CUDA_GRAPHS_MAX];
static _Atomic uint32_t events_made;
static _Atomic int are_refused; /* the program may change graphs in a way that the library misses */
/* Kept for further ones: a launch may look at one that has just ended. */
static struct kansoku_twin* unused;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic int are_any; /* since the process began */

int kansoku_has_twins(void) {
  return atomic_load(&are_any);
}

void kansoku_twins_refuse(void) {
  atomic_store(&are_refused, 1);
}

static int can_make(void) {
  const struct kansoku_driver* const d = &kansoku_driver;
  return d->can_time && d->graph_clone != NULL && d->graph_edges != NULL && d->add_edges != NULL &&
         d->remove_edges != NULL && d->add_event_node != NULL && d->instantiate != NULL &&
         d->exec_destroy != NULL && d->graph_destroy != NULL && d->graph_nodes != NULL &&
         d->node_type != NULL && d->kernel_params != NULL && d->copy_params != NULL &&
         d->set_params != NULL && d->child_graph != NULL && d->event_destroy != NULL &&
         d->stream_wait_event != NULL;
}

/* Making them may take so much of the time, and so much at once: a program that makes a graph a
 * step would else take twice as long. Processor time of the threads that make them, so that a busy
 * machine takes no twin away. */
#define BUDGET_PART 100U /* of the time */
#define BUDGET_MOST_NS 20000000LL
static int64_t budget_ns = BUDGET_MOST_NS;
static uint64_t budget_at_ns;

static int64_t cpu_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int has_budget(void) {
  pthread_mutex_lock(&lock);
  const uint64_t now = kansoku_now();
  const uint64_t since = budget_at_ns == 0 || now < budget_at_ns ? 0 : now - budget_at_ns;
  budget_at_ns = now;
  budget_ns += (int64_t)(since / BUDGET_PART);
  if (budget_ns > BUDGET_MOST_NS) budget_ns = BUDGET_MOST_NS;
  const int has_some = budget_ns > 0;
  pthread_mutex_unlock(&lock);
  return has_some;
}

static void spend(int64_t cost_ns) {
  pthread_mutex_lock(&lock);
  budget_ns -= cost_ns;
  pthread_mutex_unlock(&lock);
}

/* So that the time is nobody else's. */
static void tell_cost(uint64_t begin_ns) {
  struct wire_cuda_record record;
  memset(&record, 0, sizeof record);
  record.entry = WIRE_CUDA_OWN;
  record.host_begin_ns = begin_ns;
  record.device_ns = kansoku_now() - begin_ns;
  record.tid = (uint32_t)syscall(SYS_gettid);
  kansoku_write(&record);
}

static struct kansoku_twin* twin_new(void) {
  pthread_mutex_lock(&lock);
  struct kansoku_twin* twin = unused;
  if (twin != NULL)
    unused = twin->next_unused;
  else
    twin = calloc(1, sizeof *twin);
  pthread_mutex_unlock(&lock);
  return twin;
}

/* With no launch of it on its way. With a context that is gone, its events went with it. */
static void twin_end(struct kansoku_twin* twin) {
  if (!atomic_load(&twin->is_lost)) {
    if (twin->exec != NULL) kansoku_driver.exec_destroy(twin->exec);
    for (uint32_t i = 0; i < twin->event_count; ++i)
      kansoku_driver.event_destroy(twin->events[i]);
  }
  atomic_fetch_sub(&events_made, twin->event_count);
  free(twin->nodes);
  free(twin->events);
  free(twin->offset_ns);
  free(twin->order);
  twin->nodes = NULL;
  twin->events = NULL;
  twin->offset_ns = NULL;
  twin->order = NULL;
  twin->exec = NULL;
  twin->node_count = twin->event_count = 0;
  pthread_mutex_lock(&lock);
  twin->next_unused = unused;
  unused = twin;
  pthread_mutex_unlock(&lock);
}

static void end_if_idle(struct kansoku_twin* twin) {
  uint32_t idle = KANSOKU_TWIN_IDLE;
  if (atomic_load(&twin->is_retired) &&
      atomic_compare_exchange_strong(&twin->state, &idle, KANSOKU_TWIN_GONE))
    twin_end(twin);
}

void kansoku_twin_release(struct kansoku_twin* twin) {
  atomic_store(&twin->state, KANSOKU_TWIN_IDLE);
  end_if_idle(twin);
}

static void retire(struct kansoku_twin* twin, int is_lost) {
  if (is_lost) atomic_store(&twin->is_lost, 1);
  atomic_store(&twin->is_retired, 1);
  end_if_idle(twin);
}

void kansoku_twin_gone(uint32_t graph) {
  struct kansoku_twin* const twin =
      graph < WIRE_CUDA_GRAPHS_MAX ? atomic_exchange(&twins[graph], NULL) : NULL;
  if (twin != NULL) retire(twin, 0);
}

void kansoku_twins_of_context_gone(CUcontext context) {
  for (uint32_t graph = 0; graph < WIRE_CUDA_GRAPHS_MAX; ++graph) {
    struct kansoku_twin* twin = atomic_load(&twins[graph]);
    if (twin == NULL || twin->context != context ||
        !atomic_compare_exchange_strong(&twins[graph], &twin, NULL))
      continue;
    retire(twin, 1);
  }
}

/* Its handle may be another stream's from now on. */
void kansoku_twins_stream_gone(CUstream stream) {
  for (uint32_t graph = 0; graph < WIRE_CUDA_GRAPHS_MAX; ++graph) {
    uint64_t last = (uintptr_t)stream;
    atomic_compare_exchange_strong(&last_streams[graph], &last, 0);
  }
}

/* While one is made: a graph, or the child of one. */
struct plan {
  CUgraph graph;
  CUgraphNode* nodes; /* then, at the same places, what its followers wait for */
  size_t count;
  CUgraphNode *from, *to; /* edges */
  size_t edges;
  CUgraphNode* out; /* by node: itself, or the event behind it */
  uint32_t* end;    /* by node: the event behind it; KANSOKU_NONE */
};

static void plan_free(struct plan* plan) {
  free(plan->nodes);
  free(plan->from);
  free(plan->to);
  free(plan->out);
  free(plan->end);
}

static int by_address(const void* a, const void* b) {
  const uintptr_t left = (uintptr_t) * (const CUgraphNode*)a,
                  right = (uintptr_t) * (const CUgraphNode*)b;
  return left < right ? -1 : left > right;
}

static size_t place_of(const struct plan* plan, CUgraphNode node) {
  const CUgraphNode* const found =
      bsearch(&node, plan->nodes, plan->count, sizeof node, by_address);
  return found == NULL ? plan->count : (size_t)(found - plan->nodes);
}

static int plan_read(struct plan* plan, CUgraph graph) {
  memset(plan, 0, sizeof *plan);
  plan->graph = graph;
  if (kansoku_driver.graph_nodes(graph, NULL, &plan->count) != CUDA_SUCCESS || plan->count == 0 ||
      plan->count > NODES_MAX ||
      /* Refused by the driver where an edge is more than an edge. */
      kansoku_driver.graph_edges(graph, NULL, NULL, &plan->edges) != CUDA_SUCCESS ||
      plan->edges > 16 * (size_t)NODES_MAX)
    return 0;
  plan->nodes = calloc(plan->count, sizeof *plan->nodes);
  plan->out = calloc(plan->count, sizeof *plan->out);
  plan->end = calloc(plan->count, sizeof *plan->end);
  plan->from = calloc(plan->edges + 1, sizeof *plan->from);
  plan->to = calloc(plan->edges + 1, sizeof *plan->to);
  if (plan->nodes == NULL || plan->out == NULL || plan->end == NULL || plan->from == NULL ||
      plan->to == NULL ||
      kansoku_driver.graph_nodes(graph, plan->nodes, &plan->count) != CUDA_SUCCESS)
    return 0;
  if (plan->edges > 0 &&
      kansoku_driver.graph_edges(graph, plan->from, plan->to, &plan->edges) != CUDA_SUCCESS)
    return 0;
  qsort(plan->nodes, plan->count, sizeof *plan->nodes, by_address);
  return 1;
}

/* A new event of the twin; KANSOKU_NONE: no more. */
static uint32_t event_new(struct kansoku_twin* twin) {
  if (twin->event_count >= 2 * NODES_MAX) return KANSOKU_NONE;
  if (atomic_fetch_add(&events_made, 1) >= EVENTS_MAX ||
      kansoku_driver.event_create(&twin->events[twin->event_count], 0) != CUDA_SUCCESS) {
    atomic_fetch_sub(&events_made, 1);
    return KANSOKU_NONE;
  }
  return twin->event_count++;
}

static uint8_t entry_of(const char* symbol) {
  for (unsigned i = 0; i < kansoku_hook_count; ++i)
    if (strcmp(kansoku_hooks[i].symbol, symbol) == 0) return (uint8_t)i;
  return 0;
}

static void describe_kernel(CUgraphNode node, struct wire_cuda_record* record) {
  CUDA_KERNEL_NODE_PARAMS params;
  struct kansoku_call call;
  memset(&params, 0, sizeof params);
  memset(&call, 0, sizeof call);
  record->entry = entry_of("cuLaunchKernel");
  record->u.launch.kernel = (uint16_t)WIRE_CUDA_NO_KERNEL;
  if (kansoku_driver.kernel_params(node, &params) != CUDA_SUCCESS) return;
  kansoku_kernel(&call, params.func, params.gridDimX, params.gridDimY, params.gridDimZ,
                 params.blockDimX, params.blockDimY, params.blockDimZ, params.sharedMemBytes);
  record->u.launch = call.record.u.launch;
}

static void describe_copy(CUgraphNode node, struct wire_cuda_record* record) {
  CUDA_MEMCPY3D shape;
  struct kansoku_call call;
  memset(&call, 0, sizeof call);
  record->entry = entry_of("cuMemcpy3DAsync_v2");
  if (kansoku_driver.copy_params(node, &shape) != CUDA_SUCCESS) return;
  kansoku_copy_3d(&call, &shape);
  record->u.memory = call.record.u.memory;
}

static void describe_set(CUgraphNode node, struct wire_cuda_record* record) {
  CUDA_MEMSET_NODE_PARAMS params;
  record->entry = entry_of("cuMemsetD8Async");
  if (kansoku_driver.set_params(node, &params) == CUDA_SUCCESS)
    record->u.memory.bytes = (uint64_t)params.elementSize * params.width * params.height;
}

static int instrument(struct kansoku_twin* twin, CUgraph graph, int depth);

/* 1: to be timed; 0: not; -1: no twin can be made of such a graph. */
static int describe(struct kansoku_twin* twin, CUgraphNode node, struct wire_cuda_record* record,
                    int depth) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraph child = NULL;
  memset(record, 0, sizeof *record);
  if (kansoku_driver.node_type(node, &type) != CUDA_SUCCESS) return -1;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      describe_kernel(node, record);
      return 1;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      describe_copy(node, record);
      return 1;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      describe_set(node, record);
      return 1;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return kansoku_driver.child_graph(node, &child) == CUDA_SUCCESS &&
                     instrument(twin, child, depth + 1)
                 ? 0
                 : -1;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return 0;
    default: /* memory of its own, conditions, what is newer than this */
      return -1;
  }
}

/* The one node in front of it whose end is its begin; KANSOKU_NONE: it needs an event of its own.
 */
static uint32_t begin_of(const struct plan* plan, size_t node) {
  size_t before = plan->count, count = 0;
  for (size_t i = 0; i < plan->edges; ++i)
    if (plan->to[i] == plan->nodes[node]) {
      before = place_of(plan, plan->from[i]);
      ++count;
    }
  return count == 1 && before < plan->count ? plan->end[before] : KANSOKU_NONE;
}

/* An event in front of the node, behind all that it waits for. */
static int add_begin(struct kansoku_twin* twin, struct plan* plan, size_t node, uint32_t* begin) {
  CUgraphNode* const after = calloc(plan->edges + 1, sizeof *after);
  CUgraphNode event_node = NULL;
  size_t count = 0;
  int is_done = 0;
  if (after == NULL) return 0;
  for (size_t i = 0; i < plan->edges; ++i)
    if (plan->to[i] == plan->nodes[node]) after[count++] = plan->out[place_of(plan, plan->from[i])];
  *begin = event_new(twin);
  is_done =
      *begin != KANSOKU_NONE &&
      kansoku_driver.add_event_node(&event_node, plan->graph, after, count, twin->events[*begin]) ==
          CUDA_SUCCESS &&
      kansoku_driver.add_edges(plan->graph, &event_node, &plan->nodes[node], 1) == CUDA_SUCCESS;
  free(after);
  return is_done;
}

static int add_edges_of(struct plan* plan, size_t node) {
  for (size_t i = 0; i < plan->edges; ++i)
    if (plan->to[i] == plan->nodes[node] &&
        kansoku_driver.add_edges(plan->graph, &plan->out[place_of(plan, plan->from[i])],
                                 &plan->nodes[node], 1) != CUDA_SUCCESS)
      return 0;
  return 1;
}

/* The events behind all nodes that are timed, and their descriptions. */
static int add_ends(struct kansoku_twin* twin, struct plan* plan, int depth) {
  for (size_t i = 0; i < plan->count; ++i) {
    struct wire_cuda_record record;
    plan->out[i] = plan->nodes[i];
    plan->end[i] = KANSOKU_NONE;
    const int is_timed = describe(twin, plan->nodes[i], &record, depth);
    if (is_timed < 0 || twin->node_count >= NODES_MAX) return 0;
    if (is_timed == 0) continue;
    plan->end[i] = event_new(twin);
    if (plan->end[i] == KANSOKU_NONE ||
        kansoku_driver.add_event_node(&plan->out[i], plan->graph, &plan->nodes[i], 1,
                                      twin->events[plan->end[i]]) != CUDA_SUCCESS)
      return 0;
    struct kansoku_twin_node* const node = &twin->nodes[twin->node_count++];
    node->record = record;
    node->end = plan->end[i];
    node->begin = KANSOKU_NONE;
  }
  return 1;
}

static struct kansoku_twin_node* node_of_end(struct kansoku_twin* twin, uint32_t end) {
  for (uint32_t i = 0; i < twin->node_count; ++i)
    if (twin->nodes[i].end == end) return &twin->nodes[i];
  return NULL;
}

static int instrument(struct kansoku_twin* twin, CUgraph graph, int depth) {
  struct plan plan;
  int is_done = depth <= DEPTH_MAX && plan_read(&plan, graph);
  if (depth > DEPTH_MAX) return 0;
  is_done = is_done && add_ends(twin, &plan, depth) &&
            (plan.edges == 0 ||
             kansoku_driver.remove_edges(graph, plan.from, plan.to, plan.edges) == CUDA_SUCCESS);
  for (size_t i = 0; is_done && i < plan.count; ++i) {
    uint32_t begin = begin_of(&plan, i);
    if (plan.end[i] == KANSOKU_NONE || begin != KANSOKU_NONE)
      is_done = add_edges_of(&plan, i);
    else
      is_done = add_begin(twin, &plan, i, &begin);
    if (is_done && plan.end[i] != KANSOKU_NONE) node_of_end(twin, plan.end[i])->begin = begin;
  }
  plan_free(&plan);
  return is_done;
}

/* A graph that the device launches, or whose memory is its own, can have no second executable. */
#define FLAGS_TAKEN (~(uint64_t)0xb) /* but for: free on launch, upload, use priorities */

static int make(struct kansoku_twin* twin, CUgraph graph, uint64_t flags) {
  CUgraph clone = NULL;
  twin->nodes = calloc(NODES_MAX, sizeof *twin->nodes);
  twin->events = calloc((size_t)2 * NODES_MAX, sizeof *twin->events);
  twin->exec = NULL;
  twin->node_count = twin->event_count = 0;
  if (twin->nodes == NULL || twin->events == NULL ||
      kansoku_driver.ctx_get_current(&twin->context) != CUDA_SUCCESS || twin->context == NULL ||
      kansoku_driver.graph_clone(&clone, graph) != CUDA_SUCCESS)
    return 0;
  const int is_done = instrument(twin, clone, 0) && twin->node_count > 0 &&
                      kansoku_driver.instantiate(&twin->exec, clone, flags & 0x8) == CUDA_SUCCESS;
  kansoku_driver.graph_destroy(clone);
  twin->done = event_new(twin);
  if (!is_done || twin->done == KANSOKU_NONE) return 0;
  twin->offset_ns = calloc(twin->event_count, sizeof *twin->offset_ns);
  twin->order = calloc(twin->node_count, sizeof *twin->order);
  if (twin->offset_ns == NULL || twin->order == NULL) return 0;
  for (uint32_t i = 0; i < twin->node_count; ++i)
    twin->order[i] = i;
  /* Unused memory goes back to the process. */
  struct kansoku_twin_node* const nodes =
      realloc(twin->nodes, twin->node_count * sizeof *twin->nodes);
  if (nodes != NULL) twin->nodes = nodes;
  return 1;
}

void kansoku_twin_make(uint32_t index, CUgraph graph, uint64_t flags) {
  struct wire_cuda_state* const state = &kansoku.shared->state;
  const int is_wanted = kansoku.keeps_graphs || atomic_load(&kansoku.mode) == WIRE_CUDA_EVERY;
  if (index >= WIRE_CUDA_GRAPHS_MAX || !is_wanted) return;
  kansoku_twin_gone(index);
  if (!can_make() || atomic_load(&are_refused) || (flags & FLAGS_TAKEN) != 0) {
    KANSOKU_LOSE(graphs_excluded);
    return;
  }
  if (!has_budget()) {
    KANSOKU_LOSE(graphs_over_budget);
    return;
  }
  const uint64_t begin = kansoku_now();
  const int64_t cpu_begin = cpu_now();
  struct kansoku_twin* const twin = twin_new();
  if (twin == NULL) return;
  atomic_store(&twin->is_lost, 0);
  atomic_store(&twin->is_retired, 0);
  if (make(twin, graph, flags)) {
    atomic_store(&twin->state, KANSOKU_TWIN_IDLE);
    atomic_store(&last_streams[index], 0);
    atomic_store(&twins[index], twin);
    /* From now on launches of graphs are looked at while dormant, too. */
    if (!atomic_exchange(&are_any, 1) && atomic_load(&kansoku.mode) == WIRE_CUDA_DORMANT)
      kansoku_set_hooks(0);
    atomic_fetch_add((_Atomic uint64_t*)&state->twins, 1);
  } else {
    KANSOKU_LOSE(graphs_excluded);
    atomic_store(&twin->state, KANSOKU_TWIN_GONE);
    twin_end(twin);
  }
  spend(cpu_now() - cpu_begin);
  atomic_fetch_add((_Atomic uint64_t*)&state->twin_ns, kansoku_now() - begin);
  if (atomic_load(&kansoku.mode) == WIRE_CUDA_EVERY) tell_cost(begin);
}

/* The twin of a launch that is timed, if the stream orders it behind the launch before it. */
static struct kansoku_twin* take(const struct kansoku_call* call, uint32_t graph, uint64_t stream,
                                 uint64_t last) {
  struct kansoku_twin* const twin = atomic_load(&twins[graph]);
  uint32_t idle = KANSOKU_TWIN_IDLE;
  if (twin == NULL || call->thread == NULL || call->pair == KANSOKU_NONE || stream <= 2 ||
      stream != last)
    return NULL;
  return atomic_compare_exchange_strong(&twin->state, &idle, KANSOKU_TWIN_BUSY) ? twin : NULL;
}

CUresult kansoku_graph_launch(struct kansoku_call* call, CUgraphExec exec, CUstream stream,
                              int is_per_thread, CUresult (*launch)(CUgraphExec, CUstream)) {
  const uint32_t graph = kansoku_graph_index(exec);
  if (graph >= WIRE_CUDA_GRAPHS_MAX) return launch(exec, stream);
  const uint64_t now = is_per_thread && stream == NULL ? 2 : (uintptr_t)stream;
  const uint64_t last = atomic_exchange(&last_streams[graph], now > 2 ? now : 1);
  struct kansoku_twin* const before = atomic_load(&twins[graph]);
  if (before != NULL && now != last && atomic_load(&before->state) == KANSOKU_TWIN_BUSY)
    kansoku_driver.stream_wait_event((CUstream)(uintptr_t)now, before->events[before->done], 0);
  struct kansoku_twin* const twin = take(call, graph, now, last);
  if (twin == NULL) {
    if (before != NULL && call->thread != NULL && call->pair != KANSOKU_NONE)
      KANSOKU_LOSE(graph_untimed);
    return launch(exec, stream);
  }
  if (launch(twin->exec, stream) == CUDA_SUCCESS) {
    kansoku_driver.event_record(twin->events[twin->done], stream);
    call->twin = twin;
    return CUDA_SUCCESS;
  }
  /* The program gets what its own graph gets. */
  kansoku_twin_release(twin);
  kansoku_twin_gone(graph);
  return launch(exec, stream);
}
