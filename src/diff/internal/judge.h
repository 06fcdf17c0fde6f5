// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diff/diff.h"
#include "diff/internal/comparer.h"

namespace kansoku::diff {

/// Tells a changed batch, what all rows of a lane share, and then what each row shows beside that:
/// fills batch, commons, rows, comparisons, untested and lanes of `out`.
void judge(const Sides& sides, std::vector<Draft> drafts, Comparison& out);

}  // namespace kansoku::diff
