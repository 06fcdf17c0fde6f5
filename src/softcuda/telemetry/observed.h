// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::softcuda {

// A program has launches observed by the software device's driver in its own process, by two
// functions of the library. It finds them by name (dlsym); a GPU's driver has neither. Both take
// C's types alone and give CUDA's codes, 0 for success. Any thread. Structures only grow, at their
// ends; another meaning gets another number.

/// Bits: the things to look for.
inline constexpr std::uint32_t kObserveHazards = 1;  // races and uninitialised reads, shared memory
inline constexpr std::uint32_t kObserveProfile = 2;  // counts of instructions, of memory's work

/// Observes the launches that begin on a device of this process from now on, those that end in a
/// fault too; a begin drops all that was seen before. `what` 0 ends it: the record of the launches
/// that have ended is ready then, and stays until the next begin. So wait for launches first.
/// CUDA_ERROR_INVALID_VALUE for bits that the library does not know, CUDA_ERROR_INVALID_DEVICE,
/// CUDA_ERROR_NOT_INITIALIZED before cuInit.
inline constexpr char kObserveName[] = "kansoku_softgpu_observe";
using ObserveFunction = int(int device, std::uint32_t what);

/// Hands out one section of the record: copies its items to `items`, `capacity` of them at most,
/// each in `item_bytes`; of an item that is longer in the library its begin, one that is shorter is
/// filled up with zeros. `*count`: how many there are. CUDA_ERROR_INVALID_VALUE, and nothing
/// copied, if they are more than `capacity`; a capacity of 0 asks for the count alone.
/// CUDA_ERROR_NOT_SUPPORTED for a section that the library does not know, CUDA_ERROR_NOT_READY
/// until observing was ended, CUDA_ERROR_NOT_FOUND if it was never begun; INVALID_DEVICE and
/// NOT_INITIALIZED as above.
inline constexpr char kObservedName[] = "kansoku_softgpu_observed";
using ObservedFunction = int(int device, std::uint32_t section, void* items,
                             std::uint64_t item_bytes, std::uint64_t capacity,
                             std::uint64_t* count);

enum class ObservedSection : std::uint32_t {
  kSummary = 1,  // ObservedSummary, one
  kHazards = 2,  // ObservedHazard, one a pair of lines, in the order of blocks; 100 at most
  kProfile = 3,  // ObservedProfile, one; none without kObserveProfile, as the next two
  kClasses = 4,  // ObservedClass, of instructions, those that were executed
  kLines = 5,    // ObservedLine, those that were executed, by kernel and line; 2^20 at most
  kText = 6,     // char: all texts, one behind the other
};

/// A part of section kText.
struct ObservedText {
  std::uint64_t at, bytes;
};
struct ObservedSummary {
  std::uint64_t launches;      // that have ended, faults included
  std::uint64_t hazard_count;  // all that were seen
  std::uint64_t lines_left_out;
  std::uint32_t what, reserved;  // as it was asked for
};
struct ObservedHazard {
  ObservedText kind;     // "race in shared memory"
  ObservedText text;     // the whole message but the launch
  std::uint64_t launch;  // number in the process, as faults name it
  std::uint32_t line;    // of the PTX text
  std::uint32_t reserved;
};
/// A sector is 32 bytes of global memory that lie aligned; "needed" is the smallest number that
/// could hold the bytes asked for. A pass of shared memory serves one word of each of 32 banks.
struct ObservedProfile {
  std::uint64_t branches, divergent_branches;
  std::uint64_t global_requests, global_sectors, global_sectors_needed;
  std::uint64_t shared_requests, shared_passes, shared_passes_needed;
};
struct ObservedClass {
  ObservedText name;             // "global load"
  std::uint64_t warps, threads;  // times a warp executed one; lanes that were active, added up
};
struct ObservedLine {
  ObservedText kernel;
  std::uint64_t warps, threads;
  std::uint32_t line, reserved;
};
static_assert(sizeof(ObservedText) == 16 && sizeof(ObservedSummary) == 32 &&
                  sizeof(ObservedHazard) == 48 && sizeof(ObservedProfile) == 64 &&
                  sizeof(ObservedClass) == 32 && sizeof(ObservedLine) == 40,
              "part of the interface: structures only grow");

}  // namespace kansoku::softcuda
