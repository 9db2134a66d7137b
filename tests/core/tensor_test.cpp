#include "hybrid_trainer/core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hybrid_trainer {
namespace {

class TensorTest : public ::testing::Test {
 protected:
  /// 0, 1, 2, … in row-major order.
  Tensor counted(const Shape& shape) const {
    const Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream_);
    std::iota(tensor.data<float>(), tensor.data<float>() + tensor.elements(), 0.0f);
    return tensor;
  }
  Stream stream_{MemoryPool::create("test")};
};

TEST(Shape, CountsElementsAndPrints) {
  EXPECT_EQ((Shape{8, 64}).text(), "(8, 64)");
  EXPECT_EQ((Shape{2, 3, 4, 5}).elements(), 120);
  EXPECT_EQ((Shape{3, 0}).elements(), 0);
  EXPECT_EQ(Shape{}.elements(), 0);
}

TEST(Shape, RefusesSixthOrNegativeDimension) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6}), ShapeMismatch);
  EXPECT_THROW((Shape{2, -1}), ShapeMismatch);
}

TEST_F(TensorTest, ZerosAreZeroAndCountedByKind) {
  const Tensor tensor = Tensor::zeros({5, 7}, DType::kI32, MemoryKind::kGradients, stream_);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) EXPECT_EQ(tensor.data<std::int32_t>()[i], 0);
  EXPECT_EQ(tensor.bytes(), 140u);
  EXPECT_GE(stream_.pool()->use().live[static_cast<std::size_t>(MemoryKind::kGradients)], 140u);
}

TEST_F(TensorTest, ViewSharesElementsUnderNewShape) {
  const Tensor tensor = counted({2, 6});
  const Tensor view = tensor.view({3, 4});
  view.data<float>()[5] = 50;
  EXPECT_EQ(tensor.data<float>()[5], 50);
  EXPECT_EQ(view.size(0), 3);
  try {
    tensor.view({5, 2});
    FAIL() << "no error";
  } catch (const ShapeMismatch& error) {
    EXPECT_STREQ(error.what(), "a tensor of shape (2, 6) cannot be viewed as (5, 2)");
  }
}

TEST_F(TensorTest, RowsShareMemoryAndNest) {
  const Tensor tensor = counted({6, 2, 3});
  const Tensor rows = tensor.rows(2, 5);
  EXPECT_EQ(rows.shape(), (Shape{3, 2, 3}));
  EXPECT_EQ(rows.data<float>()[0], 12);
  EXPECT_EQ(rows.rows(1, 2).data<float>()[0], 18);
  EXPECT_EQ(tensor.rows(6, 6).elements(), 0);
  EXPECT_THROW(tensor.rows(5, 7), ShapeMismatch);
  EXPECT_THROW(tensor.rows(-1, 2), ShapeMismatch);
  EXPECT_THROW(tensor.rows(3, 2), ShapeMismatch);
}

TEST_F(TensorTest, LastViewReleasesMemory) {
  Tensor rows;
  {
    const Tensor tensor = counted({4, 4});
    rows = tensor.rows(1, 2);
  }
  EXPECT_EQ(rows.data<float>()[0], 4);
  EXPECT_GT(stream_.pool()->use().live_total, 0u);
  rows = {};
  EXPECT_EQ(stream_.pool()->use().live_total, 0u);
  EXPECT_FALSE(rows.defined());
}

TEST_F(TensorTest, WrongDTypeAccessReportsBoth) {
  const Tensor tensor = counted({3});
  try {
    tensor.data<BFloat16>();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a tensor of dtype f32 and shape (3) was read as bf16");
  }
}

TEST_F(TensorTest, CopyMatchesSourceAtAnySize) {
  for (const std::int64_t elements : {std::int64_t{7}, std::int64_t{1} << 19}) {
    const Tensor source = counted({elements});
    const Tensor destination = Tensor::zeros({elements}, DType::kF32, MemoryKind::kData, stream_);
    copy(destination, source, stream_);
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      different += destination.data<float>()[i] != static_cast<float>(i) ? 1 : 0;
    }
    EXPECT_EQ(different, 0);
    fill_zero(destination, stream_);
    EXPECT_EQ(destination.data<float>()[elements - 1], 0);
  }
}

TEST_F(TensorTest, CopyRefusesOtherShapeOrDType) {
  const Tensor source = counted({6});
  EXPECT_THROW(copy(counted({2, 3}), source, stream_), ShapeMismatch);
  const Tensor integers = Tensor::zeros({6}, DType::kI32, MemoryKind::kData, stream_);
  EXPECT_THROW(copy(integers, source, stream_), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer
