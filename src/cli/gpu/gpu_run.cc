// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu/gpu_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cli/commands.h"
#include "cli/gpu/gpu_arguments.h"
#include "cli/gpu/gpu_image.h"
#include "cli/gpu/gpu_launch.h"
#include "cli/wiring.h"
#include "common/json.h"
#include "common/parse.h"
#include "cuda/driver_device.h"
#include "softcuda/telemetry/launch_observer.h"
#include "sys/clock.h"
#include "sys/trust.h"

namespace kansoku::cli {
namespace {

using softcuda::LaunchesSeen;

constexpr std::size_t kHotLinesShown = 8;
constexpr Nanos kProgressAfter = std::chrono::seconds{2};  // until a progress line

/// "4", "4,2" or "4,2,1".
std::optional<std::array<std::uint32_t, 3>> parse_extent(std::string_view text) {
  std::array<std::uint32_t, 3> extent{1, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t comma = text.find(',');
    const auto number = parse_int<std::uint32_t>(text.substr(0, comma));
    if (!number) return std::nullopt;
    extent[i] = *number;
    if (comma == std::string_view::npos) return extent;
    text.remove_prefix(comma + 1);
  }
  return std::nullopt;
}

/// Says every two seconds on standard error that a kernel still runs.
class KernelProgress {
 public:
  explicit KernelProgress(std::string kernel)
      : kernel_(std::move(kernel)), thread_([this] { print_progress(); }) {}
  KernelProgress(const KernelProgress&) = delete;
  KernelProgress& operator=(const KernelProgress&) = delete;
  ~KernelProgress() {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }

 private:
  void print_progress() {
    std::unique_lock lock(mutex_);
    for (int seconds = 2; !over_.wait_for(lock, kProgressAfter, [this] { return is_over_; });
         seconds += 2)
      fmt::print(stderr, "{} runs, {} s\n", kernel_, seconds);
  }
  const std::string kernel_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_{false};  // guarded by mutex_
  std::thread thread_;
};

/// Device that a kernel ran on.
struct RanOn {
  std::string kind;  // "software", "cuda"
  std::string name;
  int number{-1};  // of a GPU's driver

  [[nodiscard]] std::string text() const {
    return number >= 0 ? fmt::format("{} (device {})", name, number) : name;
  }
  [[nodiscard]] Json json() const {
    Json out = Json::object().set("kind", kind).set("name", name);
    if (number >= 0) out.set("number", std::int64_t{number});
    return out;
  }
};

/// Result of one kernel run, on any device.
struct Ran {
  std::string kernel;
  RanOn on;
  double ms{0};
  LaunchesSeen seen;  // empty if nobody asked
};

/// A kernel that a device cannot end goes with this process: to give its memory back would wait for
/// it.
[[noreturn]] void leave_kernel_behind(const Error& error) {
  const int status = report(error);
  static_cast<void>(std::fflush(nullptr));
  ::_exit(status);
}

class GpuRun {
 public:
  explicit GpuRun(const GpuRunOptions& wanted) : wanted_(wanted) {}

  Result<int> run() {
    TRY_VOID(read_options());
    TRY(const Ran ran, run_somewhere());
    TRY_VOID(keep_buffers(arguments_));
    print(ran);
    if (!wanted_.json) print_hazards(ran.seen);
    return ran.seen.hazard_count == 0 ? kExitOk : kExitFindings;
  }

 private:
  Result<void> read_options() {
    const auto grid = parse_extent(wanted_.grid), block = parse_extent(wanted_.block);
    const auto limit = parse_duration(wanted_.limit);
    if (!grid || !block) return Error{Code::kCorrupt, "grid and block are X, X,Y or X,Y,Z"};
    if (!limit)
      return Error{Code::kCorrupt, fmt::format("limit {}: not a duration", wanted_.limit)};
    shape_ = {*grid, *block, wanted_.shared};
    limit_ = *limit;
    for (const std::string& text : wanted_.arguments) {
      TRY(auto argument, parse_gpu_argument(text));
      arguments_.push_back(std::move(argument));
    }
    for (const std::string& text : wanted_.shown) {
      TRY(auto shown, parse_gpu_shown(text, arguments_));
      shown_.push_back(std::move(shown));
    }
    return {};
  }

  Result<Ran> run_somewhere() {
    if (wanted_.device) return run_on_gpu();
    TRY(const auto folder, softgpu_folder());
    return run_on_software(folder + "/libcuda.so.1");
  }

