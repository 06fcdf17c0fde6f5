// SPDX-License-Identifier: Apache-2.0
// Times of two clocks do not mix.
// expect: conversion from|no viable conversion
#include "common/time.h"

#include <chrono>

using SystemTime = std::chrono::time_point<std::chrono::system_clock, kansoku::Nanos>;
constexpr SystemTime kWall{kansoku::Nanos{1}};

#ifdef MUST_NOT_COMPILE
constexpr kansoku::BootTime kBoot = kWall;
#endif
