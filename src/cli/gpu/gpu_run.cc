// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu/gpu_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/gpu/gpu_image.h"
#include "common/json.h"
#include "common/parse.h"
#include "common/rng.h"
#include "gpu/exec/executor.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

namespace exec = gpu::exec;
namespace ptx = gpu::ptx;

constexpr std::size_t kShownMax = 1000;
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

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// A kernel's argument: a number, or a buffer on the device.
struct Argument {
  bool is_buffer{false};
  std::string bytes;   // of the number, or what the buffer holds at first
  std::string output;  // file for what it holds afterwards; may be empty
  std::uint64_t address{0};
};

Error bad_argument(std::string_view text) {
  return Error{Code::kCorrupt, fmt::format("argument {}: not understood", text),
               "i32:7 u64:7 f32:1.5 f64:1.5 zero:4K random:4K file:PATH; >PATH after a buffer "
               "saves its bytes"};
}

Result<Argument> parse_number(std::string_view kind, const std::string& value,
                              std::string_view text) {
  Argument argument;
  const auto integer = [&](auto zero) {
    const auto number = parse_int<decltype(zero)>(value);
    if (number) argument.bytes = bytes_of(*number);
    return number.has_value();
  };
  bool is_good = false;
  if (kind == "i32") is_good = integer(std::int32_t{0});
  if (kind == "u32") is_good = integer(std::uint32_t{0});
  if (kind == "i64") is_good = integer(std::int64_t{0});
  if (kind == "u64") is_good = integer(std::uint64_t{0});
  if (kind == "f32" || kind == "f64") {
    double number = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, problem] = std::from_chars(value.data(), end, number);
    is_good = problem == std::errc{} && stop == end;
    argument.bytes = kind == "f32" ? bytes_of(static_cast<float>(number)) : bytes_of(number);
  }
  if (!is_good) return bad_argument(text);
  return argument;
}

