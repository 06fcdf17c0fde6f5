// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/rng.h"
#include "common/time.h"
#include "simulate/experiment.h"

namespace kansoku::simulate {

/// How much performance one deployed model has lost, as a function of when the data of its training
/// were taken and of now. Knows its whole future: crossings are found by inverting the curve, not
/// by looking again and again. Seconds since time 0; immutable; any thread.
/// Source of the gradual curve: the generalised logistic (Richards) function.
class Drift {
 public:
  /// `random` draws the jumps of kSudden up to `horizon_s`.
  Drift(const DriftSpec& spec, double horizon_s, RandomStream random);

  /// When it jumps, by time; empty for smooth drift.
  [[nodiscard]] const std::vector<double>& jump_times() const { return jump_times_; }
  /// Loss at `now_s` of a model trained on data of `trained_s` <= now_s; >= 0.
  [[nodiscard]] double loss(double trained_s, double now_s) const;
  /// Integral of the loss over from_s..to_s, in loss seconds.
  [[nodiscard]] double integral(double trained_s, double from_s, double to_s) const;
  /// The first time >= from_s at which the loss is at least `level`; infinity if never before the
  /// horizon.
  [[nodiscard]] double crossing(double trained_s, double from_s, double level) const;
  /// The first time >= from_s at which the integral from from_s is at least `area`; infinity if
  /// never before the horizon.
  [[nodiscard]] double area_crossing(double trained_s, double from_s, double area) const;

 private:
  [[nodiscard]] double loss_at_age(double age_s) const;
  [[nodiscard]] double gradual_crossing_age(double level) const;
  [[nodiscard]] double recurring_crossing_age(double from_age, double level) const;
  [[nodiscard]] double replayed_crossing_age(double from_age, double level) const;
  [[nodiscard]] double sudden_crossing(double trained_s, double from_s, double level) const;
  [[nodiscard]] double jumps_before(double when_s) const;
  /// Corners of the curve after `from_s`, at most up to `to_s`: pieces for integration.
  [[nodiscard]] std::vector<double> corners(double trained_s, double from_s, double to_s) const;

  DriftSpec spec_;
  double horizon_s_;
  double gradual_at_zero_{0};
  std::vector<double> jump_times_, jump_sums_;  // sums up to and including each
};

}  // namespace kansoku::simulate
