// SPDX-License-Identifier: Apache-2.0
#include "sys/pressure.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "common/parse.h"
#include "sys/internal/kept_file.h"

namespace kansoku::sys {

struct PressureSampler::Files {
  std::array<KeptFile, 3> of;  // cpu, io, memory
};

PressureSampler::PressureSampler(std::unique_ptr<Files> files) : files_(std::move(files)) {}
PressureSampler::PressureSampler(PressureSampler&&) noexcept = default;
PressureSampler& PressureSampler::operator=(PressureSampler&&) noexcept = default;
PressureSampler::~PressureSampler() = default;

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234"
PressureTotals parse_pressure(std::string_view untrusted) {
  constexpr std::string_view kTotal = " total=";
  PressureTotals out;
  while (!untrusted.empty()) {
    const std::string_view line = cut_line(untrusted);
    const std::size_t at = line.rfind(kTotal);
    if (at == std::string_view::npos) continue;
    const auto total = parse_int<std::uint64_t>(line.substr(at + kTotal.size()));
    if (line.starts_with("some ")) out.some_us = total;
    if (line.starts_with("full ")) out.full_us = total;
  }
  return out;
}

Result<PressureSampler> PressureSampler::open(const std::string& folder, std::string_view suffix) {
  auto files = std::make_unique<Files>();
  constexpr std::array<std::string_view, 3> kNames{"cpu", "io", "memory"};
  bool has_any = false;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    auto opened = KeptFile::open(fmt::format("{}/{}{}", folder, kNames[i], suffix));
    if (!opened) continue;
    files->of[i] = std::move(*opened);
    has_any = true;
  }
  if (!has_any) {
    return Error{Code::kUnavailable, fmt::format("open pressure of {}: not found", folder),
                 "needs a kernel with CONFIG_PSI (boot it with psi=1); pressure of control groups "
                 "needs their version 2"};
  }
  return PressureSampler(std::move(files));
}

Result<PressureSampler> PressureSampler::open_host(const std::string& folder) {
  return open(folder, "");
}
Result<PressureSampler> PressureSampler::open_cgroup(const std::string& folder) {
  return open(folder, ".pressure");
}

Result<Pressure> PressureSampler::sample() const {
  Pressure out;
  KeptFile::Buffer buffer;
  const std::array<PressureTotals*, 3> into{&out.cpu, &out.io, &out.memory};
  for (std::size_t i = 0; i < into.size(); ++i) {
    if (!files_->of[i].is_open()) continue;
    const auto text = files_->of[i].read(buffer);
    if (text) {
      *into[i] = parse_pressure(*text);
    } else if (text.error().code == Code::kNotFound) {
      return text.error();
    }
  }
  return out;
}

}  // namespace kansoku::sys
