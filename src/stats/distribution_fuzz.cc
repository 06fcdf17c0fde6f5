// SPDX-License-Identifier: Apache-2.0
// Any JSON as a distribution: refused with a reason, or one whose quantiles lie in its support,
// rise with u and whose text gives the same distribution again.
#include "stats/distribution.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"

namespace {

using kansoku::Code;
using kansoku::Json;
using kansoku::stats::Distribution;

void check(const Distribution& distribution) {
  double before = 0;
  for (const double u : {1e-300, 1e-9, 0.01, 0.3, 0.5, 0.8, 0.999, 1 - 0x1.0p-53}) {
    const double x = distribution.quantile(u), drawn = distribution.draw(u);
    // Iterated quantiles end within a tolerance, so they may fall by as much.
    CHECK(std::isfinite(x) && x <= distribution.cap());
    CHECK(x >= before * (1 - 1e-9));
    CHECK(std::isfinite(drawn) && drawn >= 0 && drawn <= distribution.cap());
    const double share = distribution.cdf(x);
    CHECK(share >= 0 && share <= 1);
    CHECK(!(distribution.log_density(x) == HUGE_VAL) || x < 1e-300);
    before = x;
  }
  CHECK(distribution.mean() >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;
  const auto json = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  const auto distribution = Distribution::from_json(*json);
  if (!distribution) {
    CHECK(distribution.error().code == Code::kCorrupt);
    CHECK(distribution.error().what.find("distribution") != std::string::npos);
    return 0;
  }
  check(*distribution);
  const std::string text = distribution->to_json().dump();
  const auto again = Distribution::from_json(*Json::parse(text));
  CHECK(again.has_value() && again->to_json().dump() == text);
  CHECK(again->draw(0.7) == distribution->draw(0.7));
  return 0;
}
