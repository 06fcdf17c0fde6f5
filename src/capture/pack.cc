// SPDX-License-Identifier: Apache-2.0
#include "capture/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "common/json.h"
#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::capture {
namespace {

constexpr std::size_t kPackBytesMax = 1U << 20;
constexpr std::uint32_t kHzMax = 1000;

// Reads one table of a pack and remembers the first mistake, so that the code below reads like the
// format.
class Table {
 public:
  Table(Json json, std::string where) : json_(std::move(json)), where_(std::move(where)) {}

  std::string text(std::string_view key, bool required) {
    note(key);
    const Json value = json_.at(key);
    if (value.is_string()) return value.as_string();
    if (required || !value.is_null()) fail(key, "expected a text");
    return {};
  }
  std::vector<std::string> texts(std::string_view key, bool required) {
    note(key);
    const Json value = json_.at(key);
    std::vector<std::string> out;
    if (!value.is_array() && (required || !value.is_null())) fail(key, "expected a list of texts");
    if (value.is_array() && value.size() == 0 && required) fail(key, "expected at least one text");
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!value.at(i).is_string()) fail(key, "expected a list of texts");
      out.push_back(value.at(i).as_string());
    }
    return out;
  }
  bool flag(std::string_view key) {
    note(key);
    const Json value = json_.at(key);
    if (!value.is_bool() && !value.is_null()) fail(key, "expected true or false");
    return value.as_bool();
  }
  std::uint32_t hz(std::string_view key) {
    note(key);
    const std::int64_t value = json_.at(key).as_int(-1);
    if (value < 1 || value > kHzMax) fail(key, "expected a rate from 1 to 1000");
    return static_cast<std::uint32_t>(value);
  }
  Json sub(std::string_view key) {
    note(key);
    return json_.at(key);
  }
  Json table(std::string_view key) {
    Json value = sub(key);
    if (!value.is_object() && !value.is_null()) fail(key, "expected a table");
    return value;
  }
  Json tables(std::string_view key) {
    const Json value = sub(key);
    if (!value.is_array() && !value.is_null()) fail(key, "expected a list of tables");
    return value.is_array() ? value : Json();
  }
  void fail(std::string_view key, std::string_view what) {
    if (problem_.empty()) problem_ = fmt::format("{}, key {}: {}", where_, key, what);
  }
  // Call last: complains about keys nobody asked for.
  [[nodiscard]] Result<void> finish() {
    for (const std::string& key : json_.keys()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) fail(key, "unknown key");
    }
    if (problem_.empty()) return {};
    return Error{Code::kCorrupt, "read " + problem_, "docs/probes.md describes the format"};
  }

 private:
  void note(std::string_view key) { known_.emplace_back(key); }
  Json json_;
  std::string where_;
  std::vector<std::string> known_;
  std::string problem_;
};

std::optional<ProbeKind> kind_from_name(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, ProbeKind>, 5> kKinds{
      {{"", ProbeKind::kCall},
       {"call", ProbeKind::kCall},
       {"instant", ProbeKind::kInstant},
       {"annotate", ProbeKind::kAnnotate},
       {"scope", ProbeKind::kScope}}};
  for (const auto& [text, kind] : kKinds) {
    if (text == name) return kind;
  }
  return std::nullopt;
}

bool is_text(const CaptureDef& capture) {
  return capture.how.is_text != WIRE_TEXT_NONE;
}

std::vector<CaptureDef> parse_args(Table& table, ProbeKind kind) {
  const Json args = table.table("args");
  std::vector<CaptureDef> out;
  for (const std::string& name : args.keys()) {
    auto capture = parse_capture(name, args.at(name).as_string());
    if (!capture) {
      table.fail("args", capture.error().what);
      return {};
    }
    out.push_back(std::move(capture).value());
  }
  const auto text_count = std::count_if(out.begin(), out.end(), is_text);
  if (out.size() > WIRE_ARGS_MAX) table.fail("args", "at most 10 arguments");
  if (text_count > 1) table.fail("args", "at most one text");
  if (kind == ProbeKind::kAnnotate && text_count != 0) table.fail("args", "annotate takes no text");
  return out;
}

