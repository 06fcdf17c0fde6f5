// SPDX-License-Identifier: Apache-2.0
// The entry point of a CUDA backend that holds a part of its operators: as llama.cpp's own, but
// what is not compiled in is reported as not supported, by operator and by type.
#include <algorithm>
#include <array>

#include "ggml-backend-impl.h"
#include "ggml-cuda.h"

namespace {

// The operators whose files are in the list of CMakeLists.txt.
constexpr std::array kOperators{
    GGML_OP_NONE,     GGML_OP_VIEW,     GGML_OP_RESHAPE,  GGML_OP_PERMUTE, GGML_OP_TRANSPOSE,
    GGML_OP_ADD,      GGML_OP_SUB,      GGML_OP_MUL,      GGML_OP_DIV,     GGML_OP_REPEAT,
    GGML_OP_MUL_MAT,  GGML_OP_GET_ROWS, GGML_OP_SET_ROWS, GGML_OP_CPY,     GGML_OP_CONT,
    GGML_OP_DUP,      GGML_OP_NORM,     GGML_OP_RMS_NORM, GGML_OP_ROPE,    GGML_OP_SCALE,
    GGML_OP_SOFT_MAX, GGML_OP_GLU,
};
// Types of matrix products: those whose instances are in the list, and those without instances.
constexpr std::array kMatrixTypes{
    GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q4_0,
    GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K,
};

template <class Values, class Value>
bool is_one_of(const Values& values, Value value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool (*whole_supports)(ggml_backend_dev_t, const ggml_tensor*) = nullptr;

bool partial_supports(ggml_backend_dev_t device, const ggml_tensor* op) {
  if (!is_one_of(kOperators, op->op)) return false;
  if (op->op == GGML_OP_MUL_MAT && !is_one_of(kMatrixTypes, op->src[0]->type)) return false;
  return whole_supports(device, op);
}

ggml_backend_reg_t partial_reg() {
  ggml_backend_reg_t reg = ggml_backend_cuda_reg();
  for (std::size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(reg, i);
    if (device->iface.supports_op == partial_supports) continue;
    whole_supports = device->iface.supports_op;
    device->iface.supports_op = partial_supports;
  }
  return reg;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
  return partial_reg();
}
