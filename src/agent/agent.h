// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/incident_recorder.h"
#include "agent/outputs.h"
#include "capture/watcher.h"
#include "common/result.h"
#include "common/time.h"
#include "sys/procfs.h"
#include "trace/incident.h"

namespace kansoku::agent {

struct AgentOptions {
  std::vector<capture::Pack> packs;
  std::optional<capture::bpf::AttachMode> attach_mode;
  std::function<bool(const capture::JobProcess&)> wants;  // empty: every AI process
  std::string host, version;
  std::string state_folder;  // models, incidents, history, control socket; made if it is not there
  Nanos window{std::chrono::seconds{1}}, learn_time{std::chrono::minutes{5}};
  Nanos duration{};  // 0: until stopped
  double budget{0.01};
  double alarms_per_day{1};
  std::vector<std::string> device_libraries{"libnvidia-ml.so.1"};  // the first that has devices
  IncidentRecording recording;                                     // needs a state folder
  OutputOptions outputs;  // host, version, state folder and log are filled in from here
  std::function<void(const std::string&)> log;
};

/// The always-on daemon: finds AI processes, meters them, makes features of each window, lets
/// detectors judge them and tells. One thread does it all but the sending.
class Agent {
 public:
  /// kPermission or kUnavailable if nothing could be watched here; a part that is merely missing
  /// (eBPF rights, a device library) is logged and named by status().
  [[nodiscard]] static Result<std::unique_ptr<Agent>> create(const Clock& clock,
                                                             const sys::Procfs& procfs,
                                                             AgentOptions options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Watches until `should_stop` or the duration is over; stores the learnt models. Blocks.
  [[nodiscard]] Result<void> run(const std::function<bool()>& should_stop);

 private:
  struct Impl;
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::agent
