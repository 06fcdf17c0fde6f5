// SPDX-License-Identifier: Apache-2.0
#include "export/openmetrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace kansoku::exporter {
namespace {

constexpr MetricDef kStep{"kansoku_step_mean_seconds", "seconds", MetricType::kGauge,
                          "Mean \"step\"\nwith a \\."};
constexpr MetricDef kIncidents{"kansoku_incidents", "", MetricType::kCounter, "Incidents."};
constexpr MetricDef kWait{"kansoku_wait_seconds", "seconds", MetricType::kHistogram, "Waits."};

MetricSet example() {
  MetricSet set;
  set.add(kStep, {{"rank", "1"}, {"job", "a\"b\\c\nd"}}, 0.1, 1'700'000'000'250'999'999);
  set.add(kStep, {}, std::numeric_limits<double>::infinity());
  set.add(kIncidents, {{"kind", "unknown"}}, 3);
  set.add(kWait, {{"job", "x"}}, {.bounds = {0.5, 1}, .counts = {1, 2, 4}, .sum = 7.25});
  return set;
}

TEST(ToText, WritesPrometheusText) {
  EXPECT_EQ(to_text(example(), TextFormat::kPrometheus),
            R"(# HELP kansoku_incidents_total Incidents.
# TYPE kansoku_incidents_total counter
kansoku_incidents_total{kind="unknown"} 3
# HELP kansoku_step_mean_seconds Mean "step"\nwith a \\.
# TYPE kansoku_step_mean_seconds gauge
kansoku_step_mean_seconds +Inf
kansoku_step_mean_seconds{job="a\"b\\c\nd",rank="1"} 0.1 1700000000250
# HELP kansoku_wait_seconds Waits.
# TYPE kansoku_wait_seconds histogram
kansoku_wait_seconds_bucket{job="x",le="0.5"} 1
kansoku_wait_seconds_bucket{job="x",le="1.0"} 3
kansoku_wait_seconds_bucket{job="x",le="+Inf"} 7
kansoku_wait_seconds_sum{job="x"} 7.25
kansoku_wait_seconds_count{job="x"} 7
)");
}

TEST(ToText, WritesOpenMetrics) {
  EXPECT_EQ(to_text(example(), TextFormat::kOpenMetrics),
            R"(# HELP kansoku_incidents Incidents.
# TYPE kansoku_incidents counter
kansoku_incidents_total{kind="unknown"} 3
# HELP kansoku_step_mean_seconds Mean \"step\"\nwith a \\.
# TYPE kansoku_step_mean_seconds gauge
# UNIT kansoku_step_mean_seconds seconds
kansoku_step_mean_seconds +Inf
kansoku_step_mean_seconds{job="a\"b\\c\nd",rank="1"} 0.1 1700000000.250
# HELP kansoku_wait_seconds Waits.
# TYPE kansoku_wait_seconds histogram
# UNIT kansoku_wait_seconds seconds
kansoku_wait_seconds_bucket{job="x",le="0.5"} 1
kansoku_wait_seconds_bucket{job="x",le="1.0"} 3
kansoku_wait_seconds_bucket{job="x",le="+Inf"} 7
kansoku_wait_seconds_sum{job="x"} 7.25
kansoku_wait_seconds_count{job="x"} 7
# EOF
)");
  EXPECT_EQ(to_text(MetricSet{}, TextFormat::kOpenMetrics), "# EOF\n");
  EXPECT_EQ(to_text(MetricSet{}, TextFormat::kPrometheus), "");
}

TEST(Negotiate, PrefersOpenMetricsOnlyWhereTheScraperDoes) {
  const auto is_open = [](std::string_view accept) {
    return negotiate(accept) == TextFormat::kOpenMetrics;
  };
  // Headers that Prometheus 2.42 and 2.5 send.
  EXPECT_TRUE(
      is_open("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
              "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(
      is_open("application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;"
              "q=0.1"));
  EXPECT_FALSE(is_open("text/plain;version=0.0.4, application/openmetrics-text;q=0.5"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=0"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=nonsense"));
  EXPECT_FALSE(is_open("application/openmetrics-text;q=2"));
  EXPECT_FALSE(is_open("*/*"));
  EXPECT_FALSE(is_open(""));
  EXPECT_FALSE(is_open(",;,;q=,  ;"));
}

}  // namespace
}  // namespace kansoku::exporter
