#include "hybrid_trainer/nn/activation_tape.h"

#include <gtest/gtest.h>

#include "support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

TEST(PlainTape, GivesBackLastInFirstOut) {
  const Stream stream = test_stream();
  PlainTape tape{Pass{}};
  EXPECT_TRUE(tape.keeps());
  const Tensor first = normal_tensor({3}, 1, stream), second = normal_tensor({4}, 2, stream);
  tape.save({ActivationRole::kNormInput, first}, stream);
  tape.save({ActivationRole::kStatistics, second}, stream);
  EXPECT_EQ(tape.take(stream).raw(), second.raw());
  EXPECT_EQ(tape.take(stream).raw(), first.raw());
  EXPECT_TRUE(tape.empty());
  EXPECT_THROW(tape.take(stream), Error);
}

TEST(ForwardOnlyTape, KeepsNothing) {
  const Stream stream = test_stream();
  ForwardOnlyTape tape{Pass{.training = false, .dtype = DType::kBF16}};
  EXPECT_FALSE(tape.keeps());
  EXPECT_EQ(tape.pass().dtype, DType::kBF16);
  tape.save({ActivationRole::kNormInput, normal_tensor({100}, 1, stream)}, stream);
  EXPECT_EQ(stream.pool()->use().live_total, 0u);
  EXPECT_THROW(tape.take(stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::testing
