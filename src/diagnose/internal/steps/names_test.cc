// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/names.h"

#include <gtest/gtest.h>

namespace kansoku::diagnose {
namespace {

TEST(Names, Slices) {
  EXPECT_EQ(classify_name("torch::autograd::Engine::execute"), EventKind::kBackward);
  EXPECT_EQ(classify_name("Optimizer.step#AdamW.step"), EventKind::kOptimizer);
  EXPECT_EQ(classify_name("Optimizer.zero_grad#SGD.zero_grad"), EventKind::kZeroGrad);
  EXPECT_EQ(classify_name("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
            EventKind::kInput);
  EXPECT_EQ(classify_name("c10d::ProcessGroupGloo::allreduce"), EventKind::kIssue);
  EXPECT_EQ(classify_name("c10d::Reducer::finalize_backward"), EventKind::kFinalize);
  EXPECT_EQ(classify_name("gloo::allreduce"), EventKind::kExecute);
  EXPECT_EQ(classify_name("ncclAllReduce"), EventKind::kExecute);
  EXPECT_EQ(classify_name("at::_ops::addmm::call"), EventKind::kNone);
  EXPECT_EQ(classify_name(""), EventKind::kNone);
}

TEST(Names, OneOperationHasOneName) {
  EXPECT_EQ(op_name("c10d::ProcessGroupGloo::allreduce"), "allreduce");
  EXPECT_EQ(op_name("gloo::allreduce"), "allreduce");
  EXPECT_EQ(op_name("gloo::allreduce(gloo::AllreduceOptions const&)"), "allreduce");
  EXPECT_EQ(op_name("ncclAllReduce"), "allreduce");
  EXPECT_EQ(op_name("c10d::ProcessGroupNCCL::_allgather_base"), "allgather_base");
}

TEST(Names, Frames) {
  EXPECT_EQ(classify_frame("fetch", "/x/torch/utils/data/_utils/fetch.py"), FrameRole::kInput);
  EXPECT_EQ(classify_frame("SlowDataset.__getitem__", "/app/train.py"), FrameRole::kInput);
  EXPECT_EQ(classify_frame("AdamW.step", "/x/torch/optim/adamw.py"), FrameRole::kOptimizer);
  EXPECT_EQ(classify_frame("Net.forward", "/app/train.py"), FrameRole::kForward);
  EXPECT_EQ(classify_frame("train", "/app/train.py"), FrameRole::kNone);
  EXPECT_TRUE(is_worker_wait("_MultiProcessingDataLoaderIter._try_get_data",
                             "/x/torch/utils/data/dataloader.py"));
  EXPECT_FALSE(is_worker_wait("_try_get_data", "/app/train.py"));
  EXPECT_TRUE(is_worker_idle("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py"));
}

}  // namespace
}  // namespace kansoku::diagnose
