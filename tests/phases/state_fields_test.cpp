#include "phases/state_fields.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

class SavedBatches : public ::testing::Test {
 protected:
  Tensor ids(std::int32_t first) const {
    const Tensor tensor = Tensor::empty({2, 3}, DType::kI32, MemoryKind::kData, bowl_.stream());
    for (std::int32_t i = 0; i < 6; ++i) tensor.data<std::int32_t>()[i] = first + i;
    return tensor;
  }
  static std::int32_t first_of(const Batch& batch, const char* name) {
    return batch.at(name).data<std::int32_t>()[0];
  }
  QuadraticBowl bowl_;
};

TEST_F(SavedBatches, KeepNamesAndOrder) {
  Batch rows = token_batch(ids(10), ids(20), ids(30));
  rows.set_targets(4);
  const Batch other({{"y", ids(40)}, {"x", ids(50)}});
  State state;
  save_batches(state, "phases.batches", {rows, other});
  const std::vector<Batch> read = load_batches(state, "phases.batches", bowl_);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_TRUE(read[0].is_like(rows));
  EXPECT_EQ(first_of(read[0], "positions"), 30);
  EXPECT_EQ(read[0].tokens(), 6);
  EXPECT_EQ(read[0].targets(), 4);
  EXPECT_TRUE(read[1].is_like(other));
  EXPECT_EQ(first_of(read[1], "x"), 50);
  EXPECT_EQ(read[1].tokens(), 2);
}

}  // namespace
}  // namespace hybrid_trainer
