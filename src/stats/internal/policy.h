// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/math/policies/policy.hpp>

namespace kansoku::stats::internal {

/// Boost.Math without exceptions: a result without a value is NaN or infinity. In double
/// throughout, so that the result does not depend on the machine's long double.
using Quiet = boost::math::policies::policy<
    boost::math::policies::domain_error<boost::math::policies::ignore_error>,
    boost::math::policies::pole_error<boost::math::policies::ignore_error>,
    boost::math::policies::overflow_error<boost::math::policies::ignore_error>,
    boost::math::policies::underflow_error<boost::math::policies::ignore_error>,
    boost::math::policies::denorm_error<boost::math::policies::ignore_error>,
    boost::math::policies::rounding_error<boost::math::policies::ignore_error>,
    boost::math::policies::evaluation_error<boost::math::policies::ignore_error>,
    boost::math::policies::indeterminate_result_error<boost::math::policies::ignore_error>,
    boost::math::policies::promote_double<false>>;

}  // namespace kansoku::stats::internal
