// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/run.h"

namespace kansoku::infer {

/// Finds the micro-batches that verify drafts of speculative decoding, and what they generated: all
/// of their tokens ask for an output, and they go on where a sequence was generating. A prompt asks
/// for the last token's output alone; an evaluation that asks for all does not follow generated
/// tokens. Micro-batches by begin, with their decode calls; tokens beyond those shown: none is
/// found.
void find_drafts(Process& process);

}  // namespace kansoku::infer
