// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "common/time.h"
#include "fleet/bus.h"

namespace kansoku::fleet {

/// The middle of buses of one process: a message published to one endpoint arrives at once at all,
/// in the order of publishing, and for each message in the order of subscribing. Nothing is lost
/// but to full inboxes. Endpoints may live on different threads and outlive the hub.
class InProcessHub {
 public:
  InProcessHub();
  InProcessHub(const InProcessHub&) = delete;
  InProcessHub& operator=(const InProcessHub&) = delete;
  ~InProcessHub();

  /// A new endpoint. `clock` (borrowed) times its requests; with a clock that stands still, poll
  /// with no wait.
  [[nodiscard]] std::unique_ptr<Bus> connect(const Clock& clock, const BusLimits& limits = {});

 private:
  struct State;
  class Connection;
  std::shared_ptr<State> state_;
};

}  // namespace kansoku::fleet
