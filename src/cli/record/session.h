// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/cuda_source.h"
#include "capture/recorder.h"
#include "common/result.h"
#include "trace/inference.h"

namespace kansoku::cli {

/// Treatment of the command when the recording ends before it.
enum class AfterRecording { kWait, kKill, kLeave };

/// Targets, contents and destination of a recording.
struct SessionOptions {
  std::vector<std::int32_t> pids;        // observed with everything below them
  std::string job;                       // name of a running job
  std::vector<std::string> command;      // started and observed
  std::vector<std::string> environment;  // extra, for the command
  std::string command_output;            // "" = inherit
  std::string probes{"default"};
  std::string output;
  bool overwrite{false};
  std::uint64_t bytes_max{UINT64_MAX};
  Nanos duration{};                      // 0 = until the end
  std::string attach;                    // "", "session", "multi", "perf"
  std::vector<std::string> libraries{};  // attached before a process maps them
  std::uint32_t ring_bytes{16U << 20};
  std::uint32_t python_hz{0};
  bool use_bpf{true};
  /// GPU work by the library in the processes; a command is started with it. Nothing: not asked
  /// for.
  std::optional<capture::CudaSourceOptions> cuda{};
  /// Models in inference, where packs with their probes are chosen: level and budget. Nothing: the
  /// highest level that the packs have, 1 %.
  struct Model {
    trace::ModelLevel level{trace::ModelLevel::kOperator};
    double budget{0.01};
  };
  std::optional<Model> model{};
  bool quiet{false};    // no status line
  bool explain{false};  // print every probe, its address and class
  AfterRecording after{AfterRecording::kWait};
  /// Called with the recorder after start, before the loop (measurements).
  std::function<void(capture::Recorder&)> on_ready;
};

struct SessionResult {
  std::optional<int> command_status;  // the shell's exit status of the command; none: it runs on
  capture::RecordStatus last;
  std::vector<std::string> problems;
  std::optional<Error> recording_error;  // the recording broke off; the file so far is readable
};

/// Runs one recording to its end. Errors before anything was observed come back as Error.
[[nodiscard]] Result<SessionResult> run_session(const SessionOptions& options);

}  // namespace kansoku::cli
