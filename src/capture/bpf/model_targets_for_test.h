// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/model.h"

// Functions that begin as those of ggml and llama.cpp do. Each returns 7.
#define MODEL_TARGET(name)                                          \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name \
      ":\n"                                                         \
      "push %rbx\nmov $7, %eax\npop %rbx\nret\n.size " #name ", . - " #name "\n")

MODEL_TARGET(model_decode);
MODEL_TARGET(model_micro_batch);
MODEL_TARGET(model_schedule);
MODEL_TARGET(model_split);
MODEL_TARGET(model_graph);
MODEL_TARGET(model_operator);
MODEL_TARGET(model_fused);
MODEL_TARGET(model_barrier);
// It only calls another one, by a jump.
asm(".text\n.globl model_wrapper\n.type model_wrapper, @function\nmodel_wrapper:\n"
    "push %rbx\npop %rbx\njmp model_decode\n.size model_wrapper, . - model_wrapper\n");

// Its return value waits in a register while another function is called, or is not.
#define KEEPING_TARGET(reg)                                                                     \
  asm(".text\n.globl model_keeps_" #reg "\n.type model_keeps_" #reg                             \
      ", @function\nmodel_keeps_" #reg ":\n.cfi_startproc\npush %" #reg "\nlea 7(%rdi), %" #reg \
      "\ntest $1, %dil\nje 1f\nxor %edi, %edi\ncall model_barrier\n1: mov %" #reg               \
      ", %rax\npop %" #reg "\nret\n.cfi_endproc\n.size model_keeps_" #reg                       \
      ", . - model_keeps_" #reg "\n");                                                          \
  extern "C" long model_keeps_##reg(long value)
KEEPING_TARGET(rbx);
KEEPING_TARGET(rbp);
KEEPING_TARGET(r12);
KEEPING_TARGET(r13);
KEEPING_TARGET(r14);
KEEPING_TARGET(r15);

// Arguments of the targets: made as in ggml and llama.cpp, with the members at other places.
struct FakeTensor {
  std::uint64_t before{0};
  std::array<std::uint64_t, 4> nb{};
  std::array<std::int64_t, 4> ne{};
  const void* data{nullptr};
  std::uint32_t type{0}, op{0};
  std::array<const FakeTensor*, 10> src{};
  std::array<std::uint64_t, 19> rest{};
};
static_assert(sizeof(FakeTensor) == WIRE_MODEL_TENSOR_BYTES);
struct FakeGraph {
  std::uint64_t uid{0};
  const FakeTensor* const* nodes{nullptr};
  std::int32_t before{0}, node_count{0};
};
struct FakeBackend {
  std::array<std::uint64_t, 5> before{};
  std::uint64_t graph_compute{0};
};
struct FakeBatch {  // by value, on the stack
  std::int32_t token_count{0};
  std::array<const void*, 6> members{};
};
struct FakeMicroBatch {
  const std::int32_t* const* sequence_ids{nullptr};
  const std::int32_t* positions{nullptr};
  std::uint32_t before{0}, tokens{0}, sequence_tokens{0}, sequences{0}, unique{0};
};
struct FakeOldMicroBatch {  // no number of different sequences
  const std::int32_t* const* sequence_ids{nullptr};
  const std::int32_t* positions{nullptr};
  std::uint32_t before{0}, tokens{0}, sequence_tokens{0}, sequences{0};
  const std::int32_t* token{nullptr};
};
static_assert(offsetof(FakeOldMicroBatch, token) == offsetof(FakeMicroBatch, unique));
struct FakeParams {
  std::int32_t ith{0}, nth{1};
  std::uint64_t work_bytes{0};
  const void* work{nullptr};
  const void* threads{nullptr};
};

extern "C" {
long model_decode(const void* context, FakeBatch batch);
long model_wrapper(const void* context, FakeBatch batch);
// Builds that return an object have a pointer to it before these, and all others behind it.
long model_micro_batch(const void* context, const void* batch, std::uint64_t type,
                       std::uint64_t more);
long model_schedule(const void* schedule, const FakeGraph* graph);
long model_split(const FakeBackend* backend, const FakeGraph* graph);
long model_graph(const FakeGraph* graph, const void* plan);
long model_operator(const FakeParams* params, const FakeTensor* tensor);
long model_fused(const FakeParams* params, const FakeTensor* tensor, const FakeTensor* last);
long model_barrier(const void* threads);
}
