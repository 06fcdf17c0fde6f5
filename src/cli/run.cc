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

namespace kansoku::cli {
namespace {

/// Where libcuda.so.1 of the software device lies: $KANSOKU_SOFTGPU_LIBS, beside this program as it
/// was built, or where `make install` puts it.
Result<std::string> softgpu_folder() {
  if (const char* const set = std::getenv("KANSOKU_SOFTGPU_LIBS"); set != nullptr)
    return std::string(set);
  std::array<char, PATH_MAX> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  const std::filesystem::path here =
      std::filesystem::path(length > 0 ? self.data() : "").parent_path();
  for (const std::filesystem::path& folder :
       {here / "softgpu", here / ".." / "lib" / "kansoku" / "softgpu"}) {
    std::error_code error;
    if (std::filesystem::exists(folder / "libcuda.so.1", error))
      return std::filesystem::canonical(folder, error).string();
  }
  return Error{Code::kNotFound, "find the software device: no libcuda.so.1 beside this program",
               "build it (cmake --build build/release --target softcuda) or set "
               "KANSOKU_SOFTGPU_LIBS"};
}

class Run final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--softgpu", softgpu_,
                 "on the software device: it finds libcuda.so.1, libcudart, "
                 "libnvidia-ml and libnccl of Kansoku")
        ->required();
    app.add_option("--devices", devices_, "how many devices it sees, 1 to 16 [1]")
        ->check(CLI::Range(1, 16));
    app.add_option("--memory", memory_, "memory of each, as 512M or 4G [4G]");
    app.add_flag("--check", check_, "look for races and uninitialised reads in shared memory");
    app.add_option("command", command_, "the program and its arguments")->required();
    app.prefix_command(false);
    app.footer(
        "  kansoku run --softgpu -- ./train --steps 10\n"
        "Programs use the driver's interface, or are linked with the stand-in runtime "
        "(share/softgpu/softgpu-clang); docs/softgpu.md says which.");
  }

  int run() override {
    const auto folder = softgpu_folder();
    if (!folder) return report(folder.error());
    prepend("LD_LIBRARY_PATH", *folder);
    if (devices_ != 0) setenv("KANSOKU_SOFTGPU_DEVICES", std::to_string(devices_).c_str(), 1);
    if (!memory_.empty()) setenv("KANSOKU_SOFTGPU_MEMORY", memory_.c_str(), 1);
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
  std::string memory_;
  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<Run>();
}

}  // namespace kansoku::cli
