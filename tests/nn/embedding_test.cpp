#include "hybrid_trainer/nn/embedding.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

class EmbeddingTest : public ::testing::Test {
 protected:
  EmbeddingTest() {
    randomize([&](const ParameterVisitor& visit) { embedding_.visit_parameters(visit); }, stream_);
  }
  const Stream stream_ = test_stream();
  Embedding embedding_{{.rows = 20, .positions = 8, .width = 4}, stream_};
};

TEST_F(EmbeddingTest, AddsTokenAndPositionRows) {
  const Tensor tokens = random_tokens({2, 3}, 20, 1, stream_);
  const auto expect_rows = [&](const Pass& pass, std::int64_t first) {
    const Tensor y = embedding_.forward(tokens, pass, stream_);
    ASSERT_EQ(y.shape(), (Shape{2, 3, 4}));
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      const std::int64_t place = i / 4, channel = i % 4;
      const std::int64_t token = tokens.data<std::int32_t>()[place], position = first + place % 3;
      EXPECT_EQ(y.data<float>()[i],
                master_of(embedding_.tokens()).data<float>()[token * 4 + channel] +
                    master_of(embedding_.positions()).data<float>()[position * 4 + channel]);
    }
  };
  expect_rows({}, 0);
  Pass later;
  later.positions = Tensor::zeros({2, 3}, DType::kI32, MemoryKind::kData, stream_);
  for (std::int32_t i = 0; i < 6; ++i) later.positions.data<std::int32_t>()[i] = 5 + i % 3;
  expect_rows(later, 5);
}

TEST_F(EmbeddingTest, RejectsTokenOutsideTable) {
  const Tensor tokens = random_tokens({1, 3}, 20, 1, stream_);
  tokens.data<std::int32_t>()[2] = 20;
  try {
    embedding_.forward(tokens, {}, stream_);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("20"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
