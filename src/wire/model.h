/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Records that the BPF program of models in inference (llama.cpp, ggml) puts into its ring, and the
 * offsets that it reads by. Plain C: compiled by the host compiler, by C++ and by clang -target
 * bpf. */

#include <linux/types.h>

#include "wire/version.h"

/* Role of a probed function: the low byte of the cookie of its places. The next three bytes are
 * the index of the process in the map `targets`. */
enum wire_model_role {
  WIRE_MODEL_DECODE = 1,     /* llama_decode: (context, batch) */
  WIRE_MODEL_MICRO_BATCH,    /* llama_context::process_ubatch: (this, ubatch, type, ...), or behind
                                a pointer to what it returns */
  WIRE_MODEL_SCHEDULE,       /* ggml_backend_sched_graph_compute_async */
  WIRE_MODEL_SPLIT,          /* ggml_backend_graph_compute_async: (backend, graph); begin alone */
  WIRE_MODEL_GRAPH,          /* ggml_graph_compute: (graph, plan) */
  WIRE_MODEL_OPERATOR,       /* (params, tensor), on each thread; begin alone */
  WIRE_MODEL_FUSED_OPERATOR, /* (params, tensor, last tensor), likewise */
  WIRE_MODEL_BARRIER,        /* ggml_barrier: (threadpool), likewise */
  WIRE_MODEL_CONTEXT_DECODE, /* llama_context::decode: (this, &batch); within a decode, or alone
                                where that is inlined */
  WIRE_MODEL_EVAL,           /* llama_eval: (context, tokens, count, ...) */
  WIRE_MODEL_ROLES
};

#define WIRE_MODEL_ROLE(cookie) ((cookie)&0xff)
#define WIRE_MODEL_STEPPED (1ULL << 31) /* of the cookie: the kernel single-steps this place */
#define WIRE_MODEL_TARGET_SHIFT 8
#define WIRE_MODEL_TARGETS_MAX 1024
#define WIRE_MODEL_TARGET(cookie) \
  ((cookie) >> WIRE_MODEL_TARGET_SHIFT & (WIRE_MODEL_TARGETS_MAX - 1))

/* Kind of a record. */
enum wire_model_kind {
  WIRE_MODEL_BEGIN = 1,
  WIRE_MODEL_END = 2,     /* of roles with an end; `a`: what is returned */
  WIRE_MODEL_TENSOR = 3,  /* struct wire_model_tensor: part of a picture of a graph */
  WIRE_MODEL_EXPERTS = 4, /* struct wire_model_experts */
};

struct wire_model_event {
  __u64 t_boot_ns;
  __u32 tgid, tid;
  __u8 role, kind;
  __u16 ith, nth; /* of operators: this thread of how many */
  __u16 flags;    /* enum wire_model_flag */
  __u64 a, b;     /* DECODE: context, -; OPERATOR: tensor, when the program let it go
                   on; BARRIER: threadpool, likewise */
};
WIRE_ASSERT(sizeof(struct wire_model_event) == 40, "part of the ABI: bump WIRE_VERSION");

enum wire_model_flag {
  WIRE_MODEL_UNREADABLE = 1, /* memory of the process that could not be read is zero */
  WIRE_MODEL_PICTURED = 2,   /* of graphs: the records of its tensors come before this one */
  WIRE_MODEL_IS_LEAF = 4,    /* of tensors: no node of the graph, but read by one */
  WIRE_MODEL_JUMP = 8,       /* of ends: nothing is returned yet */
  WIRE_MODEL_CUT = 16,       /* there is more than the record holds */
  WIRE_MODEL_NO_FORM = 32 /* of micro-batches: no argument is the context of the decode around it,
                             so nothing was read */
};

struct wire_model_batch {
  struct wire_model_event head;
  __s32 token_count;
  __u32 reserved;
};

#define WIRE_MODEL_TOKENS 32 /* of a micro-batch: the last ones */
#define WIRE_MODEL_SEQUENCES_MAX \
  4096 /* different ones of a micro-batch: more is no number of them */
