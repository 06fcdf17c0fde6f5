// SPDX-License-Identifier: Apache-2.0
#include "capture/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "common/word_search.h"

namespace kansoku::capture {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kDemangledNameBytesMax = std::size_t{4} << 20;
constexpr std::size_t kDemangledBytesMax = std::size_t{64} << 20;  // of all names for one glob

// True for words of a demangled name that its mangled form may not spell: numbers with a suffix,
// types and operators of the language, and abbreviations of the C++ ABI.
bool is_abbreviated(std::string_view word) {
  static constexpr std::array kWords{
      "std"sv,       "allocator"sv,   "basic_string"sv, "basic_istream"sv, "basic_ostream"sv,
      "string"sv,    "istream"sv,     "ostream"sv,      "iostream"sv,      "basic_iostream"sv,
      "operator"sv,  "char_traits"sv, "anonymous"sv,    "namespace"sv,     "lambda"sv,
      "unnamed"sv,   "type"sv,        "abi"sv,          "auto"sv,          "decltype"sv,
      "nullptr_t"sv, "new"sv,         "delete"sv,       "void"sv,          "bool"sv,
      "char"sv,      "signed"sv,      "unsigned"sv,     "short"sv,         "int"sv,
      "long"sv,      "float"sv,       "double"sv,       "wchar_t"sv,       "char8_t"sv,
      "char16_t"sv,  "char32_t"sv,    "const"sv,        "volatile"sv,      "true"sv,
      "false"sv,     "__int128"sv,    "__float128"sv,   "half"sv,          "_Float16"sv};
  if (!word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) != 0) return true;
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

// The longest run of identifier characters in a glob: every symbol that matches holds it, mangled
// or not. It saves demangling 30,000 names of libtorch to find 20.
std::string_view longest_word(std::string_view glob) {
  std::string_view best;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= glob.size(); ++i) {
    const bool inside = i < glob.size() &&
                        (std::isalnum(static_cast<unsigned char>(glob[i])) != 0 || glob[i] == '_');
    if (inside) continue;
    const std::string_view word = glob.substr(begin, i - begin);
    if (word.size() > best.size() && !is_abbreviated(word)) best = word;
    begin = i + 1;
  }
  return best;
}

struct Match {
  const sys::Symbol* symbol;
  std::string name;  // demangled, bare
  std::string title;
};

std::string make_title(const FunctionProbes& probes, const std::string& name,
                       std::string_view star) {
  if (probes.title.empty()) return name;
  std::string title = probes.title;
  if (const auto place = title.find("{1}"); place != std::string::npos)
    title.replace(place, 3, star);
  return title;
}

// Parts of functions that are never called: code that the compiler moved out of the way (a probe on
// the return of such a part would take a local variable for the return address), and thunks, which
// jump to the function that has a probe of its own.
bool is_fragment(std::string_view symbol) {
  return symbol.starts_with("_ZT") || symbol.ends_with(".cold") ||
         symbol.find(".cold.") != std::string_view::npos;
}

/// The demangled name without its parameters. The expanded names of a hostile file are taken off
/// `budget`; when it is used up they stay as they are.
std::string bare_name_of(const std::string& symbol, std::size_t& budget) {
  if (auto plain = sys::plain_function_name(symbol)) return std::move(*plain);
  const std::string demangled = sys::demangle(symbol, std::min(budget, kDemangledNameBytesMax));
  budget -= std::min(budget, demangled.size());
  return std::string(bare_name(demangled));
}

/// Functions of a file by the longest words of globs, found in one pass over its names: libtorch
/// has 80 MB of them. Borrows the globs and the file's symbols.
class Candidates {
 public:
  Candidates(const std::vector<const FunctionProbes*>& wanted, sys::ElfFile& file) {
    for (const FunctionProbes* const probes : wanted)
      for (const std::string& glob : probes->symbols)
        by_word_.try_emplace(longest_word(glob));
    std::vector<std::string_view> words;
    std::vector<std::vector<const sys::Symbol*>*> lists;
    for (auto& [word, symbols] : by_word_) {
      words.push_back(word);
      lists.push_back(&symbols);
    }
    const bool has_empty = !words.empty() && words.front().empty();
    const WordSearch search(words);
    for (const sys::Symbol& symbol : file.symbols()) {
      if (!symbol.is_function) continue;
      if (has_empty) lists.front()->push_back(&symbol);
      search.search(symbol.name, [&](std::size_t word) {
        std::vector<const sys::Symbol*>& list = *lists[word];
        if (list.empty() || list.back() != &symbol) list.push_back(&symbol);
      });
    }
  }
  /// Those that may match, in the file's order.
  [[nodiscard]] const std::vector<const sys::Symbol*>& of(std::string_view glob) const {
    return by_word_.at(longest_word(glob));
  }