Result<Argument> parse_argument(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return bad_argument(text);
  const std::string_view kind = text.substr(0, colon);
  std::string_view value = text.substr(colon + 1);
  Argument argument;
  if (kind != "zero" && kind != "random" && kind != "file")
    return parse_number(kind, std::string(value), text);
  argument.is_buffer = true;
  if (const std::size_t arrow = value.find('>'); arrow != std::string_view::npos) {
    argument.output = value.substr(arrow + 1);
    value = value.substr(0, arrow);
  }
  if (kind == "file") {
    TRY(argument.bytes, sys::read_file(std::string(value), kGpuFileBytesMax));
  } else {
    const auto bytes = parse_bytes(value);
    if (!bytes || *bytes == 0 || *bytes > kGpuFileBytesMax) return bad_argument(text);
    argument.bytes.assign(*bytes, '\0');
  }
  if (argument.bytes.empty()) return bad_argument(text);
  if (kind == "random") {
    Rng rng(1);  // single-precision numbers below 1, the same every time
    for (std::size_t at = 0; at + sizeof(float) <= argument.bytes.size(); at += sizeof(float)) {
      const auto number = static_cast<float>(rng.uniform());
      std::memcpy(argument.bytes.data() + at, &number, sizeof number);
    }
  }
  return argument;
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

class GpuRun {
 public:
  explicit GpuRun(const GpuRunOptions& wanted) : wanted_(wanted) {}
  Result<std::vector<Argument>> upload(exec::Memory& memory) const {
    std::vector<Argument> arguments;
    for (const std::string& text : wanted_.arguments) {
      TRY(auto argument, parse_argument(text));
      if (argument.is_buffer) {
        TRY(argument.address, memory.allocate(argument.bytes.size()));
        std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(argument.address)),
                    argument.bytes.data(), argument.bytes.size());
      }
      arguments.push_back(std::move(argument));
    }
    return arguments;
  }

  /// The arguments as the kernel's parameters lie in memory.
  static Result<std::vector<std::byte>> lay_out(const exec::KernelInfo& kernel,
                                                const std::vector<Argument>& arguments) {
    if (arguments.size() != kernel.param_bytes.size()) {
      return Error{Code::kCorrupt,
                   fmt::format("kernel {} takes {} arguments, {} are given", kernel.name,
                               kernel.param_bytes.size(), arguments.size())};
    }
    std::vector<std::byte> params(kernel.params_total_bytes);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string bytes =
          arguments[i].is_buffer ? bytes_of(arguments[i].address) : arguments[i].bytes;
      if (bytes.size() != kernel.param_bytes[i]) {
        return Error{Code::kCorrupt,
                     fmt::format("argument {} of kernel {} has {} bytes, {} are given", i,
                                 kernel.name, kernel.param_bytes[i], bytes.size())};
      }
      std::memcpy(params.data() + kernel.param_offsets[i], bytes.data(), bytes.size());
    }
    return params;
  }

  Result<exec::LaunchOptions> options() const {
    exec::LaunchOptions options;
    const auto grid = parse_extent(wanted_.grid), block = parse_extent(wanted_.block);
    const auto limit = parse_duration(wanted_.limit);
    if (!grid || !block) return Error{Code::kCorrupt, "grid and block are X, X,Y or X,Y,Z"};
    if (!limit)
      return Error{Code::kCorrupt, fmt::format("limit {}: not a duration", wanted_.limit)};
    options.grid = *grid;
    options.block = *block;
    options.dynamic_shared_bytes = wanted_.shared;
    options.workers =
        wanted_.workers != 0 ? wanted_.workers : std::max(1U, std::thread::hardware_concurrency());
    options.time_limit = *limit;
    return options;
  }

  Result<int> run() const {
    TRY(auto module, load_gpu_module(wanted_.path));
    TRY(auto memory, exec::Memory::create(std::uint64_t{4} << 30));
    TRY(const auto program, exec::Program::load(std::move(module), memory));
    if (program.kernels().empty())
      return Error{Code::kNotFound, fmt::format("{} has no kernel", wanted_.path)};
    if (wanted_.kernel.empty() && program.kernels().size() > 1)
      return Error{Code::kNotFound, fmt::format("{} has several kernels", wanted_.path),
                   "name one with --kernel; kansoku gpu list shows them"};
    std::size_t index = 0;
    if (!wanted_.kernel.empty()) {
      TRY(index, program.find_kernel(wanted_.kernel));
    }
    TRY(auto arguments, upload(memory));
    TRY(const auto params, lay_out(program.kernels()[index], arguments));
    TRY(auto launch_options, options());
    const sys::RealClock clock;
    launch_options.params = params;
    launch_options.clock = &clock;
    launch_options.print = [](std::string_view text) { fmt::print("{}", text); };
    launch_options.complain = [](std::string_view text) { fmt::print(stderr, "{}", text); };
    exec::Observations seen;
    launch_options.observe = {wanted_.check, wanted_.profile, false};
    launch_options.observations = &seen;
    std::optional<exec::Fault> fault;
    const BootTime begin = clock.now();
    {
      const KernelProgress progress(program.kernels()[index].name);
      TRY(fault, exec::launch(program, index, memory, launch_options));
    }
    const double ms = static_cast<double>((clock.now() - begin).count()) * 1e-6;
    if (fault) {
      print_hazards(seen);
      return Error{fault->kind == exec::FaultKind::kTimeout ? Code::kTimeout : Code::kCorrupt,
                   fault->text()};
    }
    TRY_VOID(keep(arguments));
    TRY_VOID(print_launch(program.kernels()[index], arguments, launch_options, ms, seen));
    if (!wanted_.json) print_hazards(seen);
    return seen.hazard_count == 0 ? kExitOk : kExitFindings;
  }

  static Result<void> keep(const std::vector<Argument>& arguments) {
    for (const Argument& argument : arguments) {
      if (argument.output.empty()) continue;
      std::ofstream file(argument.output, std::ios::binary);
      file.write(reinterpret_cast<const char*>(static_cast<std::uintptr_t>(argument.address)),
                 static_cast<std::streamsize>(argument.bytes.size()));
      if (!file) return Error{Code::kPermission, fmt::format("write {}: failed", argument.output)};
    }
    return {};
  }

  struct Shown {
    std::size_t argument{0};
    std::string type{"f32"};
    std::size_t count{8};
  };
  Result<Shown> parse_shown(std::string_view text, const std::vector<Argument>& arguments) const {
    Shown shown;
    const std::size_t colon = text.find(':');
    const auto index = parse_int<std::size_t>(text.substr(0, colon));
    bool is_good = index && *index < arguments.size() && arguments[*index].is_buffer;
    if (is_good) shown.argument = *index;
    if (colon != std::string_view::npos) {
      const std::string_view rest = text.substr(colon + 1);
      const std::size_t second = rest.find(':');
      shown.type = rest.substr(0, second);
      if (second != std::string_view::npos) {
        const auto count = parse_int<std::size_t>(rest.substr(second + 1));
        is_good = is_good && count && *count <= kShownMax;
        shown.count = count.value_or(0);
      }
    }
    const bool is_type =
        shown.type == "f32" || shown.type == "i32" || shown.type == "u32" || shown.type == "f64";
    if (is_good && is_type) return shown;
    return Error{Code::kCorrupt, fmt::format("show {}: not understood", text),
                 "give the number of a buffer argument, from 0: 2 or 2:i32 or 2:f32:16"};
  }

  static std::vector<double> numbers_of(const Argument& argument, const Shown& shown) {
    const auto* const data =
        reinterpret_cast<const char*>(static_cast<std::uintptr_t>(argument.address));
    const std::size_t size = shown.type == "f64" ? 8 : 4;
    std::vector<double> numbers;
    for (std::size_t i = 0; i < shown.count && (i + 1) * size <= argument.bytes.size(); ++i) {
      const auto value = [&](auto zero) {
        std::memcpy(&zero, data + i * size, sizeof zero);
        return static_cast<double>(zero);
      };
      if (shown.type == "f32") numbers.push_back(value(0.0F));
      if (shown.type == "f64") numbers.push_back(value(0.0));
      if (shown.type == "i32") numbers.push_back(value(std::int32_t{0}));
      if (shown.type == "u32") numbers.push_back(value(std::uint32_t{0}));
    }
    return numbers;
  }

  void print_hazards(const exec::Observations& seen) const {
    for (const exec::Fault& hazard : seen.hazards)
      fmt::print("{}\n", hazard.text());
    if (wanted_.check && seen.hazard_count != 0)
      fmt::print("{} hazards at {} places\n", seen.hazard_count, seen.hazards.size());
    if (wanted_.check && seen.hazard_count == 0) fmt::print("no hazards\n");
  }

  static Json profile_json(const exec::Profile& profile) {
    Json classes = Json::object(), lines = Json::array();
    for (std::size_t i = 0; i < profile.classes.size(); ++i) {
      const exec::InstructionCount& count = profile.classes[i];
      if (count.warps == 0) continue;
      classes.set(std::string(exec::class_name(static_cast<exec::InstructionClass>(i))),
                  Json::object().set("warps", count.warps).set("threads", count.threads));
    }
    for (const exec::Profile::Line& line : profile.lines) {
      lines.push(Json::object()
                     .set("line", std::uint64_t{line.line})
                     .set("warps", line.count.warps)
                     .set("threads", line.count.threads));
    }
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

  static void print_profile(const exec::Profile& profile) {
    const exec::InstructionCount total = profile.total();
    fmt::print("{} warp instructions, {:.1f} % of their lanes active\n", total.warps,
               percent(total.threads, total.warps * 32));
    for (std::size_t i = 0; i < profile.classes.size(); ++i) {
      const exec::InstructionCount& count = profile.classes[i];
      if (count.warps == 0) continue;
      fmt::print("  {:<14}{:>14}  {:>5.1f} %\n",
                 exec::class_name(static_cast<exec::InstructionClass>(i)), count.warps,
                 percent(count.warps, total.warps));
    }
    fmt::print("branches: {} of {} divergent\n", profile.divergent_branches, profile.branches);
    fmt::print("global memory: {} requests, {} sectors of 32 bytes, {:.1f} % of them needed\n",
               profile.global_requests, profile.global_sectors,
               percent(profile.global_sectors_needed, profile.global_sectors));
    fmt::print("shared memory: {} requests, {} passes, {:.1f} % of them needed\n",
               profile.shared_requests, profile.shared_passes,
               percent(profile.shared_passes_needed, profile.shared_passes));
    std::vector<exec::Profile::Line> hottest = profile.lines;
    std::stable_sort(hottest.begin(), hottest.end(),
                     [](const auto& a, const auto& b) { return a.count.warps > b.count.warps; });
    if (hottest.size() > kHotLinesShown) hottest.resize(kHotLinesShown);
    std::string places;
    for (const exec::Profile::Line& line : hottest)
      places += fmt::format("{}{} ({} x)", places.empty() ? "" : ", ", line.line, line.count.warps);
    fmt::print("ptx lines executed most: {}\n", places);
  }

  Result<void> print_launch(const exec::KernelInfo& kernel, const std::vector<Argument>& arguments,
                            const exec::LaunchOptions& options, double ms,
                            const exec::Observations& seen) const {
    Json buffers = Json::array();
    if (!wanted_.json) {
      fmt::print("{}: {} x {} x {} blocks of {} x {} x {} threads in {:.2f} ms on {} workers\n",
                 kernel.name, options.grid[0], options.grid[1], options.grid[2], options.block[0],
                 options.block[1], options.block[2], ms, options.workers);
    }
    for (const std::string& text : wanted_.shown) {
      TRY(const auto shown, parse_shown(text, arguments));
      const auto numbers = numbers_of(arguments[shown.argument], shown);
      Json values = Json::array();
      for (const double number : numbers)
        values.push(number);
      if (!wanted_.json) fmt::print("argument {}: {:g}\n", shown.argument, fmt::join(numbers, " "));
      buffers.push(Json::object()
                       .set("argument", std::uint64_t{shown.argument})
                       .set("type", shown.type)
                       .set("values", std::move(values)));
    }
    if (wanted_.profile && !wanted_.json) print_profile(seen.profile);
    if (!wanted_.json) return {};
    Json out = Json::object()
                   .set("schema", "kansoku.gpu.run/1")
                   .set("kernel", kernel.name)
                   .set("ms", ms)
                   .set("shown", std::move(buffers));
    if (wanted_.profile) out.set("profile", profile_json(seen.profile));
    if (wanted_.check) {
      Json hazards = Json::array();
      for (const exec::Fault& hazard : seen.hazards) {
        hazards.push(Json::object()
                         .set("kind", exec::fault_name(hazard.kind))
                         .set("line", std::uint64_t{hazard.line})
                         .set("text", hazard.text()));
      }
      out.set("hazards", std::move(hazards)).set("hazard_count", seen.hazard_count);
    }
    fmt::print("{}\n", out.dump(2));
    return {};
  }

 private:
  const GpuRunOptions& wanted_;
};

}  // namespace

Result<int> run_gpu_kernel(const GpuRunOptions& wanted) {
  return GpuRun(wanted).run();
}

}  // namespace kansoku::cli
