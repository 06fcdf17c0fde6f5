// SPDX-License-Identifier: Apache-2.0
// An argument of an event borrows its text, which a temporary takes with it.
// expect: use of deleted function|call to deleted member function
#include "trace/writer.h"

#include <string>

inline kansoku::trace::Arg of_variable(const std::string& text) {
  return kansoku::trace::Arg::str({}, text);
}

#ifdef MUST_NOT_COMPILE
inline kansoku::trace::Arg of_choice(const std::string& text) {
  return kansoku::trace::Arg::str({}, text.empty() ? "none" : text);
}
#endif
