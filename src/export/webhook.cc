// SPDX-License-Identifier: Apache-2.0
#include "export/webhook.h"

#include <fmt/format.h>

#include <array>

namespace kansoku::exporter {

std::string webhook_body(IncidentEvent event, const trace::IncidentRecord& incident) {
  static constexpr std::array<std::string_view, 4> kEvents{"opened", "changed", "closed",
                                                           "reopened"};
  const std::string_view name = kEvents.at(static_cast<std::size_t>(event));
  return Json::object()
      .set("schema", "kansoku.webhook/1")
      .set("event", name)
      .set("text", fmt::format("{} on {}: {} {}: {}", incident.job, incident.host, incident.kind,
                               name, incident.summary))
      .set("incident", incident.to_json())
      .dump();
}

Result<Webhook> Webhook::create(const HttpPostOptions& options, const Clock& clock) {
  TRY(auto poster, HttpPoster::start(options, clock));
  return Webhook(std::move(poster));
}

}  // namespace kansoku::exporter
