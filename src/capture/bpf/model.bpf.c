// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// Models in inference: one lean program for all places, at rates of tens of thousands of hits a
// second. The cookie says which function was hit; where things lie in its arguments says the map
// `targets`. A graph is told with all its tensors once, and later by its uid alone.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "wire/model.h"
#include "wire/ring.h"

#include "capture/bpf/internal/calls.bpf.h"

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 16 * 1024 * 1024);
} ring SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, WIRE_MODEL_TARGETS_MAX);
  __type(key, __u32);
  __type(value, struct wire_model_target);
} targets SEC(".maps");

// Which one of a graph's threads a thread is, as it was read at its first operator: by the low bits
// of its number. Reading it each time would cost as much as all the rest.
#define PLACES 4096
struct place {
  __u32 tid, serial;  // of the target
  __u32 ith, nth;
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, PLACES);
  __type(key, __u32);
  __type(value, struct place);
} places SEC(".maps");

// The context of the decode that a thread is in, by pid and tid.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, __u64);
  __type(value, __u64);
} decoding SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, WIRE_MODEL_COUNTS);
  __type(key, __u32);
  __type(value, __u64);
} counts SEC(".maps");

struct graph_key {
  __u64 uid;
  __u32 tgid, epoch;
};
// Graphs that were told with their tensors.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct graph_key);
  __type(value, __u8);
} pictured SEC(".maps");

// Grows when the reader forgets the graphs that it was told of.
__u32 epoch = 0;

struct hit {
  struct pt_regs* regs;
  struct wire_model_target* target;
  __u64 now, thread;
  __u32 tgid, tid, role;
};

static __always_inline void count_one(__u32 which) {
  __u64* total = bpf_map_lookup_elem(&counts, &which);
  if (total) ++*total;
}

static __always_inline void* reserve(__u64 bytes) {
  void* record = bpf_ringbuf_reserve(&ring, bytes, 0);
  if (!record) count_one(WIRE_MODEL_RING_FULL);
  return record;
}

static __always_inline void fill_head(const struct hit* hit, __u8 kind,
                                      struct wire_model_event* head) {
  head->t_boot_ns = hit->now;
  head->tgid = hit->tgid;
  head->tid = hit->tid;
  head->role = hit->role;
  head->kind = kind;
  head->ith = 0;
  head->nth = 0;
  head->flags = 0;
  head->a = 0;
  head->b = 0;
}

