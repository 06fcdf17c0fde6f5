// SPDX-License-Identifier: Apache-2.0
#include "trace/incident.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/hash.h"
#include "common/parse.h"

namespace kansoku::trace {
namespace {

constexpr std::string_view kSchema = "kansoku.watch_incident/1";
constexpr std::size_t kTextMax = 4096;
constexpr std::size_t kListMax = 1024;
constexpr std::size_t kEvidenceMax = 8;

/// Members of one object, with the first complaint about any of them.
class Members {
 public:
  explicit Members(const Json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  void text(std::string_view key, std::string& out) {
    const Json value = object_.at(key);
    if (!value.is_string()) return complain(key, "is not text");
    out = value.as_string().substr(0, kTextMax);
  }
  void number(std::string_view key, double& out) {
    const Json value = object_.at(key);
    if (!value.is_number()) return complain(key, "is not a number");
    out = value.as_double();
  }
  /// A number that need not be known: null stands for NaN.
  void number_or_null(std::string_view key, double& out) {
    if (object_.contains(key) && object_.at(key).is_null()) {
      out = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    number(key, out);
  }
  void flag(std::string_view key, bool& out) {
    if (!object_.at(key).is_bool()) return complain(key, "is neither true nor false");
    out = object_.at(key).as_bool();
  }
  void count(std::string_view key, std::uint32_t& out) {
    const std::int64_t value = object_.at(key).as_int(-1);
    if (value < 0 || value > std::numeric_limits<std::uint32_t>::max())
      return complain(key, "is not a count");
    out = static_cast<std::uint32_t>(value);
  }
  void time(std::string_view key, std::int64_t& out) {
    const auto value = parse_int<std::int64_t>(object_.at(key).as_string());
    if (!value || *value < 0) return complain(key, "is not a time");
    out = *value;
  }
  void numbers(std::string_view key, std::vector<std::int32_t>& out) {
    const Json list = object_.at(key);
    if (!list.is_array()) return complain(key, "is not a list");
    for (std::size_t i = 0; i < std::min(list.size(), kListMax); ++i) {
      const Json value = list.at(i);
      const std::int64_t number = value.as_int();
      if (!value.is_integer() || number != static_cast<std::int32_t>(number))
        return complain(key, "has an entry that is not a 32-bit integer");
      out.push_back(static_cast<std::int32_t>(number));
    }
  }
  void texts(std::string_view key, std::vector<std::string>& out) {
    const Json list = object_.at(key);
    if (!list.is_array()) return complain(key, "is not a list");
    for (std::size_t i = 0; i < std::min(list.size(), kListMax); ++i) {
      if (!list.at(i).is_string()) return complain(key, "has an entry that is not text");
      out.push_back(list.at(i).as_string().substr(0, kTextMax));
    }
  }
  [[nodiscard]] Result<void> done() const {
    if (!problem_.empty()) return Error{Code::kCorrupt, fmt::format("read incident: {}", problem_)};
    return {};
  }

 private:
  void complain(std::string_view key, std::string_view what) {
    if (problem_.empty()) problem_ = fmt::format("{}{} {}", path_, key, what);
  }

  const Json& object_;
  std::string path_, problem_;
};

Result<Evidence> evidence_of(const Json& object, std::size_t index) {
  Evidence out;
  Members members(object, fmt::format("evidence[{}].", index));
  members.text("feature", out.feature);
  members.text("unit", out.unit);
  members.text("layer", out.layer);
  members.number_or_null("normal", out.normal);
  members.number_or_null("seen", out.seen);
  members.number("share", out.share);
  TRY_VOID(members.done());
  return out;
}

Json evidence_json(const std::vector<Evidence>& evidence) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(evidence.size(), kEvidenceMax); ++i) {
    const Evidence& one = evidence[i];
    out.push(Json::object()
                 .set("feature", one.feature)
                 .set("unit", one.unit)
                 .set("layer", one.layer)
                 .set("normal", one.normal)
                 .set("seen", one.seen)
                 .set("share", one.share));
  }
  return out;
}

}  // namespace

IncidentKind incident_kind(std::string_view untrusted) {
  const auto found = std::find(kIncidentKinds.begin(), kIncidentKinds.end(), untrusted);
  return found == kIncidentKinds.end() ? IncidentKind::kUnknown
                                       : static_cast<IncidentKind>(found - kIncidentKinds.begin());
}

std::optional<IncidentLabel> incident_label(std::string_view untrusted) {
  const auto found = std::find(kIncidentLabels.begin(), kIncidentLabels.end(), untrusted);
  if (found == kIncidentLabels.end()) return std::nullopt;
  return static_cast<IncidentLabel>(found - kIncidentLabels.begin());
}

Json IncidentRecord::to_json() const {
  return Json::object()
      .set("schema", kSchema)
      .set("id", id)
      .set("host", host)
      .set("job", job)
      .set("begin_ns", std::to_string(begin_ns))
      .set("end_ns", std::to_string(end_ns))
      .set("kind", word_of(kind))
      .set("effect", has_effect)
      .set("ranks", Json::array_of(ranks))
      .set("pids", Json::array_of(pids))
      .set("tests", Json::array_of(tests))
      .set("score", score)
      .set("window_count", window_count)
      .set("evidence", evidence_json(evidence))
      .set("summary", summary)
      .set("suggestion", suggestion)
      .set("label", word_of(label));
}

Result<IncidentRecord> IncidentRecord::from_json(const Json& untrusted) {
  if (untrusted.at("schema").as_string() != kSchema)
    return Error{Code::kCorrupt, fmt::format("read incident: schema is not {}", kSchema)};
  IncidentRecord out;
  Members members(untrusted);
  members.text("id", out.id);
  members.text("host", out.host);
  members.text("job", out.job);
  members.time("begin_ns", out.begin_ns);
  members.time("end_ns", out.end_ns);
  std::string kind, label;
  members.text("kind", kind);
  // Lines of earlier versions have none.
  if (untrusted.contains("effect")) members.flag("effect", out.has_effect);
  members.numbers("ranks", out.ranks);
  members.numbers("pids", out.pids);
  members.texts("tests", out.tests);
  members.number_or_null("score", out.score);
  members.count("window_count", out.window_count);
  members.text("summary", out.summary);
  members.text("suggestion", out.suggestion);
  members.text("label", label);
  TRY_VOID(members.done());
  out.kind = incident_kind(kind);
  out.label = incident_label(label).value_or(IncidentLabel::kNone);
  const Json list = untrusted.at("evidence");
  if (!list.is_array()) return Error{Code::kCorrupt, "read incident: evidence is not a list"};
  for (std::size_t i = 0; i < std::min(list.size(), kEvidenceMax); ++i) {
    TRY(auto one, evidence_of(list.at(i), i));
    out.evidence.push_back(std::move(one));
  }
  return out;
}

std::string incident_id(std::string_view host, std::string_view job, std::int64_t begin_ns,
                        std::string_view what) {
  Fnv hash;
  hash.add(host).end().add(job).end().add(std::to_string(begin_ns)).end().add(what);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace kansoku::trace
