// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "capture/observed.h"
#include "common/result.h"
#include "common/time.h"
#include "detect/incident.h"
#include "incident/book.h"

namespace kansoku::cli {

/// Findings of the watch over iterations, as incidents of a book of their own: `kansoku incidents
/// --state FOLDER` lists them, and shows the recording of each. One is open at a time.
class ProfileIncidents {
 public:
  /// The book lies in `folder`, which is made. `log`: told of failed writes.
  [[nodiscard]] static Result<ProfileIncidents> open(const std::string& folder, BootTime now,
                                                     std::function<void(const std::string&)> log);

  /// One has begun: `place` is that of the process whose iterations tell of it, which last
  /// `iteration_ns` now or did before they stood still (0: not known). Returns its id.
  std::string begin(const detect::Incident& incident, const capture::Place& place,
                    double iteration_ns);
  /// It is over as far as this watch goes: `summary` has the finding; `trace` is its recording,
  /// which gets a second name. Both may be empty. Does nothing if none is open.
  void end(const std::string& summary, const std::string& trace);
  /// To be called now and then: repeats failed writes, says that there is a watch.
  void tick(BootTime now) { static_cast<void>(book_.tick(now)); }

 private:
  ProfileIncidents(std::string folder, incident::Book book,
                   std::function<void(const std::string&)> log)
      : folder_(std::move(folder)), book_(std::move(book)), log_(std::move(log)) {}

  std::string folder_;
  incident::Book book_;
  std::function<void(const std::string&)> log_;
  incident::Observation seen_;
  std::string id_;  // "": none is open
  std::uint64_t episodes_{0};
};

}  // namespace kansoku::cli
