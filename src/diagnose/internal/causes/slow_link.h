// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// A rank all of whose busy connections are slow, or a pair whose connection is, while the others'
/// are not ("slow_link"): by round-trip time, by the rate at which bytes are delivered, or by
/// retransmissions together with the time that a byte occupies the connection.
[[nodiscard]] std::optional<Finding> find_slow_link(const Context& context, const Options& options);

}  // namespace kansoku::diagnose
