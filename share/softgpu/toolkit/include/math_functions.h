/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_MATH_FUNCTIONS_H
#define KANSOKU_SOFTGPU_MATH_FUNCTIONS_H

/* Mathematics of the device; all of it comes with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_MATH_FUNCTIONS_H */
