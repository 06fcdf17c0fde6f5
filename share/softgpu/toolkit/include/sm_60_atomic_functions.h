/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_SM_60_ATOMIC_FUNCTIONS_H
#define KANSOKU_SOFTGPU_SM_60_ATOMIC_FUNCTIONS_H

/* Atomic operations from sm_60 on; all of them come with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_SM_60_ATOMIC_FUNCTIONS_H */
