// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "capture/job.h"
#include "cli/commands.h"
#include "common/json.h"
#include "sys/capabilities.h"
#include "sys/cgroup.h"

namespace kansoku::cli {
namespace {

Json to_json(const capture::Job& job) {
  Json ranks = Json::array();
  for (const auto& [rank, pid] : job.rank_pids) {
    Json entry = Json::object().set("rank", rank).set("pid", pid);
    if (const auto container = sys::container_of(pid)) {
      entry.set("container", Json::object()
                                 .set("runtime", container->runtime)
                                 .set("id", container->id)
                                 .set("pod_uid", container->pod_uid));
    }
    ranks.push(std::move(entry));
  }
  return Json::object()
      .set("name", job.name)
      .set("world_size", job.world_size)
      .set("ranks", std::move(ranks));
}

/// "docker 0123456789ab", "containerd 0123456789ab of pod 1111-...".
std::string words(const sys::Container& container) {
  constexpr std::size_t kDigits = 12;  // as their own tools show
  return fmt::format("{} {}{}{}", container.runtime.empty() ? "container" : container.runtime,
                     container.id.substr(0, kDigits), container.pod_uid.empty() ? "" : " of pod ",
                     container.pod_uid);
}

class Jobs final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--json", json_, "print JSON (schema kansoku.jobs/1)");
    app.footer(
        "A job is a set of processes whose environment names rank and world size\n"
        "(RANK/WORLD_SIZE, OMPI_*, SLURM_*), or that talk to each other in a process\n"
        "group of PyTorch (gloo). Processes of other users need root.");
  }

  int run() override {
    const auto jobs = capture::find_jobs(sys::Procfs());
    // Whoever may look at all has nobody to ask.
    const bool may_see_all =
        sys::has_capability(sys::effective_capabilities().value_or(0), sys::Capability::kSysPtrace);
    const std::size_t hidden = may_see_all ? 0 : capture::count_hidden_processes(sys::Procfs());
    // No job among those that may be looked at says nothing about the others.
    const int status = jobs.empty() && hidden > 0 ? kExitPermission : kExitOk;
    if (json_) {
      Json list = Json::array();
      for (const capture::Job& job : jobs)
        list.push(to_json(job));
      fmt::print("{}\n", Json::object()
                             .set("schema", "kansoku.jobs/1")
                             .set("jobs", std::move(list))
                             .set("hidden_processes", hidden)
                             .dump(2));
      return status;
    }
    if (hidden > 0) {
      fmt::print(stderr,
                 "kansoku: {} processes of other users are not readable; run `kansoku jobs` as "
                 "root to see all\n",
                 hidden);
    }
    if (jobs.empty()) {
      fmt::print("no distributed job {}\n",
                 hidden > 0 ? "among your processes" : "runs on this host");
      return status;
    }
    fmt::print("{:<28} {:>10}  {}\n", "JOB", "RANKS", "PIDS (rank:pid)");
    for (const capture::Job& job : jobs) {
      std::string pids;
      const auto ranks = job.rank_pids;
      std::map<std::string, std::vector<std::int32_t>> containers;  // by words, ranks
      for (const auto& [rank, pid] : ranks) {
        pids += fmt::format("{}{}:{}", pids.empty() ? "" : " ", rank, pid);
        if (const auto container = sys::container_of(pid))
          containers[words(*container)].push_back(rank);
      }
      fmt::print("{:<28} {:>10}  {}\n", job.name,
                 fmt::format("{} of {}", ranks.size(), job.world_size), pids);
      for (const auto& [container, inside] : containers)
        fmt::print("    in {}: ranks {}\n", container, fmt::join(inside, ", "));
    }
    return kExitOk;
  }

 private:
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_jobs() {
  return std::make_unique<Jobs>();
}

}  // namespace kansoku::cli
