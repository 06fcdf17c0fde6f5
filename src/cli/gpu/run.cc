// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cli/commands.h"
#include "cli/wiring.h"

namespace kansoku::cli {
namespace {

class RunCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--softgpu", softgpu_,
                 "use the software GPU: the program loads Kansoku's libcuda.so.1, libcudart, "
                 "libnvidia-ml and libnccl");
    app.add_flag("--cuda", cuda_,
                 "load Kansoku's CUDA library between the program and its driver: it sleeps until "
                 "`kansoku record --cuda -p PID` or `kansoku cuda top -p PID` wakes it");
    app.add_flag(
        "--cuda-graphs", graphs_,
        "with --cuda: also keep a second form of each CUDA graph, so that its kernels have "
        "times whenever it is recorded; costs another instantiation of each graph");
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
        "  kansoku run --cuda -- python3 train.py\n"
        "Programs must call the CUDA driver API or link the stand-in runtime\n"
        "(share/softgpu/softgpu-clang); see docs/softgpu.md.");
  }

  int run() override {
    cuda_ = cuda_ || graphs_;
    if (!softgpu_ && !cuda_)
      return report(Error{Code::kUnsupported,
                          "run: name what to run with: --softgpu, --cuda or both",
                          "kansoku run --help"});
    cuda_ = cuda_ || is_watched();
    for (const auto& [is_wanted, find] :
         {std::pair{softgpu_, &softgpu_folder}, std::pair{cuda_, &cuda_library_folder}}) {
      if (!is_wanted) continue;
      const auto folder = find();
      if (!folder) return report(folder.error());
      setenv("LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", *folder).c_str(), 1);
      const std::string nvtx = find == &cuda_library_folder ? nvtx_injection(*folder) : "";
      if (!nvtx.empty()) setenv(kNvtxVariable, nvtx.c_str(), 1);
    }
    if (graphs_) setenv("KANSOKU_CUDA_GRAPHS", "1", 1);
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
  /// Under `kansoku record --cuda` the library's folder is in the path already, and stays first.
  static bool is_watched() {
    const auto folder = cuda_library_folder();
    const char* const path = std::getenv("LD_LIBRARY_PATH");
    return folder && path != nullptr &&
           (":" + std::string(path) + ":").find(":" + *folder + ":") != std::string::npos;
  }

  bool softgpu_{false}, cuda_{false}, graphs_{false}, check_{false};
  int devices_{0};
  std::string memory_, arch_, clock_;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<RunCommand>();
}

}  // namespace kansoku::cli
