/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "counting_input_iterator.cuh"
