// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "capture/bpf/sites.h"

namespace kansoku::capture::bpf {

enum class Flow : std::uint8_t {
  kNext,
  kCall,
  kBranch,        // conditional
  kJump,          // to a known place
  kIndirectJump,  // to another function, through a pointer
  kTableJump,     // of a switch
  kReturn,
  kStop  // a trap
};

/// Effect of an instruction on the stack pointer.
struct StackEffect {
  enum class Kind : std::uint8_t { kAdd, kFromFrame, kUnknown } kind{Kind::kAdd};
  std::int64_t bytes{0};  // added to it, or to rbp
};

/// That an instruction copies one general register into another and does nothing else. By their
/// numbers in instructions: rax is 0.
struct Copy {
  std::uint8_t from{0};
  std::uint8_t bytes{0};  // 4 or 8; 0: it does not
};

inline constexpr std::uint8_t kRsp = 4, kRbp = 5;

struct Step {
  std::size_t offset{0};
  std::int64_t target{0};  // of kBranch and kJump, from the begin
  Flow flow{Flow::kNext};
  SiteClass site_class{SiteClass::kOther};
  std::uint8_t condition{0};  // of a conditional jump, as in its opcode
  StackEffect stack;
  std::uint16_t writes{0};  // general registers, in whole or in part: a bit each
  Copy copy;
  // True if the stack pointer is the one of the call's begin here; nothing: that is not known.
  std::optional<bool> is_bare{};
  bool is_probeable{true};

  [[nodiscard]] bool writes_frame() const { return (writes & 1U << kRbp) != 0; }
  [[nodiscard]] bool sets_frame() const {  // to the stack pointer
    return writes_frame() && copy.from == kRsp && copy.bytes == 8;
  }
  [[nodiscard]] bool has_target() const { return flow == Flow::kBranch || flow == Flow::kJump; }
  [[nodiscard]] bool falls_through() const {
    return flow == Flow::kNext || flow == Flow::kCall || flow == Flow::kBranch;
  }
};

/// The instructions of a function and which leads to which.
class ControlFlow {
 public:
  /// Nothing if the bytes may be something else than instructions: if some are none, or a branch
  /// leads into the middle of one. `is_begin`: calls begin with it, so the stack is known there.
  [[nodiscard]] static std::optional<ControlFlow> make(std::span<const std::byte> code,
                                                       bool is_begin);

  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  [[nodiscard]] const Step& operator[](std::size_t i) const { return steps_[i]; }
  /// True if branches and falling through lead from the begin to it; true for all if there is a
  /// jump whose targets are not known.
  [[nodiscard]] bool is_reached(std::size_t i) const { return is_reached_[i]; }
  [[nodiscard]] const std::vector<std::size_t>& branches_to(std::size_t i) const {
    return branches_to_[i];
  }
  /// True if it is a branch or jump to a known place out of this code.
  [[nodiscard]] bool leaves(std::size_t i) const {
    return steps_[i].has_target() && !is_inside(steps_[i].target);
  }
  [[nodiscard]] bool is_inside(std::int64_t offset) const {
    return offset >= 0 && static_cast<std::size_t>(offset) < bytes_;
  }
  [[nodiscard]] bool has_table() const { return has_table_; }
  /// True if a jump goes through a pointer while the stack holds something of the call: to a label
  /// whose address was taken. It counts as one of a table.
  [[nodiscard]] bool jumps_by_pointer() const { return jumps_by_pointer_; }
  /// The instruction at an offset; size() if none begins there.
  [[nodiscard]] std::size_t index_at(std::int64_t offset) const;

 private:
  ControlFlow(std::vector<Step> steps, std::size_t bytes)
      : steps_(std::move(steps)), bytes_(bytes), branches_to_(steps_.size()) {}
  bool link();
  void follow_stack(bool is_begin);
  void reach();

  std::vector<Step> steps_;
  std::size_t bytes_;
  std::vector<std::vector<std::size_t>> branches_to_;
  std::vector<bool> is_reached_;
  bool has_table_{false}, jumps_by_pointer_{false};
};

}  // namespace kansoku::capture::bpf
