// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/gpu/gpu_image.h"
#include "cli/gpu/gpu_run.h"
#include "common/isa.h"
#include "common/json.h"
#include "common/parse.h"
#include "cuda/driver_device.h"
#include "cuda/fatbin.h"
#include "gpu/ptx/parser.h"
#include "softcuda/telemetry/telemetry.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

namespace ptx = gpu::ptx;

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

std::uint64_t shared_bytes_of(const ptx::Function& kernel) {
  std::uint64_t bytes = 0;
  for (const ptx::Variable& variable : kernel.variables)
    bytes += variable.space == ptx::Space::kShared ? variable.bytes() : 0;
  return bytes;
}

class Gpu final : public Command {
 public:
  void declare(CLI::App& app) override {
    declare_list(app);
    declare_run(app);
    declare_fatbin(app);
    CLI::App* const devices =
        app.add_subcommand("devices", "list the devices that can run kernels");
    devices->add_flag("--json", json_, "print JSON (schema kansoku.gpu.devices/1)");
    devices->callback([this] { what_ = &Gpu::devices; });
    declare_set(app);
    app.require_subcommand(1);
    app.footer(
        "The software GPU executes PTX on the processor; docs/softgpu.md lists its features.\n"
        "  kansoku gpu run vector_add.ptx -g 4 -b 256 -a random:4K -a random:4K -a zero:4K -a "
        "i32:1024 --show 2\n"
        "  kansoku run --softgpu -- ./program     # a whole program");
  }

  int run() override {
    const Result<int> status = (this->*what_)();
    return status ? *status : report(status.error());
  }

 private:
  void declare_list(CLI::App& app) {
    CLI::App* const list =
        app.add_subcommand("list", "list the kernels of a PTX file, a fatbin or an executable");
    list->add_option("file", run_.path, "PTX text, a fatbin, or an executable that holds one")
        ->required();
    list->add_flag("--json", json_, "print JSON (schema kansoku.gpu.kernels/1)");
    list->callback([this] { what_ = &Gpu::list; });
  }

  void declare_run(CLI::App& app) {
    CLI::App* const run =
        app.add_subcommand("run", "run a kernel on the software GPU, or on a GPU");
    run->add_option("file", run_.path,
                    "PTX text, a fatbin, or an executable that holds one; for a GPU also a cubin")
        ->required();
    run->add_option("-d,--device", run_.device,
                    "number of a GPU of this machine's driver (libcuda.so.1) [the software GPU]")
        ->check(CLI::NonNegativeNumber);
    run->add_option("-k,--kernel", run_.kernel,
                    "name of the kernel; optional if the file has only one");
    run->add_option("-g,--grid", run_.grid, "blocks: X[,Y[,Z]] [1]");
    run->add_option("-b,--block", run_.block, "threads of a block: X[,Y[,Z]] [1]");
    run->add_option("-a,--arg", run_.arguments,
                    "argument, in order: i32:7 u64:7 f32:1.5 f64:1.5, or a buffer: zero:4K "
                    "random:4K file:PATH; >PATH after a buffer saves its bytes after the run");
    run->add_option("--show", run_.shown,
                    "print numbers of a buffer: ARGUMENT[:f32|i32|u32|f64[:COUNT]]");
    run->add_option("--shared", run_.shared, "bytes of dynamic shared memory [0]");
    run->add_option("--workers", run_.workers,
                    "threads of the software GPU that run blocks; 1 fixes their order [all]");
    run->add_option("--limit", run_.limit,
                    "stop the kernel after this time, on a GPU with this program [60s]");
    run->add_flag("--check", run_.check,
                  "also check shared memory for races and uninitialised reads; exit status 10 if "
                  "it finds any");
    run->add_flag("--profile", run_.profile,
                  "count instructions, divergence, coalescing, bank conflicts");
    run->add_flag("--json", run_.json, "print JSON (schema kansoku.gpu.run/1)");
    run->callback([this] { what_ = &Gpu::run_kernel; });
  }

  void declare_fatbin(CLI::App& app) {
    CLI::App* const fatbin = app.add_subcommand("fatbin", "pack PTX files into a fatbin");
    fatbin->add_option("files", files_, "PTX text")->required();
    fatbin->add_option("-o,--output", output_, "file to write")->required();
    fatbin->add_option("--compress", compression_, "none, lz4 or zstd [zstd]")
        ->check(CLI::IsMember({"none", "lz4", "zstd"}));
    fatbin->callback([this] { what_ = &Gpu::fatbin; });
  }