  Result<Ran> run_on_gpu() {
    const char* const option = wanted_.check          ? "--check"
                               : wanted_.profile      ? "--profile"
                               : wanted_.workers != 0 ? "--workers"
                                                      : nullptr;
    if (option != nullptr) {
      return Error{Code::kUnsupported, fmt::format("{} is of the software GPU alone", option),
                   "leave out --device"};
    }
    GpuLaunch launch{.images = {}, .kernel = {}, .shape = shape_, .limit = limit_};
    TRY(launch.images, driver_images(wanted_.path));
    TRY(launch.kernel, choose_kernel(wanted_.path, wanted_.kernel, readable_kernels()));
    const auto driver = cuda::load_driver();
    if (!driver)
      return Error{driver.error().code, driver.error().what,
                   "leave out --device: then the software GPU runs it"};
    return run_on(*driver, *wanted_.device, launch, "cuda");
  }

  /// Those whose PTX Kansoku can read: a driver may know more.
  [[nodiscard]] std::vector<GpuKernel> readable_kernels() const {
    std::vector<GpuKernel> kernels;
    const auto images = read_images(wanted_.path);
    for (std::size_t i = 0; images && i < images->size(); ++i) {
      if ((*images)[i].kind != "ptx") continue;
      const auto module = parse_image(wanted_.path, (*images)[i].text);
      if (!module) continue;
      for (GpuKernel& kernel : kernels_of(*module))
        kernels.push_back(std::move(kernel));
    }
    return kernels;
  }

  /// With rights that its user lacks, this process writes no file that the user names.
  static void distrust_environment() {
    for (const char* const name :
         {"KANSOKU_SOFTGPU_LOG", "KANSOKU_SOFTGPU_COUNTS", "KANSOKU_SOFTGPU_OPERATIONS"})
      if (!sys::path_from_environment(name)) ::unsetenv(name);
  }

  Result<Ran> run_on_software(const std::string& library) {
    distrust_environment();
    TRY(const auto text, software_ptx(wanted_.path));
    TRY(const auto module, parse_image(wanted_.path, text));
    TRY(const auto kernel, choose_kernel(wanted_.path, wanted_.kernel, kernels_of(module)));
    // Settings that its driver reads from the environment; it ends a kernel itself.
    ::setenv("KANSOKU_SOFTGPU_TIME_LIMIT", wanted_.limit.c_str(), 1);
    if (wanted_.workers != 0)
      ::setenv("KANSOKU_SOFTGPU_WORKERS", std::to_string(wanted_.workers).c_str(), 1);
    ::unsetenv("CUDA_VISIBLE_DEVICES");  // it is about GPUs, and might hide this one
    const auto driver = cuda::load_driver(library);
    if (!driver) return Error{driver.error().code, driver.error().what, std::string(kSoftgpuHint)};
    const GpuLaunch launch{.images = {text}, .kernel = kernel, .shape = shape_, .limit = {}};
    return run_on(*driver, 0, launch, "software");
  }

  Result<Ran> run_on(const cuda::Driver& driver, int number, const GpuLaunch& launch,
                     const std::string& kind) {
    TRY(const auto device, cuda::open_device(driver, number));
    TRY(const auto info, device->info());
    Ran ran;
    ran.kernel = launch.kernel.name;
    ran.on = {kind, info.name, kind == "cuda" ? number : -1};
    const std::uint32_t looked_for = (wanted_.check ? softcuda::kObserveHazards : 0U) |
                                     (wanted_.profile ? softcuda::kObserveProfile : 0U);
    std::optional<softcuda::LaunchObserver> observer;
    if (looked_for != 0) {
      TRY(observer, softcuda::LaunchObserver::open(driver.library.get(), number));
      TRY_VOID(observer->begin(looked_for));
    }
    const auto ms = launch_and_wait(*device, launch);
    if (observer) {
      TRY(ran.seen, observer->end());
    }
    // Hazards come before the fault that they may have caused.
    if (!ms && ran.seen.launches != 0) print_hazards(ran.seen);
    TRY(ran.ms, ms);
    return ran;
  }

  Result<double> launch_and_wait(cuda::Device& device, const GpuLaunch& launch) {
    const sys::RealClock clock;
    const KernelProgress progress(launch.kernel.name);
    return launch_on(device, launch, arguments_, {clock, &sys::sleep_until, &leave_kernel_behind});
  }

  void print_hazards(const LaunchesSeen& seen) const {
    for (const LaunchesSeen::Hazard& hazard : seen.hazards)
      fmt::print("{}\n", hazard.text);
    if (wanted_.check && seen.hazard_count != 0)
      fmt::print("{} hazards at {} places\n", seen.hazard_count, seen.hazards.size());
    if (wanted_.check && seen.hazard_count == 0) fmt::print("no hazards\n");
  }

