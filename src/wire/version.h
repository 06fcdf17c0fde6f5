/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

/* Version of every structure in wire/: bump it with any change of layout or meaning. */
#define WIRE_VERSION 6

#if defined(__cplusplus)
#define WIRE_ASSERT(condition, why) static_assert(condition, why)
#else
#define WIRE_ASSERT(condition, why) _Static_assert(condition, why)
#endif
