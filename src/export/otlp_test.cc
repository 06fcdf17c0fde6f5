// SPDX-License-Identifier: Apache-2.0
#include "export/otlp.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <string>

namespace kansoku::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Every field as "path=value;", e.g. "1.2.2.1=name;"; texts are told from messages by trying.
// NOLINTNEXTLINE(misc-no-recursion)
std::string fields(protozero::pbf_reader message, const std::string& path) {
  std::string out;
  while (message.next()) {
    const std::string here = path + std::to_string(message.tag());
    switch (message.wire_type()) {
      case protozero::pbf_wire_type::varint:
        out += fmt::format("{}={};", here, message.get_int64());
        break;
      case protozero::pbf_wire_type::fixed64: {
        const std::uint64_t bits = message.get_fixed64();
        // Times are integers below 2^62, doubles of this test are above.
        const bool is_time = bits < 0x2000'0000'0000'0000ULL;
        double value = 0;
        std::memcpy(&value, &bits, sizeof value);
        out += is_time ? fmt::format("{}={};", here, bits) : fmt::format("{}={};", here, value);
        break;
      }
      default: {
        const std::string bytes = message.get_string();
        const bool is_text = std::all_of(bytes.begin(), bytes.end(), [](char c) {
          return static_cast<unsigned char>(c) >= ' ';
        });
        out += is_text ? fmt::format("{}={};", here, bytes)
                       : fields(protozero::pbf_reader(bytes), here + ".");
      }
    }
  }
  return out;
}

constexpr MetricDef kOtlpStep{"kansoku_step_mean_seconds", "seconds", MetricType::kGauge, "Step."};
constexpr MetricDef kOtlpIncidents{"kansoku_incidents", "", MetricType::kCounter, "Incidents."};
constexpr MetricDef kOtlpWait{"kansoku_wait_seconds", "seconds", MetricType::kHistogram, "Waits."};

TEST(ToOtlp, WritesResourceGaugesAndSums) {
  MetricSet set;
  set.add(kOtlpStep, {{"rank", "1"}}, 0.5, 41);
  set.add(kOtlpIncidents, {}, 3);
  const std::string bytes =
      to_otlp(set, {.host = "node\xFF", .version = "1.2", .instance = "", .start_wall_ns = 7}, 42);
  const std::string text = fields(protozero::pbf_reader(bytes), "");
  EXPECT_THAT(text, HasSubstr("1.1.1.1=service.name;1.1.1.2.1=kansoku;"));
  EXPECT_THAT(text, HasSubstr("1.1.1.1=service.version;1.1.1.2.1=1.2;"));
  EXPECT_THAT(text, HasSubstr("1.1.1.1=host.name;"));
  EXPECT_THAT(text, Not(HasSubstr("service.instance.id")));
  EXPECT_THAT(bytes, Not(HasSubstr("\xFF\x12")));  // protobuf texts are UTF-8
  // Gauge: attributes, then time and value; no start.
  EXPECT_THAT(text, HasSubstr("1.2.2.1=kansoku_step_mean_seconds;1.2.2.2=Step.;1.2.2.3=s;"
                              "1.2.2.5.1.7.1=rank;1.2.2.5.1.7.2.1=1;1.2.2.5.1.3=41;"
                              "1.2.2.5.1.4=0.5;"));
  // Sum: cumulative and monotonic, since the agent's start.
  EXPECT_THAT(text,
              HasSubstr("1.2.2.1=kansoku_incidents;1.2.2.2=Incidents.;1.2.2.3=;"
                        "1.2.2.7.1.2=7;1.2.2.7.1.3=42;1.2.2.7.1.4=3;1.2.2.7.2=2;1.2.2.7.3=1;"));
  EXPECT_EQ(
      bytes,
      to_otlp(set, {.host = "node\xFF", .version = "1.2", .instance = "", .start_wall_ns = 7}, 42));
}

TEST(ToOtlp, AJobIsAServiceOfItsOwn) {
  MetricSet set;
  set.add(kOtlpStep, {{"job", "b"}, {"rank", "0"}}, 0.5);
  set.add(kOtlpStep, {{"job", "a"}, {"rank", "0"}}, 0.25);
  set.add(kOtlpIncidents, {{"job", "a"}}, 3);
  set.add(kOtlpIncidents, {}, 5);
  const std::string bytes =
      to_otlp(set, {.host = "", .version = "", .instance = "", .start_wall_ns = 7}, 42);
  const std::string text = fields(protozero::pbf_reader(bytes), "");
  EXPECT_THAT(text, Not(HasSubstr("=job;"))) << "it would be one label twice";
  const std::size_t own = text.find("1.1.1.2.1=kansoku;"), a = text.find("1.1.1.2.1=a;"),
                    b = text.find("1.1.1.2.1=b;");
  ASSERT_LT(own, a);
  ASSERT_LT(a, b);
  ASSERT_LT(b, text.size());
  EXPECT_THAT(text.substr(own, a - own), HasSubstr("1.4=5;"));
  EXPECT_THAT(text.substr(a, b - a), HasSubstr("1.2.2.5.1.7.1=rank;"));
  EXPECT_THAT(text.substr(a, b - a), HasSubstr("1.4=0.25;"));
  EXPECT_THAT(text.substr(a, b - a), HasSubstr("1.4=3;"));
  EXPECT_THAT(text.substr(b), HasSubstr("1.4=0.5;"));
}

TEST(ToOtlp, WritesHistogramsWithTheirBuckets) {
  MetricSet set;
  set.add(kOtlpWait, {}, {.bounds = {0.5}, .counts = {2, 3}, .sum = 7.25});
  const std::string bytes =
      to_otlp(set, {.host = "n", .version = "1", .instance = "i", .start_wall_ns = 7}, 42);
  EXPECT_THAT(bytes, HasSubstr(std::string("\x32\x10\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0", 18)));
  EXPECT_THAT(bytes, HasSubstr(std::string("\x3A\x08\0\0\0\0\0\0\xE0\x3F", 10)));
  EXPECT_THAT(bytes, HasSubstr(std::string("\x21\x05\0\0\0\0\0\0\0", 9)));  // count
}

}  // namespace
}  // namespace kansoku::exporter
