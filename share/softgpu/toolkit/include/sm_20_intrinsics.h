/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_SM_20_INTRINSICS_H
#define KANSOKU_SOFTGPU_SM_20_INTRINSICS_H

/* Votes and rounding modes; all of them come with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_SM_20_INTRINSICS_H */
