// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// Code of one function, or of its cold part.
struct CodeRange {
  std::uint64_t begin{0}, bytes{0};
  bool has_handlers{false};  // of exceptions, perhaps
};

/// The code that `address` lies in, by the tables of the unwinder (.eh_frame_hdr and .eh_frame),
/// which also have functions without a symbol. Nothing if there is none, or the tables are not of
/// the form that linkers write. Source: Linux Standard Base, Core, 10.6.
[[nodiscard]] std::optional<CodeRange> code_around(const sys::ElfFile& file, std::uint64_t address);

/// Landing pads within that code, for exceptions that come out of its calls: ascending, each once,
/// empty if there are none. Nothing if that is not known: the tables are not of the form that
/// compilers write, or there are very many. Source: Itanium C++ ABI, exception handling tables, as
/// GCC and LLVM write them (LSDA).
[[nodiscard]] std::optional<std::vector<std::uint64_t>> landing_pads(const sys::ElfFile& file,
                                                                     const CodeRange& code);

}  // namespace kansoku::capture::bpf
