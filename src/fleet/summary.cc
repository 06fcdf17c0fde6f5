// SPDX-License-Identifier: Apache-2.0
#include "fleet/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "common/text.h"
#include "common/varint.h"
#include "fleet/internal/wire_format.h"

namespace kansoku::fleet {
namespace {

constexpr std::string_view kMagic = "KFS";
constexpr char kVersion = '1';

Error bad_summary(std::string_view what, Code code = Code::kCorrupt) {
  return Error{code, fmt::format("read fleet summary: {}", what)};
}

void append_text(std::string& to, std::string_view text) {
  append_varint(to, text.size());
  to.append(text);
}

/// Takes one field after the other off the message. A method that fails names the field.
class Fields {
 public:
  explicit Fields(ByteSpan untrusted) : rest_(untrusted) {}

  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }

  [[nodiscard]] Result<std::uint64_t> number(std::string_view what, std::uint64_t most) {
    const auto value = take_varint(rest_);
    if (!value) return bad_summary(what);
    if (*value > most) return bad_summary(what, Code::kLimit);
    return *value;
  }
  [[nodiscard]] Result<std::int64_t> signed_number(std::string_view what) {
    const auto value = take_varint(rest_);
    if (!value) return bad_summary(what);
    return from_zigzag(*value);
  }
  [[nodiscard]] Result<ByteSpan> bytes(std::string_view what, std::size_t most) {
    TRY(const auto length, number(what, most));
    if (length > rest_.size()) return bad_summary(what);
    const ByteSpan taken = rest_.first(length);
    rest_ = rest_.subspan(length);
    return taken;
  }
  [[nodiscard]] Result<std::string> text(std::string_view what) {
    TRY(const auto taken, bytes(what, kSummaryTextMax));
    if (!internal::is_clean_text(as_text(taken))) return bad_summary(what);
    return std::string(as_text(taken));
  }

 private:
  ByteSpan rest_;
};

void append_job(std::string& to, const SummaryJob& job) {
  append_text(to, job.key);
  append_text(to, job.name);
  append_varint(to, static_cast<std::uint64_t>(job.world_size));
  append_varint(to, job.ranks.size());
  std::int64_t next = 0;
  for (const std::int32_t rank : job.ranks) {
    append_varint(to, static_cast<std::uint64_t>(rank - next));
    next = std::int64_t{rank} + 1;
  }
}

Result<SummaryJob> read_job(Fields& fields, std::size_t& ranks_left) {
  constexpr std::int64_t kRankMax = std::numeric_limits<std::int32_t>::max();
  SummaryJob job;
  TRY(job.key, fields.text("key of a job"));
  TRY(job.name, fields.text("name of a job"));
  TRY(const auto size, fields.number("world size", kRankMax));
  job.world_size = static_cast<std::int32_t>(size);
  TRY(const auto count, fields.number("number of ranks", ranks_left));
  if (count > fields.remaining()) return bad_summary("number of ranks");
  ranks_left -= count;
  job.ranks.reserve(count);
  std::int64_t next = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    TRY(const auto distance, fields.number("rank", kRankMax));
    next += static_cast<std::int64_t>(distance);
    if (next > kRankMax) return bad_summary("rank");
    job.ranks.push_back(static_cast<std::int32_t>(next++));
  }
  return job;
}

void append_part(std::string& to, const SummaryPart& part) {
  append_varint(to, static_cast<std::uint64_t>(part.kind));
  append_varint(to, part.job == kNoIndex ? 0 : std::uint64_t{part.job} + 1);
  if (part.kind == PartKind::kSketch) {
    append_varint(to, static_cast<std::uint64_t>(std::int64_t{part.rank} - kAllRanks));
    append_varint(to, part.feature);
  }
  append_text(to, as_text(part.bytes));
}

