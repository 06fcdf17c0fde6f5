// SPDX-License-Identifier: Apache-2.0
// Cost of reading Python stacks, for the reader: starts a Python program of three working threads,
// samples it at 100 Hz for --seconds (10) and prints the share of one core that sampling took, by
// the CPU clock of the sampling thread. In turn with it a second reader, which makes one system
// call per range, samples the same process: the paired ratio shows the saving of batching.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "capture/python/sampler.h"
#include "common/parse.h"
#include "sys/clock.h"
#include "sys/procfs.h"

namespace {

using kansoku::capture::python::Process;
using kansoku::capture::python::PyStack;

constexpr const char* kProgram = R"(
import sys, threading
def work(n):
    total = 0
    for i in range(n):
        total += sum(range(50))
    return total
def make(depth):
    if depth == 0:
        return lambda: work(20000)
    inner = make(depth - 1)
    def level():
        return inner()
    return level
run = make(14)
def loop():
    while True:
        run()
for _ in range(2):
    threading.Thread(target=loop, daemon=True).start()
sys.stdout.write("ready\n")
sys.stdout.flush()
loop()
)";

/// Starts `python` and waits for its "ready". Returns the pid, or 0.
pid_t start(const char* python) {
  std::array<int, 2> out{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return 0;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::execlp(python, python, "-c", kProgram, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(out[1]);
  std::array<char, 6> ready{};
  const bool is_ready = ::read(out[0], ready.data(), ready.size()) > 0;
  ::close(out[0]);
  return is_ready ? pid : 0;
}

struct Cost {
  std::int64_t cpu_ns{0};
  std::uint64_t samples{0}, frames{0}, stacks{0};
};

bool sample(Process& process, std::vector<PyStack>& stacks, Cost& cost) {
  const std::int64_t before = kansoku::sys::thread_cpu_time().count();
  if (!process.sample(stacks)) return false;
  cost.cpu_ns += kansoku::sys::thread_cpu_time().count() - before;
  ++cost.samples;
  cost.stacks += stacks.size();
  for (const PyStack& stack : stacks)
    cost.frames += stack.frames.size();
  return true;
}

double us_per_sample(const Cost& cost) {
  return static_cast<double>(cost.cpu_ns) / 1e3 / static_cast<double>(cost.samples);
}

int run(pid_t pid, std::int64_t seconds) {
  constexpr std::int64_t kPeriodNs = 10'000'000;
  const kansoku::sys::Procfs procfs;
  auto batched = Process::attach(pid, procfs, {});
  auto single = Process::attach(pid, procfs, {.batch_reads = false});
  if (!batched || !single) {
    fmt::print(stderr, "bench python_sampler: {}\n",
               batched ? single.error().what : batched.error().what);
    return 1;
  }
  std::vector<PyStack> stacks, single_stacks;
  Cost cost, single_cost;
  timespec next{};
  ::clock_gettime(CLOCK_MONOTONIC, &next);
  const Process::Counters before = (*batched)->counters();
  for (std::int64_t i = 0; i < seconds * 100; ++i) {
    next.tv_nsec += kPeriodNs / 2;
    const bool is_single = i % 2 != 0;  // the readers take turns, half a period apart
    for (int half = 0; half < 2; ++half) {
      if (next.tv_nsec >= 1'000'000'000) {
        next.tv_nsec -= 1'000'000'000;
        ++next.tv_sec;
      }
      while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr) == EINTR) {
      }
      const bool ok = (half == 0) == is_single ? sample(**single, single_stacks, single_cost)
                                               : sample(**batched, stacks, cost);
      if (!ok) return 1;
      if (half == 0) next.tv_nsec += kPeriodNs / 2;
    }
  }
  const Process::Counters& after = (*batched)->counters();
  const auto per_sample = [&](std::uint64_t value) {
    return static_cast<double>(value) / static_cast<double>(cost.samples);
  };
  fmt::print(
      "bench python_sampler version={} core_share_at_100hz={:.5f} us_per_sample={:.1f} "
      "reads_per_sample={:.2f} ranges_per_sample={:.1f} torn={} retried={} "
      "stacks_per_sample={:.2f} "
      "frames_per_sample={:.1f} ratio_vs_unbatched={:.2f}\n",
      (*batched)->version(), us_per_sample(cost) * 100 / 1e6, us_per_sample(cost),
      per_sample(after.read_calls - before.read_calls),
      per_sample(after.read_ranges - before.read_ranges), after.torn, after.retried,
      per_sample(cost.stacks), per_sample(cost.frames),
      us_per_sample(single_cost) / us_per_sample(cost));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* python = "/usr/bin/python3";
  std::int64_t seconds = 10;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--python") python = argv[i + 1];
    if (std::string_view(argv[i]) == "--seconds") {
      seconds = kansoku::parse_int<std::int64_t>(argv[i + 1]).value_or(seconds);
    }
  }
  const pid_t pid = start(python);
  if (pid == 0) {
    fmt::print(stderr, "bench python_sampler: cannot run {}\n", python);
    return 1;
  }
  const int status = run(pid, seconds);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return status;
}
