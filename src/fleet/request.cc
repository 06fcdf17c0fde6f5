// SPDX-License-Identifier: Apache-2.0
#include "fleet/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "common/parse.h"
#include "sys/unix_socket.h"

namespace kansoku::fleet {
namespace {

Error wrong(std::string_view request, const std::string& what, std::string hint = "") {
  return {Code::kUnsupported, fmt::format("{}: {}", request, what), std::move(hint)};
}

}  // namespace

Result<StatusRequest::Reply> StatusRequest::Reply::from_json(const Json& untrusted) {
  return Reply{untrusted.at("status")};
}

Json IncidentsRequest::to_json() const {
  return Json::object()
      .set("since_ns", std::to_string(since_ns))
      .set("job", job)
      .set("kind", kind ? trace::word_of(*kind) : "")
      .set("open", only_open)
      .set("count", count);
}

Result<IncidentsRequest> IncidentsRequest::from_json(const Json& untrusted) {
  IncidentsRequest out;
  out.since_ns = parse_int<std::int64_t>(untrusted.at("since_ns").as_string()).value_or(0);
  out.job = untrusted.at("job").as_string();
  const std::string kind = untrusted.at("kind").as_string();
  if (!kind.empty()) {
    out.kind = trace::incident_kind(kind);
    if (trace::word_of(*out.kind) != kind) {
      return wrong(kName, fmt::format("kind {}: unknown", kind),
                   fmt::format("{}", fmt::join(trace::kIncidentKinds, ", ")));
    }
  }
  out.only_open = untrusted.at("open").as_bool();
  out.count = static_cast<std::uint64_t>(std::clamp<std::int64_t>(
      untrusted.at("count").as_int(100), 1, static_cast<std::int64_t>(kCountMax)));
  return out;
}

Json IncidentsRequest::Reply::to_json() const {
  Json list = Json::array();
  for (const trace::IncidentRecord& incident : incidents)
    list.push(incident.to_json());
  return Json::object().set("incidents", std::move(list));
}

Result<IncidentsRequest::Reply> IncidentsRequest::Reply::from_json(const Json& untrusted) {
  Reply out;
  const Json list = untrusted.at("incidents");
  for (std::size_t i = 0; i < std::min<std::size_t>(list.size(), kCountMax); ++i) {
    TRY(auto incident, trace::IncidentRecord::from_json(list.at(i)));
    out.incidents.push_back(std::move(incident));
  }
  return out;
}

Json LabelRequest::to_json() const {
  return Json::object().set("id", id).set("label", trace::word_of(label));
}

Result<LabelRequest> LabelRequest::from_json(const Json& untrusted) {
  const std::string word = untrusted.at("label").as_string();
  const auto label = trace::incident_label(word);
  if (!label || *label == trace::IncidentLabel::kNone)
    return wrong(kName, fmt::format("label {}: ack, false or true", word));
  return LabelRequest{untrusted.at("id").as_string(), *label};
}

Result<LabelRequest::Reply> LabelRequest::Reply::from_json(const Json& untrusted) {
  return Reply{untrusted.at("learnt").as_bool()};
}

std::string RequestTable::answer(std::string_view untrusted_line) const {
  const auto reply = [&]() -> Result<Json> {
    TRY(const Json request, Json::parse(untrusted_line));
    const std::string name = request.at("do").as_string();
    const auto handler = handlers_.find(name);
    if (handler != handlers_.end()) return handler->second(request);
    std::vector<std::string_view> known;
    for (const auto& [one, ignored] : handlers_)
      known.push_back(one);
    return wrong(fmt::format("request {}", name), "unknown",
                 fmt::format("{}", fmt::join(known, ", ")));
  }();
  if (reply) return Json(*reply).set("ok", true).dump();
  const Error& error = reply.error();
  return Json::object()
      .set("ok", false)
      .set("error", error.what)
      .set("hint", error.hint)
      .set("code", code_name(error.code))
      .dump();
}

std::string request_line(std::string_view name, const Json& members) {
  return Json(members).set("do", name).dump();
}

Result<Json> reply_members(std::string_view untrusted_answer) {
  TRY(Json answer, Json::parse(untrusted_answer));
  if (answer.at("ok").as_bool()) return answer;
  return Error{code_from_name(answer.at("code").as_string()),
               answer.at("error").as_string("the agent refused the request"),
               answer.at("hint").as_string()};
}

Transport local_socket(const std::string& state_folder, Nanos limit) {
  return [path = state_folder + "/control.sock",
          limit](const std::string& line) -> Result<std::string> {
    auto text = sys::unix_request(path, line, limit);
    if (text) return text;
    Error error = std::move(text).error();
    if (error.code == Code::kNotFound || error.code == Code::kUnavailable)
      error.hint =
          "start it with `kansoku watch`, or pass the state folder of a running agent with --state";
    return error;
  };
}

Transport over_bus(Bus& bus, std::string subject, Nanos deadline) {
  return [&bus, subject = std::move(subject),
          deadline](const std::string& line) -> Result<std::string> {
    std::optional<Result<std::string>> out;
    TRY_VOID(bus.request(subject, line, deadline,
                         [&](Result<std::string> answer) { out.emplace(std::move(answer)); }));
    // The handler is called in any case, at the deadline at the latest.
    while (!out)
      bus.poll(std::chrono::milliseconds{50});
    return *std::move(out);
  };
}

Result<Bus::SubscriptionId> serve(Bus& bus, std::string_view subject, const RequestTable& table) {
  return bus.subscribe(subject, [&bus, &table](const BusMessage& message) {
    // An asker that went away gets no answer.
    static_cast<void>(bus.respond(message, table.answer(message.bytes)));
  });
}

}  // namespace kansoku::fleet
