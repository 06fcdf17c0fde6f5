// SPDX-License-Identifier: Apache-2.0
// Writes recordings of device work into a folder: cuda_recordings FOLDER. Each is a training loop
// of gpu/activity's planted_for_test.h; equal in every run.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gpu/activity/planted_for_test.h"
#include "trace/traces_for_test.h"

namespace {

using namespace kansoku;
using gpu::activity::Plan;

std::vector<std::pair<std::string, Plan>> recordings() {
  Plan plan;
  plan.steps = 12;
  plan.kernels = 40;
  plan.marks_steps = true;
  std::vector<std::pair<std::string, Plan>> out{{"healthy", plan}};
  const auto add = [&](const char* name, auto change) {
    Plan changed = plan;
    change(changed);
    out.emplace_back(name, changed);
  };
  add("synchronisation", [](Plan& p) {
    p.syncs = 10;
    p.after_sync_us = 35;
  });
  add("launch_bound", [](Plan& p) { p.tiny_kernels = 90; });
  add("pageable_copies", [](Plan& p) { p.copy_us = 400; });
  add("overlapped_copies", [](Plan& p) {
    p.copy_us = 400;
    p.copies_beside = true;
  });
  add("leak", [](Plan& p) {
    p.steps = 40;
    p.leak_bytes = 1 << 20;
  });
  add("four_ranks", [](Plan& p) {
    p.ranks = 4;
    p.slow_rank = 2;
    p.slow_ratio = 1.12;
  });
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: cuda_recordings FOLDER\n");
    return 2;
  }
  for (const auto& [name, plan] : recordings()) {
    const std::string bytes = trace::bytes_of([&, &which = plan](trace::Writer& writer) {
      gpu::activity::Recording recording(writer);
      static_cast<void>(gpu::activity::write_planted(which, recording));
    });
    std::ofstream file(fmt::format("{}/{}.pftrace", argv[1], name), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
      fmt::print(stderr, "write {}/{}.pftrace: failed\n", argv[1], name);
      return 1;
    }
  }
  return 0;
}
