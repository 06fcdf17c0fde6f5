// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/suffix_rules.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/no_destructor.h"

namespace kansoku::gpu::exec {
namespace {

using ptx::Op;
using ptx::Suffix;

/// Groups of words, of each of which an instruction may have one; `type` stands for any type. Their
/// order does not matter: compilers differ in it.
struct Rule {
  Op op;
  std::string_view groups;
};

constexpr std::array kRules{
    Rule{Op::kLd,
         "weak|volatile|relaxed|acquire|mmio cta|cluster|gpu|sys "
         "global|shared|shared::cta|local|param|param::entry|param::func|const nc ca|cg|cs|lu|cv "
         "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate "
         "L2::64B|L2::128B|L2::256B v2|v4 type"},
    Rule{Op::kLdu, "global v2|v4 type"},
    Rule{Op::kSt,
         "weak|volatile|relaxed|release|mmio cta|cluster|gpu|sys "
         "global|shared|shared::cta|local|param|param::func wb|cg|cs|wt "
         "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate "
         "v2|v4 type"},
    Rule{Op::kAtom,
         "relaxed|acquire|release|acq_rel cta|cluster|gpu|sys global|shared|shared::cta "
         "and|or|xor|cas|exch|add|inc|dec|min|max noftz type"},
    Rule{Op::kRed,
         "relaxed|release cta|cluster|gpu|sys global|shared|shared::cta "
         "and|or|xor|add|inc|dec|min|max noftz type"},
    Rule{Op::kCvta, "to global|shared|shared::cta|local|const|param type"},
    Rule{Op::kIsspacep, "global|shared|shared::cta|local|const|param"},
    Rule{Op::kMov, "type"},
    Rule{Op::kBra, "uni"},
    Rule{Op::kCall, "uni"},
    Rule{Op::kRet, "uni"},
    Rule{Op::kExit, ""},
    Rule{Op::kTrap, ""},
    Rule{Op::kBrkpt, ""},
    Rule{Op::kBar, "cta|warp sync|arrive|red popc|and|or aligned type"},
    Rule{Op::kBarrier, "cta sync|arrive|red popc|and|or aligned type"},
    Rule{Op::kMembar, "cta|gl|sys"},
    Rule{Op::kFence,
         "sc|acq_rel|acquire|release cta|cluster|gpu|sys proxy alias|async global|shared::cta"},
    Rule{Op::kNanosleep, "type"},
    Rule{Op::kPmevent, ""},
    Rule{Op::kPrefetch, "global|local L1|L2|L2::evict_last|L2::evict_normal"},
    Rule{Op::kPrefetchu, "L1"},
    Rule{Op::kGriddepcontrol, "wait|launch_dependents"},
    Rule{Op::kShfl, "sync up|down|bfly|idx type"},
    Rule{Op::kVote, "sync all|any|uni|ballot type"},
    Rule{Op::kMatch, "any|all sync type"},
    Rule{Op::kRedux, "sync add|min|max|and|or|xor type"},
    Rule{Op::kActivemask, "type"},
    Rule{Op::kLdmatrix, "sync aligned m8n8 x1|x2|x4 trans shared|shared::cta type"},
    Rule{Op::kMovmatrix, "sync aligned m8n8 trans type"},
    Rule{Op::kCp,
         "async commit_group|wait_group|wait_all|ca|cg shared|shared::cta global L2::cache_hint "
         "L2::64B|L2::128B|L2::256B"},
};

/// wmma.load and wmma.store; the products stand in a table of their own.
constexpr Rule kTileRule{Op::kWmma,
                         "load|store sync aligned a|b|c|d row|col m16n16k16|m8n32k16|m32n8k16 "
                         "global|shared|shared::cta type"};
/// Rule for predicates, of operations that the table holds for other types.
constexpr Rule kPredicateRule{Op::kAnd, "type"};

using Words = std::bitset<static_cast<std::size_t>(Suffix::kCount)>;

std::vector<Words> groups_of(const Rule& rule) {
  std::vector<Words> groups;
  std::string_view rest = rule.groups;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    std::string_view group = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    Words& words = groups.emplace_back();
    while (!group.empty()) {
      const std::size_t bar = std::min(group.find('|'), group.size());
      const std::string_view word = group.substr(0, bar);
      group.remove_prefix(std::min(bar + 1, group.size()));
      if (word == "type") {
        for (std::size_t i = 0; i < static_cast<std::size_t>(ptx::Type::kCount); ++i)
          words.set(i);
        continue;
      }
      const auto suffix = ptx::suffix_from_name(word);
      CHECK(suffix.has_value());
      words.set(static_cast<std::size_t>(*suffix));
    }
  }
  return groups;
}

struct Grammar {
  std::array<std::optional<std::vector<Words>>, static_cast<std::size_t>(Op::kUnknown)> by_op;
  std::vector<Words> tile{groups_of(kTileRule)}, predicate{groups_of(kPredicateRule)};
  Grammar() {
    for (const Rule& rule : kRules)
      by_op[static_cast<std::size_t>(rule.op)] = groups_of(rule);
  }
};

bool follows(const std::vector<Words>& groups, const ptx::Instruction& in) {
  std::bitset<16> is_taken;
  for (std::size_t i = 0; i < in.suffix_count; ++i) {
    const auto suffix = static_cast<std::size_t>(in.suffixes[i]);
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const Words& words) { return words.test(suffix); });
    if (group == groups.end()) return false;
    const auto number = static_cast<std::size_t>(group - groups.begin());
    if (is_taken.test(number)) return false;
    is_taken.set(number);
  }
  return true;
}

}  // namespace

bool has_known_suffixes(const ptx::Instruction& in) {
  // Streams decode until the very end of their process.
  static NoDestructor<Grammar> kept;
  const Grammar& grammar = kept.get();
  if (in.op == Op::kUnknown) return false;
  if (in.op == Op::kWmma) return in.has(Suffix::kMma) || follows(grammar.tile, in);
  const bool is_logic =
      in.op == Op::kAnd || in.op == Op::kOr || in.op == Op::kXor || in.op == Op::kNot;
  if (is_logic && in.type() == ptx::Type::kPred) return follows(grammar.predicate, in);
  const auto& groups = grammar.by_op[static_cast<std::size_t>(in.op)];
  return !groups || follows(*groups, in);
}

}  // namespace kansoku::gpu::exec
