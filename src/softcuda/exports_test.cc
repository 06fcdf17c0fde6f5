// SPDX-License-Identifier: Apache-2.0
// What the library's exports look like from outside: cheap to probe, and its own.
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

constexpr std::array<unsigned char, 5> kNop{0x0f, 0x1f, 0x44, 0, 0};

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <class T>
T at(const std::vector<char>& bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size())
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Names of the functions that a library defines for others.
std::set<std::string> exported_functions(const std::string& path) {
  const std::vector<char> bytes = bytes_of(path);
  const auto header = at<Elf64_Ehdr>(bytes, 0);
  const auto section = [&](std::size_t i) {
    return at<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  std::set<std::string> names;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto symbols = section(i);
    if (symbols.sh_type != SHT_DYNSYM) continue;
    const auto texts = section(symbols.sh_link);
    for (std::size_t j = 0; j < symbols.sh_size / sizeof(Elf64_Sym); ++j) {
      const auto symbol = at<Elf64_Sym>(bytes, symbols.sh_offset + j * sizeof(Elf64_Sym));
      if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
        names.insert(bytes.data() + texts.sh_offset + symbol.st_name);
    }
  }
  return names;
}

TEST(ExportsTest, EveryOneBeginsWithANopThatAProbeMayReplace) {
  const auto names = exported_functions(KANSOKU_SOFTCUDA_LIBRARY);
  EXPECT_GT(names.size(), 600U);
  EXPECT_THAT(names, ::testing::IsSupersetOf(kImplemented));
  for (const std::string& name : names) {
    std::array<unsigned char, 5> first{};
    std::memcpy(first.data(), driver_symbol(name.c_str()), first.size());
    EXPECT_EQ(first, kNop) << name;
  }
}

/// True if the address is in the library of the software device.
bool is_own(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 &&
         std::string_view(info.dli_fname) == KANSOKU_SOFTCUDA_LIBRARY;
}

/// Another library has the names of some functions and was loaded first.
int look_up_beside_another() {
  void* const others = dlsym(RTLD_DEFAULT, "cuInit");
  if (others == nullptr || is_own(others)) return 1;  // it was not
  if (cuInit(0) != CUDA_SUCCESS) return 2;
  for (const char* name : {"cuInit", "cuMemAlloc", "cuLaunchKernel", "cuTexRefCreate"}) {
    void *first = nullptr, *second = nullptr;
    if (cuGetProcAddress(name, &first, 12000, 0) != CUDA_SUCCESS || !is_own(first)) return 3;
    int found = 1;
    if (cuGetProcAddress_v2(name, &second, 12000, 0, &found) != CUDA_SUCCESS || found != 0)
      return 4;
    if (second != first) return 5;
  }
  void* itself = nullptr;
  if (cuGetProcAddress("cuGetProcAddress", &itself, 12000, 0) != CUDA_SUCCESS) return 6;
  return itself == driver_symbol("cuGetProcAddress_v2") && is_own(itself) ? 0 : 7;
}
const Child kBeside("look_up_beside_another", look_up_beside_another);

TEST(ExportsTest, AnotherLibraryOfTheseNamesTakesNoPlace) {
  COVERS(cuGetProcAddress, cuGetProcAddress_v2);
  const ChildRun run =
      run_child("look_up_beside_another",
                {"LD_PRELOAD=" KANSOKU_OTHER_DRIVER, "ASAN_OPTIONS=verify_asan_link_order=0"});
  EXPECT_EQ(run.exit_code, 0);
}

}  // namespace
}  // namespace kansoku::softcuda
