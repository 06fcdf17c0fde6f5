// SPDX-License-Identifier: Apache-2.0
// The library's exports as seen from outside: cheap to probe, and its own.
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "common/parse.h"
#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

constexpr unsigned char kNop = 0x90;

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

/// Definitions of a library for others: name of a function -> its first byte.
using Exports = std::map<std::string, unsigned char>;

class Library {
 public:
  explicit Library(const std::string& path)
      : bytes_(bytes_of(path)), header_(at<Elf64_Ehdr>(bytes_, 0)) {}

  [[nodiscard]] Exports exports() const {
    Exports found;
    for (std::size_t i = 0; i < header_.e_shnum; ++i) {
      const auto symbols = section(i);
      if (symbols.sh_type != SHT_DYNSYM) continue;
      const auto texts = section(symbols.sh_link);
      for (std::size_t j = 0; j < symbols.sh_size / sizeof(Elf64_Sym); ++j) {
        const auto symbol = at<Elf64_Sym>(bytes_, symbols.sh_offset + j * sizeof(Elf64_Sym));
        if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
        found[bytes_.data() + texts.sh_offset + symbol.st_name] =
            at<unsigned char>(bytes_, place_of(symbol.st_value));
      }
    }
    return found;
  }

 private:
  [[nodiscard]] Elf64_Shdr section(std::size_t i) const {
    return at<Elf64_Shdr>(bytes_, header_.e_shoff + i * sizeof(Elf64_Shdr));
  }
  /// Offset in the file of an address.
  [[nodiscard]] std::size_t place_of(std::uint64_t address) const {
    for (std::size_t i = 0; i < header_.e_phnum; ++i) {
      const auto part = at<Elf64_Phdr>(bytes_, header_.e_phoff + i * sizeof(Elf64_Phdr));
      if (part.p_type == PT_LOAD && address >= part.p_vaddr &&
          address - part.p_vaddr < part.p_filesz)
        return part.p_offset + (address - part.p_vaddr);
    }
    return bytes_.size();
  }

  const std::vector<char> bytes_;
  const Elf64_Ehdr header_;
};

/// Symbols that the table has for a version.
std::set<std::string> symbols_of(const std::string& table, int version) {
  std::ifstream file(KANSOKU_SOURCE_DIR "/src/cuda/interface/" + table + ".txt");
  std::set<std::string> symbols;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string base, symbol, thread, kind, stream, until;
    int since = 0;
    words >> base >> since >> symbol >> thread >> kind >> stream >> until;
    const bool is_over = until != "-" && parse_int<int>(until).value_or(0) <= version;
    if (since <= version && (table == "driver" || !is_over)) symbols.insert(symbol);
  }
  return symbols;
}

struct LibraryCase {
  const char *file, *table;
  int version;
};
class ExportsOfTest : public ::testing::TestWithParam<LibraryCase> {};

TEST_P(ExportsOfTest, AreTheTablesAndBeginWithANopThatAProbeMayReplace) {
  const std::string path = std::string(KANSOKU_SOFTGPU_DIR "/") + GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " was not built";
  const Exports exports = Library(path).exports();
  auto expected = symbols_of(GetParam().table, GetParam().version);
  EXPECT_GT(expected.size(), 20U);
  if (std::string_view(GetParam().table) == "driver")
    expected.insert({"kansoku_softgpu_calls", "kansoku_softgpu_launches", "kansoku_softgpu_observe",
                     "kansoku_softgpu_observed"});
  std::set<std::string> names;
  for (const auto& [name, first] : exports) {
    names.insert(name);
    EXPECT_EQ(first, kNop) << name;
  }
  EXPECT_EQ(names, expected);
}

INSTANTIATE_TEST_SUITE_P(Libraries, ExportsOfTest,
                         ::testing::Values(LibraryCase{"libcuda.so.1", "driver", 13000},
                                           LibraryCase{"libcudart.so.12", "runtime", 12040},
                                           LibraryCase{"libcudart.so.13", "runtime", 13000},
                                           LibraryCase{"libcublas.so.12", "cublas", 12040},
                                           LibraryCase{"libcublas.so.13", "cublas", 13000},
                                           LibraryCase{"libnccl.so.2", "nccl", 13000},
                                           LibraryCase{"libnvidia-ml.so.1", "nvml", 13000}),
                         [](const auto& each) {
                           std::string name = each.param.file;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

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
  if (is_another_before()) GTEST_SKIP() << "it takes it";
  COVERS(cuGetProcAddress, cuGetProcAddress_v2);
  const ChildRun run =
      run_child("look_up_beside_another",
                {"LD_PRELOAD=" KANSOKU_OTHER_DRIVER, "ASAN_OPTIONS=verify_asan_link_order=0"});
  EXPECT_EQ(run.exit_code, 0);
}

}  // namespace
}  // namespace kansoku::softcuda
