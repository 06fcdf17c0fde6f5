// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/exits.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "capture/bpf/internal/control_flow.h"
#include "capture/bpf/internal/function_code.h"
#include "capture/bpf/internal/unwind_table.h"
#include "wire/ring.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kExitsMax = 64;
constexpr int kJumpsFollowed = 2;          // one after the other
constexpr std::size_t kBranchesMax = 8;    // that may stand for one return
constexpr std::size_t kBackwardsMax = 32;  // instructions before a return that are looked at
constexpr std::int64_t kStackBytesMax =
    std::int64_t{8} * 8191;  // the largest that fits into a cookie

/// Place of the return address, seen from an instruction before the return.
struct Place {
  bool from_frame{false};
  std::int64_t bytes{0};

  /// The same place seen from before `step`; nothing if that cannot be told.
  [[nodiscard]] std::optional<Place> before(const Step& step) const {
    if (from_frame) return step.writes_frame() ? std::nullopt : std::optional(*this);
    switch (step.stack.kind) {
      case StackEffect::Kind::kAdd:
        return Place{false, bytes + step.stack.bytes};
      case StackEffect::Kind::kFromFrame:
        return Place{true, bytes + step.stack.bytes};
      case StackEffect::Kind::kUnknown:
        break;
    }
    return std::nullopt;
  }
};

constexpr std::uint16_t bit(std::uint8_t reg) {
  return static_cast<std::uint16_t>(1U << reg);
}
// Registers that a call leaves as they were: rbx, rbp and r12 to r15. Source: System V ABI, AMD64,
// 3.2.1.
constexpr std::uint16_t kKept = bit(3) | bit(5) | bit(12) | bit(13) | bit(14) | bit(15);

/// Condition before an instruction for the call to end by it.
struct State {
  Place place;
  std::uint8_t value{0};  // the register that holds the return value

  /// The same, seen from before `step`; nothing if that cannot be told. `value_bytes`: how much of
  /// the value counts.
  [[nodiscard]] std::optional<State> before(const Step& step, std::uint8_t value_bytes) const {
    const auto moved = place.before(step);
    if (!moved) return std::nullopt;
    State out{*moved, value};
    if (value_bytes == 0) return out;
    if (step.flow == Flow::kCall)
      return (bit(value) & kKept) != 0 ? std::optional(out) : std::nullopt;
    if ((step.writes & bit(value)) == 0) return out;
    if (step.copy.bytes < value_bytes) return std::nullopt;
    out.value = step.copy.from;
    return out;
  }
};

/// Looks for cheap instructions that lead to one return and nowhere else.
class Backwards {
 public:
  /// `pads`: where exceptions lead to; nothing: that is not known.
  Backwards(const FunctionCode& function, const ExitNeeds& needs,
            std::optional<std::vector<std::uint64_t>> pads)
      : function_(function), needs_(needs), pads_(std::move(pads)) {}

