/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Algorithms for warps, blocks and devices, with the interface of CUB 2.3: those that follow.
 * Of others the compiler says that they are not members of cub. */

#include "block/block_load.cuh"
#include "block/block_reduce.cuh"
#include "block/block_scan.cuh"
#include "block/block_store.cuh"
#include "device/device_radix_sort.cuh"
#include "device/device_reduce.cuh"
#include "device/device_scan.cuh"
#include "device/device_segmented_radix_sort.cuh"
#include "device/device_segmented_sort.cuh"
#include "iterator/counting_input_iterator.cuh"
#include "thread/thread_operators.cuh"
#include "util_type.cuh"
#include "version.cuh"
#include "warp/warp_reduce.cuh"
#include "warp/warp_scan.cuh"
