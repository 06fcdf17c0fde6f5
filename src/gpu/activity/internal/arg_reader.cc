// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/arg_reader.h"

#include <cmath>

#include "common/parse.h"

namespace kansoku::gpu::activity {
namespace {

struct ArgAlias {
  std::string_view key;
  ArgName meaning;
};
// Kansoku's own name first, then those of PyTorch's profiler; Nsight's import has these names too.
constexpr std::array kAliases{
    ArgAlias{"correlation", ArgName::kCorrelation},
    ArgAlias{"stream", ArgName::kStream},
    ArgAlias{"device", ArgName::kDevice},
    ArgAlias{"context", ArgName::kContext},
    ArgAlias{"full_name", ArgName::kFullName},
    ArgAlias{"kernel", ArgName::kFullName},
    ArgAlias{"grid", ArgName::kGrid},
    ArgAlias{"block", ArgName::kBlock},
    ArgAlias{"registers", ArgName::kRegisters},
    ArgAlias{"registers per thread", ArgName::kRegisters},
    ArgAlias{"shared_bytes", ArgName::kSharedBytes},
    ArgAlias{"shared memory", ArgName::kSharedBytes},
    ArgAlias{"bytes", ArgName::kBytes},
    ArgAlias{"kind", ArgName::kKind},
    ArgAlias{"pageable", ArgName::kPageable},
    ArgAlias{"shared", ArgName::kShared},
    ArgAlias{"ret", ArgName::kReturn},
    ArgAlias{"address", ArgName::kAddress},
    ArgAlias{"stack", ArgName::kStack},
    ArgAlias{"est. achieved occupancy %", ArgName::kOccupancyPercent},
    ArgAlias{"Collective name", ArgName::kCollective},
    ArgAlias{"In msg nelems", ArgName::kInCount},
    ArgAlias{"Out msg nelems", ArgName::kOutCount},
    ArgAlias{"Group size", ArgName::kGroupSize},
    ArgAlias{"nranks", ArgName::kGroupSize},
    ArgAlias{"dtype", ArgName::kDataType},
    ArgAlias{"Input Dims", ArgName::kInputDims},
    ArgAlias{"m", ArgName::kM},
    ArgAlias{"n", ArgName::kN},
    ArgAlias{"k", ArgName::kK},
    ArgAlias{"batch", ArgName::kBatch},
    ArgAlias{"domain", ArgName::kDomain},
    ArgAlias{"requested", ArgName::kRequested},
};

}  // namespace

ArgReader::ArgReader(const trace::Trace& trace)
    : trace_(trace), meanings_(trace.strings.size(), ArgName::kNone) {
  for (const ArgAlias& alias : kAliases) {
    const trace::StringId id = trace.strings.find(alias.key);
    if (id.raw != 0) meanings_[id.raw] = alias.meaning;
  }
}

std::span<const trace::ArgValue> ArgReader::all(std::uint32_t slice) const {
  const std::size_t begin = trace_.slices.arg_begin[slice];
  const std::size_t count = trace_.slices.arg_count[slice];
  if (begin > trace_.args.size() || count > trace_.args.size() - begin) return {};
  return std::span(trace_.args).subspan(begin, count);
}

ArgName ArgReader::meaning(trace::StringId key) const {
  return key.raw < meanings_.size() ? meanings_[key.raw] : ArgName::kNone;
}

std::string_view ArgReader::string(trace::StringId id) const {
  return id.raw < trace_.strings.size() ? trace_.strings.view(id) : std::string_view{};
}

const trace::ArgValue* ArgReader::find(std::uint32_t slice, ArgName name) const {
  for (const trace::ArgValue& arg : all(slice)) {
    if (meaning(arg.key) == name) return &arg;
  }
  return nullptr;
}

std::optional<std::int64_t> ArgReader::number(std::uint32_t slice, ArgName name) const {
  const trace::ArgValue* const arg = find(slice, name);
  if (arg == nullptr) return std::nullopt;
  switch (arg->kind) {
    case trace::ArgValue::Kind::kInt:
      return arg->i64;
    case trace::ArgValue::Kind::kUint:
      return static_cast<std::int64_t>(arg->u64);
    case trace::ArgValue::Kind::kDouble:
      if (!(std::abs(arg->f64) < 9e15) || std::floor(arg->f64) != arg->f64) return std::nullopt;
      return static_cast<std::int64_t>(arg->f64);
    case trace::ArgValue::Kind::kString:
      return parse_int<std::int64_t>(string(arg->text));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ArgReader::count(std::uint32_t slice, ArgName name) const {
  const auto value = number(slice, name);
  if (!value || *value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::string_view ArgReader::text(std::uint32_t slice, ArgName name) const {
  const trace::ArgValue* const arg = find(slice, name);
  if (arg == nullptr || arg->kind != trace::ArgValue::Kind::kString) return {};
  return string(arg->text);
}

}  // namespace kansoku::gpu::activity
