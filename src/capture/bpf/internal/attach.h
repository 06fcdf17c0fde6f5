// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/libbpf.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/bpf/engine.h"
#include "sys/fd.h"

namespace kansoku::capture::bpf {

struct LinkDeleter {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkDeleter>;

struct RingDeleter {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

/// Attached programs; destruction or clear() detaches them.
struct Links {
  std::vector<sys::Fd> multi;
  std::vector<Link> single;
  void clear() {
    multi.clear();
    single.clear();
  }
  [[nodiscard]] std::size_t size() const { return multi.size() + single.size(); }
};

/// The programs that one kind of uprobe needs; those of other modes are not loaded.
struct UprobePrograms {
  bpf_program* session{nullptr};
  bpf_program* entry{nullptr};
  bpf_program* at_return{nullptr};
};

/// Says which of the programs to load for `mode`, and how. Before the object is loaded.
void prepare_uprobes(const UprobePrograms& programs, AttachMode mode);

/// Attaches all `specs` to one file, adding to `out`. All or nothing.
[[nodiscard]] Result<void> attach_uprobes(const UprobePrograms& programs, AttachMode mode,
                                          const std::string& path,
                                          std::span<const UprobeSpec> specs, bool with_return,
                                          Links& out);

/// File offset of a function of this program in /proc/self/exe.
[[nodiscard]] Result<std::uint64_t> own_file_offset(std::uint64_t address);

/// Attaches one program to a tracepoint (`cookie` for those that take one) or to the target that
/// its section names.
[[nodiscard]] Result<void> attach_trace(bpf_program* program, std::string_view what, Links& out);

/// Tries the attach modes, best first (`forced`: only this one): `load` loads the programs for a
/// mode and gives them; a mode works if they attach to a function of this program. Refusals of the
/// better modes go to `refusals`; if none works, the last refusal comes back.
[[nodiscard]] Result<AttachMode> find_mode(
    std::optional<AttachMode> forced, const std::function<Result<UprobePrograms>(AttachMode)>& load,
    std::vector<std::string>& refusals);

}  // namespace kansoku::capture::bpf
