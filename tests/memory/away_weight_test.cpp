#include "hybrid_trainer/memory/away_weight.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "memory/weight_queue.h"
#include "support/failing_memory.h"

namespace hybrid_trainer {
namespace {

/// With a queue, as on a processor, and without one, as beside a CUDA device.
class AwayWeightTest : public ::testing::TestWithParam<bool> {
 protected:
  Weight held(Use use) { return {weight_, DType::kF32, use, stream_}; }
  void add_one() {
    const Weight values = held(Use::kChange);
    for (int i = 0; i < 3; ++i) values.tensor().data<float>()[i] += 1;
  }
  bool fails_ = false;
  Stream home_{testing::failing_pool(fails_)};
  Stream stream_{MemoryPool::create("device")};
  AwayWeight weight_{Tensor::zeros({3}, DType::kF32, MemoryKind::kParameters, home_),
                     GetParam() ? std::make_shared<WeightQueue>() : nullptr};
};
INSTANTIATE_TEST_SUITE_P(All, AwayWeightTest, ::testing::Bool());

TEST_P(AwayWeightTest, IsHeldOnTheDeviceAndGoesHomeWithWhatChanged) {
  {
    const Weight outer = held(Use::kRead);
    EXPECT_EQ(outer.tensor().pool(), stream_.pool());
    EXPECT_EQ(outer.tensor().data<float>()[2], 0);
    add_one();
    EXPECT_EQ(outer.tensor().data<float>()[2], 1) << "all who hold it see one copy";
  }
  EXPECT_EQ(weight_.home_master().data<float>()[2], 1);
  EXPECT_EQ(stream_.pool()->use().live_total, 0u);
}

/// The update is lost, so that nobody may train on or save what is there.
TEST_P(AwayWeightTest, TellsWhoeverComesNextThatWhatChangedCouldNotBeWritten) {
  fails_ = true;
  add_one();
  EXPECT_THROW(weight_.home_master(), IoError);
  fails_ = false;
  EXPECT_THROW(held(Use::kRead), IoError);
  EXPECT_THROW(weight_.home_master(), IoError);
}

}  // namespace
}  // namespace hybrid_trainer