// Whoever reads the records takes the captures of one form for those of the other.
bool are_alike(const std::vector<CaptureDef>& a, const std::vector<CaptureDef>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const CaptureDef& one, const CaptureDef& other) {
                      return one.name == other.name && one.how.size == other.how.size &&
                             one.is_long == other.is_long && is_text(one) == is_text(other) &&
                             one.is_signed == other.is_signed;
                    });
}

Result<void> parse_variants(Table& table, const std::string& where, FunctionProbes& out) {
  const Json variants = table.tables("variant");
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Table variant(variants.at(i), fmt::format("{} variant {}", where, i + 1));
    CaptureVariant& made = out.variants.emplace_back();
    made.parameters = variant.text("parameters", true);
    made.captures = parse_args(variant, out.kind);
    if (!are_alike(made.captures, out.captures))
      variant.fail("args", "expected the names and types of the probe's args");
    TRY_VOID(variant.finish());
  }
  return {};
}

/// True if there is an argument of that name: a number, or a text.
bool has_capture(const FunctionProbes& probes, std::string_view name, bool wants_text = false) {
  return std::any_of(probes.captures.begin(), probes.captures.end(),
                     [&](const CaptureDef& capture) {
                       return capture.name == name && is_text(capture) == wants_text;
                     });
}

using Types = std::map<std::string, std::vector<TypeValue>>;

Result<Types> parse_types(const Json& types, const std::string& path) {
  Types out;
  for (std::size_t i = 0; i < types.size(); ++i) {
    Table table(types.at(i), fmt::format("{} [[type]] entry {}", path, i + 1));
    std::vector<TypeValue>& values = out[table.text("name", true)];
    for (const std::string& value : table.texts("values", true)) {
      const auto colon = value.find(':');
      const auto bytes = colon == std::string::npos
                             ? std::nullopt
                             : parse_int<std::uint8_t>(std::string_view(value).substr(colon + 1));
      if (!bytes) table.fail("values", "expected name:bytes");
      values.push_back({value.substr(0, colon), bytes.value_or(0)});
    }
    if (values.size() > WIRE_SIZES_MAX) table.fail("values", "at most 16");
    TRY_VOID(table.finish());
  }
  return out;
}

void parse_bytes(Table& table, const Types& types, FunctionProbes& out) {
  out.bytes = table.texts("bytes", false);
  for (const std::string& name : out.bytes) {
    if (!has_capture(out, name)) table.fail("bytes", "expected names of args");
  }
  out.type = table.text("type", false);
  if (out.type.empty()) return;
  if (!has_capture(out, out.type)) table.fail("type", "expected the name of an arg");
  const auto values = types.find(out.type);
  if (values == types.end()) table.fail("type", "expected a [[type]] of that name");
  if (values != types.end()) out.type_values = values->second;
}

void parse_group(Table& table, FunctionProbes& out) {
  constexpr std::size_t kParts = 3, kPartsWithName = 4;
  out.group = table.texts("group", false);
  bool are_known = true;
  for (std::size_t i = 0; i < out.group.size(); ++i)
    are_known = are_known && has_capture(out, out.group[i], i + 1 == kPartsWithName);
  const bool fits = out.group.size() == kParts || out.group.size() == kPartsWithName;
  if (!out.group.empty() && (!fits || !are_known))
    table.fail("group", "expected the names of three args: address, rank and size; or a name, too");
  if (!out.group.empty() && (out.kind == ProbeKind::kAnnotate || out.kind == ProbeKind::kScope))
    table.fail("group", "only of calls and instants");
}

Result<void> parse_metering(Table& table, const std::string& where, FunctionProbes& out) {
  out.metric = table.text("metric", false);
  out.steps = table.flag("steps");
  out.is_helper = table.flag("helper");
  if (out.metric.empty() && out.steps) table.fail("metric", "steps needs one");
  if (!out.metric.empty() && out.kind == ProbeKind::kAnnotate)
    table.fail("metric", "annotate counts no calls");
  if (!out.metric.empty() && out.kind == ProbeKind::kScope)
    table.fail("metric", "scopes have theirs in [[probe.scope]]");
  const Json scopes = table.tables("scope");
  for (std::size_t i = 0; i < scopes.size(); ++i) {
    Table scope(scopes.at(i), fmt::format("{} scope {}", where, i + 1));
    out.scopes.push_back({scope.text("prefix", true), scope.text("metric", true)});
    const std::string& prefix = out.scopes.back().prefix;
    if (prefix.empty() || prefix.size() > WIRE_PREFIX_BYTES)
      scope.fail("prefix", "expected 1 to 16 characters");
    TRY_VOID(scope.finish());
  }
  if (out.scopes.empty()) return {};
  const auto is_name = [](const CaptureDef& capture) {
    return capture.how.is_text == WIRE_TEXT_PYTHON;
  };
  if (out.kind != ProbeKind::kScope) table.fail("scope", "only kind scope has them");
  if (out.scopes.size() > WIRE_SCOPES_MAX) table.fail("scope", "at most 4");
  if (std::none_of(out.captures.begin(), out.captures.end(), is_name) ||
      !has_capture(out, kScopeArguments))
    table.fail("args", "scopes are metered by a pystr and arg_count");
  return {};
}

