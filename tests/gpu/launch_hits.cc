// SPDX-License-Identifier: Apache-2.0
// Uprobes on every launch entry point of the software device's driver see every launch: their hits
// are as many as the kernels that the executor was given. launch_hits LIBCUDA: launches of its own.
// launch_hits LIBCUDA COMMAND...: those of a command that loads the library and prints
// launches=COUNT; prints the hits by entry point as well. 77 without the rights for uprobes.
#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/bpf/sites.h"
#include "cuda/abi.h"
#include "softcuda/kernels_for_test.h"
#include "sys/elf.h"

namespace {

using namespace kansoku;        // NOLINT(google-build-using-namespace)
using namespace kansoku::cuda;  // NOLINT(google-build-using-namespace)

constexpr int kSkipped = 77;
constexpr std::array<const char*, 6> kEntries{
    "cuLaunchKernel",      "cuLaunchKernelEx",      "cuLaunchCooperativeKernel",
    "cuLaunchKernel_ptsz", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel_ptsz"};
constexpr std::array<unsigned, 6> kLaunches{400, 30, 5, 60, 7, 2};  // of each

int fail(const std::string& why) {
  fmt::print(stderr, "{}\n", why);
  return 1;
}

/// A driver function by name; the program ends if there is none.
template <class F>
F* entry(void* library, const char* name) {
  auto* const symbol = reinterpret_cast<F*>(dlsym(library, name));
  if (symbol == nullptr) std::exit(fail(fmt::format("no {}", name)));
  return symbol;
}

using LaunchKernel = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
using LaunchCooperative = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void**);
using LaunchEx = CUresult(const CUlaunchConfig*, CUfunction, void**, void**);

/// One launch through entry point `which`.
CUresult launch(void* library, std::size_t which, CUfunction function) {
  const char* const name = kEntries[which];
  CUlaunchConfig config{};
  switch (which % 3) {
    case 0:
      return entry<LaunchKernel>(library, name)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                                                nullptr);
    case 1:
      config.gridDimX = config.gridDimY = config.gridDimZ = 1;
      config.blockDimX = config.blockDimY = config.blockDimZ = 1;
      return entry<LaunchEx>(library, name)(&config, function, nullptr, nullptr);
    default:
      return entry<LaunchCooperative>(library, name)(function, 1, 1, 1, 1, 1, 1, 0, nullptr,
                                                     nullptr);
  }
}

/// A mixture of launches; the driver's own count, or nothing.
Result<std::uint64_t> launch_all(void* library) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const bool is_ready =
      entry<CUresult(unsigned)>(library, "cuInit")(0) == CUDA_SUCCESS &&
      entry<CUresult(CUcontext*, CUdevice)>(library, "cuDevicePrimaryCtxRetain")(&context, 0) ==
          CUDA_SUCCESS &&
      entry<CUresult(CUcontext)>(library, "cuCtxSetCurrent")(context) == CUDA_SUCCESS &&
      entry<CUresult(CUmodule*, const void*)>(library, "cuModuleLoadData")(
          &module, softcuda::kTestKernels) == CUDA_SUCCESS &&
      entry<CUresult(CUfunction*, CUmodule, const char*)>(library, "cuModuleGetFunction")(
          &function, module, "nothing") == CUDA_SUCCESS;
  if (!is_ready) return Error{Code::kUnavailable, "the driver does not start"};
  // Taken in turns, so that no entry point has a time of its own.
  std::array<unsigned, 6> left = kLaunches;
  for (bool is_more = true; is_more;) {
    is_more = false;
    for (std::size_t which = 0; which < left.size(); ++which) {
      if (left[which] == 0) continue;
      is_more = true;
      --left[which];
      if (launch(library, which, function) != CUDA_SUCCESS)
        return Error{Code::kInternal, fmt::format("{} failed", kEntries[which])};
    }
  }
  if (entry<CUresult()>(library, "cuCtxSynchronize")() != CUDA_SUCCESS)
    return Error{Code::kInternal, "a kernel failed"};
  return entry<std::uint64_t()>(library, "kansoku_softgpu_launches")();
}

/// Probes on entry points of the file, numbered as they are, for one process.
Result<std::unique_ptr<capture::bpf::Engine>> attach(const std::string& path,
                                                     std::span<const char* const> entries,
                                                     pid_t pid) {
  TRY(auto engine, capture::bpf::Engine::create({}));
  TRY_VOID(engine->observe_process(pid));
  TRY(const auto file, sys::ElfFile::open(path));
  std::vector<capture::bpf::UprobeSpec> specs;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const sys::Symbol* const symbol = file->find_symbol(entries[i]);
    if (symbol == nullptr) return Error{Code::kNotFound, fmt::format("no {}", entries[i])};
    const auto offset =
        file->file_offset(capture::bpf::pick_site(*file, *symbol, {true, false}).address);
    if (!offset) return Error{Code::kNotFound, fmt::format("no offset of {}", kEntries[i])};
    wire_probe instant{};
    instant.sinks = WIRE_SINK_RING;
    instant.flags = WIRE_PROBE_INSTANT;
    TRY_VOID(engine->describe_probe(i, instant));
    specs.push_back({*offset, 0, i | WIRE_COOKIE_INSTANT});
  }
  TRY_VOID(engine->attach_uprobes(path, specs, false));
  return engine;
}

