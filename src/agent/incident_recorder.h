// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/pack.h"
#include "common/result.h"
#include "common/time.h"
#include "sys/procfs.h"
#include "trace/incident.h"

namespace kansoku::agent {

struct IncidentRecording {
  Nanos duration{};                                 // of one; 0: incidents are not recorded
  std::vector<capture::Pack> packs;                 // probes to record
  std::size_t count_max{20};                        // limit of kept recordings; the oldest goes
  std::uint64_t bytes_max{std::uint64_t{1} << 30};  // of all that are kept
  std::uint64_t file_bytes_max{std::uint64_t{256} << 20};  // of one: it ends there
  Nanos pause{std::chrono::minutes{10}};                   // of one job, from one to the next
};

/// Path of an incident's recording, made or being made, below the agent's state folder.
[[nodiscard]] std::string recording_path(const std::string& state_folder, const std::string& id);

/// Records the processes of incidents as they begin, one recording at a time, on a thread of its
/// own: watching goes on, even if a recording fails. To be used by one thread.
class IncidentRecorder {
 public:
  /// `state_folder` is there. Clock and procfs are borrowed, and asked by the other thread, too.
  IncidentRecorder(const Clock& clock, const sys::Procfs& procfs, IncidentRecording options,
                   std::string state_folder, std::function<void(const std::string&)> log);
  /// Ends the recording that runs; its data so far are kept.
  ~IncidentRecorder();
  IncidentRecorder(const IncidentRecorder&) = delete;
  IncidentRecorder& operator=(const IncidentRecorder&) = delete;

  /// An incident has begun that somebody is paged for; `pids`: of its job's ranks on this host.
  void on_opened(const trace::IncidentRecord& incident, std::vector<std::int32_t> pids,
                 BootTime now);
  /// Takes note of a recording that has ended. To be called now and then.
  void poll();

  struct Counters {
    std::uint64_t made{0}, failed{0};
    std::uint64_t skipped{0};  // another one ran, or the job had one a while ago, or no room
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }
  /// Processor time of all recordings so far, which is none of watching.
  [[nodiscard]] double cpu_s() const;
  [[nodiscard]] bool is_recording() const { return running_ != nullptr; }

 private:
  struct Running;
  [[nodiscard]] Result<void> make_room() const;
  void skip(const trace::IncidentRecord& incident, const std::string& why);

  const Clock& clock_;
  const sys::Procfs& procfs_;
  IncidentRecording options_;
  std::string state_folder_;
  std::function<void(const std::string&)> log_;
  std::unique_ptr<Running> running_;
  std::map<std::string, BootTime> last_of_job_;  // bounded
  Counters counters_;
  double cpu_s_{0};  // of recordings that are over
};

}  // namespace kansoku::agent