// By enum wire_model_role.
constexpr std::array<std::string_view, WIRE_MODEL_ROLES> kModelRoles{
    "",         "decode",         "micro_batch", "schedule",       "split", "graph",
    "operator", "fused_operator", "barrier",     "context_decode", "eval"};

}  // namespace

std::string_view model_role_name(std::uint8_t role) {
  return role < kModelRoles.size() ? kModelRoles.at(role) : std::string_view{};
}

namespace {

std::uint8_t parse_model_role(Table& table) {
  const std::string name = table.text("model", false);
  const auto* const found = std::find(kModelRoles.begin(), kModelRoles.end(), name);
  if (found == kModelRoles.end())
    table.fail(
        "model",
        "expected decode, context_decode, eval, micro_batch, schedule, split, graph, operator, "
        "fused_operator or barrier");
  return found == kModelRoles.end() ? std::uint8_t{0}
                                    : static_cast<std::uint8_t>(found - kModelRoles.begin());
}

Result<FunctionProbes> parse_function(const Json& json, const Types& types,
                                      const std::string& where) {
  Table table(json, where);
  FunctionProbes out;
  out.library = table.text("library", true);
  out.symbols = table.texts("symbols", true);
  out.exclude = table.texts("exclude", false);
  out.category = table.text("category", true);
  out.title = table.text("title", false);
  const auto kind = kind_from_name(table.text("kind", false));
  if (!kind) table.fail("kind", "expected call, instant, annotate or scope");
  out.kind = kind.value_or(ProbeKind::kCall);
  const std::string record = table.text("record", false);
  if (!record.empty() && record != "pair" && record != "at_end" && record != "sampled") {
    table.fail("record", "expected pair, at_end or sampled");
  }
  out.at_end = record == "at_end";
  out.is_sampled = record == "sampled";
  out.never_throws = table.flag("never_throws");
  out.before_calls = table.flag("before_calls");
  out.is_optional = table.flag("optional");
  out.until_named = table.flag("until_named");
  out.has_frames = table.flag("frames");
  if (out.has_frames &&
      (out.at_end || out.kind == ProbeKind::kAnnotate || out.kind == ProbeKind::kScope))
    table.fail("frames", "only of calls with a record at their begin, and of instants");
  out.model_role = parse_model_role(table);
  const std::string ordinal = table.text("ordinal_by", false);
  if (table.sub("ordinal_by").is_string()) out.ordinal_by = ordinal;  // "" counts per process
  out.captures = parse_args(table, out.kind);
  if (out.at_end && !out.captures.empty()) table.fail("record", "at_end takes no args");
  if (out.is_sampled && (!out.never_throws || out.kind != ProbeKind::kCall))
    table.fail("record", "sampled is for calls that never throw");
  TRY_VOID(parse_variants(table, where, out));
  parse_bytes(table, types, out);
  parse_group(table, out);
  TRY_VOID(parse_metering(table, where, out));
  TRY_VOID(table.finish());
  return out;
}

Result<UsdtProbes> parse_usdt(const Json& json, const std::string& where) {
  Table table(json, where);
  UsdtProbes out{table.text("library", true),  table.text("begin", true),
                 table.text("end", false),     table.text("title", true),
                 table.text("category", true), table.text("metric", false),
                 table.flag("helper")};
  TRY_VOID(table.finish());
  return out;
}

struct StatisticName {
  std::string_view name, unit;
};
// By Statistic.
constexpr std::array<StatisticName, 6> kStatistics{{{"rate", "1/s"},
                                                    {"mean", "s"},
                                                    {"p99", "s"},
                                                    {"max", "s"},
                                                    {"share", "ratio"},
                                                    {"bytes", "bytes/s"}}};

bool is_feature_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() >= 'a' && name.front() <= 'z' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

Result<FeatureRule> parse_feature(const Json& json, const std::string& where) {
  Table table(json, where);
  FeatureRule out;
  out.name = table.text("name", true);
  if (!is_feature_name(out.name)) table.fail("name", "expected a-z, 0-9 and _, at most 64");
  out.metric = table.text("metric", true);
  const std::string statistic = table.text("statistic", true);
  const auto known = std::find_if(kStatistics.begin(), kStatistics.end(),
                                  [&](const StatisticName& one) { return one.name == statistic; });
  if (known == kStatistics.end())
    table.fail("statistic", "expected rate, mean, p99, max, share or bytes");
  else
    out.statistic = static_cast<Statistic>(known - kStatistics.begin());
  const std::string layer = table.text("layer", false), meaning = table.text("meaning", false);
  const Json floor = table.sub("floor"), worse = table.sub("worse");
  if (layer.empty() && meaning.empty() && floor.is_null() && worse.is_null()) {
    TRY_VOID(table.finish());
    return out;
  }
  if (layer.empty() || meaning.empty()) table.fail("layer", "layer, meaning and floor go together");
  if (!floor.is_number() || !(floor.as_double() > 0))
    table.fail("floor", "expected a number above 0");
  const std::int64_t direction = worse.as_int();
  if (direction < -1 || direction > 1) table.fail("worse", "expected -1, 0 or 1");
  out.definition = {layer, meaning, floor.as_double(), static_cast<int>(direction)};
  TRY_VOID(table.finish());
  return out;
}

Result<SyscallProbes> parse_syscalls(const Json& json, const std::string& where) {
  Table table(json, where);
  SyscallProbes out{table.texts("names", true), table.text("category", true)};
  TRY_VOID(table.finish());
  return out;
}

Result<TracepointProbes> parse_tracepoints(const Json& json, const std::string& where) {
  Table table(json, where);
  TracepointProbes out{table.texts("names", true), table.text("category", true),
                       table.flag("host")};
  for (const std::string& name : out.names) {
    if (name.find(':') == std::string::npos) table.fail("names", "expected group:name");
  }
  TRY_VOID(table.finish());
  return out;
}

template <class T, class Parse>
Result<std::vector<T>> parse_all(const Json& array, const std::string& where, Parse parse) {
  std::vector<T> out;
  for (std::size_t i = 0; i < array.size(); ++i) {
    TRY(auto one, parse(array.at(i), fmt::format("{} entry {}", where, i + 1)));
    out.push_back(std::move(one));
  }
  return out;
}

struct TypeName {
  std::string_view name;
  std::uint8_t bytes;
  bool is_signed;
  wire_text_kind text{WIRE_TEXT_NONE};
  bool is_long{false};
};
constexpr std::array<TypeName, 9> kTypes{{{"u64", 8, false},
                                          {"u32", 4, false},
                                          {"u16", 2, false},
                                          {"u8", 1, false},
                                          {"i64", 8, true},
                                          {"i32", 4, true},
                                          {"str", 8, false, WIRE_TEXT_C},
                                          {"longstr", 8, false, WIRE_TEXT_C, true},
                                          {"pystr", 8, false, WIRE_TEXT_PYTHON}}};

constexpr unsigned kArgumentMax = 31;  // cublasGemmStridedBatchedEx has 23

/// Sets the source of a capture. Arguments beyond the registers lie behind the return address, in
/// places of 8 bytes: their first step.
Result<void> parse_source(std::string_view text, wire_capture& out) {
  const bool is_out = text.starts_with("out:");
  if (is_out) text.remove_prefix(4);
  if (text == "ret" && !is_out) {
    out.source = WIRE_RETURN;
    return {};
  }
  const auto number =
      text.starts_with("arg") ? parse_int<std::uint8_t>(text.substr(3)) : std::nullopt;
  if (!number || *number > kArgumentMax)
    return Error{Code::kCorrupt,
                 fmt::format("read source {}: expected arg0 to arg{} or ret", text, kArgumentMax)};
  if (*number <= WIRE_ARG5) {
    out.source = static_cast<std::uint8_t>(*number | (is_out ? WIRE_SOURCE_OUT : 0));
    return {};
  }
  if (is_out)
    return Error{Code::kCorrupt, fmt::format("read source {}: out takes arg0 to arg5", text)};
  out.source = WIRE_STACK_POINTER;
  out.offset[out.step_count++] = static_cast<std::uint16_t>(8 * (*number - WIRE_ARG5));
  return {};
}

}  // namespace

