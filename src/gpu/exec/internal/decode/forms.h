// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/exec/internal/decode/code.h"

namespace kansoku::gpu::exec {

/// Sink for the rows of a file with operations: a plain function, because those files may share no
/// inline function with the rest of the program.
struct FormSink {
  void* context;
  void (*add)(void* context, const char* op, const char* suffixes, const char* shape, Handler run,
              Handler combined);
};

/// Handlers for sequences of instructions: fusion.cc puts them in place.
struct FusedHandlers {
  Handler load_load_fma, load_load_fma_ftz;
};
FusedHandlers fused_v2();
FusedHandlers fused_v3();
FusedHandlers fused_v4();

void list_forms_v2(const FormSink& sink);
void list_forms_v3(const FormSink& sink);
void list_forms_v4(const FormSink& sink);
/// Directed rounding: slow and rare, one build for all machines.
void list_rounded_forms(const FormSink& sink);

}  // namespace kansoku::gpu::exec
