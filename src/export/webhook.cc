// SPDX-License-Identifier: Apache-2.0
#include "export/webhook.h"

#include <fmt/format.h>

namespace kansoku::exporter {

std::string webhook_body(trace::IncidentEvent event, const trace::IncidentRecord& incident) {
  const std::string_view name = word_of(event);
  return Json::object()
      .set("schema", "kansoku.webhook/1")
      .set("event", name)
      .set("text", fmt::format("{} on {}: {} {}: {}", incident.job, incident.host,
                               word_of(incident.kind), name, incident.summary))
      .set("incident", incident.to_json())
      .dump();
}

Result<Webhook> Webhook::create(const HttpPostOptions& options, const Clock& clock) {
  TRY(auto poster, HttpPoster::start(options, clock));
  return Webhook(std::move(poster));
}

}  // namespace kansoku::exporter