std::string_view unit_of(Statistic statistic) {
  return kStatistics.at(static_cast<std::size_t>(statistic)).unit;
}

Result<CaptureDef> parse_capture(std::string_view name, std::string_view expression) {
  CaptureDef out;
  out.name = std::string(name);
  std::string_view path = expression;
  std::string_view type = "u64";
  const std::size_t source = expression.starts_with("out:") ? 4 : 0;
  if (const auto colon = expression.find(':', source); colon != std::string_view::npos) {
    path = expression.substr(0, colon);
    type = expression.substr(colon + 1);
  }
  const auto known =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.name == type; });
  if (known == kTypes.end()) {
    return Error{Code::kCorrupt, fmt::format("read argument {}: unknown type {}", name, type),
                 "types are u8 u16 u32 u64 i32 i64 str longstr pystr"};
  }
  out.how.size = known->bytes;
  out.how.is_text = static_cast<std::uint8_t>(known->text);
  out.is_signed = known->is_signed;
  out.is_long = known->is_long;
  auto arrow = path.find("->");
  const bool arrow_seen = arrow != std::string_view::npos;
  TRY_VOID(parse_source(path.substr(0, arrow), out.how));
  while (arrow != std::string_view::npos) {
    path = path.substr(arrow + 2);
    arrow = path.find("->");
    const auto offset = parse_int<std::uint16_t>(path.substr(0, arrow));
    if (!offset || out.how.step_count == WIRE_STEPS_MAX) {
      return Error{
          Code::kCorrupt,
          fmt::format("read argument {}: expected at most {} offsets from 0 to 65535 after ->",
                      name, WIRE_STEPS_MAX)};
    }
    out.how.offset[out.how.step_count++] = *offset;
  }
  if (is_out(out) && out.how.step_count == 0)
    return Error{Code::kCorrupt,
                 fmt::format("read argument {}: out wants an offset, as in arg0->0", name)};
  if (out.how.is_text == WIRE_TEXT_C && !arrow_seen) {
    // "arg1:str": the text lies at the argument itself.
    if (out.how.step_count == WIRE_STEPS_MAX) return Error{Code::kCorrupt, "too many steps"};
    ++out.how.step_count;
  }
  return out;
}

