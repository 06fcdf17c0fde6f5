// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/source.h"

#include <gtest/gtest.h>

#include <vector>

namespace kansoku::capture::llm {
namespace {

FunctionProbes probes_of(wire_model_role role) {
  FunctionProbes out;
  out.model_role = static_cast<std::uint8_t>(role);
  return out;
}

TEST(ModelSource, TakesTheFunctionsOfModelsOutOfTheirPacks) {
  std::vector<Pack> packs(2);
  packs[0].functions = {probes_of(WIRE_MODEL_DECODE), probes_of({}), probes_of(WIRE_MODEL_GRAPH)};
  packs[1].functions = {probes_of({})};
  const auto taken = take_model_probes(packs);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].model_role, WIRE_MODEL_GRAPH);
  EXPECT_EQ(packs[0].functions.size(), 1U);
  EXPECT_EQ(packs[0].functions[0].model_role, 0);
  EXPECT_EQ(packs[1].functions.size(), 1U);
  EXPECT_TRUE(take_model_probes(packs).empty());
}

TEST(ModelSource, SeesUpToTheLevelThatItsPacksHave) {
  EXPECT_EQ(highest_level({}), trace::ModelLevel::kNone);
  EXPECT_EQ(highest_level({probes_of(WIRE_MODEL_GRAPH), probes_of(WIRE_MODEL_DECODE)}),
            trace::ModelLevel::kGraph);
  EXPECT_EQ(highest_level({probes_of(WIRE_MODEL_BARRIER)}), trace::ModelLevel::kThread);
}

TEST(ModelSource, EveryRoleHasALevel) {
  const std::vector<std::pair<wire_model_role, trace::ModelLevel>> levels{
      {WIRE_MODEL_DECODE, trace::ModelLevel::kToken},
      {WIRE_MODEL_MICRO_BATCH, trace::ModelLevel::kToken},
      {WIRE_MODEL_SCHEDULE, trace::ModelLevel::kGraph},
      {WIRE_MODEL_SPLIT, trace::ModelLevel::kGraph},
      {WIRE_MODEL_GRAPH, trace::ModelLevel::kGraph},
      {WIRE_MODEL_OPERATOR, trace::ModelLevel::kOperator},
      {WIRE_MODEL_FUSED_OPERATOR, trace::ModelLevel::kOperator},
      {WIRE_MODEL_BARRIER, trace::ModelLevel::kThread},
      {WIRE_MODEL_CONTEXT_DECODE, trace::ModelLevel::kToken},
      {WIRE_MODEL_EVAL, trace::ModelLevel::kToken}};
  ASSERT_EQ(levels.size(), std::size_t{WIRE_MODEL_ROLES} - 1);
  for (const auto& [role, level] : levels)
    EXPECT_EQ(level_of(role), level) << role;
}

}  // namespace
}  // namespace kansoku::capture::llm
