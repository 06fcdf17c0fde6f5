/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_SM_35_INTRINSICS_H
#define KANSOKU_SOFTGPU_SM_35_INTRINSICS_H

/* Intrinsics from sm_35 on; all of them come with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_SM_35_INTRINSICS_H */
