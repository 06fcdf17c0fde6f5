// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/cublas_for_test.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

namespace kansoku::softcuda::cublas {
namespace {

constexpr char kChildVariable[] = "KANSOKU_TEST_CHILD";

std::map<std::string, int (*)()>& children() {
  static std::map<std::string, int (*)()> all;
  return all;
}

/// Opened again each time: the loader counts.
void* opened(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return library;
}
void* symbol_of(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return symbol;
}

/// To `fraction_bits` bits behind the first one, ties to even; subnormal below 2^least_exponent.
double rounded(double value, int fraction_bits, int least_exponent, double overflow) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  const double nearest = std::nearbyint(value / unit) * unit;
  return std::abs(nearest) >= overflow ? std::copysign(HUGE_VAL, value) : nearest;
}

std::uint16_t half_bits(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7fff;
  value = std::abs(rounded(value, 10, -14, 65536));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (value < std::ldexp(1.0, -14))
    return static_cast<std::uint16_t>(sign | static_cast<int>(std::ldexp(value, 24)));
  const int exponent = std::ilogb(value);
  const int fraction = static_cast<int>(std::ldexp(value, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | fraction);
}
double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31  ? (fraction != 0 ? std::nan("") : HUGE_VAL)
                 : exponent == 0 ? std::ldexp(fraction, -24)
                                 : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

void* driver_symbol(const char* name) {
  return symbol_of(opened(KANSOKU_SOFTCUDA_LIBRARY), name);
}
void* cublas_symbol(const char* name) {
  static_cast<void>(driver_symbol("cuInit"));  // so that it finds this driver by its name
  return symbol_of(opened(KANSOKU_SOFTCUDA_CUBLAS), name);
}

std::size_t bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_8I:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_64F:
      return 8;
    default:
      return 4;
  }
}

void encode(cudaDataType type, double value, std::byte* to) {
  switch (type) {
    case CUDA_R_8I:
      return put(to, static_cast<std::int8_t>(std::isnan(value) ? 77 : std::lround(value)));
    case CUDA_R_32I:
      return put(to, static_cast<std::int32_t>(std::isnan(value) ? 777777 : std::lround(value)));
    case CUDA_R_16F:
      return put(to, half_bits(value));
    case CUDA_R_16BF: {
      const auto single = static_cast<float>(
          std::isnan(value) ? value : rounded(value, 7, -126, std::ldexp(1.0, 128)));
      std::uint32_t bits = 0;
      std::memcpy(&bits, &single, sizeof bits);
      return put(to, static_cast<std::uint16_t>(bits >> 16));
    }
    case CUDA_R_64F:
      return put(to, value);
    default:
      return put(to, static_cast<float>(value));
  }
}

double decode(cudaDataType type, const std::byte* from) {
  switch (type) {
    case CUDA_R_8I:
      return get<std::int8_t>(from);
    case CUDA_R_32I:
      return get<std::int32_t>(from);
    case CUDA_R_16F:
      return half_value(get<std::uint16_t>(from));
    case CUDA_R_16BF: {
      const std::uint32_t bits = static_cast<std::uint32_t>(get<std::uint16_t>(from)) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return static_cast<double>(value);
    }
    case CUDA_R_64F:
      return get<double>(from);
    default:
      return static_cast<double>(get<float>(from));
  }
}

std::uint64_t launches() {
  EXPECT_EQ(drive("cuCtxSynchronize"), 0);
  return reinterpret_cast<std::uint64_t (*)()>(driver_symbol("kansoku_softgpu_launches"))();
}

void CublasTest::SetUp() {
  cuda::CUcontext context = nullptr;
  ASSERT_EQ(drive("cuInit", 0U), 0);
  ASSERT_EQ(drive("cuDevicePrimaryCtxRetain", &context, 0), 0);
  ASSERT_EQ(drive("cuCtxSetCurrent", context), 0);
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasCreate_v2)(&handle_));
}

void CublasTest::TearDown() {
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasDestroy_v2)(handle_));
  EXPECT_EQ(drive("cuCtxSynchronize"), 0);
  for (const std::uint64_t pointer : memory_)
    EXPECT_EQ(drive("cuMemFree_v2", pointer), 0);
  EXPECT_EQ(drive("cuDevicePrimaryCtxRelease_v2", 0), 0);
}

void* CublasTest::allocate(std::size_t bytes) {
  std::uint64_t pointer = 0;
  EXPECT_EQ(drive("cuMemAlloc_v2", &pointer, std::max<std::size_t>(bytes, 1)), 0);
  memory_.push_back(pointer);
  return reinterpret_cast<void*>(pointer);
}

void* CublasTest::stored(const std::vector<std::byte>& bytes) {
  void* const pointer = allocate(bytes.size());
  if (!bytes.empty()) {
    EXPECT_EQ(
        drive("cuMemcpyHtoD_v2", pointer, static_cast<const void*>(bytes.data()), bytes.size()), 0);
  }
  return pointer;
}

std::vector<std::byte> CublasTest::read(const void* from, std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  if (bytes != 0) {
    EXPECT_EQ(drive("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), from, bytes), 0);
  }
  return values;
}

Child::Child(const char* name, int (*body)()) {
  children().emplace(name, body);
}

int run_child(const std::string& name, const std::vector<std::string>& environment) {
  std::string command = std::string("env ") + kChildVariable + "=" + name;
  for (const std::string& variable : environment)
    command += " '" + variable + "'";
  command += " /proc/" + std::to_string(getpid()) + "/exe";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kansoku::softcuda::cublas

int main(int argc, char** argv) {
  using namespace kansoku::softcuda::cublas;  // NOLINT(google-build-using-namespace)
  std::string folder;
  if (std::getenv(kChildVariable) == nullptr) {
    folder = (std::filesystem::temp_directory_path() / "kansoku-cublas-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return 1;
    setenv("KANSOKU_SOFTGPU_DIR", folder.c_str(), 1);
  }
  setenv("KANSOKU_SOFTGPU_MEMORY", "256M", 0);
  setenv("KANSOKU_SOFTGPU_LOG", "off", 0);
  if (const char* const child = std::getenv(kChildVariable); child != nullptr) {
    const auto found = children().find(child);
    const int code = found == children().end() ? 127 : found->second();
    std::fflush(nullptr);
    _exit(code);  // the driver's threads may still run
  }
  ::testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::fflush(nullptr);
  return code;
}
