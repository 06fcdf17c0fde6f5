/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_SM_30_INTRINSICS_H
#define KANSOKU_SOFTGPU_SM_30_INTRINSICS_H

/* Exchange between lanes; all of it comes with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_SM_30_INTRINSICS_H */