Result<SummaryPart> read_part(Fields& fields, const Summary& summary) {
  SummaryPart part;
  TRY(const auto kind, fields.number("kind of a part", UINT64_MAX));
  if (kind < 1 || kind > 4) return bad_summary("kind of a part");
  part.kind = static_cast<PartKind>(kind);
  TRY(const auto job, fields.number("job of a part", UINT64_MAX));
  if (job > summary.jobs.size()) return bad_summary("job of a part");
  if (job > 0) part.job = static_cast<std::uint32_t>(job - 1);
  const bool has_job = job > 0;
  if (part.kind == PartKind::kSketch) {
    TRY(const auto rank, fields.number("rank of a sketch", std::uint64_t{1} << 31));
    part.rank = static_cast<std::int32_t>(static_cast<std::int64_t>(rank) + kAllRanks);
    TRY(const auto feature, fields.number("feature of a sketch", UINT64_MAX));
    if (feature >= summary.features.size()) return bad_summary("feature of a sketch");
    part.feature = static_cast<std::uint32_t>(feature);
  }
  const bool wants_job = part.kind == PartKind::kSketch || part.kind == PartKind::kClusterFeatures;
  if (wants_job ? !has_job : has_job && part.kind == PartKind::kCounters)
    return bad_summary("job of a part");
  TRY(part.bytes,
      fields.bytes("bytes of a part",
                   part.kind == PartKind::kIncident ? kSummaryIncidentBytesMax : kSummaryBytesMax));
  return part;
}

/// The counts in their order in the format.
template <class Dropped>
auto counts_of(Dropped& dropped) {
  return std::array{&dropped.rank_sketches, &dropped.sketches, &dropped.cluster_features,
                    &dropped.incidents,     &dropped.counters, &dropped.jobs,
                    &dropped.windows};
}

Result<void> check_limits(const Summary& summary) {
  std::size_t ranks = 0;
  bool has_clean_texts = !summary.host.empty() && internal::is_clean_text(summary.host) &&
                         internal::is_clean_text(summary.boot_id);
  for (const std::string& feature : summary.features)
    has_clean_texts = has_clean_texts && internal::is_clean_text(feature);
  for (const SummaryJob& job : summary.jobs) {
    ranks += job.ranks.size();
    has_clean_texts =
        has_clean_texts && internal::is_clean_text(job.key) && internal::is_clean_text(job.name);
  }
  const char* what = !has_clean_texts                                ? "a name"
                     : summary.jobs.size() > kSummaryJobsMax         ? "number of jobs"
                     : ranks > kSummaryRanksMax                      ? "number of ranks"
                     : summary.features.size() > kSummaryFeaturesMax ? "number of features"
                     : summary.parts.size() > kSummaryPartsMax       ? "number of parts"
                     : summary.end_ns < summary.begin_ns             ? "end before begin"
                                                                     : nullptr;
  if (what != nullptr) return Error{Code::kLimit, fmt::format("write fleet summary: {}", what)};
  return {};
}

Result<void> read_head(Fields& fields, Summary& summary) {
  TRY(summary.host, fields.text("host"));
  if (summary.host.empty()) return bad_summary("host");
  TRY(summary.boot_id, fields.text("boot id"));
  TRY(summary.epoch_ns, fields.signed_number("epoch"));
  TRY(summary.sequence, fields.number("sequence number", UINT64_MAX));
  TRY(summary.begin_ns, fields.signed_number("begin"));
  TRY(const auto length, fields.number("length of the period", INT64_MAX));
  if (summary.begin_ns > 0 &&
      length > static_cast<std::uint64_t>(INT64_MAX) - static_cast<std::uint64_t>(summary.begin_ns))
    return bad_summary("length of the period");
  summary.end_ns = summary.begin_ns + static_cast<std::int64_t>(length);
  return {};
}

}  // namespace

namespace internal {

bool is_clean_text(std::string_view text) {
  return text.size() <= kSummaryTextMax && printable(text) == text;
}

std::string clean_text(std::string_view text) {
  return printable(text.substr(0, kSummaryTextMax));
}

std::size_t part_bytes(const SummaryPart& part) {
  std::string head;  // short: no allocation
  append_part(head, {part.kind, part.job, part.rank, part.feature, {}});
  head.pop_back();  // the length 0
  append_varint(head, part.bytes.size());
  return head.size() + part.bytes.size();
}

}  // namespace internal

