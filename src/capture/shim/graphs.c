/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: what they run is known from the graph that they are made of, which is often
 * gone right after. */
#include <stdlib.h>
#include <string.h>

#include "capture/shim/internal/shim.h"

#define NODES_MAX 65536U
#define DEPTH_MAX 16
#define TABLE_SLOTS (4 * WIRE_CUDA_GRAPHS_MAX)
static struct {
  _Atomic uint64_t handle;
  _Atomic uint32_t index; /* WIRE_CUDA_GRAPHS_MAX: destroyed */
} table[TABLE_SLOTS];
static uint64_t instantiated_with[WIRE_CUDA_GRAPHS_MAX]; /* flags, by index */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned slot_of(uint64_t handle) {
  return (unsigned)((handle * 0x9e3779b97f4a7c15ULL) >> 52); /* 12 bits */
}

static uint32_t find(uint64_t handle) {
  for (unsigned i = 0; i < TABLE_SLOTS; ++i) {
    const unsigned at = (slot_of(handle) + i) % TABLE_SLOTS;
    const uint64_t found = atomic_load_explicit(&table[at].handle, memory_order_acquire);
    if (found == handle) return atomic_load_explicit(&table[at].index, memory_order_acquire);
    if (found == 0) break;
  }
  return WIRE_CUDA_GRAPHS_MAX;
}

uint32_t kansoku_graph_index(CUgraphExec exec) {
  return find((uintptr_t)exec);
}

/* Under the lock. A graph beyond the limit gets a place only if its handle had one. */
static void bind(uint64_t handle, uint32_t index) {
  for (unsigned i = 0; i < TABLE_SLOTS; ++i) {
    const unsigned at = (slot_of(handle) + i) % TABLE_SLOTS;
    const uint64_t found = atomic_load(&table[at].handle);
    if (found != 0 && found != handle) continue;
    if (found == 0 && index >= WIRE_CUDA_GRAPHS_MAX) return;
    atomic_store(&table[at].index, index);
    atomic_store_explicit(&table[at].handle, handle, memory_order_release);
    return;
  }
}

static void add_node(struct wire_cuda_graph* to, CUgraphNode node, int depth);

static void add_nodes(struct wire_cuda_graph* to, CUgraph graph, int depth) {
  size_t count = 0;
  if (depth > DEPTH_MAX || kansoku_driver.graph_nodes(graph, NULL, &count) != CUDA_SUCCESS ||
      count == 0 || count > NODES_MAX)
    return;
  CUgraphNode* const nodes = malloc(count * sizeof *nodes);
  if (nodes == NULL) return;
  if (kansoku_driver.graph_nodes(graph, nodes, &count) == CUDA_SUCCESS)
    for (size_t i = 0; i < count; ++i)
      add_node(to, nodes[i], depth);
  free(nodes);
}

static void add_node(struct wire_cuda_graph* to, CUgraphNode node, int depth) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraph child = NULL;
  CUDA_KERNEL_NODE_PARAMS params;
  if (kansoku_driver.node_type(node, &type) != CUDA_SUCCESS) return;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      memset(&params, 0, sizeof params);
      if (to->kernels < WIRE_CUDA_GRAPH_KERNELS)
        to->nodes[to->kernels] = kansoku_driver.kernel_params(node, &params) == CUDA_SUCCESS
                                     ? (uint16_t)kansoku_kernel_index((uintptr_t)params.func)
                                     : (uint16_t)WIRE_CUDA_NO_KERNEL;
      ++to->kernels;
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      ++to->copies;
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      ++to->sets;
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (kansoku_driver.child_graph(node, &child) == CUDA_SUCCESS) add_nodes(to, child, depth + 1);
      break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    default:
      ++to->others;
  }
}

