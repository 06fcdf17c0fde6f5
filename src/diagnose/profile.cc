// SPDX-License-Identifier: Apache-2.0
#include "diagnose/profile.h"

namespace kansoku::diagnose {

Result<Diagnosis> diagnose_profile(const trace::Trace&, const Options&) {
  return Diagnosis{};
}

}  // namespace kansoku::diagnose
