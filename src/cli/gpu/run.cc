// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/commands.h"
#include "cli/wiring.h"

namespace kansoku::cli {
namespace {

class RunCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--softgpu", softgpu_,
                 "use the software GPU: the program loads Kansoku's libcuda.so.1, libcudart, "
                 "libnvidia-ml and libnccl")
        ->required();
    app.add_option("--devices", devices_, "number of devices, 1 to 16 [1]")
        ->check(CLI::Range(1, 16));
    app.add_option("--memory", memory_, "memory of each device, e.g. 512M or 4G [4G]");
    app.add_option("--arch", arch_, "compute capability that programs see: sm_61 or sm_80 [sm_80]")
        ->check(CLI::IsMember({"sm_61", "sm_80"}));
    app.add_option("--clock", clock_,
                   "what times of events and kernels mean: wall, how long the processor took, or "
                   "model, what a model of a GPU says [wall]")
        ->check(CLI::IsMember({"wall", "model"}));
    app.add_flag("--check", check_, "check shared memory for races and uninitialised reads");
    app.add_option("command", command_, "program and its arguments")->required();
    app.prefix_command(false);
    app.footer(
        "  kansoku run --softgpu -- ./train --steps 10\n"
        "Programs must call the CUDA driver API or link the stand-in runtime\n"
        "(share/softgpu/softgpu-clang); see docs/softgpu.md.");
  }

  int run() override {
    const auto folder = softgpu_folder();
    if (!folder) return report(folder.error());
    prepend("LD_LIBRARY_PATH", *folder);
    if (devices_ != 0) setenv("KANSOKU_SOFTGPU_DEVICES", std::to_string(devices_).c_str(), 1);
    if (!memory_.empty()) setenv("KANSOKU_SOFTGPU_MEMORY", memory_.c_str(), 1);
    if (!arch_.empty()) setenv("KANSOKU_SOFTGPU_ARCH", arch_.c_str(), 1);
    if (!clock_.empty()) setenv("KANSOKU_SOFTGPU_CLOCK", clock_.c_str(), 1);
    if (check_) setenv("KANSOKU_SOFTGPU_CHECK", "1", 1);
    std::vector<char*> arguments;
    for (std::string& argument : command_)
      arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    return report(Error{error == EACCES ? Code::kPermission : Code::kNotFound,
                        fmt::format("run {}: {}", command_[0], std::strerror(error))});
  }

 private:
  static void prepend(const char* name, const std::string& folder) {
    const char* const before = std::getenv(name);
    const bool is_set = before != nullptr && *before != '\0';
    setenv(name, (is_set ? folder + ":" + before : folder).c_str(), 1);
  }

  bool softgpu_{false}, check_{false};
  int devices_{0};
  std::string memory_, arch_, clock_;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<RunCommand>();
}

}  // namespace kansoku::cli