 private:
  std::map<std::string_view, std::vector<const sys::Symbol*>> by_word_;
};

std::vector<Match> find_matches(const FunctionProbes& probes, const std::string& glob,
                                const Candidates& candidates) {
  std::size_t budget = kDemangledBytesMax;
  std::vector<Match> matches;
  for (const sys::Symbol* const candidate : candidates.of(glob)) {
    const sys::Symbol& symbol = *candidate;
    if (is_fragment(symbol.name)) continue;
    const std::string name = bare_name_of(symbol.name, budget);
    std::string_view star;
    if (!glob_match(glob, name, &star)) continue;
    const bool excluded =
        std::any_of(probes.exclude.begin(), probes.exclude.end(),
                    [&](const std::string& exclude) { return glob_match(exclude, name); });
    if (!excluded) matches.push_back({&symbol, name, make_title(probes, name, star)});
  }
  return matches;
}

bool wants_return(const FunctionProbes& probes) {
  if (probes.kind == ProbeKind::kScope) return false;
  return probes.kind != ProbeKind::kInstant || !probes.metric.empty();
}

// True for a capture that is read at the end, and needs no argument register at the begin.
bool reads_result(const CaptureDef& capture) {
  return capture.how.source == WIRE_RETURN;
}

bpf::SiteNeeds needs_of(const ResolvedProbe& probe) {
  const std::vector<CaptureDef>& captures = *probe.captures;
  bpf::SiteNeeds needs{.return_probe = wants_return(*probe.source), .registers = 0};
  for (const CaptureDef& capture : captures) {
    const unsigned source = capture.how.source & WIRE_SOURCE_MASK;
    if (source <= WIRE_ARG5) needs.registers |= static_cast<std::uint8_t>(1U << source);
    if (source == WIRE_STACK_POINTER) needs.stack = true;
  }
  needs.arguments = needs.registers != 0;
  return needs;
}

/// Those of the first variant whose parameter list is that of the function, or those of all others.
const std::vector<CaptureDef>& captures_for(const FunctionProbes& probes,
                                            const std::string& symbol) {
  if (probes.variants.empty()) return probes.captures;
  const std::string demangled = sys::demangle(symbol, kDemangledNameBytesMax);
  const std::string_view parameters = parameter_list(demangled);
  for (const CaptureVariant& variant : probes.variants)
    if (glob_match(variant.parameters, parameters)) return variant.captures;
  return probes.captures;
}

class Resolver {
 public:
  Resolver(sys::ElfFile& file, std::string_view library, Resolution& out)
      : file_(file), library_(library), out_(out) {}

  void add(const FunctionProbes& probes, const Candidates& candidates) {
    for (const std::string& glob : probes.symbols) {
      const auto matches = find_matches(probes, glob, candidates);
      if (matches.empty() && !probes.is_optional) {
        out_.missing.push_back(fmt::format("{}: no such function in {}", glob, library_));
      }
      for (const Match& match : matches)
        add_match(probes, match);
    }
  }

  void add(const UsdtProbes& wanted, const std::vector<sys::UsdtProbe>& present) {
    ResolvedUsdt out{&wanted};
    if (find(wanted.begin, present, out.begin_offset, out.begin_semaphore) &&
        (wanted.end.empty() || find(wanted.end, present, out.end_offset, out.end_semaphore)))
      out_.usdt.push_back(out);
  }

