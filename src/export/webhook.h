// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "common/result.h"
#include "export/http_post.h"
#include "trace/incident.h"

namespace kansoku::exporter {

/// {"schema": "kansoku.webhook/1", "event": "opened", "text": one sentence, "incident": the
/// record}. Chat programs show `text`.
[[nodiscard]] std::string webhook_body(trace::IncidentEvent event,
                                       const trace::IncidentRecord& incident);

/// Tells an address of incidents as JSON. Any thread; never blocks.
class Webhook {
 public:
  [[nodiscard]] static Result<Webhook> create(const HttpPostOptions& options, const Clock& clock);
  void send(trace::IncidentEvent event, const trace::IncidentRecord& incident) {
    poster_->post("application/json", webhook_body(event, incident));
  }
  [[nodiscard]] HttpPoster& poster() const { return *poster_; }

 private:
  explicit Webhook(std::unique_ptr<HttpPoster> poster) : poster_(std::move(poster)) {}
  std::unique_ptr<HttpPoster> poster_;  // never null but after a move
};

}  // namespace kansoku::exporter
