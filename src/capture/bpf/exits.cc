// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/exits.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "capture/bpf/internal/control_flow.h"
#include "capture/bpf/internal/unwind_table.h"
#include "wire/ring.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kFunctionBytesMax = 65536;
constexpr std::size_t kExitsMax = 64;
constexpr int kJumpsFollowed = 2;          // one after the other
constexpr std::size_t kBranchesMax = 8;    // that may stand for one return
constexpr std::size_t kBackwardsMax = 32;  // instructions before a return that are looked at
constexpr std::int64_t kStackBytesMax = 8 * 8191;  // what fits into a cookie

/// Where the return address lies, seen from an instruction before the return.
struct Place {
  bool from_frame{false};
  std::int64_t bytes{0};

  /// The same place seen from before `step`; nothing if that cannot be told.
  [[nodiscard]] std::optional<Place> before(const Step& step) const {
    if (from_frame) return step.writes_frame ? std::nullopt : std::optional(*this);
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

/// A function as its exits are looked for.
struct Function {
  std::uint64_t begin{0};
  ControlFlow flow;
  bool has_handlers{false};       // of exceptions
  std::set<std::size_t> entered;  // instructions to which its cold part jumps back
  std::vector<CodeRange> cold;    // that part

  [[nodiscard]] bool is_cold(std::uint64_t address) const {
    return std::any_of(cold.begin(), cold.end(), [&](const CodeRange& range) {
      return address >= range.begin && address - range.begin < range.bytes;
    });
  }
};

/// Looks for cheap instructions that lead to one return and nowhere else.
class Backwards {
 public:
  Backwards(const Function& function, std::uint64_t entry_site)
      : function_(function), entry_site_(entry_site) {}

  /// Nothing if some way to the return `i` has none.
  [[nodiscard]] std::optional<std::vector<Exit>> ways_to(std::size_t i) {
    const ControlFlow& flow = function_.flow;
    out_.clear();
    std::optional<Place> place{Place{}};
    for (std::size_t left = kBackwardsMax; left > 0; --left) {
      if (function_.entered.contains(i)) return std::nullopt;
      for (const std::size_t branch : flow.branches_to(i))
        if (!add_branch(branch, *place, Exit::When::kTaken)) return std::nullopt;
      if (i == 0) return std::nullopt;
      const Step& before = flow[--i];
      if (!before.falls_through()) return out_;
      if (before.flow == Flow::kCall) return std::nullopt;
      if (before.flow == Flow::kBranch) {
        if (!add_branch(i, *place, Exit::When::kNotTaken)) return std::nullopt;
        return out_;
      }
      // What nothing leads to is padding, or a handler of exceptions.
      if (before.site_class == SiteClass::kNop && flow.is_reached(i)) {
        if (!add(i, *place, Exit::When::kAlways)) return std::nullopt;
        return out_;
      }
      place = place->before(before);
      if (!place) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  bool add_branch(std::size_t i, const Place& place, Exit::When when) {
    const Step& step = function_.flow[i];
    if (step.flow == Flow::kJump) return add(i, place, Exit::When::kAlways);
    return step.site_class == SiteClass::kBranch && add(i, place, when);
  }

  bool add(std::size_t i, const Place& place, Exit::When when) {
    const Step& step = function_.flow[i];
    const std::uint64_t address = function_.begin + step.offset;
    if (address == entry_site_ || !is_cheap(step.site_class) || out_.size() == kBranchesMax)
      return false;
    if (place.bytes < 0 || place.bytes > kStackBytesMax || place.bytes % 8 != 0) return false;
    out_.push_back({.address = address,
                    .site_class = step.site_class,
                    .when = when,
                    .condition = when == Exit::When::kAlways ? std::uint8_t{0} : step.condition,
                    .from_frame = place.from_frame,
                    .stack_bytes = static_cast<std::uint32_t>(place.bytes)});
    return true;
  }

  const Function& function_;
  std::uint64_t entry_site_;
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
  Finder(const sys::ElfFile& file, const ExitNeeds& needs)
      : file_(file), needs_(needs), text_(file.section(".text")) {}

  /// `jumps`: how many are followed one after the other.
  [[nodiscard]] Exits find(CodeRange range, int jumps) const {
    if (range.bytes > kFunctionBytesMax) return {{}, "it is too long to be looked through"};
    auto flow = flow_of(range);
    if (!flow) return {{}, "its bytes may be something else than instructions"};
    Function function{range.begin, std::move(*flow), false, {}, {}};
    if (const auto around = code_around(file_, range.begin))
      function.has_handlers = around->has_handlers;
    if (!has_probeable_exits(function.flow)) return {{}, "an exit cannot be probed"};
    std::vector<Exit> cold;
    const bool is_whole = add_cold_part(function, cold);
    // Where a switch jumps to is not known, so neither is what leads to a return.
    const bool wants_cheap = is_whole && !needs_.returned_value && !function.flow.has_table();
    Exits out{exits_of(function, wants_cheap), {}};
    if (has_address_twice(out.exits)) out.exits = exits_of(function, false);
    out.exits.insert(out.exits.end(), cold.begin(), cold.end());
    sort_out(out.exits);
    if (out.exits.empty()) return {{}, "it never returns"};
    if (out.exits.size() > kExitsMax) return {{}, "it ends in too many places"};
    follow_jumps(jumps, out);
    return out;
  }

 private:
  [[nodiscard]] std::optional<ControlFlow> flow_of(CodeRange range) const {
    const std::vector<std::byte> code = file_.bytes_at(range.begin, range.bytes);
    return code.size() == range.bytes ? ControlFlow::make(code) : std::nullopt;
  }
  [[nodiscard]] bool is_own_code(std::uint64_t address) const {
    return text_ && address >= text_->address && address - text_->address < text_->bytes;
  }

  /// Looks through what branches out of the function lead to: where its cold part jumps back, and
  /// the returns there. False if that is not known of some.
  [[nodiscard]] bool add_cold_part(Function& function, std::vector<Exit>& cold) const {
    std::set<std::uint64_t> seen;
    for (std::size_t i = 0; i < function.flow.size(); ++i) {
      if (!function.flow.leaves(i)) continue;
      const std::uint64_t to = function.begin + static_cast<std::uint64_t>(function.flow[i].target);
      if (!is_own_code(to)) continue;  // the stubs that lead into other files
      const auto range = code_around(file_, to);
      if (!range || range->bytes > kFunctionBytesMax) return false;
      if (range->begin <= function.begin && function.begin - range->begin < range->bytes)
        return false;  // its symbol names a part of it
      if (!seen.insert(range->begin).second) continue;
      const auto there = flow_of(*range);
      if (!there || !add_returns(function, *range, *there, to, cold)) return false;
    }
    return true;
  }

  /// `to`: where the function jumps to in `range`.
  [[nodiscard]] static bool add_returns(Function& function, CodeRange range,
                                        const ControlFlow& there, std::uint64_t to,
                                        std::vector<Exit>& cold) {
    bool is_part = to != range.begin;
    for (std::size_t i = 0; i < there.size(); ++i) {
      if (!there.leaves(i)) continue;
      const std::uint64_t back = range.begin + static_cast<std::uint64_t>(there[i].target);
      const auto offset = static_cast<std::int64_t>(back - function.begin);
      if (offset <= 0 || !function.flow.is_inside(offset)) continue;
      const std::size_t entered = function.flow.index_at(offset);
      if (entered == function.flow.size()) return false;
      function.entered.insert(entered);
      is_part = true;
    }
    if (is_part) function.cold.push_back(range);
    for (std::size_t i = 0; is_part && i < there.size(); ++i) {
      if (there[i].flow == Flow::kReturn && there[i].is_probeable)
        cold.push_back(
            {.address = range.begin + there[i].offset, .site_class = there[i].site_class});
    }
    return true;
  }

  [[nodiscard]] std::vector<Exit> exits_of(const Function& function, bool wants_cheap) const {
    const ControlFlow& flow = function.flow;
    std::vector<Exit> out;
    Backwards backwards(function, needs_.entry_site);
    for (std::size_t i = 0; i < flow.size(); ++i) {
      const Step& step = flow[i];
      const Exit here{.address = function.begin + step.offset, .site_class = step.site_class};
      if (step.flow == Flow::kReturn) {
        const bool is_reached = flow.is_reached(i);
        const auto ways = wants_cheap && is_reached ? backwards.ways_to(i) : std::nullopt;
        if (ways && !ways->empty()) {
          out.insert(out.end(), ways->begin(), ways->end());
        } else if (is_reached || (function.has_handlers && step.is_probeable)) {
          out.push_back(here);  // handlers, to which nothing leads, may return
        }
      } else if (flow.is_reached(i) && step.flow == Flow::kIndirectJump) {
        out.push_back(here);
        out.back().is_jump = true;
      } else if (flow.is_reached(i) && step.flow == Flow::kJump && flow.leaves(i)) {
        const std::uint64_t to = function.begin + static_cast<std::uint64_t>(step.target);
        if (function.is_cold(to)) continue;
        out.push_back(here);
        out.back().is_jump = true;
        out.back().leads_to = to;
      }
    }
    return out;
  }

  // The stubs that lead into other files are not followed: they are everybody's.
  [[nodiscard]] Exits behind(const Exit& exit, int jumps) const {
    if (jumps == 0 || !is_own_code(exit.leads_to)) return {};
    const auto range = code_around(file_, exit.leads_to);
    if (!range || range->begin != exit.leads_to) return {};
    return find(*range, jumps - 1);
  }

  void follow_jumps(int jumps, Exits& found) const {
    const bool is_wrapper = std::all_of(found.exits.begin(), found.exits.end(),
                                        [](const Exit& exit) { return exit.is_jump; });
    if (!is_wrapper) return;
    std::vector<Exit> out;
    for (const Exit& exit : found.exits) {
      const Exits there = behind(exit, jumps);
      if (there.exits.empty()) {
        out.push_back(exit);
      } else {
        out.insert(out.end(), there.exits.begin(), there.exits.end());
      }
    }
    sort_out(out);
    if (out.size() <= kExitsMax) found.exits = std::move(out);
  }

  const sys::ElfFile& file_;
  const ExitNeeds& needs_;
  std::optional<sys::ElfFile::Section> text_;
};

}  // namespace

std::uint64_t Exit::cookie(std::uint64_t cookie) const {
  std::uint64_t out = cookie | WIRE_COOKIE_EXIT;
  if (is_jump) out |= WIRE_COOKIE_JUMP;
  const auto part = [&](std::uint64_t value, int shift) { out |= value << shift; };
  part(static_cast<std::uint64_t>(when), WIRE_COOKIE_WHEN_SHIFT);
  part(condition, WIRE_COOKIE_CONDITION_SHIFT);
  part(from_frame ? 1 : 0, WIRE_COOKIE_FRAME_SHIFT);
  part(stack_bytes / 8, WIRE_COOKIE_STACK_SHIFT);
  return out;
}

Exits find_exits(const sys::ElfFile& file, const sys::Symbol& function, const ExitNeeds& needs) {
  if (function.bytes == 0) return {{}, "its size is not known"};
  Exits out = Finder(file, needs).find({function.address, function.bytes}, kJumpsFollowed);
  if (std::any_of(out.exits.begin(), out.exits.end(),
                  [&](const Exit& exit) { return exit.address == needs.entry_site; }))
    return {{}, "it begins and ends with one instruction"};
  return out;
}

}  // namespace kansoku::capture::bpf
