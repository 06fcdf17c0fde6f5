// SPDX-License-Identifier: Apache-2.0
// Any bytes as an ELF file: reading them fails or works, and nothing else.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/check.h"
#include "sys/elf.h"
#include "sys/fd.h"
#include "sys/procfs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::sys;
  if (size > (1U << 20)) return 0;
  const Fd fd = Fd::adopt(::memfd_create("elf", MFD_CLOEXEC));
  CHECK(fd.is_open());
  if (::write(fd.raw(), data, size) != static_cast<ssize_t>(size)) return 0;
  auto file = ElfFile::open(fmt::format("/proc/self/fd/{}", fd.raw()));
  if (!file) return 0;
  const auto& symbols = (*file)->symbols();
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    CHECK(i == 0 || symbols[i - 1].address <= symbols[i].address);
    CHECK(!symbols[i].name.empty());
    static_cast<void>((*file)->bytes_at(symbols[i].address, 64));
    static_cast<void>((*file)->file_offset(symbols[i].address));
  }
  if (!symbols.empty()) CHECK((*file)->find_symbol(symbols.front().name) != nullptr);
  if (!symbols.empty()) static_cast<void>((*file)->exported_address(symbols.front().name));
  static_cast<void>((*file)->usdt_probes());
  static_cast<void>((*file)->section(".text"));
  Mapping mapping;
  mapping.begin = 0x7f0000000000;
  mapping.end = mapping.begin + 4096;
  mapping.executable = true;
  const auto bias = load_bias(**file, {mapping});
  CHECK(!bias || *bias % 4096 == 0);
  return 0;
}
