// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "infer/run.h"

namespace kansoku::infer {

/// Which nodes of a graph each kernel computed, inferred: kernels run in the order of the nodes, a
/// kernel's name tells its operator, and a backend fuses few known sequences into one kernel. The
/// cheapest alignment wins, by dynamic programming; nothing where more than one kernel in ten fits
/// no node, or more than one node in ten no kernel. `computed`: indices of the nodes that are no
/// views, in order. Gives for each kernel the position in `computed` of the first node of its
/// group; a group ends where the next kernel's begins. Helpers (quantising, copying) belong to the
/// next kernel's. Deterministic. Source: the fusions of ggml's CUDA backend, read at ggml 0.25.
[[nodiscard]] std::optional<std::vector<std::size_t>> align_kernels(
    const std::vector<Node>& nodes, const std::vector<std::uint32_t>& computed,
    const std::vector<std::string_view>& kernels);

}  // namespace kansoku::infer
