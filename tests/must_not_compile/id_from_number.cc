// SPDX-License-Identifier: Apache-2.0
// A bare number is no id.
// expect: conversion from .int. to non-scalar type|no viable conversion
#include "common/ids.h"

using StreamId = kansoku::Id<struct StreamTag>;
constexpr StreamId kStream{1};

#ifdef MUST_NOT_COMPILE
constexpr StreamId kOther = 1;
#endif