namespace {

// A name that a list of packs can hold: "default", "-name" and "./file" mean something else there.
bool is_pack_name(std::string_view name) {
  if (name.empty() || name.front() == '-' || name == "default") return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

}  // namespace

Result<Pack> parse_pack(std::string_view untrusted_toml, const std::string& path) {
  TRY(const Json json, Json::parse_toml(untrusted_toml, path));
  Table table(json, path);
  Pack out;
  out.path = path;
  if (table.sub("schema").as_int() != 1) table.fail("schema", "expected 1");
  out.name = table.text("name", true);
  if (!is_pack_name(out.name)) table.fail("name", "expected letters, digits, - and _");
  out.description = table.text("description", true);
  out.is_default = table.flag("default");
  TRY(const Types types, parse_types(table.tables("type"), path));
  TRY(out.functions, parse_all<FunctionProbes>(table.tables("probe"), path + " [[probe]]",
                                               [&](const Json& one, const std::string& where) {
                                                 return parse_function(one, types, where);
                                               }));
  TRY(out.usdt, parse_all<UsdtProbes>(table.tables("usdt"), path + " [[usdt]]", parse_usdt));
  TRY(out.syscalls,
      parse_all<SyscallProbes>(table.tables("syscall"), path + " [[syscall]]", parse_syscalls));
  TRY(out.tracepoints, parse_all<TracepointProbes>(table.tables("tracepoint"),
                                                   path + " [[tracepoint]]", parse_tracepoints));
  TRY(out.features,
      parse_all<FeatureRule>(table.tables("feature"), path + " [[feature]]", parse_feature));
  const Json scheduler = table.table("scheduler");
  out.scheduler = scheduler.is_object();
  TRY_VOID(Table(scheduler, path + " [scheduler]").finish());
  const auto rate = [&](std::string_view section) -> Result<std::uint32_t> {
    const Json json_section = table.table(section);
    if (!json_section.is_object()) return 0U;
    Table sub(json_section, fmt::format("{} [{}]", path, section));
    const std::uint32_t hz = sub.hz("hz");
    TRY_VOID(sub.finish());
    return hz;
  };
  TRY(out.python_hz, rate("python_stacks"));
  TRY(out.cpu_hz, rate("cpu_samples"));
  TRY_VOID(table.finish());
  return out;
}

namespace {

Result<Pack> load_pack(const std::string& path) {
  TRY(const std::string text, sys::read_file(path, kPackBytesMax));
  return parse_pack(text, path);
}

std::vector<std::string> pack_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".toml") files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Result<Pack> find_pack(const std::vector<Pack>& known, const std::string& name) {
  if (name.find('/') != std::string::npos) return load_pack(name);
  for (const Pack& pack : known) {
    if (pack.name == name) return pack;
  }
  std::string all;
  for (const Pack& pack : known)
    all += (all.empty() ? "" : ", ") + pack.name;
  return Error{Code::kNotFound, fmt::format("select probe pack {}: unknown", name),
               fmt::format("known packs: {}; or name a file, e.g. ./my.toml", all)};
}

}  // namespace

