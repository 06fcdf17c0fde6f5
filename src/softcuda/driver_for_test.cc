// SPDX-License-Identifier: Apache-2.0
#include "softcuda/driver_for_test.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace kansoku::softcuda {
namespace {

constexpr char kChildVariable[] = "KANSOKU_TEST_CHILD";

std::map<std::string, int (*)()>& children() {
  static std::map<std::string, int (*)()> all;
  return all;
}

constexpr char kCallsVariable[] = "KANSOKU_TEST_CALLS";  // file to which a child writes its calls

std::map<std::string, long>& calls_of_children() {
  static std::map<std::string, long> all;
  return all;
}

/// Adds the calls of the children, "NAME CALLS" a line.
void take_calls(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  for (long calls = 0; file >> name >> calls;)
    calls_of_children()[name] += calls;
  file.close();
  std::filesystem::remove(path);
}

void give_calls() {
  const char* const path = std::getenv(kCallsVariable);
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::app);
  for (const char* const name : kImplemented) {
    if (const long calls = kansoku_softgpu_calls(name); calls > 0)
      file << name << ' ' << calls << '\n';
  }
}

}  // namespace

long calls_of(const std::string& name) {
  const auto found = calls_of_children().find(name);
  return kansoku_softgpu_calls(name.c_str()) +
         (found == calls_of_children().end() ? 0 : found->second);
}

Covered::Covered(const char* names) {
  std::string text(names);
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  for (std::string name; words >> name;)
    before_.emplace_back(name, calls_of(name));
}

Covered::~Covered() {
  for (const auto& [name, before] : before_)
    EXPECT_GT(calls_of(name), before) << name << " was not called";
}

// A library that stands before the driver has to pass the same tests.
constexpr char kBeforeVariable[] = "KANSOKU_TEST_LIBCUDA";

bool is_another_before() {
  return std::getenv(kBeforeVariable) != nullptr;
}

void* driver_symbol(const char* name) {
  static const char* const before = std::getenv(kBeforeVariable);
  static void* const library = dlopen(KANSOKU_SOFTCUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  static void* const first = before == nullptr ? library : dlopen(before, RTLD_NOW | RTLD_LOCAL);
  void* symbol = first == nullptr ? nullptr : dlsym(first, name);
  if (symbol == nullptr && library != nullptr) symbol = dlsym(library, name);
  if (symbol == nullptr) {
    fmt::print(stderr, "{}\n", dlerror());
    std::abort();
  }
  return symbol;
}

void DriverTest::SetUp() {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
}

void DriverTest::TearDown() {
  for (CUdevice device = 0; device < 2; ++device) {
    EXPECT_EQ(cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
    while (cuDevicePrimaryCtxRelease_v2(device) == CUDA_SUCCESS) {
    }
    EXPECT_EQ(cuDevicePrimaryCtxSetFlags_v2(device, 0), CUDA_SUCCESS);
  }
  CUcontext popped = nullptr;
  while (cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS) {
  }
}

CUfunction DriverTest::kernel(const char* name) {
  // Not by its handle: a later context may have the same.
  unsigned long long current = 0;
  EXPECT_CU(0, cuCtxGetId(nullptr, &current));
  CUmodule module = nullptr;
  for (const auto& [context, loaded] : modules_) {
    if (context == current) module = loaded;
  }
  if (module == nullptr) {
    EXPECT_CU(0, cuModuleLoadData(&module, kTestKernels));
    modules_.emplace_back(current, module);
  }
  CUfunction function = nullptr;
  EXPECT_CU(0, cuModuleGetFunction(&function, module, name)) << name;
  return function;
}

CUdeviceptr DriverTest::allocate(std::size_t bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_CU(0, cuMemAlloc_v2(&pointer, bytes));
  return pointer;
}

Child::Child(const char* name, int (*body)()) {
  children().emplace(name, body);
}

ChildRun run_child(const std::string& name, std::initializer_list<std::string> environment) {
  ChildRun run;
  std::string command = fmt::format("env {}={}", kChildVariable, name);
  for (const std::string& variable : environment)
    command += " '" + variable + "'";
  const std::string calls =
      (std::filesystem::temp_directory_path() / fmt::format("softcuda_calls_{}", getpid()))
          .string();
  command += fmt::format(" {}='{}' /proc/{}/exe", kCallsVariable, calls, getpid());
  std::FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return run;
  std::array<char, 4096> bytes{};
  while (const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe))
    run.output.append(bytes.data(), count);
  const int status = pclose(pipe);
  take_calls(calls);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  return run;
}

}  // namespace kansoku::softcuda

int main(int argc, char** argv) {
  using namespace kansoku::softcuda;
  // Variables that are not set already: a child has its parent's folder.
  std::string folder;
  if (std::getenv("KANSOKU_SOFTGPU_DIR") == nullptr || std::getenv(kChildVariable) == nullptr) {
    folder = (std::filesystem::temp_directory_path() / "kansoku-softcuda-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return 1;
    setenv("KANSOKU_SOFTGPU_DIR", folder.c_str(), 1);
  }
  setenv("KANSOKU_SOFTGPU_DEVICES", "2", 0);
  setenv("KANSOKU_SOFTGPU_MEMORY", "64M", 0);
  setenv("KANSOKU_SOFTGPU_LOG", "off", 0);
  if (const char* const child = std::getenv(kChildVariable); child != nullptr) {
    static_cast<void>(kansoku_softgpu_calls(""));  // from now on they are counted
    const auto found = children().find(child);
    const int code = found == children().end() ? 127 : found->second();
    give_calls();
    std::fflush(nullptr);
    _exit(code);  // the driver's threads may still run
  }
  ::testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  std::error_code error;
  if (!folder.empty()) std::filesystem::remove_all(folder, error);
  std::fflush(nullptr);
  return code;
}
