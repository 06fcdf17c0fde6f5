// SPDX-License-Identifier: Apache-2.0
// A bare number is no time: it would not say which clock and unit.
// expect: conversion from .int. to non-scalar type|no viable conversion
#include "common/time.h"

constexpr kansoku::BootTime kTime = kansoku::boot_time(5);

#ifdef MUST_NOT_COMPILE
constexpr kansoku::BootTime kOther = 5;
#endif
