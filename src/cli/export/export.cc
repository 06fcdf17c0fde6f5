// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/diagnose/sources.h"
#include "cli/output_file.h"
#include "gpu/activity/kineto.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

class Export final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--kineto", kineto_,
                 "as Chrome JSON in the form of PyTorch's profiler: for Holistic Trace Analysis, "
                 "chrome://tracing and Perfetto")
        ->required();
    app.add_option("file", file_, "a recording, or a profile that Kansoku can read")->required();
    app.add_option("-o,--output", output_, "file to write")->required();
    app.add_option("--rank", rank_, "the rank to write; needed if the recording holds several");
    app.add_flag("--force", force_, "replace a file of another kind, too");
    app.footer("Example:\n  kansoku export --kineto run.pftrace -o rank-0.json --rank 0");
  }

  int run() override {
    const auto written = write();
    return written ? kExitOk : report(written.error());
  }

 private:
  Result<void> write() {
    TRY_VOID(check_output(
        output_,
        {.kind = FileKind::kJson, .schema = "kansoku.kineto", .force = force_, .inputs = {file_}}));
    TRY(const Sources sources, read_sources({file_}));
    if (sources.kind == Sources::Kind::kDumps)
      return Error{Code::kUnsupported, "export kineto: a Flight Recorder dump holds no timeline"};
    const std::string partial = output_ + ".part";
    TRY(const auto sink, sys::FileSink::create(partial, {.overwrite = true}));
    auto counts = gpu::activity::write_kineto(sources.trace, {.rank = rank_}, *sink);
    if (!counts || std::rename(partial.c_str(), output_.c_str()) != 0) {
      std::remove(partial.c_str());
      if (!counts) return counts.error();
      return Error{Code::kPermission, fmt::format("write {}: rename failed", output_)};
    }
    fmt::print(stderr, "{}: {} events, {} of them on devices, {} arrows\n", output_,
               counts->event_count, counts->device_count, counts->flow_count);
    say_left_out(*counts);
    return {};
  }

  static void say_left_out(const gpu::activity::KinetoCounts& counts) {
    const auto say_one = [](std::uint64_t count, const char* what) {
      if (count > 0) fmt::print(stderr, "note: {} {}\n", count, what);
    };
    say_one(counts.left_out_count, "rows with impossible times or tracks were left out");
    say_one(counts.sample_count, "stack samples were left out: the format has no place for them");
    say_one(counts.moved_count,
            "operations got other stream numbers: two processes use the same device");
  }

  bool kineto_{false}, force_{false};
  std::string file_, output_;
  std::optional<std::int32_t> rank_;
};

}  // namespace

std::unique_ptr<Command> make_export() {
  return std::make_unique<Export>();
}

}  // namespace kansoku::cli
