// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "common/json.h"
#include "common/parse.h"
#include "common/rng.h"
#include "gpu/exec/executor.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

namespace exec = gpu::exec;
namespace ptx = gpu::ptx;

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;
constexpr std::size_t kShownMax = 1000;

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error{Code::kNotFound, fmt::format("read {}: cannot be opened", path)};
  const auto bytes = static_cast<std::uint64_t>(file.tellg());
  if (bytes > kFileBytesMax)
    return Error{Code::kLimit,
                 fmt::format("read {}: {} bytes, at most {}", path, bytes, kFileBytesMax)};
  std::string text(bytes, '\0');
  file.seekg(0);
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!file) return Error{Code::kCorrupt, fmt::format("read {}: it ended early", path)};
  return text;
}

/// A PTX file as a sound module.
Result<ptx::Module> load_module(const std::string& path) {
  TRY(const auto text, read_file(path));
  if (text.starts_with("\x7f"
                       "ELF") ||
      text.starts_with("\x50\xed\x55\xba")) {
    return Error{Code::kUnsupported, fmt::format("read {}: an executable or a fatbin", path),
                 "only PTX text can be read so far"};
  }
  // An image in memory ends with a zero byte.
  auto module = ptx::parse_module(std::string_view(text).substr(0, text.find('\0')));
  if (!module) {
    Error error = module.error();
    error.what = fmt::format("read {}: {}", path, error.what);
    return error;
  }
  const auto problems = ptx::verify(*module);
  if (problems.empty()) return module;
  return Error{Code::kCorrupt, fmt::format("read {}: line {}: {}", path, problems[0].place.line,
                                           problems[0].message)};
}

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
               "i32:7 u64:7 f32:1.5 f64:1.5 zero:4K random:4K file:PATH; after a buffer, >PATH "
               "keeps its bytes"};
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
    TRY(argument.bytes, read_file(std::string(value)));
  } else {
    const auto bytes = parse_bytes(value);
    if (!bytes || *bytes == 0 || *bytes > kFileBytesMax) return bad_argument(text);
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

std::string signature_of(const ptx::Function& kernel) {
  std::vector<std::string> params;
  for (const ptx::Variable& param : kernel.params) {
    std::string type(ptx::type_name(param.type));
    if (param.is_pointer) type += fmt::format("* {}", ptx::space_name(param.pointee));
    for (const std::uint64_t dim : param.dims)
      type += fmt::format("[{}]", dim);
    params.push_back(std::move(type));
  }
  return fmt::format("({})", fmt::join(params, ", "));
}

class Gpu final : public Command {
 public:
  void declare(CLI::App& app) override {
    CLI::App* const list = app.add_subcommand("list", "the kernels of a PTX file");
    list->add_option("file", path_, "PTX text")->required();
    list->add_flag("--json", json_, "print JSON (schema kansoku.gpu.kernels/1)");
    list->callback([this] { what_ = What::kList; });
    CLI::App* const run = app.add_subcommand("run", "run a kernel on the software device");
    run->add_option("file", path_, "PTX text")->required();
    run->add_option("-k,--kernel", kernel_, "its name; not needed if there is only one");
    run->add_option("-g,--grid", grid_, "blocks: X[,Y[,Z]] [1]");
    run->add_option("-b,--block", block_, "threads of a block: X[,Y[,Z]] [1]");
    run->add_option("-a,--arg", arguments_,
                    "an argument, in order: i32:7 u64:7 f32:1.5 f64:1.5, or a buffer: zero:4K "
                    "random:4K file:PATH, with >PATH to keep what it holds afterwards");
    run->add_option("--show", shown_,
                    "print numbers of a buffer: ARGUMENT[:f32|i32|u32|f64[:COUNT]]");
    run->add_option("--shared", shared_, "bytes of dynamic shared memory [0]");
    run->add_option("--workers", workers_,
                    "threads that run blocks; 1: the same order every time [all]");
    run->add_option("--limit", limit_, "end the kernel after this long [60s]");
    run->add_flag("--json", json_, "print JSON (schema kansoku.gpu.run/1)");
    run->callback([this] { what_ = What::kRun; });
    CLI::App* const devices = app.add_subcommand("devices", "the devices that kernels can run on");
    devices->add_flag("--json", json_, "print JSON (schema kansoku.gpu.devices/1)");
    devices->callback([this] { what_ = What::kDevices; });
    app.require_subcommand(1);
    app.footer(
        "The software device executes PTX on the processor; docs/softgpu.md says what it can.\n"
        "  kansoku gpu run vector_add.ptx -g 4 -b 256 -a random:4K -a random:4K -a zero:4K -a "
        "i32:1024 "
        "--show 2");
  }

  int run() override {
    Result<int> status = kExitOk;
    switch (what_) {
      case What::kList:
        status = list();
        break;
      case What::kRun:
        status = run_kernel();
        break;
      case What::kDevices:
        status = devices();
        break;
    }
    return status ? *status : report(status.error());
  }

 private:
  enum class What { kList, kRun, kDevices };

  Result<int> list() const {
    TRY(const auto module, load_module(path_));
    Json kernels = Json::array();
    for (const ptx::Function& function : module.functions) {
      if (!function.is_entry) continue;
      std::uint64_t shared = 0;
      for (const ptx::Variable& variable : function.variables)
        shared += variable.space == ptx::Space::kShared ? variable.bytes() : 0;
      if (!json_) {
        fmt::print("{}{}  {} instructions, {} registers, {} bytes of shared memory\n",
                   function.name, signature_of(function), function.instructions.size(),
                   function.registers.size(), shared);
      }
      kernels.push(Json::object()
                       .set("name", function.name)
                       .set("parameters", std::uint64_t{function.params.size()})
                       .set("instructions", std::uint64_t{function.instructions.size()})
                       .set("registers", std::uint64_t{function.registers.size()})
                       .set("shared_bytes", shared));
    }
    if (json_) {
      fmt::print("{}\n", Json::object()
                             .set("schema", "kansoku.gpu.kernels/1")
                             .set("version",
                                  fmt::format("{}.{}", module.version_major, module.version_minor))
                             .set("kernels", std::move(kernels))
                             .dump(2));
    }
    return kExitOk;
  }

  Result<int> devices() const {
    const std::uint64_t workers = std::max(1U, std::thread::hardware_concurrency());
    if (json_) {
      fmt::print("{}\n",
                 Json::object()
                     .set("schema", "kansoku.gpu.devices/1")
                     .set("devices", Json::array().push(Json::object()
                                                            .set("name", "software device")
                                                            .set("instruction_set",
                                                                 exec::isa_name(exec::best_isa()))
                                                            .set("workers", workers)))
                     .dump(2));
    } else {
      fmt::print("software device  executes PTX on {} cores with {}\n", workers,
                 exec::isa_name(exec::best_isa()));
    }
    return kExitOk;
  }

  Result<std::vector<Argument>> upload(exec::Memory& memory) const {
    std::vector<Argument> arguments;
    for (const std::string& text : arguments_) {
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
    const auto grid = parse_extent(grid_), block = parse_extent(block_);
    const auto limit = parse_duration(limit_);
    if (!grid || !block) return Error{Code::kCorrupt, "grid and block are X, X,Y or X,Y,Z"};
    if (!limit) return Error{Code::kCorrupt, fmt::format("limit {}: not a duration", limit_)};
    options.grid = *grid;
    options.block = *block;
    options.dynamic_shared_bytes = shared_;
    options.workers = workers_ != 0 ? workers_ : std::max(1U, std::thread::hardware_concurrency());
    options.time_limit = *limit;
    return options;
  }

  Result<int> run_kernel() const {
    TRY(auto module, load_module(path_));
    TRY(auto memory, exec::Memory::create(std::uint64_t{4} << 30));
    TRY(const auto program, exec::Program::load(std::move(module), memory));
    if (program.kernels().empty())
      return Error{Code::kNotFound, fmt::format("{} has no kernel", path_)};
    if (kernel_.empty() && program.kernels().size() > 1)
      return Error{Code::kNotFound, fmt::format("{} has several kernels", path_),
                   "name one with --kernel; kansoku gpu list shows them"};
    std::size_t index = 0;
    if (!kernel_.empty()) {
      TRY(index, program.find_kernel(kernel_));
    }
    TRY(auto arguments, upload(memory));
    TRY(const auto params, lay_out(program.kernels()[index], arguments));
    TRY(auto launch_options, options());
    const sys::RealClock clock;
    launch_options.params = params;
    launch_options.clock = &clock;
    launch_options.print = [](std::string_view text) { fmt::print("{}", text); };
    const BootTime begin = clock.now();
    TRY(const auto fault, exec::launch(program, index, memory, launch_options));
    const double ms = static_cast<double>((clock.now() - begin).count()) * 1e-6;
    if (fault) {
      return Error{fault->kind == exec::FaultKind::kTimeout ? Code::kTimeout : Code::kCorrupt,
                   fault->text()};
    }
    TRY_VOID(keep(arguments));
    return tell(program.kernels()[index], arguments, launch_options, ms);
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
                 "the number of an argument that is a buffer, from 0: 2 or 2:i32 or 2:f32:16"};
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

  Result<int> tell(const exec::KernelInfo& kernel, const std::vector<Argument>& arguments,
                   const exec::LaunchOptions& options, double ms) const {
    Json buffers = Json::array();
    if (!json_) {
      fmt::print("{}: {} x {} x {} blocks of {} x {} x {} threads in {:.2f} ms on {} workers\n",
                 kernel.name, options.grid[0], options.grid[1], options.grid[2], options.block[0],
                 options.block[1], options.block[2], ms, options.workers);
    }
    for (const std::string& text : shown_) {
      TRY(const auto shown, parse_shown(text, arguments));
      const auto numbers = numbers_of(arguments[shown.argument], shown);
      Json values = Json::array();
      for (const double number : numbers)
        values.push(number);
      if (!json_) fmt::print("argument {}: {:g}\n", shown.argument, fmt::join(numbers, " "));
      buffers.push(Json::object()
                       .set("argument", std::uint64_t{shown.argument})
                       .set("type", shown.type)
                       .set("values", std::move(values)));
    }
    if (json_) {
      fmt::print("{}\n", Json::object()
                             .set("schema", "kansoku.gpu.run/1")
                             .set("kernel", kernel.name)
                             .set("ms", ms)
                             .set("shown", std::move(buffers))
                             .dump(2));
    }
    return kExitOk;
  }

  What what_{What::kList};
  std::string path_, kernel_, grid_{"1"}, block_{"1"}, limit_{"60s"};
  std::vector<std::string> arguments_, shown_;
  std::uint32_t shared_{0}, workers_{0};
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_gpu() {
  return std::make_unique<Gpu>();
}

}  // namespace kansoku::cli