Result<std::vector<Pack>> load_packs(const std::vector<std::string>& folders) {
  std::map<std::string, Pack> by_name;
  for (const std::string& folder : folders) {
    for (const std::string& file : pack_files(folder)) {
      TRY(Pack pack, load_pack(file));
      by_name.insert_or_assign(pack.name, std::move(pack));
    }
  }
  std::vector<Pack> packs;
  packs.reserve(by_name.size());
  for (auto& [name, pack] : by_name)
    packs.push_back(std::move(pack));
  return packs;
}

Result<std::vector<Pack>> select_packs(const std::vector<Pack>& known, std::string_view list) {
  std::vector<Pack> chosen;
  const auto drop = [&chosen](std::string_view name) {
    chosen.erase(std::remove_if(chosen.begin(), chosen.end(),
                                [&](const Pack& pack) { return pack.name == name; }),
                 chosen.end());
  };
  while (!list.empty()) {
    const auto comma = list.find(',');
    const std::string name(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    if (name.empty()) continue;
    if (name == "default") {
      for (const Pack& pack : known) {
        if (!pack.is_default) continue;
        drop(pack.name);
        chosen.push_back(pack);
      }
    } else if (name.front() == '-') {
      TRY(const Pack dropped, find_pack(known, name.substr(1)));
      drop(dropped.name);
    } else {
      TRY(Pack pack, find_pack(known, name));
      drop(pack.name);
      chosen.push_back(std::move(pack));
    }
  }
  return chosen;
}

// Each star takes as little as it can, and only the last one seen ever takes more: the rest of the
// earlier ones matches all the same. So the time is at most the product of the two lengths.
bool glob_match(std::string_view glob, std::string_view text, std::string_view* first_star) {
  constexpr auto kNone = std::string_view::npos;
  const auto first = glob.find('*');
  std::size_t star = kNone;  // the last star seen, and the end of its match in `text`
  std::size_t star_end = 0;
  std::size_t first_end = 0;
  std::size_t at = 0;
  std::size_t i = 0;
  while (i < text.size()) {
    if (at < glob.size() && glob[at] == '*') {
      star = at++;
      star_end = i;
    } else if (at < glob.size() && glob[at] == text[i]) {
      ++at;
      ++i;
    } else if (star != kNone) {
      at = star + 1;
      i = ++star_end;
    } else {
      return false;
    }
    if (star == first) first_end = star_end;
  }
  if (glob.find_first_not_of('*', at) != kNone) return false;
  if (first_star != nullptr && first != kNone)
    *first_star = text.substr(first, first_end < first ? 0 : first_end - first);
  return true;
}

bool any_glob_match(std::string_view globs, std::string_view text) {
  for (;;) {
    const auto bar = globs.find('|');
    if (glob_match(globs.substr(0, bar), text)) return true;
    if (bar == std::string_view::npos) return false;
    globs = globs.substr(bar + 1);
  }
}

}  // namespace kansoku::capture