 private:
  void add_match(const FunctionProbes& probes, const Match& match) {
    if (match.symbol->is_ifunc) {
      out_.refused.push_back(
          fmt::format("{}: ifunc in {}, its code is chosen at run time and cannot be "
                      "probed by name",
                      match.name, library_));
      return;
    }
    if (!addresses_.insert(match.symbol->address).second) return;  // an alias: one event, not two
    ResolvedProbe probe;
    probe.title = match.title;
    probe.source = &probes;
    probe.captures = &captures_for(probes, match.symbol->name);
    probe.symbol = match.symbol->name;
    probe.site = bpf::pick_site(file_, *match.symbol, needs_of(probe));
    if (!probe.site.is_once) return add_by_exits(match, std::move(probe));
    const bool wants_exits = wants_return(probes) && !probes.never_throws;
    if (wants_exits && !add_exits(match, probe)) return;
    if (!probe.site.is_probeable) {
      out_.refused.push_back(fmt::format("{}: the kernel cannot probe its first instruction in {}",
                                         match.name, library_));
      return;
    }
    const auto offset = file_.file_offset(probe.site.address);
    if (!offset) {
      out_.refused.push_back(
          fmt::format("{}: its address is in no segment of {}", match.name, library_));
      return;
    }
    probe.file_offset = *offset;
    probe.is_slow = !bpf::is_cheap(probe.site.site_class) || has_slow_exit(probe);
    if (probe.is_slow && probes.is_sampled) {
      out_.refused.push_back(
          fmt::format("{}: its first instruction in {} would be single-stepped, too slow for the "
                      "rate of its calls: not probed",
                      match.name, library_));
      return;
    }
    out_.probes.push_back(std::move(probe));
  }

  // The function's begin lies in a loop, or may: each call is told once where it ends, by an
  // instant. A call that is told by its begin, or with others, cannot be.
  void add_by_exits(const Match& match, ResolvedProbe probe) {
    const ProbeKind kind = probe.source->kind;
    bpf::Exits found;
    if (kind == ProbeKind::kCall || kind == ProbeKind::kInstant) {
      found = bpf::find_exits(file_, *match.symbol,
                              {.value_bytes = result_bytes(probe), .counts = true});
      probe.by_exits = take_exits(found, probe);
    }
    if (!probe.by_exits) {
      out_.refused.push_back(fmt::format(
          "{}: its calls cannot be distinguished from iterations of a loop in {}: {}{}{}",
          match.name, library_, probe.site.reason,
          found.problem.empty() ? "" : ", and by its exits: ", found.problem));
      return;
    }
    probe.file_offset = probe.exits.front().file_offset;
    probe.is_slow = has_slow_exit(probe);
    out_.probes.push_back(std::move(probe));
  }

  static bool has_slow_exit(const ResolvedProbe& probe) {
    return std::any_of(probe.exits.begin(), probe.exits.end(), [](const ResolvedExit& exit) {
      return !bpf::is_cheap(exit.exit.site_class);
    });
  }
  // 0: it is not wanted.
  static std::uint8_t result_bytes(const ResolvedProbe& probe) {
    std::uint8_t out = 0;
    for (const CaptureDef& capture : *probe.captures) {
      if (!reads_result(capture)) continue;
      const bool is_small = capture.how.step_count == 0 && capture.how.size <= 4;
      out = std::max<std::uint8_t>(out, is_small ? 4 : 8);
    }
    return out;
  }
  // False: none, or not all of them lie in segments.
  bool take_exits(const bpf::Exits& found, ResolvedProbe& out) const {
    for (const bpf::Exit& exit : found.exits) {
      if (const auto offset = file_.file_offset(exit.address)) out.exits.push_back({*offset, exit});
    }
    return !found.exits.empty() && out.exits.size() == found.exits.size();
  }

  bool add_exits(const Match& match, ResolvedProbe& out) {
    const auto find = [&] {
      return bpf::find_exits(file_, *match.symbol,
                             {.entry_site = out.site.address,
                              .value_bytes = result_bytes(out),
                              .before_calls = out.source->before_calls});
    };
    bpf::Exits found = find();
    if (found.exits.empty() && out.site.offset_bytes != 0) {  // if an exit is where it begins
      bpf::SiteNeeds needs = needs_of(out);
      needs.at_entry = true;
      out.site = bpf::pick_site(file_, *match.symbol, needs);
      found = find();
    }
    if (take_exits(found, out)) return true;
    out_.refused.push_back(fmt::format(
        "{}: its end cannot be observed safely in {}: {} (if it never throws, set never_throws = "
        "true in the pack)",
        match.name, library_, found.problem.empty() ? "an exit is in no segment" : found.problem));
    return false;
  }

