// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "wire/model.h"
#include "wire/ring.h"

namespace kansoku::capture {

/// One captured argument: "arg2->0->24:u32" and the name it gets in the trace.
struct CaptureDef {
  std::string name;
  wire_capture how{};
  bool is_signed{false};
  bool is_long{false};  // a text of up to WIRE_LONG_TEXT_BYTES
};
/// True for "out:arg0->0": a value that the function writes through that argument.
[[nodiscard]] inline bool is_out(const CaptureDef& capture) {
  return (capture.how.source & WIRE_SOURCE_OUT) != 0;
}
[[nodiscard]] inline bool is_read_at_end(const CaptureDef& capture) {
  return capture.how.source == WIRE_RETURN || is_out(capture);
}

enum class ProbeKind : std::uint8_t {
  kCall,      // a slice from entry to return
  kInstant,   // a point at the entry
  kAnnotate,  // no event: its captures become arguments of the slice that encloses the call
  kScope,     // enter and exit of a named scope, told apart by its captures op, scope, arg_count
};

/// Capture of a kScope probe that holds the count of arguments.
inline constexpr std::string_view kScopeArguments = "arg_count";

/// Other captures of the same names, where a function has another form in some version.
struct CaptureVariant {
  std::string parameters;  // glob of the demangled parameter list, without its brackets
  std::vector<CaptureDef> captures;
};

/// One value of an enumeration that a captured argument holds.
struct TypeValue {
  std::string name;
  std::uint8_t bytes{0};  // size of one element of that type
};

/// The scopes whose names begin so, and the metric of their totals.
struct ScopeMetric {
  std::string prefix;  // at most WIRE_PREFIX_BYTES characters
  std::string metric;
};

/// Probes on functions of libraries.
/// As packs call an enum wire_model_role; "" for 0 and what is none.
[[nodiscard]] std::string_view model_role_name(std::uint8_t role);

struct FunctionProbes {
  std::string library;               // globs of the file name, separated by '|'
  std::vector<std::string> symbols;  // globs of the demangled name without its parameter list
  std::vector<std::string> exclude;
  std::string category;
  std::string title;  // "" = the demangled name; "{1}" is the match of the glob's first *
  ProbeKind kind{ProbeKind::kCall};
  bool at_end{false};      // one record a call, at its return: half the cost, but a call that never
                           // returns is not seen
  bool is_sampled{false};  // the ends of the calls that begin in a slice of each second; of others
                           // the begin
  bool has_frames{false};  // takes the caller of each call: a native stack
  bool until_named{false};   // taken off when every kernel that is launched has a name
  bool is_optional{false};   // that some of them are missing is not worth a word
  bool never_throws{false};  // no exception ever leaves them: the kernel's return probes are safe
  bool before_calls{false};  // their end may be seen before their last calls: destructors, messages
  std::uint8_t model_role{0};  // enum wire_model_role: for capture/llm, and nobody else
  std::optional<std::string>
      ordinal_by;  // adds `seq`, counted per process and value of that argument ("" = process)
  std::vector<CaptureDef> captures;
  std::vector<CaptureVariant> variants;  // the first that fits stands for `captures`
  std::vector<std::string> group;        // captures that tell a process group: its address, the
                                         // caller's rank in it, its size, and maybe its name, which
                                         // its members share; empty: none do
  std::vector<std::string> bytes;        // captures whose product is the payload of a call
  std::string type;                      // capture that chooses another factor; "" = none does
  std::vector<TypeValue> type_values;    // by the value of that capture
  // Use of the calls by `kansoku watch`; recordings ignore these.
  std::string metric;               // name of their totals; "" = not metered
  bool steps{false};                // also the times from call to call, and from return to call
  bool is_helper{false};            // calls that helpers of other processes make, too
  std::vector<ScopeMetric> scopes;  // of kScope, in place of `metric`

  /// Its probes are taken off and put back alone.
  [[nodiscard]] bool is_switched() const { return is_sampled || until_named; }
  [[nodiscard]] bool is_metered() const { return !metric.empty() || !scopes.empty(); }
};

struct UsdtProbes {
  std::string library;
  std::string begin, end;  // "provider:name"; `end` empty = instant
  std::string title, category;
  std::string metric;     // as of FunctionProbes
  bool is_helper{false};  // as of FunctionProbes
};

/// Statistic of a metric's calls in a window.
enum class Statistic : std::uint8_t { kRate, kMean, kP99, kMax, kShare, kBytes };
/// "1/s", "s", "s", "s", "ratio", "bytes/s".
[[nodiscard]] std::string_view unit_of(Statistic statistic);

/// A feature that is made of a metric: a column of tables, an axis of detection, a series of the
/// exporters.
struct FeatureRule {
  std::string name;  // snake_case
  std::string metric;
  Statistic statistic{Statistic::kRate};
  /// Definition of a feature that detection does not know by itself.
  struct Definition {
    std::string layer, meaning;
    double floor{0};  // in the unit: differences below it mean nothing
    int worse{0};     // +1: more is worse; -1: less is; 0: it follows from the job's work
  };
  std::optional<Definition> definition{};
};

struct SyscallProbes {
  std::vector<std::string> names;
  std::string category;
};

struct TracepointProbes {
  std::vector<std::string> names;  // "group:name"
  std::string category;
  bool host{false};  // not filtered by process
};

/// A probe pack: data that names the calls to observe. Users may add their own files.
struct Pack {
  std::string name, description, path;
  bool is_default{false};
  std::vector<FunctionProbes> functions;
  std::vector<UsdtProbes> usdt;
  std::vector<SyscallProbes> syscalls;
  std::vector<TracepointProbes> tracepoints;
  std::vector<FeatureRule> features;
  bool scheduler{false};
  std::uint32_t python_hz{0};
  std::uint32_t cpu_hz{0};
};

/// Parses a pack. Unknown keys are errors, so that a typing mistake does not silently observe less.
/// kCorrupt names file, place and the expected value.
[[nodiscard]] Result<Pack> parse_pack(std::string_view untrusted_toml, const std::string& path);

/// All packs of the folders, by name; a later folder replaces a pack of the same name of an earlier
/// one. Files end in .toml.
[[nodiscard]] Result<std::vector<Pack>> load_packs(const std::vector<std::string>& folders);

/// The packs that a list such as "default,torch-ops", "torch,-sched" or "./my.toml" selects from
/// `known`, each once. kNotFound names the unknown one and lists the known ones.
[[nodiscard]] Result<std::vector<Pack>> select_packs(const std::vector<Pack>& known,
                                                     std::string_view list);

/// "arg0", "arg1->8->0:u32", "ret:u32", "arg2->0->16:str", "out:arg0->0". kCorrupt names the
/// mistake.
[[nodiscard]] Result<CaptureDef> parse_capture(std::string_view name, std::string_view expression);

/// True if `text` matches `glob` (only * is special); `first_star`, if not null, gets the match of
/// the first *.
[[nodiscard]] bool glob_match(std::string_view glob, std::string_view text,
                              std::string_view* first_star = nullptr);
/// As glob_match for any of the globs separated by '|'.
[[nodiscard]] bool any_glob_match(std::string_view globs, std::string_view text);

}  // namespace kansoku::capture
