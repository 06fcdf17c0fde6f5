// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "capture/host.h"
#include "capture/job.h"
#include "capture/pack.h"
#include "cli/commands.h"
#include "cli/wiring.h"
#include "common/json.h"
#include "common/parse.h"
#include "common/text.h"
#include "sys/capabilities.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

enum class Verdict { kGood, kReduced, kMissing };

// One line of the examination: the part looked at, the loss without it, how to mend it.
struct Check {
  std::string name;
  Verdict verdict{Verdict::kGood};
  std::string found, loses, mend;
};

constexpr std::array<std::string_view, 3> kVerdictNames{"good", "reduced", "missing"};

std::string_view verdict_name(Verdict verdict) {
  return kVerdictNames.at(static_cast<std::size_t>(verdict));
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

std::string first_line(const std::string& path) {
  const auto text = sys::read_file(path, 4096);
  return text ? text->substr(0, text->find('\n')) : std::string{};
}

using KernelVersion = std::pair<int, int>;

/// That runs here; 0.0 if it says something else.
KernelVersion kernel_version() {
  utsname name{};
  KernelVersion out;
  ::uname(&name);
  const std::string_view release = name.release;
  const auto dot = release.find('.');
  const auto rest = release.substr(std::min(release.size(), dot + 1));
  const auto end = std::min(rest.size(), rest.find_first_not_of("0123456789"));
  out.first = parse_int<int>(release.substr(0, dot)).value_or(0);
  out.second = parse_int<int>(rest.substr(0, end)).value_or(0);
  return out;
}

Check kernel_check() {
  utsname name{};
  ::uname(&name);
  return {"kernel", Verdict::kGood, fmt::format("{} {}", name.sysname, name.release), "", ""};
}

Check btf_check() {
  const std::string path = "/sys/kernel/btf/vmlinux";
  if (exists(path)) return {"kernel types (BTF)", Verdict::kGood, path, "", ""};
  return {"kernel types (BTF)", Verdict::kMissing, "no " + path,
          "scheduler, forks and exits by eBPF",
          "boot a kernel with CONFIG_DEBUG_INFO_BTF=y (every current distribution kernel)"};
}

Check tracefs_check() {
  for (const std::string path : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
    if (exists(path + "/events")) return {"tracefs", Verdict::kGood, path, "", ""};
  }
  return {"tracefs", Verdict::kReduced, "not mounted", "packs io and tcp",
          "mount -t tracefs tracefs /sys/kernel/tracing"};
}

std::vector<Check> capability_checks() {
  const std::uint64_t held = sys::effective_capabilities().value_or(0);
  std::vector<Check> checks;
  for (const sys::CapabilityInfo& known : sys::known_capabilities()) {
    if (known.capability == sys::Capability::kSysAdmin) continue;  // stands in for others
    Check check{std::string(known.name), Verdict::kGood, "held", "", ""};
    if (!sys::has_capability(held, known.capability)) {
      const bool is_needed = known.capability == sys::Capability::kBpf ||
                             known.capability == sys::Capability::kPerfmon;
      check = {std::string(known.name), is_needed ? Verdict::kMissing : Verdict::kReduced,
               "not held", std::string(known.purpose),
               "run as root, or: setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,"
               "cap_net_admin,cap_checkpoint_restore+ep kansoku"};
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

/// `since`: the first kernel that has it. On one that is as new, rights are missing.
Check attach_check(capture::bpf::AttachMode mode, KernelVersion since, std::string_view cost) {
  const std::string name = fmt::format("uprobes: {}", capture::bpf::attach_mode_name(mode));
  const auto tried = capture::try_attach_mode(mode);
  if (tried) return {name, Verdict::kGood, "works", "", ""};
  const bool is_old = kernel_version() < since;
  return {name, Verdict::kReduced, tried.error().what, std::string(cost),
          is_old ? fmt::format("kernel {}.{} or newer", since.first, since.second)
                 : "root, or CAP_BPF and CAP_PERFMON"};
}

std::vector<Check> attach_checks() {
  using capture::bpf::AttachMode;
  return {attach_check(AttachMode::kSession, {6, 13},
                       "a hit with return costs about 1.5 times as much"),
          attach_check(AttachMode::kMulti, {6, 6},
                       "attaching and detaching hundreds of probes takes seconds"),
          attach_check(AttachMode::kPerf, {0, 0}, "no probes at all")};
}

Check pid_namespace_check() {
  // Records carry the pids of the first namespace: in a container they would not match /proc.
  const auto status = sys::read_file("/proc/self/status", 1U << 16);
  const bool nested = status && [&] {
    const auto place = status->find("NSpid:\t");
    if (place == std::string::npos) return false;
    const std::string line = status->substr(place + 7, status->find('\n', place) - place - 7);
    return line.find('\t') != std::string::npos;
  }();
  if (!nested) return {"pid namespace", Verdict::kGood, "the host's", "", ""};
  return {"pid namespace", Verdict::kMissing, "a container's own",
          "eBPF events cannot be matched to processes",
          "run on the host, or start the container with --pid=host"};
}

Check packs_check() {
  const auto packs = known_packs();
  if (!packs)
    return {"probe packs", Verdict::kMissing, packs.error().what, "everything but Python stacks",
            packs.error().hint};
  return {"probe packs", Verdict::kGood, fmt::format("{} packs", packs->size()), "", ""};
}

// Libraries of running jobs that some pack knows, and their Pythons.
Json job_report() {
  const sys::Procfs procfs;
  Json jobs = Json::array();
  for (const capture::Job& job : capture::find_jobs(procfs)) {
    std::set<std::string> libraries;
    std::string python = "none";
    for (const auto& [rank, pid] : job.rank_pids) {
      const auto mappings = procfs.maps(pid);
      for (const sys::Mapping& mapping : mappings ? *mappings : std::vector<sys::Mapping>{}) {
        static constexpr std::string_view kKnown =
            "libtorch_cpu.so*|libtorch_cuda.so*|libtorch_python.so*|libgloo.so*|libnccl.so*|"
            "libcudart.so*|libcudart-*.so*|libcuda.so*|"
            "libpython3*|python3*|libllama*|libmpi.so*";
        const std::string library(base_name(mapping.path));
        if (mapping.executable && capture::any_glob_match(kKnown, library))
          libraries.insert(mapping.path);
      }
      const auto version = capture::python_version(pid, procfs);
      python = version ? *version : version.error().what;
    }
    jobs.push(Json::object()
                  .set("name", job.name)
                  .set("ranks", std::uint64_t{job.rank_pids.size()})
                  .set("python", python)
                  .set("libraries", Json::array_of(libraries)));
  }
  return jobs;
}

std::vector<Check> examine() {
  std::vector<Check> checks{kernel_check(), btf_check(), tracefs_check()};
  for (auto& check : capability_checks())
    checks.push_back(std::move(check));
  for (auto& check : attach_checks())
    checks.push_back(std::move(check));
  checks.push_back(pid_namespace_check());
  if (const std::string yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
      !yama.empty() && yama != "0") {
    checks.push_back({"yama ptrace_scope", Verdict::kReduced, yama,
                      "Python stacks without CAP_SYS_PTRACE",
                      "run as root, or: sysctl kernel.yama.ptrace_scope=0"});
  }
  checks.push_back(packs_check());
  return checks;
}

class Doctor final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--json", json_, "print JSON (schema kansoku.doctor/1)");
    app.footer(
        "Exit status: 0 everything works, 1 something is missing (each line names the lost "
        "features).");
  }

  int run() override {
    const std::vector<Check> checks = examine();
    const bool is_complete = std::none_of(checks.begin(), checks.end(), [](const Check& c) {
      return c.verdict == Verdict::kMissing;
    });
    json_ ? print_json(checks) : print_text(checks);
    return is_complete ? kExitOk : kExitFailed;
  }

 private:
  static void print_json(const std::vector<Check>& checks) {
    Json list = Json::array();
    for (const Check& check : checks) {
      list.push(Json::object()
                    .set("check", check.name)
                    .set("verdict", verdict_name(check.verdict))
                    .set("found", check.found)
                    .set("loses", check.loses)
                    .set("mend", check.mend));
    }
    fmt::print("{}\n", Json::object()
                           .set("schema", "kansoku.doctor/1")
                           .set("checks", std::move(list))
                           .set("jobs", job_report())
                           .dump(2));
  }

  static void print_text(const std::vector<Check>& checks) {
    for (const Check& check : checks) {
      fmt::print("{:<8} {:<22} {}\n", verdict_name(check.verdict), check.name,
                 printable(check.found));
      if (!check.loses.empty())
        fmt::print("{:<9}lost: {}\n{:<9}fix:  {}\n", "", check.loses, "", check.mend);
    }
    const Json jobs = job_report();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Json job = jobs.at(i);
      fmt::print("job      {} with {} ranks here, Python {}\n", job.at("name").as_string(),
                 job.at("ranks").as_int(), printable(job.at("python").as_string()));
      const Json libraries = job.at("libraries");
      for (std::size_t k = 0; k < libraries.size(); ++k)
        fmt::print("{:<9}{}\n", "", printable(libraries.at(k).as_string()));
    }
    if (jobs.size() == 0) fmt::print("job      none runs on this host\n");
  }

  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_doctor() {
  return std::make_unique<Doctor>();
}

}  // namespace kansoku::cli
