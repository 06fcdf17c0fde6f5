// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trace/model.h"

namespace kansoku::trace {

struct SwitchForTest {
  std::int64_t time_ns{0};
  std::int32_t prev_tid{0};
  std::uint32_t prev_state{0};
  std::int32_t next_tid{0};
  std::uint32_t cpu{0};
};

inline void add_for_test(Trace& trace, const SwitchForTest& row) {
  trace.switches.time_ns.push_back(row.time_ns);
  trace.switches.cpu.push_back(row.cpu);
  trace.switches.prev_tid.push_back(row.prev_tid);
  trace.switches.next_tid.push_back(row.next_tid);
  trace.switches.prev_state.push_back(row.prev_state);
}

}  // namespace kansoku::trace