  void declare_set(CLI::App& app) {
    CLI::App* const set = app.add_subcommand("set", "change a software GPU while jobs run on it");
    set->add_option("-d,--device", device_, "number of the device [0]");
    set->add_option("--speed", speed_, "speed of kernels and copies, 0.001 to 1")
        ->check(CLI::Range(0.001, 1.0));
    set->add_option("--temperature", temperature_,
                    "temperature that NVML reports, in degrees; 0: from the load");
    set->add_option(
        "--throttle", throttle_,
        "throttle reasons that NVML reports: none, auto (from the speed), power, thermal, idle");
    set->add_option("--xid", xid_, "number of an XID error that NVML reports");
    set->add_option("--ecc-corrected", corrected_, "corrected memory errors that NVML reports");
    set->add_option("--ecc-uncorrected", uncorrected_,
                    "uncorrected memory errors that NVML reports");
    set->callback([this] { what_ = &Gpu::set; });
  }

  Result<int> run_kernel() { return run_gpu_kernel(run_); }

  Result<int> list() {
    TRY(const auto images, read_images(run_.path));
    Json listed = Json::array();
    std::size_t unreadable = 0;
    for (const GpuImage& image : images) {
      Json entry = Json::object()
                       .set("kind", image.kind)
                       .set("architecture", std::uint64_t{image.architecture})
                       .set("compression", image.compression)
                       .set("bytes", image.bytes);
      if (!json_ && (images.size() + image.architecture > 1 || image.kind != "ptx")) {
        fmt::print("{}{}, {} bytes ({})\n", image.kind,
                   image.architecture == 0 ? "" : fmt::format(" for sm_{}", image.architecture),
                   image.bytes, image.compression);
      }
      if (image.kind == "ptx") {
        auto kernels = kernels_of(image.text);
        if (kernels) {
          entry.set("kernels", std::move(*kernels));
        } else if (images.size() == 1) {
          return kernels.error();
        } else {
          unreadable += 1;
          entry.set("error", kernels.error().what);
          fmt::print(stderr, "kansoku: {}\n", kernels.error().what);
        }
      }
      listed.push(std::move(entry));
    }
    if (json_) {
      fmt::print("{}\n", Json::object()
                             .set("schema", "kansoku.gpu.kernels/1")
                             .set("images", std::move(listed))
                             .dump(2));
    }
    return unreadable == 0 ? kExitOk : kExitFailed;
  }

  Result<Json> kernels_of(std::string_view text) const {
    TRY(const auto module, parse_image(run_.path, text));
    Json kernels = Json::array();
    for (const ptx::Function& function : module.functions) {
      if (!function.is_entry) continue;
      const std::uint64_t shared = shared_bytes_of(function);
      if (!json_) {
        fmt::print("{}{}  {} instructions, {} registers, {} bytes of shared memory\n",
                   function.name, signature_of(function), function.instructions.size(),
                   function.registers.size(), shared);
      }
      Json params = Json::array();
      for (const ptx::Variable& param : function.params) {
        params.push(Json::object()
                        .set("type", ptx::type_name(param.type))
                        .set("bytes", param.bytes())
                        .set("is_pointer", param.is_pointer));
      }
      kernels.push(Json::object()
                       .set("name", function.name)
                       .set("parameters", std::move(params))
                       .set("instructions", std::uint64_t{function.instructions.size()})
                       .set("registers", std::uint64_t{function.registers.size()})
                       .set("shared_bytes", shared));
    }
    return kernels;
  }

  Result<int> fatbin() {
    std::vector<std::string> texts;
    std::vector<cuda::PtxImage> images;
    for (const std::string& path : files_) {
      TRY(auto text, sys::read_file(path, kGpuFileBytesMax));
      TRY(const auto module, parse_image(path, std::string_view(text).substr(0, text.find('\0'))));
      std::uint32_t architecture = 0;
      for (const std::string& target : module.targets) {
        if (target.starts_with("sm_"))
          architecture = parse_int<std::uint32_t>(target.substr(3)).value_or(0);
      }
      texts.push_back(std::move(text));
      images.push_back({{}, architecture});
    }
    for (std::size_t i = 0; i < texts.size(); ++i)
      images[i].text = texts[i];
    const cuda::Compression compression = compression_ == "none"  ? cuda::Compression::kNone
                                          : compression_ == "lz4" ? cuda::Compression::kLz4
                                                                  : cuda::Compression::kZstd;
    TRY(const auto bytes, cuda::write_fatbin(images, compression));
    std::ofstream file(output_, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) return Error{Code::kPermission, fmt::format("write {}: failed", output_)};
    return kExitOk;
  }

