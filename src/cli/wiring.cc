// SPDX-License-Identifier: Apache-2.0
#include "cli/wiring.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "cli/revision.h"
#include "common/text.h"
#include "sys/process.h"
#include "sys/trust.h"

namespace kansoku::cli {
namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a signal handler has nowhere
// else to write
volatile std::sig_atomic_t g_signal_count = 0;
volatile std::sig_atomic_t g_last_signal = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void on_signal(int signal) {
  g_signal_count = g_signal_count + 1;
  g_last_signal = signal;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

}  // namespace

std::string version_text() {
  return KANSOKU_VERSION " (" KANSOKU_REVISION ")";
}

Result<std::string> data_folder(const std::string& name) {
  std::vector<std::string> places;
  if (const auto share = sys::path_from_environment("KANSOKU_SHARE"))
    places.push_back(fmt::format("{}/{}", *share, name));
  if (const auto program = sys::own_path(); program) {
    const std::string prefix = parent(parent(*program));
    places.push_back(fmt::format("{}/share/kansoku/{}", prefix, name));
    const std::string source = parent(prefix);  // build/<preset>/kansoku
    places.push_back(fmt::format("{}/share/{}", source, name));
    places.push_back(fmt::format("{}/{}", source, name));
  }
  std::string tried;
  for (const std::string& place : places) {
    if (is_folder(place)) return place;
    tried += (tried.empty() ? "" : ", ") + place;
  }
  return Error{Code::kNotFound, fmt::format("find data folder {}: not in {}", name, tried),
               "set KANSOKU_SHARE to its parent folder, or run `make install`"};
}

namespace {

/// A folder of libraries beside this program or where `make install` puts it.
std::optional<std::string> library_folder(const char* name, const char* library) {
  std::array<char, PATH_MAX> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  const std::filesystem::path here =
      std::filesystem::path(length > 0 ? self.data() : "").parent_path();
  for (const std::filesystem::path& folder :
       {here / name, here / ".." / "lib" / "kansoku" / name}) {
    std::error_code error;
    if (std::filesystem::exists(folder / library, error))
      return std::filesystem::canonical(folder, error).string();
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> softgpu_folder() {
  std::string where = "beside this program";
  if (auto set = sys::path_from_environment("KANSOKU_SOFTGPU_LIBS")) {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::path(*set) / "libcuda.so.1", error))
      return *std::move(set);
    where = "in " + printable(*set);
  } else if (auto found = library_folder("softgpu", "libcuda.so.1")) {
    return *std::move(found);
  }
  return Error{Code::kNotFound, fmt::format("find the software device: no libcuda.so.1 {}", where),
               std::string(kSoftgpuHint)};
}

Result<std::string> cuda_library_folder() {
  if (auto set = sys::path_from_environment("KANSOKU_CUDA_LIBS")) return *std::move(set);
  if (auto found = library_folder("cuda", "libkansoku_cuda.so")) return *std::move(found);
  return Error{Code::kNotFound, "find libkansoku_cuda.so: it is not beside this program",
               "build it (`make build`) or set KANSOKU_CUDA_LIBS to its folder"};
}

std::string nvtx_injection(const std::string& cuda_folder) {
  std::string own = cuda_folder + "/libkansoku_cuda.so";
  const char* const before = std::getenv(kNvtxVariable);
  if (before == nullptr || *before == '\0') return own;
  std::error_code error;
  if (std::filesystem::equivalent(before, own, error)) return own;
  say(stderr,
      fmt::format("kansoku: NVTX ranges are left out: {} is {}", kNvtxVariable, printable(before)));
  return {};
}

Result<std::vector<std::string>> cuda_environment() {
  TRY(const std::string folder, cuda_library_folder());
  std::vector<std::string> out{"LD_LIBRARY_PATH=" + prepended("LD_LIBRARY_PATH", folder)};
  if (const std::string nvtx = nvtx_injection(folder); !nvtx.empty())
    out.push_back(fmt::format("{}={}", kNvtxVariable, nvtx));
  return out;
}

std::string prepended(const char* variable, const std::string& folder) {
  const char* const before = std::getenv(variable);
  const bool is_set = before != nullptr && *before != '\0';
  return is_set ? folder + ":" + before : folder;
}

Result<std::vector<capture::Pack>> known_packs() {
  const auto shipped = data_folder("probes");
  std::vector<std::string> folders;
  if (shipped) folders.push_back(*shipped);
  folders.emplace_back("/etc/kansoku/probes");
  if (const auto home = sys::path_from_environment("HOME"))
    folders.push_back(*home + "/.config/kansoku/probes");
  TRY(auto packs, capture::load_packs(folders));
  if (!packs.empty()) return packs;
  if (!shipped) return shipped.error();
  return Error{
      Code::kNotFound, fmt::format("load probe packs: no pack in {}", fmt::join(folders, ", ")),
      fmt::format("{} lacks the packs that come with Kansoku: `make install` again", *shipped)};
}

void say(std::FILE* to, const std::string& line) {
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), to));
  static_cast<void>(std::fputc('\n', to));
  static_cast<void>(std::fflush(to));
}

void install_signal_counter() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // The terminal is gone: end as if asked to, unless nohup was.
  struct sigaction before {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int signal_count() {
  return g_signal_count;
}
int last_signal() {
  return g_last_signal;
}

}  // namespace kansoku::cli