void kansoku_graph_made(CUgraphExec exec, CUgraph graph, uint64_t flags) {
  struct wire_cuda* const shared = kansoku.shared;
  if (shared == NULL || exec == NULL || kansoku_driver.graph_nodes == NULL ||
      kansoku_driver.node_type == NULL || kansoku_driver.kernel_params == NULL ||
      kansoku_driver.child_graph == NULL)
    return;
  pthread_mutex_lock(&lock);
  const uint64_t index = shared->graph_count;
  if (index < WIRE_CUDA_GRAPHS_MAX)
    shared->graph_count = index + 1;
  else
    KANSOKU_LOSE(graphs_over_limit);
  bind((uintptr_t)exec, index < WIRE_CUDA_GRAPHS_MAX ? (uint32_t)index : WIRE_CUDA_GRAPHS_MAX);
  pthread_mutex_unlock(&lock);
  if (index >= WIRE_CUDA_GRAPHS_MAX) return;
  struct wire_cuda_graph* const entry = &shared->graphs[index];
  add_nodes(entry, graph, 0);
  atomic_store((_Atomic uint64_t*)&entry->handle, (uintptr_t)exec);
  instantiated_with[index] = flags;
  kansoku_twin_make((uint32_t)index, graph, flags);
}

/* After an update the executable runs what the other graph has; mostly that is the same. */
void kansoku_graph_updated(CUresult result, CUgraphExec exec, CUgraph graph) {
  struct wire_cuda* const shared = kansoku.shared;
  if (shared == NULL || kansoku_driver.graph_nodes == NULL) return;
  const uint32_t index = find((uintptr_t)exec);
  if (result != CUDA_SUCCESS) { /* it may be changed in part */
    kansoku_graph_changed(exec);
    return;
  }
  struct wire_cuda_graph now;
  memset(&now, 0, sizeof now);
  add_nodes(&now, graph, 0);
  if (index < WIRE_CUDA_GRAPHS_MAX) {
    const struct wire_cuda_graph* const before = &shared->graphs[index];
    if (before->kernels == now.kernels && before->copies == now.copies &&
        before->sets == now.sets && before->others == now.others &&
        memcmp(before->nodes, now.nodes, sizeof now.nodes) == 0) {
      kansoku_twin_make(index, graph, instantiated_with[index]); /* with what they run on now */
      return;
    }
  }
  kansoku_twin_gone(index);
  kansoku_graph_made(exec, graph,
                     index < WIRE_CUDA_GRAPHS_MAX ? instantiated_with[index] : UINT64_MAX);
}

/* One node got other parameters: if that is another kernel than the source's node has, the contents
 * are no longer known. */
void kansoku_graph_node_set(CUgraphExec exec, CUgraphNode node, CUfunction function) {
  CUDA_KERNEL_NODE_PARAMS before;
  memset(&before, 0, sizeof before);
  if (kansoku.shared == NULL || find((uintptr_t)exec) >= WIRE_CUDA_GRAPHS_MAX) return;
  kansoku_graph_changed(exec);
  if (function == NULL || kansoku_driver.kernel_params == NULL ||
      kansoku_driver.kernel_params(node, &before) != CUDA_SUCCESS ||
      kansoku_kernel_index((uintptr_t)before.func) != kansoku_kernel_index((uintptr_t)function))
    kansoku_graph_gone(exec);
}

/* It runs the same kernels, on what its twin does not know of. */
void kansoku_graph_changed(CUgraphExec exec) {
  if (kansoku.shared != NULL) kansoku_twin_gone(find((uintptr_t)exec));
}

void kansoku_graph_gone(CUgraphExec exec) {
  const uint32_t index = kansoku.shared == NULL ? WIRE_CUDA_GRAPHS_MAX : find((uintptr_t)exec);
  if (index == WIRE_CUDA_GRAPHS_MAX) return;
  kansoku_twin_gone(index);
  pthread_mutex_lock(&lock);
  bind((uintptr_t)exec, WIRE_CUDA_GRAPHS_MAX);
  pthread_mutex_unlock(&lock);
}

/* Which of the known graphs it is, for the record of its launch. */
void kansoku_graph(struct kansoku_call* call, CUgraphExec exec) {
  const uint32_t index = find((uintptr_t)exec);
  call->record.u.memory.bytes = index < WIRE_CUDA_GRAPHS_MAX ? index + 1 : 0;
  call->record.u.memory.detail = (uintptr_t)exec;
}

void kansoku_graph_launched(const struct kansoku_call* call) {
  if (call->thread == NULL) return;
  const uint64_t number = call->record.u.memory.bytes;
  if (call->result == CUDA_SUCCESS && number != 0 && (call->record.flags & WIRE_CUDA_CAPTURED) == 0)
    atomic_fetch_add_explicit((_Atomic uint64_t*)&kansoku.shared->graphs[number - 1].launches, 1,
                              memory_order_relaxed);
}
