#include "hybrid_trainer/core/batch.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

class BatchTest : public ::testing::Test {
 protected:
  Tensor counted(const Shape& shape) const {
    Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream_);
    std::iota(tensor.data<float>(), tensor.data<float>() + tensor.elements(), 0.0f);
    return tensor;
  }
  const Stream stream_{MemoryPool::create("device")};
};

TEST_F(BatchTest, SlicesExamplesOfEveryTensor) {
  const Batch batch({{"x", counted({4, 3, 2})}, {"y", counted({4})}, {"weight", counted({4, 1})}});
  EXPECT_EQ(batch.size(), 4);
  EXPECT_EQ(batch.tokens(), 4);
  const Batch part = batch.examples(1, 3);
  EXPECT_EQ(part.at("x").shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(part.at("x").data<float>()[0], 6);
  EXPECT_EQ(part.at("y").data<float>()[1], 2);
  EXPECT_EQ(part.at("weight").raw(), batch.at("weight").data<float>() + 1) << "no copy";
}

TEST_F(BatchTest, CountsTokensAndSplitsTargets) {
  Batch batch = token_batch(counted({4, 3}), counted({4, 3}));
  EXPECT_EQ(batch.tokens(), 12);
  EXPECT_EQ(batch.loss_divisor(), 12);
  EXPECT_EQ(batch.find("positions"), nullptr);
  batch.set_targets(6);
  EXPECT_EQ(batch.examples(0, 2).tokens(), 6);
  EXPECT_EQ(batch.examples(0, 2).loss_divisor(), 3);
}

TEST_F(BatchTest, MissingTensorListsAvailableNames) {
  const Batch batch({{"x", counted({2, 3})}, {"y", counted({2})}});
  try {
    batch.at("z");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the batch has no tensor z, only x, y");
  }
}

TEST_F(BatchTest, RefusesDifferentExampleCounts) {
  EXPECT_THROW(Batch({{"x", counted({2, 3})}, {"y", counted({3})}}), Error);
}

TEST_F(BatchTest, IsLikeComparesNamesShapesAndTargets) {
  const Batch batch({{"x", counted({4, 3})}, {"y", counted({4})}});
  EXPECT_TRUE(batch.is_like(Batch({{"x", counted({4, 3})}, {"y", counted({4})}})));
  EXPECT_FALSE(batch.is_like(batch.examples(0, 2)));
  EXPECT_FALSE(batch.is_like(Batch({{"x", counted({4, 3})}, {"z", counted({4})}})));
  EXPECT_FALSE(batch.is_like(Batch({{"x", counted({4, 3})}})));
  Batch fewer = batch;
  fewer.set_targets(2);
  EXPECT_FALSE(batch.is_like(fewer));
}

TEST_F(BatchTest, UploadDoesNotCopyDeviceTensors) {
  const Batch batch({{"x", counted({4, 3})}, {"y", counted({4})}});
  const std::size_t before = stream_.pool()->use().live_total;
  const Batch same = BatchUpload().to_device(batch, stream_);
  EXPECT_EQ(same.at("y").raw(), batch.at("y").raw());
  EXPECT_EQ(stream_.pool()->use().live_total, before);
}

}  // namespace
}  // namespace hybrid_trainer
