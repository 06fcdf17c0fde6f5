// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::capture::bpf {

/// Listens to libbpf's messages on this thread while programs are loaded, and keeps those that tell
/// why they were refused. Without one libbpf is silent: its errors come back as values here. Not
/// nested; it lives and ends on one thread.
class LoadLog {
 public:
  LoadLog();
  ~LoadLog();
  LoadLog(const LoadLog&) = delete;
  LoadLog& operator=(const LoadLog&) = delete;

  /// One warning of libbpf, of any length.
  void add(std::string_view warning);

  /// "PROGRAM: LINE" with the last line of the kernel verifier's log that is no statistics; without
  /// a log the first warning that says more than that loading failed; may be empty.
  [[nodiscard]] const std::string& reason() const;

  /// The failure of loading `what`, with the reason. `failed`: errno.
  [[nodiscard]] Error error(int failed, std::string_view what) const;

 private:
  std::string refused_, first_;
};

}  // namespace kansoku::capture::bpf
