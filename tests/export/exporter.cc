// SPDX-License-Identifier: Apache-2.0
// Every metric that watching exports, for consumers to read: `exporter text|openmetrics|otlp`
// writes them to standard output, `exporter serve` serves them, prints its port and ends with its
// input, `exporter post URL` posts each line of its input and prints what became of them.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "common/parse.h"
#include "detect/feature.h"
#include "export/http_post.h"
#include "export/http_server.h"
#include "export/openmetrics.h"
#include "export/otlp.h"
#include "export/watch_metrics.h"
#include "sys/clock.h"

namespace {

using namespace kansoku;
using namespace kansoku::exporter;

constexpr Nanos kPatience = std::chrono::minutes{10};  // only a broken program takes so long

const std::string kJob = "train \"a\\b\" ü\nx";

constexpr MetricDef kExample{"kansoku_example_seconds", "seconds", MetricType::kHistogram,
                             "No metric of the agent: an example of a histogram."};

MetricSet everything() {
  MetricSet set;
  double value = 0.5;
  for (const detect::Feature& feature : detect::known_features()) {
    const std::string name = feature_metric(feature.name, feature.unit);
    const MetricDef def{name, unit_word(feature.unit), MetricType::kGauge, feature.meaning};
    for (const char* rank : {"0", "1"})
      set.add(def, {{"job", kJob}, {"rank", rank}}, value += 0.25);
  }
  for (const auto& [def, names] : watch_metrics::kAll) {
    Labels labels;
    for (const std::string_view name : names) {
      if (!name.empty()) labels.emplace_back(std::string(name), name == "job" ? kJob : "0");
    }
    set.add(def, std::move(labels), value += 0.25);
  }
  set.add(kExample, {{"job", kJob}}, {.bounds = {0.1, 1}, .counts = {1, 2, 3}, .sum = 7.5});
  add_post_metrics(set, "webhook", {});
  return set;
}

int serve() {
  MetricBoard board;
  board.publish(everything());
  std::vector<HttpRoute> routes;
  routes.push_back(metrics_route(board));
  routes.push_back(health_route([] { return true; }));
  const auto server = HttpServer::start({}, std::move(routes));
  if (!server) {
    fmt::print(stderr, "{}\n", server.error().what);
    return 1;
  }
  fmt::print("{}\n", (*server)->port());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

int post(const std::string& url, std::string_view seconds, const std::string& ca_file) {
  HttpPostOptions options;
  options.url = url;
  options.ca_file = ca_file;
  options.deadline = parse_duration(seconds).value_or(options.deadline);
  options.backoff_first = std::chrono::milliseconds{10};
  options.backoff_max = std::chrono::milliseconds{100};
  options.timeout = kPatience;  // a message that is taken twice would fail the test
  const sys::RealClock clock;
  const auto poster = HttpPoster::start(options, clock);
  if (!poster) {
    fmt::print(stderr, "{}\n", poster.error().what);
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    (*poster)->post("application/json", line);
    // Told at once, whether or not the target is up.
    fmt::print("queued {}\n", line);
    std::fflush(stdout);
  }
  const bool is_done = (*poster)->drain(kPatience);
  const auto counts = (*poster)->counts();
  fmt::print("sent {} failed {} dropped {} queued {} retried {}\n", counts.sent, counts.failed,
             counts.dropped, counts.queued, counts.retries > 0 ? "yes" : "no");
  return is_done ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "serve") return serve();
  if (mode == "post" && argc > 2)
    return post(argv[2], argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
  const bool is_open = mode == "openmetrics";
  if (is_open || mode == "text") {
    const std::string text =
        to_text(everything(), is_open ? TextFormat::kOpenMetrics : TextFormat::kPrometheus);
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
  }
  if (mode != "otlp") return 2;
  const std::string bytes = to_otlp(
      everything(), {.host = "node1", .version = "1.2.3", .instance = "i", .start_wall_ns = 1000},
      1'700'000'000'123'456'789);
  return std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() ? 0 : 1;
}
