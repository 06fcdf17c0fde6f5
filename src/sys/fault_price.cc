// SPDX-License-Identifier: Apache-2.0
#include "sys/fault_price.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kansoku::sys {
namespace {

constexpr std::size_t kPages = 512;
constexpr int kRounds = 5;

struct Use {
  std::int64_t faults{0}, ns{0};
};
Use use_of_thread() {
  rusage usage{};
  timespec time{};
  ::getrusage(RUSAGE_THREAD, &usage);
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return {usage.ru_minflt, static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec};
}

std::optional<double> one_round(std::size_t page_bytes) {
  const std::size_t bytes = kPages * page_bytes;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);  // a huge page would be one fault
  auto* const first = static_cast<volatile char*>(memory);
  const Use before = use_of_thread();
  for (std::size_t page = 0; page < kPages; ++page)
    first[page * page_bytes] = 1;
  ::munmap(memory, bytes);
  const Use after = use_of_thread();
  const std::int64_t faults = after.faults - before.faults;
  if (faults < static_cast<std::int64_t>(kPages) || after.ns <= before.ns) return std::nullopt;
  return static_cast<double>(after.ns - before.ns) / static_cast<double>(faults);
}

}  // namespace

std::optional<double> page_fault_ns() {
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  std::vector<double> rounds;
  for (int round = 0; round < kRounds && page_bytes > 0; ++round) {
    if (const auto ns = one_round(static_cast<std::size_t>(page_bytes))) rounds.push_back(*ns);
  }
  if (rounds.empty()) return std::nullopt;
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::nth_element(rounds.begin(), middle, rounds.end());
  return *middle;
}

}  // namespace kansoku::sys
