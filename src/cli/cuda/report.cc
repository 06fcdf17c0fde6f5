// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/cuda/subcommand.h"
#include "cli/diagnose/device_work.h"
#include "cli/diagnose/sources.h"
#include "cli/output_file.h"
#include "common/bytes.h"
#include "common/parse.h"
#include "export/cuda_html.h"
#include "gpu/activity/activity.h"
#include "gpu/activity/derived_tracks.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kRowsOfPage = 60;

/// How well each context's event clock is known, as the recording says it.
std::vector<std::string> notes_of_clocks(const trace::Trace& trace) {
  constexpr std::string_view kKey = "kansoku.clock.cuda.",
                             kError = " error_ns=", kRestarts = " restarts=";
  const auto number = [](std::string_view text, std::string_view name) {
    const std::size_t at = text.find(name);
    if (at == std::string_view::npos) return std::optional<std::int64_t>();
    text.remove_prefix(at + name.size());
    return parse_int<std::int64_t>(text.substr(0, text.find(' ')));
  };
  std::vector<std::string> out;
  for (const auto& [key, value] : trace.metadata) {
    if (!std::string_view(key).starts_with(kKey)) continue;
    const auto error_ns = number(value, kError), restarts = number(value, kRestarts);
    if (!error_ns || !restarts || *restarts != 0) continue;
    out.push_back(fmt::format("device times of context {} are known to {:.1f} us",
                              std::string_view(key).substr(kKey.size()),
                              static_cast<double>(*error_ns) * 1e-3));
  }
  return out;
}

class CudaReport final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("files", files_,
                   "recordings of one job, or profiles of PyTorch or Nsight Systems")
        ->required();
    app.add_option("--top", top_, "rows of a table")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_option("--peak", peak_tflops_,
                   "the device's peak in TFLOP/s, to compare matrix products with")
        ->check(CLI::Range(1e-6, 1e6));
    app.add_option("--window", source_options_.window,
                   "of a worker with several profiles: which one, from 1, the oldest [the newest]");
    app.add_flag("--json", json_, "print JSON (schema kansoku.cuda_report/1)");
    app.add_option("--html", html_, "also write an HTML page");
    app.add_option("--tracks", tracks_,
                   "also write a copy of the recording with idle time, steps and Kansoku's cost as "
                   "tracks");
    app.add_flag("--force", force_, "overwrite a file of another kind");
    app.footer(
        "Examples:\n"
        "  kansoku cuda report run.pftrace\n"
        "  kansoku cuda report run.pftrace --html device.html\n"
        "  kansoku cuda report run.pftrace --tracks idle.pftrace\n"
        "  kansoku cuda report rank-0.pt.trace.json.gz --peak 312\n"
        "Exit status: 10 if there is a finding.");
  }

  int run() override {
    const auto page =
        check_output(html_, {.kind = FileKind::kPage, .force = force_, .inputs = files_});
    if (!page) return report(page.error());
    const auto tracks = check_tracks();
    if (!tracks) return report(tracks.error());
    const auto status = print();
    return status ? *status : report(status.error());
  }

 private:
  [[nodiscard]] Result<void> check_tracks() const {
    if (tracks_.empty()) return {};
    if (files_.size() > 1)
      return Error{
          Code::kUnsupported,
          fmt::format("cuda report --tracks: {} files: a copy is of one recording", files_.size()),
          "give each recording a call of its own"};
    if (tracks_ == html_)
      return Error{Code::kUnsupported,
                   fmt::format("write {}: named by --html and by --tracks", tracks_),
                   "choose another name"};
    return check_output(tracks_, {.kind = FileKind::kRecording, .force = force_, .inputs = files_});
  }

  Result<int> print() {
    TRY(const Sources sources, read_sources(files_, source_options_));
    if (sources.kind == Sources::Kind::kDumps) {
      return Error{Code::kUnsupported, "cuda report: a Flight Recorder dump holds no device work",
                   "diagnose it: kansoku diagnose FILE"};
    }
    if (!tracks_.empty() && sources.kind != Sources::Kind::kRecording) {
      return Error{Code::kUnsupported,
                   fmt::format("cuda report --tracks: {} is no recording of kansoku", files_[0]),
                   "a profile of another tool has no Perfetto trace to add to"};
    }
    gpu::activity::Options options;
    options.peak_tflops = peak_tflops_;
    options.with_view = !html_.empty();
    options.with_tracks = !tracks_.empty();
    if (sources.kind == Sources::Kind::kRecording) options.steps = steps_of_jobs(sources.trace);
    TRY(gpu::activity::WorkReport made, gpu::activity::report_of(sources.trace, options));
    made.notes.insert(made.notes.begin(), sources.notes.begin(), sources.notes.end());
    for (std::string& note : notes_of_clocks(sources.trace))
      made.notes.push_back(std::move(note));
    if (json_) {
      fmt::print("{}\n", gpu::activity::to_json(made, top_).dump(2));
    } else {
      fmt::print("{}", gpu::activity::to_text(made, top_));
    }
    if (!html_.empty()) TRY_VOID(write_page(made));
    if (!tracks_.empty()) TRY_VOID(write_copy(sources.trace, made));
    return made.findings.empty() ? kExitOk : kExitFindings;
  }

  Result<void> write_page(const gpu::activity::WorkReport& made) const {
    const Json json = gpu::activity::to_json(made, std::max(top_, kRowsOfPage));
    TRY(const std::string html, exporter::cuda_html(json, gpu::activity::view_json(made)));
    TRY_VOID(sys::write_file(html_, html));
    if (!json_) fmt::print("report: {}\n", html_);
    return {};
  }

  Result<void> write_copy(const trace::Trace& trace, const gpu::activity::WorkReport& made) const {
    TRY(const auto recording, sys::MappedFile::open(files_[0]));
    MemorySink copy;
    TRY(const gpu::activity::TracksWritten written,
        gpu::activity::write_tracks(trace, made, recording.bytes(), copy));
    TRY_VOID(sys::write_file(tracks_, copy.data()));
    if (json_) return {};
    fmt::print("tracks: {}: {} gaps of {} devices, {} steps, {} of Kansoku's own cost\n", tracks_,
               written.gap_count, written.idle_track_count, written.step_count, written.cost_count);
    if (written.left_out_count > 0)
      fmt::print("  left out: {} gaps that are below 1 us or not of the longest, {:.3f} ms\n",
                 written.left_out_count, written.left_out_us / 1e3);
    if (written.idle_track_count == 0) fmt::print("  no idle track: {}\n", why_no_idle(made));
    return {};
  }

  static std::string why_no_idle(const gpu::activity::WorkReport& made) {
    if (made.devices.empty()) return "no device worked";
    const auto& state = made.figures[static_cast<std::size_t>(gpu::activity::Figure::kIdleCauses)];
    return state.why.empty() ? "idle time by cause is unknown" : state.why;
  }

  std::vector<std::string> files_;
  SourceOptions source_options_;
  std::string html_, tracks_;
  std::size_t top_{10};
  std::optional<double> peak_tflops_;
  bool json_{false}, force_{false};
};

}  // namespace

std::unique_ptr<Command> make_cuda_report() {
  return std::make_unique<CudaReport>();
}

}  // namespace kansoku::cli
