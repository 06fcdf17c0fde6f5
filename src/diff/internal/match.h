// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "diff/internal/recording.h"

namespace kansoku::diff {

/// The same thing in several recordings.
struct Matched {
  std::vector<const Item*> items;  // by recording; null where it does not occur
  Match match{Match::kSame};
};

/// Brings the items of all recordings together, the first recording's names leading: equal names;
/// kernels that a compiler numbered anew (the same launches under exchanged numbers); kernels of
/// one family with other template arguments, of the same functors; kernels of other names at the
/// same place of the step with the same number of launches. Each item is in one entry. Borrows from
/// `recordings`; deterministic.
[[nodiscard]] std::vector<Matched> match_items(const std::vector<const Recording*>& recordings);

}  // namespace kansoku::diff
