/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The version whose interface these headers follow, so that programs choose it. */
#define CUB_VERSION 200301
#define CUB_MAJOR_VERSION 2
#define CUB_MINOR_VERSION 3
#define CUB_SUBMINOR_VERSION 1
#define CUB_PATCH_NUMBER 0
#define CCCL_VERSION 2003001
#define CCCL_MAJOR_VERSION 2
#define CCCL_MINOR_VERSION 3
#define CCCL_PATCH_VERSION 1
