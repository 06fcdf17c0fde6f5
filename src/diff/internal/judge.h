// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diff/diff.h"
#include "diff/internal/comparer.h"

namespace kansoku::diff {

/// Judges a changed batch, the change that all rows of a lane share, and then that of each row
/// beside it: fills batch, commons, rows, comparisons, untested and lanes of `out`.
void judge(const Sides& sides, std::vector<Draft> drafts, Comparison& out);

}  // namespace kansoku::diff