  /// Nothing if some way to the return `i` has none.
  [[nodiscard]] std::optional<std::vector<Exit>> ways_to(std::size_t i) {
    const ControlFlow& flow = function_.flow();
    out_.clear();
    std::optional<State> state{State{}};
    for (std::size_t left = kBackwardsMax; left > 0; --left) {
      if (function_.entered().contains(i) || is_pad(i)) return std::nullopt;
      for (const std::size_t branch : flow.branches_to(i))
        if (!add_branch(branch, *state, Exit::When::kTaken)) return std::nullopt;
      if (i == 0) return std::nullopt;
      const Step& before = flow[--i];
      if (!before.falls_through()) return out_;
      if (before.flow == Flow::kCall && !(needs_.before_calls && pads_)) return std::nullopt;
      if (before.flow == Flow::kBranch) {
        if (!add_branch(i, *state, Exit::When::kNotTaken)) return std::nullopt;
        return out_;
      }
      // Code that nothing leads to is padding, or a handler of exceptions.
      if (before.site_class == SiteClass::kNop && flow.is_reached(i)) {
        if (!add(i, *state, Exit::When::kAlways)) return std::nullopt;
        return out_;
      }
      state = state->before(before, needs_.value_bytes);
      if (!state) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  // Exceptions lead there by no branch. If that is not known, no call is passed, and a handler has
  // some.
  [[nodiscard]] bool is_pad(std::size_t i) const {
    const std::uint64_t address = function_.range().begin + function_.flow()[i].offset;
    return pads_ && std::binary_search(pads_->begin(), pads_->end(), address);
  }

  bool add_branch(std::size_t i, const State& state, Exit::When when) {
    const Step& step = function_.flow()[i];
    if (step.flow == Flow::kJump) return add(i, state, Exit::When::kAlways);
    return step.site_class == SiteClass::kBranch && add(i, state, when);
  }

  bool add(std::size_t i, const State& state, Exit::When when) {
    const Place& place = state.place;
    const Step& step = function_.flow()[i];
    const std::uint64_t address = function_.range().begin + step.offset;
    if (address == needs_.entry_site || !is_cheap(step.site_class) || out_.size() == kBranchesMax)
      return false;
    if (place.bytes < 0 || place.bytes > kStackBytesMax || place.bytes % 8 != 0) return false;
    if (state.value != 0 && (bit(state.value) & kKept) == 0) return false;
    // Both ways of a branch, one of them past a call.
    const auto other = std::find_if(out_.begin(), out_.end(),
                                    [&](const Exit& exit) { return exit.address == address; });
    if (other != out_.end()) {
      if (other->from_frame != place.from_frame || other->value_register != state.value ||
          other->stack_bytes != static_cast<std::uint32_t>(place.bytes))
        return false;
      other->when = Exit::When::kAlways;
      other->condition = 0;
      return true;
    }
    out_.push_back({.address = address,
                    .site_class = step.site_class,
                    .when = when,
                    .condition = when == Exit::When::kAlways ? std::uint8_t{0} : step.condition,
                    .from_frame = place.from_frame,
                    .stack_bytes = static_cast<std::uint32_t>(place.bytes),
                    .value_register = state.value});
    return true;
  }

  const FunctionCode& function_;
  const ExitNeeds& needs_;
  std::optional<std::vector<std::uint64_t>> pads_;  // ascending
  std::vector<Exit> out_;
};

bool is_below(const Exit& a, const Exit& b) {
  return a.address < b.address;
}
bool is_same_place(const Exit& a, const Exit& b) {
  return a.address == b.address;
}

void sort_out(std::vector<Exit>& exits) {
  std::sort(exits.begin(), exits.end(), is_below);
  exits.erase(std::unique(exits.begin(), exits.end(), is_same_place), exits.end());
}

// An address that stands for two returns, or for both ways of a jump, would need two probes.
bool has_address_twice(std::vector<Exit>& exits) {
  std::sort(exits.begin(), exits.end(), is_below);
  return std::adjacent_find(exits.begin(), exits.end(), is_same_place) != exits.end();
}

// False if a probe would be refused where the function may end.
bool has_probeable_exits(const ControlFlow& flow) {
  for (std::size_t i = 0; i < flow.size(); ++i) {
    const Step& step = flow[i];
    const bool may_end = step.flow == Flow::kReturn || step.flow == Flow::kIndirectJump ||
                         (step.flow == Flow::kJump && flow.leaves(i));
    if (may_end && flow.is_reached(i) && !step.is_probeable) return false;
  }
  return true;
}

/// The search through one file.
class Finder {
 public:
  Finder(sys::ElfFile& file, const ExitNeeds& needs) : file_(file), needs_(needs) {}

  /// `jumps`: how many are followed one after the other.
  [[nodiscard]] Exits find(CodeRange range, int jumps) const {
    const FunctionCode function(file_, range);
    if (!function.problem().empty()) return {{}, function.problem()};
    if (!has_probeable_exits(function.flow())) return {{}, "an exit cannot be probed"};
    const std::string_view problem = needs_.counts ? counting_problem(function) : "";
    if (!problem.empty()) return {{}, problem};
    // The targets of a switch are not known, so neither are the ways to a return.
    const bool wants_cheap = function.is_whole() && !function.flow().has_table();
    Exits out{exits_of(function, wants_cheap), {}};
    if (has_address_twice(out.exits)) out.exits = exits_of(function, false);
    for (const FunctionCode::Part& part : function.parts())
      add_exits(function, part, out.exits);
    sort_out(out.exits);
    if (out.exits.empty()) return {{}, "it never returns"};
    if (out.exits.size() > kExitsMax) return {{}, "it ends in too many places"};
    if (!needs_.counts) follow_jumps(function, jumps, out);
    return out;
  }

 private:
  /// Why the exits would not count the calls; empty: they do.
  [[nodiscard]] static std::string_view counting_problem(const FunctionCode& function) {
    if (!function.is_whole()) return "not all of its code is found";
    const auto is_clear = [&](const ControlFlow& flow, std::uint64_t begin) {
      bool out = !flow.jumps_by_pointer();
      for (std::size_t i = 0; i < flow.size(); ++i)
        out = out && !is_doubtful(function, begin, flow[i], flow.leaves(i));
      return out;
    };
    const bool is_all_clear =
        is_clear(function.flow(), function.range().begin) &&
        std::all_of(function.parts().begin(), function.parts().end(),
                    [&](const auto& part) { return is_clear(part.flow, part.range.begin); });
    return is_all_clear ? "" : "the target of a jump in it is unknown";
  }
  /// True if it is not known that the call ends by this jump, or if its end may stay unseen.
  [[nodiscard]] static bool is_doubtful(const FunctionCode& function, std::uint64_t begin,
                                        const Step& step, bool leaves) {
    if (step.flow == Flow::kIndirectJump) return !step.is_bare;
    if (step.flow != Flow::kBranch || !leaves) return false;
    return !function.is_own(begin + static_cast<std::uint64_t>(step.target)) &&
           !jump_out(function, begin, step, leaves);
  }

  /// The jump out of the function that `step` is, if it is one.
  [[nodiscard]] static std::optional<Exit> jump_out(const FunctionCode& function,
                                                    std::uint64_t begin, const Step& step,
                                                    bool leaves) {
    Exit out{.address = begin + step.offset, .site_class = step.site_class, .is_jump = true};
    if (step.flow == Flow::kIndirectJump) return out;
    if (!leaves) return std::nullopt;
    out.leads_to = begin + static_cast<std::uint64_t>(step.target);
    if (function.is_own(out.leads_to)) return std::nullopt;
    if (step.flow == Flow::kJump) return out;
    // One that leaves something on the stack leads to a part that was not found.
    if (step.site_class != SiteClass::kBranch || !step.is_bare.value_or(false)) return std::nullopt;
    out.when = Exit::When::kTaken;
    out.condition = step.condition;
    return out;
  }

  /// Those of a part that is not the main one.
  static void add_exits(const FunctionCode& function, const FunctionCode::Part& part,
                        std::vector<Exit>& out) {
    for (std::size_t i = 0; i < part.flow.size(); ++i) {
      const Step& step = part.flow[i];
      if (!step.is_probeable) continue;
      if (step.flow == Flow::kReturn)
        out.push_back({.address = part.range.begin + step.offset, .site_class = step.site_class});
      else if (step.flow == Flow::kJump && part.flow.leaves(i))
        if (const auto jump = jump_out(function, part.range.begin, step, true))
          out.push_back(*jump);
    }
  }

  [[nodiscard]] std::vector<Exit> exits_of(const FunctionCode& function, bool wants_cheap) const {
    const ControlFlow& flow = function.flow();
    std::vector<Exit> out;
    Backwards backwards(function, needs_,
                        needs_.before_calls ? landing_pads(file_, function.range()) : std::nullopt);
    for (std::size_t i = 0; i < flow.size(); ++i) {
      const Step& step = flow[i];
      if (step.flow == Flow::kReturn) {
        const bool is_reached = flow.is_reached(i);
        const auto ways = wants_cheap && is_reached ? backwards.ways_to(i) : std::nullopt;
        if (ways && !ways->empty()) {
          out.insert(out.end(), ways->begin(), ways->end());
        } else if (is_reached || (function.range().has_handlers && step.is_probeable)) {
          // Handlers, to which nothing leads, may return.
          out.push_back(
              {.address = function.range().begin + step.offset, .site_class = step.site_class});
        }
      } else if (flow.is_reached(i)) {
        const auto jump = jump_out(function, function.range().begin, step, flow.leaves(i));
        if (jump) out.push_back(*jump);
      }
    }
    return out;
  }

  // The stubs that lead into other files are not followed: they are everybody's.
  [[nodiscard]] Exits behind(const FunctionCode& function, const Exit& exit, int jumps) const {
    if (jumps == 0 || !function.is_code(exit.leads_to)) return {};
    const auto range = code_around(file_, exit.leads_to);
    if (!range || range->begin != exit.leads_to) return {};
    return find(*range, jumps - 1);
  }

  void follow_jumps(const FunctionCode& function, int jumps, Exits& found) const {
    const bool is_wrapper = std::all_of(found.exits.begin(), found.exits.end(),
                                        [](const Exit& exit) { return exit.is_jump; });
    if (!is_wrapper) return;
    std::vector<Exit> out;
    for (const Exit& exit : found.exits) {
      const Exits there = behind(function, exit, jumps);
      if (there.exits.empty()) {
        out.push_back(exit);
      } else {
        out.insert(out.end(), there.exits.begin(), there.exits.end());
      }
    }
    sort_out(out);
    if (out.size() <= kExitsMax) found.exits = std::move(out);
  }

  sys::ElfFile& file_;
  const ExitNeeds& needs_;
};

}  // namespace

std::uint64_t Exit::cookie(std::uint64_t cookie) const {
  std::uint64_t out = cookie | WIRE_COOKIE_EXIT;
  if (is_jump) out |= WIRE_COOKIE_JUMP;
  const auto part = [&](std::uint64_t value, int shift) { out |= value << shift; };
  part(static_cast<std::uint64_t>(when), WIRE_COOKIE_WHEN_SHIFT);
  part(value_register, WIRE_COOKIE_VALUE_SHIFT);
  part(condition, WIRE_COOKIE_CONDITION_SHIFT);
  part(from_frame ? 1 : 0, WIRE_COOKIE_FRAME_SHIFT);
  part(stack_bytes / 8, WIRE_COOKIE_STACK_SHIFT);
  return out;
}

Exits find_exits(sys::ElfFile& file, const sys::Symbol& function, const ExitNeeds& needs) {
  if (function.bytes == 0) return {{}, "its size is unknown"};
  Exits out = Finder(file, needs).find({function.address, function.bytes}, kJumpsFollowed);
  if (!needs.counts && std::any_of(out.exits.begin(), out.exits.end(), [&](const Exit& exit) {
        return exit.address == needs.entry_site;
      }))
    return {{}, "it begins and ends with one instruction"};
  return out;
}

}  // namespace kansoku::capture::bpf