static __always_inline void on_end(const struct hit* hit, __u64 cookie) {
  __u64 stack = 0;
  if (!ends_here(hit->regs, cookie, &stack)) return;
  struct wire_model_event* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(hit, WIRE_MODEL_END, record);
  record->a = returned_value(hit->regs, cookie);
  if (cookie & WIRE_COOKIE_JUMP) record->flags = WIRE_MODEL_JUMP;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void on_plain(const struct hit* hit) {
  struct wire_model_event* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(hit, WIRE_MODEL_BEGIN, record);
  record->a = hit->regs->rdi;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline int is_decode(__u32 role) {
  return role == WIRE_MODEL_DECODE || role == WIRE_MODEL_CONTEXT_DECODE || role == WIRE_MODEL_EVAL;
}

static __always_inline void on_decode(const struct hit* hit) {
  __u64 context = hit->regs->rdi;
  bpf_map_update_elem(&decoding, &hit->thread, &context, BPF_ANY);
  struct wire_model_batch* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(hit, WIRE_MODEL_BEGIN, &record->head);
  record->head.a = context;
  record->token_count = 0;
  record->reserved = 0;
  // The first member of a batch is its count; llama_decode has it on its stack.
  volatile __u64 places[2] = {hit->regs->rsp, hit->regs->rsi};
  __u64 on_stack = places[0], given = places[1];
  __u64 batch =
      hit->role == WIRE_MODEL_DECODE ? on_stack + hit->target->layout.batch_token_count : given;
  if (hit->role == WIRE_MODEL_EVAL)
    record->token_count = (__s32)hit->regs->rdx;
  else if (bpf_probe_read_user(&record->token_count, 4, (void*)batch))
    record->head.flags = WIRE_MODEL_UNREADABLE;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __noinline int fill_tokens(struct wire_model_micro_batch* record, __u64 batch,
                                  const struct wire_model_layout* layout) {
  if (!record || !layout) return 0;
  __u64 positions = 0, sequences = 0;
  __u32 count = record->token_count, each = 1;
  __u32 first = count > WIRE_MODEL_TOKENS ? count - WIRE_MODEL_TOKENS : 0;
  // The older form has a pointer to the tokens here, and sequences for runs of tokens.
  int is_old = record->unique_count == 0 || record->unique_count > WIRE_MODEL_SEQUENCES_MAX;
  if (is_old) {
    record->unique_count = 0;
    each = record->sequence_tokens;
  }
  int failed =
      bpf_probe_read_user(&positions, 8,
                          (void*)(batch + (is_old ? layout->micro_old_pos : layout->micro_pos))) ||
      bpf_probe_read_user(
          &sequences, 8,
          (void*)(batch + (is_old ? layout->micro_old_seq_id : layout->micro_seq_id)));
  for (__u32 i = 0; i < WIRE_MODEL_TOKENS; ++i) {
    if (i >= count || failed) break;
    __u64 token = first + i, id = 0;
    if (positions)
      failed |= bpf_probe_read_user(&record->position[i], 4, (void*)(positions + 4 * token)) != 0;
    if (!sequences) continue;
    __u64 sequence = each > 1 ? token / each : token;
    failed |= bpf_probe_read_user(&id, 8, (void*)(sequences + 8 * sequence)) != 0 ||
              bpf_probe_read_user(&record->sequence[i], 4, (void*)id) != 0;
  }
  return failed;
}

// After fill_tokens: which of these tokens ask for an output. All but 0 and 1 is something else.
static __noinline int fill_outputs(struct wire_model_micro_batch* record, __u64 batch,
                                   const struct wire_model_layout* layout) {
  if (!record || !layout) return 0;
  __u64 outputs = 0;
  __u32 count = record->token_count, found = 0;
  __u32 first = count > WIRE_MODEL_TOKENS ? count - WIRE_MODEL_TOKENS : 0;
  __u32 offset = record->unique_count == 0 ? layout->micro_old_output : layout->micro_output;
  if (bpf_probe_read_user(&outputs, 8, (void*)(batch + offset)) || !outputs) return 0;
  for (__u32 i = 0; i < WIRE_MODEL_TOKENS; ++i) {
    __u8 one = 0;
    if (i >= count) break;
    if (bpf_probe_read_user(&one, 1, (void*)(outputs + first + i)) || one > 1) return 0;
    if (one) found |= 1U << i;
  }
  record->outputs = found;
  record->has_outputs = 1;
  return 0;
}

// Builds whose function returns an object have a pointer to it before the context: the decode
// around it tells which argument that is. Outside of one the last known form holds.
static __always_inline __u32 form_of(const struct hit* hit, __u64 first, __u64 second) {
  __u64* context = bpf_map_lookup_elem(&decoding, &hit->thread);
  if (!context) return hit->target->micro_form;
  __u32 form = 0;
  if (*context == first)
    form = WIRE_MODEL_FORM_DIRECT;
  else if (*context == second)
    form = WIRE_MODEL_FORM_HIDDEN;
  if (form) hit->target->micro_form = form;
  return form;
}

static __always_inline void on_micro_batch(const struct hit* hit) {
  struct wire_model_micro_batch* record = reserve(sizeof(*record));
  if (!record) return;
  // All are read, and then one is chosen: the verifier takes no computed place in the registers.
  volatile __u64 arguments[4] = {hit->regs->rdi, hit->regs->rsi, hit->regs->rdx, hit->regs->rcx};
  __u64 first = arguments[0], second = arguments[1], third = arguments[2], fourth = arguments[3];
  __u32 form = form_of(hit, first, second);
  int is_direct = form == WIRE_MODEL_FORM_DIRECT;
  __u64 batch = is_direct ? second : third;
  __builtin_memset(record, 0, sizeof(*record));
  fill_head(hit, WIRE_MODEL_BEGIN, &record->head);
  record->head.a = is_direct ? first : second;
  record->head.b = is_direct ? third : fourth;
  if (!form) {
    record->head.flags |= WIRE_MODEL_NO_FORM;
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
    return;
  }
  if (bpf_probe_read_user(&record->token_count, 16,
                          (void*)(batch + hit->target->layout.micro_tokens)) ||
      fill_tokens(record, batch, &hit->target->layout))
    record->head.flags |= WIRE_MODEL_UNREADABLE;
  else
    fill_outputs(record, batch, &hit->target->layout);
  if (record->token_count > WIRE_MODEL_TOKENS) record->head.flags |= WIRE_MODEL_CUT;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

struct picture {
  struct wire_model_target* target;
  __u64 graph, nodes;
  __u32 tgid, told, failed;
};

static __always_inline int tell_tensor(struct picture* picture, __u64 address, __u32 node,
                                       __u16 flags) {
  struct wire_model_tensor* record = reserve(sizeof(*record));
  if (!record) {
    picture->failed = 1;
    return 1;
  }
  record->address = address;
  record->graph = picture->graph;
  record->tgid = picture->tgid;
  record->role = WIRE_MODEL_GRAPH;
  record->kind = WIRE_MODEL_TENSOR;
  record->flags = flags;
  record->node = node;
  record->reserved = 0;
  if (bpf_probe_read_user(record->bytes, sizeof(record->bytes), (void*)address)) {
    record->flags |= WIRE_MODEL_UNREADABLE;
    picture->failed = 1;
  }
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  ++picture->told;
  return 0;
}

static long tell_node(__u32 index, void* context) {
  struct picture* picture = context;
  const struct wire_model_layout* layout = &picture->target->layout;
  __u32 op = 0;
  __u64 node = 0, sources[WIRE_MODEL_SOURCES_MAX] = {};
  if (bpf_probe_read_user(&node, 8, (void*)(picture->nodes + 8ULL * index))) {
    picture->failed = 1;
    return 1;
  }
  if (tell_tensor(picture, node, index, 0)) return 1;
  if (!bpf_probe_read_user(&op, 4, (void*)(node + layout->tensor_op)) && op != 0 &&
      op == layout->op_mul_mat_id)
    picture->target->has_experts = 1;
  if (bpf_probe_read_user(sources, sizeof(sources), (void*)(node + layout->tensor_src))) return 1;
  for (int i = 0; i < WIRE_MODEL_SOURCES_MAX; ++i) {
    op = 1;
    if (!sources[i]) continue;
    if (bpf_probe_read_user(&op, 4, (void*)(sources[i] + layout->tensor_op)) || op != 0) continue;
    if (tell_tensor(picture, sources[i], index, WIRE_MODEL_IS_LEAF)) return 1;
  }
  return 0;
}

// How many records it took; 0: there is none, or it failed. A function of its own for the verifier.
static __noinline __u32 tell_picture(__u64 graph, __u32 count, __u32 index) {
  struct wire_model_target* target = bpf_map_lookup_elem(&targets, &index);
  if (!target) return 0;
  struct picture picture = {.graph = graph, .tgid = target->tgid, .target = target};
  if (count > WIRE_MODEL_NODES_MAX) {
    count_one(WIRE_MODEL_CUT_GRAPHS);
    return 0;
  }
  if (bpf_probe_read_user(&picture.nodes, 8, (void*)(graph + target->layout.graph_nodes))) return 0;
  bpf_loop(count, tell_node, &picture, 0);
  return picture.failed ? 0 : picture.told;
}

static __always_inline void on_graph(const struct hit* hit, __u64 graph, __u64 backend,
                                     __u32 index) {
  __sync_fetch_and_add(&hit->target->serial, 1);
  const struct wire_model_layout* layout = &hit->target->layout;
  __u64 uid = 0, compute = 0;
  __s32 count = 0;
  int failed = (layout->graph_uid != WIRE_MODEL_NOWHERE &&
                bpf_probe_read_user(&uid, 8, (void*)(graph + layout->graph_uid))) ||
               bpf_probe_read_user(&count, 4, (void*)(graph + layout->graph_node_count));
  if (backend)
    failed |=
        bpf_probe_read_user(&compute, 8, (void*)(backend + layout->backend_graph_compute)) != 0;
  struct graph_key key = {.uid = uid, .tgid = hit->tgid, .epoch = epoch};
  __u32 told = 0;
  if (!failed && count > 0 && (uid == 0 || !bpf_map_lookup_elem(&pictured, &key))) {
    told = tell_picture(graph, count, index);
    __u8 one = 1;
    if (told && uid) bpf_map_update_elem(&pictured, &key, &one, BPF_ANY);
  }
  struct wire_model_graph* record = reserve(sizeof(*record));
  if (!record) {
    if (told && uid) bpf_map_delete_elem(&pictured, &key);
    return;
  }
  fill_head(hit, WIRE_MODEL_BEGIN, &record->head);
  // After the picture, which is no part of the work.
  record->head.t_boot_ns = told ? bpf_ktime_get_boot_ns() : hit->now;
  record->head.a = graph;
  record->head.b = compute;
  record->head.flags = (failed ? WIRE_MODEL_UNREADABLE : 0) | (told ? WIRE_MODEL_PICTURED : 0);
  record->uid = uid;
  record->node_count = count;
  record->pictured = told;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

// Tells of the experts if the host can read them.
static __noinline int tell_experts(__u64 tensor, const struct hit* hit) {
  if (!hit || !hit->target) return 0;
  const struct wire_model_layout* layout = &hit->target->layout;
  __u64 ids = 0, data = 0, sizes[2] = {}, strides[2] = {};
  if (bpf_probe_read_user(&ids, 8, (void*)(tensor + layout->tensor_src + 16)) ||
      bpf_probe_read_user(&data, 8, (void*)(ids + layout->tensor_data)) ||
      bpf_probe_read_user(sizes, 16, (void*)(ids + layout->tensor_ne)) ||
      bpf_probe_read_user(strides, 16, (void*)(ids + layout->tensor_nb)))
    return 0;
  struct wire_model_experts* record = reserve(sizeof(*record));
  if (!record) return 0;
  fill_head(hit, WIRE_MODEL_EXPERTS, &record->head);
  record->head.a = tensor;
  record->used = sizes[0];
  record->tokens = sizes[1];
  __u32 column = 0;
  __u64 row = 0;
  for (__u32 i = 0; i < WIRE_MODEL_EXPERTS_MAX; ++i) {
    record->id[i] = -1;
    if (row >= sizes[1]) continue;
    if (bpf_probe_read_user(&record->id[i], 4, (void*)(data + row * strides[1] + 4 * column)))
      record->head.flags |= WIRE_MODEL_UNREADABLE;
    if (++column >= sizes[0]) {
      column = 0;
      ++row;
    }
  }
  if (sizes[0] * sizes[1] > WIRE_MODEL_EXPERTS_MAX) record->head.flags |= WIRE_MODEL_CUT;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

// The place of the operator itself begins where this program ends: its time is no part of it.
static __always_inline void submit_operator(struct wire_model_event* record) {
  record->b = bpf_ktime_get_boot_ns();
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

// Nothing where it cannot be read.
static __always_inline struct place* place_of(const struct hit* hit, __u64 params) {
  __u32 index = hit->tid & (PLACES - 1), serial = hit->target->serial;
  struct place* place = bpf_map_lookup_elem(&places, &index);
  if (!place) return 0;
  if (place->tid == hit->tid && place->serial == serial) return place;
  // ith and nth lead in every known version.
  __u64 threads = 0;
  if (bpf_probe_read_user(&threads, sizeof(threads), (void*)params)) return 0;
  place->tid = hit->tid;
  place->serial = serial;
  place->ith = (__u32)threads;
  place->nth = threads >> 32;
  return place;
}

static __always_inline void on_operator(const struct hit* hit) {
  __u64 tensor = hit->regs->rsi;
  const struct place* place = place_of(hit, hit->regs->rdi);
  struct wire_model_event* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(hit, WIRE_MODEL_BEGIN, record);
  record->a = tensor;
  if (place) {
    record->ith = place->ith;
    record->nth = place->nth;
  } else {
    record->flags = WIRE_MODEL_UNREADABLE;
  }
  __u32 op = 0;
  if (hit->target->has_experts && place && place->ith == 0 &&
      !bpf_probe_read_user(&op, 4, (void*)(tensor + hit->target->layout.tensor_op)) &&
      op == hit->target->layout.op_mul_mat_id)
    tell_experts(tensor, hit);
  submit_operator(record);
}

static __always_inline void on_barrier(const struct hit* hit) {
  struct wire_model_event* record = reserve(sizeof(*record));
  if (!record) return;
  fill_head(hit, WIRE_MODEL_BEGIN, record);
  record->a = hit->regs->rdi;
  submit_operator(record);
}

SEC("uprobe")
int on_model(struct pt_regs* regs) {
  __u64 pid_tgid = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs);
  struct hit hit = {.regs = regs,
                    .thread = pid_tgid,
                    .tgid = pid_tgid >> 32,
                    .tid = (__u32)pid_tgid,
                    .role = WIRE_MODEL_ROLE(cookie)};
  __u32 index = WIRE_MODEL_TARGET(cookie);
  hit.target = bpf_map_lookup_elem(&targets, &index);
  if (!hit.target || hit.target->tgid != hit.tgid) return 0;
  hit.now = bpf_ktime_get_boot_ns();
  if (hit.role < WIRE_MODEL_ROLES)
    count_one(hit.role + (cookie & WIRE_MODEL_STEPPED ? WIRE_MODEL_STEPPED_HITS : 0));
  if (cookie & WIRE_COOKIE_EXIT) {
    if (is_decode(hit.role)) bpf_map_delete_elem(&decoding, &hit.thread);
    on_end(&hit, cookie);
    return 0;
  }
  switch (hit.role) {
    case WIRE_MODEL_OPERATOR:
    case WIRE_MODEL_FUSED_OPERATOR:
      on_operator(&hit);
      break;
    case WIRE_MODEL_BARRIER:
      on_barrier(&hit);
      break;
    case WIRE_MODEL_DECODE:
    case WIRE_MODEL_CONTEXT_DECODE:
    case WIRE_MODEL_EVAL:
      on_decode(&hit);
      break;
    case WIRE_MODEL_MICRO_BATCH:
      on_micro_batch(&hit);
      break;
    case WIRE_MODEL_SPLIT:
      on_graph(&hit, regs->rsi, regs->rdi, index);
      break;
    case WIRE_MODEL_GRAPH:
      on_graph(&hit, regs->rdi, 0, index);
      break;
    default:
      on_plain(&hit);
  }
  return 0;
}

// Cost of a hit without any of it.
SEC("uprobe")
int on_nothing(struct pt_regs* regs) {
  return 0;
}

char bpf_license[] SEC("license") = "Dual BSD/GPL";