Result<std::string> encode_summary(const Summary& summary) {
  TRY_VOID(check_limits(summary));
  std::string to(kMagic);
  to.push_back(kVersion);
  append_text(to, summary.host);
  append_text(to, summary.boot_id);
  append_varint(to, to_zigzag(summary.epoch_ns));
  append_varint(to, summary.sequence);
  append_varint(to, to_zigzag(summary.begin_ns));
  append_varint(to, static_cast<std::uint64_t>(summary.end_ns) -
                        static_cast<std::uint64_t>(summary.begin_ns));
  append_varint(to, summary.features.size());
  for (const std::string& feature : summary.features)
    append_text(to, feature);
  append_varint(to, summary.jobs.size());
  for (const SummaryJob& job : summary.jobs)
    append_job(to, job);
  for (const std::uint64_t* count : counts_of(summary.dropped))
    append_varint(to, *count);
  append_varint(to, summary.parts.size());
  for (const SummaryPart& part : summary.parts)
    append_part(to, part);
  if (to.size() > kSummaryBytesMax)
    return Error{Code::kLimit, fmt::format("write fleet summary: {} bytes", to.size())};
  return to;
}

Result<Summary> decode_summary(ByteSpan untrusted) {
  if (untrusted.size() > kSummaryBytesMax) return bad_summary("size", Code::kLimit);
  const std::string_view text = as_text(untrusted);
  if (!text.starts_with(kMagic) || text.size() < kMagic.size() + 1)
    return bad_summary("magic number");
  if (text[kMagic.size()] != kVersion) return bad_summary("version", Code::kUnsupported);
  Fields fields(untrusted.subspan(kMagic.size() + 1));
  Summary summary;
  TRY_VOID(read_head(fields, summary));
  TRY(const auto features, fields.number("number of features", kSummaryFeaturesMax));
  for (std::uint64_t i = 0; i < features; ++i) {
    TRY(auto feature, fields.text("name of a feature"));
    summary.features.push_back(std::move(feature));
  }
  TRY(const auto jobs, fields.number("number of jobs", kSummaryJobsMax));
  std::size_t ranks_left = kSummaryRanksMax;
  for (std::uint64_t i = 0; i < jobs; ++i) {
    TRY(auto job, read_job(fields, ranks_left));
    summary.jobs.push_back(std::move(job));
  }
  for (std::uint64_t* count : counts_of(summary.dropped)) {
    TRY(*count, fields.number("what was dropped", UINT32_MAX));
  }
  TRY(const auto parts, fields.number("number of parts", kSummaryPartsMax));
  if (parts > fields.remaining()) return bad_summary("number of parts");
  summary.parts.reserve(parts);
  for (std::uint64_t i = 0; i < parts; ++i) {
    TRY(const auto part, read_part(fields, summary));
    summary.parts.push_back(part);
  }
  if (fields.remaining() > 0) return bad_summary("bytes behind the end");
  return summary;
}

std::string encode_counters(const Counters& counters) {
  std::string to;
  append_varint(to, counters.size());
  for (const auto& [name, increment] : counters) {
    append_text(to, name);
    append_varint(to, increment);
  }
  return to;
}

Result<Counters> decode_counters(ByteSpan untrusted) {
  Fields fields(untrusted);
  TRY(const auto count, fields.number("number of counters", kSummaryCountersMax));
  Counters counters;
  for (std::uint64_t i = 0; i < count; ++i) {
    TRY(auto name, fields.text("name of a counter"));
    if (!counters.empty() && name <= counters.back().first) return bad_summary("order of counters");
    TRY(const auto increment, fields.number("counter", std::uint64_t{1} << 48));
    counters.emplace_back(std::move(name), increment);
  }
  if (fields.remaining() > 0) return bad_summary("bytes behind the counters");
  return counters;
}

}  // namespace kansoku::fleet