int run(const std::string& path) {
  auto engine = attach(path, kEntries, getpid());
  if (!engine && engine.error().code == Code::kNotFound) return fail(engine.error().what);
  if (!engine) {
    fmt::print("skipped: {}\n", engine.error().what);
    return kSkipped;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(dlerror());
  const auto launches = launch_all(library);
  if (!launches) return fail(launches.error().what);
  std::map<std::uint32_t, std::uint64_t> hits;
  std::uint64_t total = 0;
  (*engine)->drain([&](std::span<const std::byte> record) {
    const auto* const head = reinterpret_cast<const wire_event*>(record.data());
    if (head->kind != WIRE_INSTANT) return;
    ++hits[head->probe];
    ++total;
  });
  fmt::print("{} hits of {} launches\n", total, *launches);
  for (std::uint32_t i = 0; i < kEntries.size(); ++i) {
    fmt::print("  {}: {} of {}\n", kEntries[i], hits[i], kLaunches[i]);
    if (hits[i] != kLaunches[i]) return 1;
  }
  return total == *launches && (*engine)->counters().ring_full == 0 ? 0 : 1;
}

/// Watched entry points of a command: every one that launches, and those of graphs.
constexpr std::array<const char*, 8> kWatched{
    "cuLaunchKernel",      "cuLaunchKernelEx",      "cuLaunchCooperativeKernel",
    "cuLaunchKernel_ptsz", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel_ptsz",
    "cuGraphLaunch",       "cuStreamEndCapture"};
constexpr auto kDrainEvery = std::chrono::milliseconds(10);

/// Starts the command, stopped; `out` reads what it prints.
pid_t start(char** command, int& out) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    raise(SIGSTOP);
    execvp(command[0], command);
    _exit(127);
  }
  close(ends[1]);
  out = ends[0];
  int status = 0;
  if (child > 0) waitpid(child, &status, WUNTRACED);
  return child;
}

int watch(const std::string& path, char** command) {
  int out = -1;
  const pid_t child = start(command, out);
  if (child < 0) return fail("the command does not start");
  auto engine = attach(path, kWatched, child);
  kill(child, engine ? SIGCONT : SIGKILL);
  if (!engine) {
    waitpid(child, nullptr, 0);
    if (engine.error().code == Code::kNotFound) return fail(engine.error().what);
    fmt::print("skipped: {}\n", engine.error().what);
    return kSkipped;
  }
  std::array<std::uint64_t, kWatched.size()> hits{};
  const auto drain = [&] {
    (*engine)->drain([&](std::span<const std::byte> record) {
      const auto* const head = reinterpret_cast<const wire_event*>(record.data());
      if (head->kind == WIRE_INSTANT && head->probe < hits.size()) ++hits[head->probe];
    });
  };
  std::string printed;
  std::array<char, 4096> piece{};
  for (bool is_open = true; is_open;) {
    pollfd ready{out, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(kDrainEvery.count())) > 0) {
      const auto bytes = read(out, piece.data(), piece.size());
      if (bytes > 0) printed.append(piece.data(), static_cast<std::size_t>(bytes));
      is_open = bytes > 0;
    }
    drain();
  }
  int status = 0;
  waitpid(child, &status, 0);
  drain();
  std::fputs(printed.c_str(), stdout);
  for (std::size_t i = 0; i < kWatched.size(); ++i)
    fmt::print("{}={}\n", kWatched[i], hits[i]);
  const std::uint64_t lost = (*engine)->counters().ring_full;
  fmt::print("lost={}\n", lost);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 && lost == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fail("launch_hits LIBCUDA [COMMAND...]");
  if (argc > 2) return watch(argv[1], argv + 2);
  std::string folder =
      (std::filesystem::temp_directory_path() / "kansoku-launch-hits-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return fail("no temporary folder");
  setenv("KANSOKU_SOFTGPU_DIR", folder.c_str(), 1);
  setenv("KANSOKU_SOFTGPU_MEMORY", "16M", 1);
  const int code = run(argv[1]);
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::fflush(nullptr);
  _exit(code);  // the driver's threads may still wait
}