  static Json profile_json(const LaunchesSeen& seen) {
    Json classes = Json::object(), lines = Json::array();
    for (const LaunchesSeen::Class& each : seen.classes) {
      classes.set(each.name,
                  Json::object().set("warps", each.count.warps).set("threads", each.count.threads));
    }
    for (const LaunchesSeen::Line& line : seen.lines) {
      lines.push(Json::object()
                     .set("line", std::uint64_t{line.line})
                     .set("warps", line.count.warps)
                     .set("threads", line.count.threads));
    }
    const softcuda::ObservedProfile profile = seen.profile.value_or(softcuda::ObservedProfile{});
    return Json::object()
        .set("classes", std::move(classes))
        .set("lines", std::move(lines))
        .set("branches", profile.branches)
        .set("divergent_branches", profile.divergent_branches)
        .set("global_requests", profile.global_requests)
        .set("global_sectors", profile.global_sectors)
        .set("global_sectors_needed", profile.global_sectors_needed)
        .set("shared_requests", profile.shared_requests)
        .set("shared_passes", profile.shared_passes)
        .set("shared_passes_needed", profile.shared_passes_needed);
  }

  static double percent(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  }

  static void print_profile(const LaunchesSeen& seen) {
    const softcuda::ObservedProfile profile = seen.profile.value_or(softcuda::ObservedProfile{});
    LaunchesSeen::Count total;
    for (const LaunchesSeen::Class& each : seen.classes) {
      total.warps += each.count.warps;
      total.threads += each.count.threads;
    }
    fmt::print("{} warp instructions, {:.1f} % of their lanes active\n", total.warps,
               percent(total.threads, total.warps * 32));
    for (const LaunchesSeen::Class& each : seen.classes) {
      fmt::print("  {:<14}{:>14}  {:>5.1f} %\n", each.name, each.count.warps,
                 percent(each.count.warps, total.warps));
    }
    fmt::print("branches: {} of {} divergent\n", profile.divergent_branches, profile.branches);
    fmt::print("global memory: {} requests, {} sectors of 32 bytes, {:.1f} % of them needed\n",
               profile.global_requests, profile.global_sectors,
               percent(profile.global_sectors_needed, profile.global_sectors));
    fmt::print("shared memory: {} requests, {} passes, {:.1f} % of them needed\n",
               profile.shared_requests, profile.shared_passes,
               percent(profile.shared_passes_needed, profile.shared_passes));
    std::vector<LaunchesSeen::Line> hottest = seen.lines;
    std::stable_sort(hottest.begin(), hottest.end(),
                     [](const auto& a, const auto& b) { return a.count.warps > b.count.warps; });
    if (hottest.size() > kHotLinesShown) hottest.resize(kHotLinesShown);
    std::string places;
    for (const LaunchesSeen::Line& line : hottest)
      places += fmt::format("{}{} ({} x)", places.empty() ? "" : ", ", line.line, line.count.warps);
    fmt::print("ptx lines executed most: {}\n", places);
  }

  void print(const Ran& ran) const {
    Json buffers = Json::array();
    if (!wanted_.json) {
      fmt::print("{}: {} x {} x {} blocks of {} x {} x {} threads in {:.2f} ms on {}\n", ran.kernel,
                 shape_.grid[0], shape_.grid[1], shape_.grid[2], shape_.block[0], shape_.block[1],
                 shape_.block[2], ran.ms, ran.on.text());
    }
    for (const GpuShown& shown : shown_) {
      const auto numbers = numbers_of(arguments_[shown.argument], shown);
      Json values = Json::array();
      for (const double number : numbers)
        values.push(number);
      if (!wanted_.json) fmt::print("argument {}: {:g}\n", shown.argument, fmt::join(numbers, " "));
      buffers.push(Json::object()
                       .set("argument", std::uint64_t{shown.argument})
                       .set("type", shown.type)
                       .set("values", std::move(values)));
    }
    if (wanted_.json) return print_json(ran, std::move(buffers));
    if (wanted_.profile) print_profile(ran.seen);
  }

  void print_json(const Ran& ran, Json buffers) const {
    Json out = Json::object()
                   .set("schema", "kansoku.gpu.run/1")
                   .set("kernel", ran.kernel)
                   .set("device", ran.on.json())
                   .set("ms", ran.ms)
                   .set("shown", std::move(buffers));
    if (wanted_.profile) out.set("profile", profile_json(ran.seen));
    if (wanted_.check) {
      Json hazards = Json::array();
      for (const LaunchesSeen::Hazard& hazard : ran.seen.hazards) {
        hazards.push(Json::object()
                         .set("kind", hazard.kind)
                         .set("line", std::uint64_t{hazard.line})
                         .set("text", hazard.text));
      }
      out.set("hazards", std::move(hazards)).set("hazard_count", ran.seen.hazard_count);
    }
    fmt::print("{}\n", out.dump(2));
  }

  const GpuRunOptions& wanted_;
  cuda::LaunchShape shape_;
  Nanos limit_{};
  std::vector<GpuArgument> arguments_;
  std::vector<GpuShown> shown_;
};

}  // namespace

Result<int> run_gpu_kernel(const GpuRunOptions& wanted) {
  return GpuRun(wanted).run();
}

}  // namespace kansoku::cli