struct wire_model_micro_batch {
  struct wire_model_event head; /* a: context; b: graph type */
  __u32 token_count, sequence_tokens, sequence_count;
  __u32 unique_count; /* different sequences; 0: the build does not tell */
  __s32 sequence[WIRE_MODEL_TOKENS], position[WIRE_MODEL_TOKENS];
  __u32 outputs; /* a bit for each of these tokens that asks for an output */
  __u32 has_outputs;
};

struct wire_model_graph {
  struct wire_model_event head; /* a: its address; b: graph_compute of the backend, or 0 */
  __u64 uid;                    /* 0: it has none */
  __s32 node_count;
  __u32 pictured; /* records of tensors that came before this one */
};

/* Its bytes as they lie in the process. */
#define WIRE_MODEL_TENSOR_BYTES 320
struct wire_model_tensor {
  __u64 address;
  __u32 tgid, node; /* index; of a leaf: of the node that reads it */
  __u8 role, kind;  /* at the same place as in wire_model_event */
  __u16 flags;
  __u32 reserved;
  __u64 graph;
  __u8 bytes[WIRE_MODEL_TENSOR_BYTES];
};
WIRE_ASSERT(sizeof(struct wire_model_tensor) == 352, "part of the ABI: bump WIRE_VERSION");

/* The ids of the experts that one MUL_MAT_ID uses, of all tokens, row by row. */
#define WIRE_MODEL_EXPERTS_MAX 64
struct wire_model_experts {
  struct wire_model_event head; /* a: tensor */
  __u32 used, tokens;           /* row length, rows */
  __s32 id[WIRE_MODEL_EXPERTS_MAX];
};

/* Offsets in structures of the observed libraries, bytes. */
#define WIRE_MODEL_NOWHERE 0xffff
struct wire_model_layout {
  __u16 tensor_op, tensor_src, tensor_ne, tensor_nb, tensor_data;
  __u16 graph_node_count, graph_nodes;
  __u16 graph_uid; /* WIRE_MODEL_NOWHERE: graphs have none */
  __u16 backend_graph_compute;
  __u16 batch_token_count; /* from the stack pointer of the entry */
  __u16 micro_tokens; /* tokens, tokens of a sequence, sequences; then different sequences, or an
                         older form without them: told apart by the value */
  __u16 micro_pos, micro_seq_id, micro_old_pos, micro_old_seq_id;
  __u16 micro_output, micro_old_output;
  __u16 reserved;
  __u32 op_mul_mat_id; /* 0: experts are not wanted */
};
WIRE_ASSERT(sizeof(struct wire_model_layout) == 40, "part of the ABI: bump WIRE_VERSION");

enum wire_model_form {
  WIRE_MODEL_FORM_DIRECT = 1, /* the context is the first argument */
  WIRE_MODEL_FORM_HIDDEN,     /* the second: the first points to where the result goes */
};

/* An observed process. */
struct wire_model_target {
  __u32 tgid;   /* 0: none */
  __u32 serial; /* grows with each graph that begins: threads may have other numbers in it */
  struct wire_model_layout layout;
  __u32 has_experts; /* some graph of it uses them */
  __u32 micro_form; /* enum wire_model_form, of the last micro-batch within a decode; 0: none yet */
};
WIRE_ASSERT(sizeof(struct wire_model_target) == 56, "part of the ABI: bump WIRE_VERSION");

/* Counters, by index of an array of each processor. */
enum wire_model_count {
  WIRE_MODEL_HITS = 0,                        /* by role: of places that the kernel emulates */
  WIRE_MODEL_STEPPED_HITS = WIRE_MODEL_ROLES, /* by role, too */
  WIRE_MODEL_RING_FULL = 2 * WIRE_MODEL_ROLES,
  WIRE_MODEL_CUT_GRAPHS, /* with more nodes than a picture holds */
  WIRE_MODEL_COUNTS
};
#define WIRE_MODEL_NODES_MAX 16384
#define WIRE_MODEL_SOURCES_MAX 6