  /// Devices of the driver that the loader finds, if there is one.
  static void add_gpus(Json& listed, bool is_json) {
    const auto driver = cuda::load_driver();
    if (!driver) return;
    const auto count = cuda::count_devices(*driver);
    for (int i = 0; count && i < *count; ++i) {
      const auto device = cuda::open_device(*driver, i);
      if (!device) continue;
      const auto info = (*device)->info();
      if (!info) continue;
      if (!is_json) {
        fmt::print("cuda:{}       {}, sm_{}{}, {} multiprocessors, {:.1f} GiB, driver {}.{}\n", i,
                   info->name, info->compute_major, info->compute_minor, info->multiprocessors,
                   static_cast<double>(info->memory_bytes) / (1 << 30), info->driver_version / 1000,
                   info->driver_version % 1000 / 10);
      }
      listed.push(
          Json::object()
              .set("kind", "cuda")
              .set("name", info->name)
              .set("architecture", std::uint64_t{info->compute_major * 10 + info->compute_minor})
              .set("memory_bytes", info->memory_bytes)
              .set("uuid", info->uuid));
    }
  }

  Result<int> devices() {
    Json listed = Json::array();
    add_gpus(listed, json_);
    const std::uint64_t workers = std::max(1U, std::thread::hardware_concurrency());
    for (int i = 0; i < softcuda::device_count_setting(); ++i) {
      std::uint64_t processes = 0, memory = 0;
      double speed = 1;
      if (const auto telemetry = softcuda::map_telemetry(i)) {
        speed = (*telemetry)->speed_permille / 1000.0;
        for (const softcuda::TelemetrySlot& slot : (*telemetry)->slots) {
          if (!softcuda::is_alive(slot)) continue;
          ++processes;
          memory += slot.memory_bytes;
        }
      }
      if (!json_) {
        fmt::print(
            "software:{}   executes PTX on {} cores with {}, {:.1f} GiB, speed {:g}; {} "
            "processes use {:.1f} MiB\n",
            i, workers, isa_name(best_isa()),
            static_cast<double>(softcuda::memory_setting()) / (1 << 30), speed, processes,
            static_cast<double>(memory) / (1 << 20));
      }
      listed.push(Json::object()
                      .set("kind", "software")
                      .set("name", "Kansoku software device")
                      .set("instruction_set", isa_name(best_isa()))
                      .set("workers", workers)
                      .set("memory_bytes", softcuda::memory_setting())
                      .set("speed", speed)
                      .set("processes", processes)
                      .set("used_bytes", memory));
    }
    if (json_) {
      fmt::print("{}\n", Json::object()
                             .set("schema", "kansoku.gpu.devices/1")
                             .set("devices", std::move(listed))
                             .dump(2));
    }
    return kExitOk;
  }

  Result<int> set() {
    if (device_ < 0 || device_ >= softcuda::device_count_setting())
      return Error{Code::kNotFound, fmt::format("no software device {}", device_),
                   "KANSOKU_SOFTGPU_DEVICES sets the number of devices"};
    TRY(auto* const telemetry, softcuda::map_telemetry(device_));
    if (speed_) telemetry->speed_permille = static_cast<std::uint32_t>(std::lround(*speed_ * 1000));
    if (temperature_) telemetry->temperature_celsius = *temperature_;
    if (xid_) telemetry->last_xid = *xid_;
    if (corrected_) telemetry->corrected_errors = *corrected_;
    if (uncorrected_) telemetry->uncorrected_errors = *uncorrected_;
    if (!throttle_.empty()) {
      TRY(telemetry->throttle_reasons, softcuda::throttle_reasons_of(throttle_));
    }
    return kExitOk;
  }

  Result<int> (Gpu::*what_)(){&Gpu::list};
  GpuRunOptions run_;
  std::vector<std::string> files_;
  std::string output_, compression_{"zstd"}, throttle_;
  int device_{0};
  std::optional<double> speed_;
  std::optional<std::uint32_t> temperature_, xid_, corrected_, uncorrected_;
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_gpu() {
  return std::make_unique<Gpu>();
}

}  // namespace kansoku::cli
