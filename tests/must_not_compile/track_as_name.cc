// SPDX-License-Identifier: Apache-2.0
// Handles of a trace writer are not interchangeable.
// expect: cannot convert|could not convert|no viable conversion
#include "trace/writer.h"

inline void good(kansoku::trace::Writer& w, kansoku::trace::TrackHandle track,
                 kansoku::trace::NameId name) {
  w.instant(track, {}, name, {});
}

#ifdef MUST_NOT_COMPILE
inline void bad(kansoku::trace::Writer& w, kansoku::trace::TrackHandle track,
                kansoku::trace::CategoryId category) {
  w.instant(track, {}, category, {});
}
#endif
