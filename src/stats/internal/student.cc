// SPDX-License-Identifier: Apache-2.0
#include <boost/math/distributions/students_t.hpp>

#include "stats/fit.h"
#include "stats/internal/policy.h"

namespace kansoku::stats {

double student_quantile(double p, double degrees) {
  const boost::math::students_t_distribution<double, internal::Quiet> student(degrees);
  return boost::math::quantile(student, p);
}

}  // namespace kansoku::stats
