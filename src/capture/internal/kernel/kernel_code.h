// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kansoku::capture {

/// Work that the kernel does on a thread's processor time.
enum class KernelPart : std::uint8_t {
  kPageFaults,
  kReclaim,  // looks for memory that others can spare, or compacts it
  // Serves interrupts on top of the thread. What a call of the thread itself has caused, as the
  // receiving of what it sends to its own host, is the call's.
  kInterrupts,
  kProbes,  // observers: ours and others'
  kCall,    // a system call
  kOther,
};
inline constexpr std::size_t kKernelPartCount = 6;

struct KernelUse {
  KernelPart part{KernelPart::kOther};
  std::string_view call{};  // of kCall, as "mmap"; lives as long as the KernelCode
  friend bool operator==(const KernelUse&, const KernelUse&) = default;
};

/// The kernel's functions by which its work is told, and where they lie. Immutable; any thread.
class KernelCode {
 public:
  /// From text as of /proc/kallsyms: "ADDRESS TYPE NAME [MODULE]" lines, in any order. Lines of
  /// other forms are left out; so are addresses of 0, which is how the kernel hides them.
  [[nodiscard]] static KernelCode read(std::istream& symbols);

  /// False: no function is known, and so is no use.
  [[nodiscard]] bool is_known() const { return !functions_.empty(); }
  /// By the innermost frame that tells: a fault inside a system call is a fault, an interrupt
  /// inside a fault is an interrupt. `frames`: addresses, innermost first.
  [[nodiscard]] KernelUse use_of(std::span<const std::uint64_t> frames) const;

 private:
  struct Function {
    std::uint64_t begin{0}, end{0};  // its addresses; the end is the next symbol's begin
    KernelPart part{KernelPart::kOther};
    std::string call;
  };
  std::vector<Function> functions_;  // by address
};

}  // namespace kansoku::capture
