// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/watch/collect_text.h"
#include "cli/watch/nats_options.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "common/text.h"
#include "fleet/collector.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

constexpr Nanos kTurn = std::chrono::milliseconds{200};  // signals are looked at as often
constexpr Nanos kProgressEvery = std::chrono::seconds{1};
constexpr Nanos kEveryMin = std::chrono::milliseconds{100};

class Collect final : public Command {
 public:
  void declare(CLI::App& app) override {
    nats_.declare(app);
    app.add_option("--every", every_, "interval between reports")->capture_default_str();
    app.add_option("--for", for_, "stop after this time, e.g. 10m, and print a last report");
    app.add_flag("--once", once_, "stop after the first report");
    app.add_option("--feature", features_, "features to show (text only) [the first of each job]")
        ->delimiter(',');
    app.add_flag(
        "--json", json_,
        "print one JSON line per report (schema kansoku.collect/1, docs/formats/fleet.md)");
    app.add_flag("-q,--quiet", quiet_, "hide the status line");
    app.footer(
        "Each agent publishes one summary a minute (docs/collect.md). Quantiles cover the last\n"
        "15 minutes. A host that sends nothing for 3 minutes is lost. You can start it before or\n"
        "after the agents, and run several at once.\n"
        "Exit status: 0, or 1 if it never reached the server.");
  }

  int run() override {
    const auto every = parse_duration(every_);
    const auto duration = for_.empty() ? std::optional(Nanos::max()) : parse_duration(for_);
    if (!every || *every < kEveryMin || !duration)
      return report(Error{Code::kUnsupported, "collect: malformed --every or --for",
                          "a time such as 10s, 500ms or 2m"});
    const auto options = nats_.options();
    if (!options) return report(options.error());
    auto bus = fleet::connect_nats(*options, clock_);
    if (!bus) return report(bus.error());
    const auto subscribed =
        (*bus)->subscribe(fleet::kSummarySubjects, [this](const fleet::BusMessage& message) {
          // The report counts refused messages.
          static_cast<void>(collector_.add(as_bytes(message.bytes), now(), message.subject));
        });
    if (!subscribed) return report(subscribed.error());
    install_signal_counter();
    return loop(**bus, *every, *duration);
  }

 private:
  [[nodiscard]] fleet::CollectorTime now() const { return {clock_.now(), sys::wall_time_ns()}; }

  int loop(fleet::Bus& bus, Nanos every, Nanos duration) {
    const BootTime begin = clock_.now();
    const BootTime end = duration == Nanos::max() ? BootTime::max() : begin + duration;
    BootTime next_report = begin + every, next_progress = begin;
    bool was_connected = false;
    while (true) {
      const BootTime until = std::min(next_report, end);
      bus.poll(std::clamp(until - clock_.now(), Nanos{}, kTurn));
      const fleet::BusStatus status = bus.status();
      was_connected = was_connected || status.connects > 0;
      const bool is_over = signal_count() > 0 || clock_.now() >= end;
      if (clock_.now() >= next_progress && !quiet_) {
        progress(status);
        next_progress = clock_.now() + kProgressEvery;
      }
      if (!is_over && clock_.now() < next_report) continue;
      if (!was_connected && (is_over || once_))
        return this->report(
            Error{Code::kUnavailable,
                  fmt::format("collect from {}: {}", nats_.place(),
                              status.last_error.empty() ? "no answer" : status.last_error),
                  "check that nats-server runs there; see docs/collect.md"});
      if (const auto failed = print(status)) return *failed == EPIPE ? kExitOk : fail(*failed);
      if (is_over || once_) return kExitOk;
      next_report = std::max(next_report + every, clock_.now());
    }
  }

  /// Ends the status line first, where there is one.
  int report(const Error& error) {
    end_line();
    return cli::report(error);
  }

  void end_line() {
    if (has_line_) fmt::print(stderr, "\r\x1b[K");
    has_line_ = false;
  }

  /// On a terminal one line that is written over, else a line for each change of the connection.
  void progress(const fleet::BusStatus& status) {
    const std::string text =
        printable(status.is_connected
                      ? fmt::format("connected to {}", nats_.place())
                      : fmt::format("no connection to {}{}{}; trying again", nats_.place(),
                                    status.last_error.empty() ? "" : ": ", status.last_error));
    if (isatty(STDERR_FILENO) == 1) {
      fmt::print(stderr, "\r\x1b[Kkansoku: {}, {} messages", text, status.received);
      std::fflush(stderr);
      has_line_ = true;
    } else if (text != last_progress_) {
      fmt::print(stderr, "kansoku: {}\n", text);
    }
    last_progress_ = text;
  }

  int fail(int error) { return report(errno_error(error, "write to", "standard output")); }

  /// The error's number if it could not be written: reports are all that this command is for.
  std::optional<int> print(const fleet::BusStatus& status) {
    end_line();
    std::string text;
    const fleet::FleetReport picture = collector_.report(now());
    if (json_) {
      text = picture.to_json()
                 .set("bus", Json::object()
                                 .set("connected", status.is_connected)
                                 .set("connects", status.connects)
                                 .set("received", status.received)
                                 .set("dropped", status.dropped_incoming))
                 .dump();
    } else {
      text = collect_text(picture, features_);
      if (status.dropped_incoming > 0)
        text += fmt::format("{} messages arrived faster than Kansoku read them\n",
                            status.dropped_incoming);
    }
    text += '\n';
    const bool is_written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    return is_written ? std::nullopt : std::optional(errno);
  }

  NatsArguments nats_;
  std::string every_{"60s"}, for_;
  std::vector<std::string> features_;
  bool once_{false}, json_{false}, quiet_{false};
  sys::RealClock clock_;
  fleet::Collector collector_;
  std::string last_progress_;
  bool has_line_{false};
};

}  // namespace

std::unique_ptr<Command> make_collect() {
  return std::make_unique<Collect>();
}

}  // namespace kansoku::cli
