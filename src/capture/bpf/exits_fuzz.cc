// SPDX-License-Identifier: Apache-2.0
// Any bytes as a library whose functions are taken apart.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "capture/bpf/exits.h"
#include "capture/bpf/internal/unwind_table.h"
#include "common/check.h"
#include "sys/elf.h"
#include "sys/fd.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku;
  constexpr std::size_t kFunctionsMax = 64;
  if (size > (1U << 18)) return 0;
  const sys::Fd fd = sys::Fd::adopt(::memfd_create("library", MFD_CLOEXEC));
  CHECK(fd.is_open());
  if (::write(fd.raw(), data, size) != static_cast<ssize_t>(size)) return 0;
  auto file = sys::ElfFile::open(fmt::format("/proc/self/fd/{}", fd.raw()));
  if (!file) return 0;
  std::size_t count = 0;
  for (const sys::Symbol& symbol : (*file)->symbols()) {
    if (!symbol.is_function || ++count > kFunctionsMax) continue;
    const auto around = capture::bpf::code_around(**file, symbol.address);
    if (around) {
      CHECK(around->begin <= symbol.address && symbol.address - around->begin < around->bytes);
      if (const auto pads = capture::bpf::landing_pads(**file, *around))
        for (const std::uint64_t pad : *pads)
          CHECK(pad - around->begin < around->bytes);
    }
    const auto site = capture::bpf::pick_site(**file, symbol, {true, true});
    for (const auto value_bytes : std::initializer_list<std::uint8_t>{0, 4, 8}) {
      const bool counts = !site.is_once;
      const auto found = capture::bpf::find_exits(**file, symbol,
                                                  {.entry_site = counts ? 0 : site.address,
                                                   .value_bytes = value_bytes,
                                                   .counts = counts,
                                                   .before_calls = value_bytes != 8});
      CHECK(found.exits.empty() != found.problem.empty());
      std::uint64_t last = 0;
      for (const auto& exit : found.exits) {
        CHECK(last == 0 || exit.address > last);
        CHECK(counts || exit.address != site.address);
        CHECK(exit.stack_bytes % 8 == 0 && exit.condition < 16 && exit.value_register < 16);
        last = exit.address;
      }
    }
  }
  return 0;
}
