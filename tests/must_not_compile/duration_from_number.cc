// SPDX-License-Identifier: Apache-2.0
// A bare number is no duration.
// expect: conversion from .int. to non-scalar type|no viable conversion
#include "common/time.h"

constexpr kansoku::Nanos kNanos{5};

#ifdef MUST_NOT_COMPILE
constexpr kansoku::Nanos kOther = 5;
#endif
