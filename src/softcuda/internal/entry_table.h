// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kansoku::softcuda {

using EntryFunction = int (*)();

/// One form of an entry point. The table is generated: tools/gen_softcuda.py.
struct EntryRow {
  const char* base;    // as cuGetProcAddress is asked for it
  int first_version;   // of this form; 1000 * major + 10 * minor
  bool is_per_thread;  // the default stream is the thread's own
  EntryFunction function;
};
extern const EntryRow kEntryRows[];  // forms of one name one after the other, older ones first
extern const unsigned long kEntryRowCount;

/// Exported names of the implemented functions, in the order of the stubs' numbers.
extern const char* const kCodeNames[];
extern const unsigned long kCodeNameCount;

/// Stand-in for an entry point that is not implemented: says so once, returns
/// CUDA_ERROR_NOT_SUPPORTED.
int not_supported(const char* name) __asm__("softgpu_not_supported");

}  // namespace kansoku::softcuda
