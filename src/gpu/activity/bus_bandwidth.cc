// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/bus_bandwidth.h"

#include <array>

namespace kansoku::gpu::activity {
namespace {

struct BusRow {
  std::string_view collective;
  bool counts_a_part;  // the call's count is that of one rank
  double (*factor)(double ranks);
};
constexpr double one(double) {
  return 1;
}
constexpr double others(double n) {
  return (n - 1) / n;
}
constexpr double twice_others(double n) {
  return 2 * (n - 1) / n;
}
constexpr std::array kBusRows{
    BusRow{"allreduce", false, twice_others},
    BusRow{"reducescatter", true, others},
    BusRow{"allgather", true, others},
    BusRow{"alltoall", true, others},
    BusRow{"broadcast", false, one},
    BusRow{"reduce", false, one},
    BusRow{"send", false, one},
    BusRow{"recv", false, one},
};

const BusRow* bus_row_of(std::string_view collective) {
  for (const BusRow& row : kBusRows) {
    if (row.collective == collective) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<double> bus_factor_of(std::string_view collective, std::uint64_t ranks) {
  const BusRow* const row = bus_row_of(collective);
  if (row == nullptr || ranks == 0) return std::nullopt;
  return row->factor(static_cast<double>(ranks));
}

std::optional<std::uint64_t> whole_bytes_of(std::string_view collective, std::uint64_t call_bytes,
                                            std::optional<std::uint64_t> ranks) {
  const BusRow* const row = bus_row_of(collective);
  if (row == nullptr) return std::nullopt;
  if (!row->counts_a_part) return call_bytes;
  constexpr std::uint64_t kRanksMax = 1U << 20;
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 42;
  if (!ranks || *ranks > kRanksMax || call_bytes > kBytesMax) return std::nullopt;
  return call_bytes * *ranks;
}

}  // namespace kansoku::gpu::activity