  // False if it is missing or refused, which it then says.
  bool find(const std::string& full_name, const std::vector<sys::UsdtProbe>& present,
            std::uint64_t& offset, std::uint64_t& semaphore) {
    const auto found = std::find_if(present.begin(), present.end(), [&](const auto& probe) {
      return fmt::format("{}:{}", probe.provider, probe.name) == full_name;
    });
    const auto place = found == present.end() ? std::nullopt : file_.file_offset(found->address);
    if (!place) {
      out_.missing.push_back(fmt::format("usdt {}: not in {}", full_name, library_));
      return false;
    }
    if (bpf::is_nop5_at(file_, found->address)) {
      out_.refused.push_back(fmt::format(
          "usdt {}: lies on a 5-byte nop of {}; Linux 6.18 makes a call of it, and forked children "
          "die there",
          full_name, library_));
      return false;
    }
    offset = *place;
    if (found->semaphore != 0) semaphore = file_.file_offset(found->semaphore).value_or(0);
    return true;
  }

  sys::ElfFile& file_;
  std::string_view library_;
  Resolution& out_;
  std::set<std::uint64_t> addresses_;
};

// Begin of "operator..." at the end of a name, or the size of the name.
std::size_t operator_begin(std::string_view name) {
  constexpr std::string_view kWord = "operator";
  const auto is_part = [&](std::size_t i) {
    return i < name.size() &&
           (std::isalnum(static_cast<unsigned char>(name[i])) != 0 || name[i] == '_');
  };
  const auto at = name.rfind(kWord);
  if (at == std::string_view::npos) return name.size();
  if ((at > 0 && is_part(at - 1)) || is_part(at + kWord.size())) return name.size();
  return at;
}

}  // namespace

std::string_view bare_name(std::string_view demangled) {
  // Cut the parameter list: the last '(' at depth 0 of <> and () counted from the end of the name.
  int depth = 0;
  std::size_t end = demangled.size();
  for (std::size_t i = demangled.size(); i-- > 0;) {
    if (demangled[i] == ')') ++depth;
    if (demangled[i] == '(' && --depth == 0) {
      end = i;
      break;
    }
  }
  const std::string_view name = demangled.substr(0, end);
  if (name.ends_with(' ')) return demangled;  // "char (&f(int)) [3]": the name is inside
  // A template's name starts with its return type: cut at the last blank outside brackets. The name
  // of an operator may hold blanks and brackets of its own.
  int angle = 0;
  for (std::size_t i = operator_begin(name); i-- > 0;) {
    if (name[i] == '>' || name[i] == ')') ++angle;
    if (name[i] == '<' || name[i] == '(') --angle;
    if (name[i] == ' ' && angle == 0) return name.substr(i + 1);
  }
  return name;
}

std::string_view parameter_list(std::string_view demangled) {
  const std::string_view name = bare_name(demangled);
  const std::string_view rest =
      demangled.substr(static_cast<std::size_t>(name.data() - demangled.data()) + name.size());
  if (!rest.starts_with('(')) return {};
  return rest.substr(1, rest.rfind(')') - 1);
}

void ResolvedProbe::add_specs(std::uint64_t cookie, std::uint64_t stepped,
                              std::vector<bpf::UprobeSpec>& out) const {
  const auto cookie_at = [&](bpf::SiteClass site_class) {
    return bpf::is_cheap(site_class) ? cookie : cookie | stepped;
  };
  out.push_back(
      {file_offset, 0, cookie_at(site.site_class) | (exits.empty() ? 0 : WIRE_COOKIE_CALL)});
  for (const ResolvedExit& exit : exits)
    out.push_back({exit.file_offset, 0, exit.exit.cookie(cookie_at(exit.exit.site_class))});
}

Resolution resolve_pack(const Pack& pack, sys::ElfFile& file, std::string_view library) {
  Resolution out;
  Resolver resolver(file, library, out);
  std::vector<const FunctionProbes*> wanted;
  for (const FunctionProbes& probes : pack.functions)
    if (any_glob_match(probes.library, library)) wanted.push_back(&probes);
  if (!wanted.empty()) {
    const Candidates candidates(wanted, file);
    for (const FunctionProbes* const probes : wanted)
      resolver.add(*probes, candidates);
  }
  const bool wants_usdt = std::any_of(
      pack.usdt.begin(), pack.usdt.end(),
      [&](const UsdtProbes& probes) { return any_glob_match(probes.library, library); });
  if (!wants_usdt) return out;
  const auto present = file.usdt_probes();
  for (const UsdtProbes& probes : pack.usdt) {
    if (any_glob_match(probes.library, library)) resolver.add(probes, present);
  }
  return out;
}

}  // namespace kansoku::capture
