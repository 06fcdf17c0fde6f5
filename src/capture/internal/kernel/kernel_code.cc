// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/kernel/kernel_code.h"

#include <algorithm>
#include <array>
#include <istream>
#include <optional>

#include "common/parse.h"

namespace kansoku::capture {
namespace {

struct Rule {
  std::string_view name;  // or its beginning, if it ends with "*"
  KernelPart part;
};
// Functions of Linux 5.10 to 6.18; x86 has a name for each entry, arm64 for some.
constexpr std::array kRules{
    Rule{"exc_page_fault", KernelPart::kPageFaults},
    Rule{"asm_exc_page_fault", KernelPart::kPageFaults},
    Rule{"do_user_addr_fault", KernelPart::kPageFaults},
    Rule{"do_page_fault", KernelPart::kPageFaults},
    Rule{"handle_mm_fault", KernelPart::kPageFaults},
    Rule{"try_to_free_pages", KernelPart::kReclaim},
    Rule{"do_try_to_free_pages", KernelPart::kReclaim},
    Rule{"try_to_free_mem_cgroup_pages", KernelPart::kReclaim},
    Rule{"mem_cgroup_handle_over_high", KernelPart::kReclaim},
    Rule{"__mem_cgroup_handle_over_high", KernelPart::kReclaim},
    Rule{"shrink_node", KernelPart::kReclaim},
    Rule{"compact_zone", KernelPart::kReclaim},
    Rule{"irq_exit_rcu", KernelPart::kInterrupts},
    Rule{"__irq_exit_rcu", KernelPart::kInterrupts},
    Rule{"irq_exit", KernelPart::kInterrupts},
    Rule{"common_interrupt", KernelPart::kInterrupts},
    Rule{"__common_interrupt", KernelPart::kInterrupts},
    Rule{"asm_common_interrupt", KernelPart::kInterrupts},
    Rule{"do_interrupt_handler", KernelPart::kInterrupts},
    Rule{"sysvec_*", KernelPart::kInterrupts},
    Rule{"__sysvec_*", KernelPart::kInterrupts},
    Rule{"asm_sysvec_*", KernelPart::kInterrupts},
    // On the way out of an interrupt or a call: the scheduler, signals.
    Rule{"irqentry_exit_to_user_mode", KernelPart::kOther},
    Rule{"exit_to_user_mode_loop", KernelPart::kOther},
    Rule{"exit_to_user_mode_prepare", KernelPart::kOther},
    Rule{"uprobe_*", KernelPart::kProbes},
    Rule{"__uprobe_*", KernelPart::kProbes},
    Rule{"arch_uprobe_*", KernelPart::kProbes},
    Rule{"handle_swbp", KernelPart::kProbes},
    Rule{"exc_int3", KernelPart::kProbes},
    Rule{"asm_exc_int3", KernelPart::kProbes},
    Rule{"exc_debug", KernelPart::kProbes},
    Rule{"asm_exc_debug", KernelPart::kProbes},
    Rule{"bpf_trace_run*", KernelPart::kProbes},
    Rule{"trace_call_bpf*", KernelPart::kProbes},
    Rule{"__bpf_trace_*", KernelPart::kProbes},
    Rule{"__x64_sys_uprobe", KernelPart::kProbes},
    Rule{"__x64_sys_uretprobe", KernelPart::kProbes},
};
// A call is named by the rest. Its outer functions often jump to the inner ones, and
// are on no stack then.
constexpr std::array<std::string_view, 5> kCallPrefixes{"__x64_sys_", "__arm64_sys_", "__se_sys_",
                                                        "__do_sys_", "ksys_"};
struct Alias {
  std::string_view function, call;
};
constexpr std::array kAliases{Alias{"ksys_mmap_pgoff", "mmap"}, Alias{"vm_mmap_pgoff", "mmap"},
                              Alias{"__vm_munmap", "munmap"}, Alias{"do_madvise", "madvise"}};

struct Symbol {
  std::uint64_t address{0};
  std::string_view name;
};

std::optional<Symbol> symbol_of(std::string_view line) {
  const std::size_t first = line.find(' ');
  if (first == std::string_view::npos || line.size() < first + 4 || line[first + 2] != ' ')
    return std::nullopt;
  const char type = line[first + 1];
  const auto address = parse_int<std::uint64_t>(line.substr(0, first), 16);
  if (!address || *address == 0 || (type != 't' && type != 'T' && type != 'w' && type != 'W'))
    return std::nullopt;
  const std::string_view name = line.substr(first + 3);
  return Symbol{*address, name.substr(0, name.find_first_of(" \t"))};
}

bool is_match(std::string_view name, std::string_view pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                : name == pattern;
}

std::optional<KernelUse> use_of_name(std::string_view name) {
  for (const Rule& rule : kRules) {
    if (is_match(name, rule.name)) return KernelUse{rule.part, {}};
  }
  for (const Alias& alias : kAliases) {
    if (name == alias.function) return KernelUse{KernelPart::kCall, alias.call};
  }
  for (const std::string_view prefix : kCallPrefixes) {
    if (name.starts_with(prefix)) return KernelUse{KernelPart::kCall, name.substr(prefix.size())};
  }
  return std::nullopt;
}

}  // namespace

KernelCode KernelCode::read(std::istream& symbols) {
  KernelCode out;
  std::vector<std::uint64_t> addresses;
  for (std::string line; std::getline(symbols, line);) {
    const auto symbol = symbol_of(line);
    if (!symbol) continue;
    addresses.push_back(symbol->address);
    if (const auto use = use_of_name(symbol->name))
      out.functions_.push_back({symbol->address, 0, use->part, std::string(use->call)});
  }
  std::sort(addresses.begin(), addresses.end());
  std::sort(out.functions_.begin(), out.functions_.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
  for (Function& function : out.functions_) {
    const auto next = std::upper_bound(addresses.begin(), addresses.end(), function.begin);
    function.end = next == addresses.end() ? function.begin + 1 : *next;
  }
  return out;
}

KernelUse KernelCode::use_of(std::span<const std::uint64_t> frames) const {
  for (const std::uint64_t address : frames) {
    const auto after = std::upper_bound(
        functions_.begin(), functions_.end(), address,
        [](std::uint64_t at, const Function& function) { return at < function.begin; });
    if (after != functions_.begin() && address < (after - 1)->end)
      return {(after - 1)->part, (after - 1)->call};
  }
  return {};
}

}  // namespace kansoku::capture
