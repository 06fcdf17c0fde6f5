// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kansoku::softcuda::cublas {

struct Version {
  int major, minor, patch;
};
/// The one of cuBLAS that this library stands in for. Differs between the two libraries, which are
/// the same otherwise: version.cc is compiled for each.
extern const Version kVersion;

}  // namespace kansoku::softcuda::cublas
