#include "hybrid_trainer/kernels/indexing.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kVocabulary = 11, kContext = 9, kIndexedColumns = 37;

TEST(Embedding, ForwardAddsTokenAndPositionRows) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor tokens = random_ids({3, 5}, kVocabulary, 1, stream);
    const Tensor token_table = random_tensor({kVocabulary, kIndexedColumns}, dtype, 2, stream);
    const Tensor position_table = random_tensor({kContext, kIndexedColumns}, dtype, 3, stream);
    const Tensor y =
        Tensor::empty({3, 5, kIndexedColumns}, dtype, MemoryKind::kActivations, stream);
    embedding_forward(y, tokens, token_table, position_table, 4, stream);
    const Values token_values = values_of(token_table), position_values = values_of(position_table);
    Values wanted;
    for (std::int64_t n = 0; n < 15; ++n) {
      for (std::int64_t i = 0; i < kIndexedColumns; ++i) {
        wanted.push_back(
            token_values[static_cast<std::size_t>(tokens.data<std::int32_t>()[n] * kIndexedColumns +
                                                  i)] +
            position_values[static_cast<std::size_t>((4 + n % 5) * kIndexedColumns + i)]);
      }
    }
    expect_close(y, wanted, tolerance_of(dtype));
  }
}

TEST(Embedding, BackwardSumsRowsOfRepeatedTokens) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
      const Tensor tokens = random_ids({60, 7}, kVocabulary, 4, stream);
      const Tensor dy = random_tensor({60, 7, kIndexedColumns}, dtype, 5, stream);
      const Tensor dtoken = random_tensor({kVocabulary, kIndexedColumns}, DType::kF32, 6, stream);
      const Tensor dposition = random_tensor({kContext, kIndexedColumns}, DType::kF32, 7, stream);
      Values token_wanted = values_of(dtoken), position_wanted = values_of(dposition);
      if (mode == GradientMode::kOverwrite) {
        token_wanted.assign(token_wanted.size(), 0);
        position_wanted.assign(position_wanted.size(), 0);
      }
      const Values gradient = values_of(dy);
      for (std::int64_t n = 0; n < 420; ++n) {
        for (std::int64_t i = 0; i < kIndexedColumns; ++i) {
          const double value = gradient[static_cast<std::size_t>(n * kIndexedColumns + i)];
          token_wanted[static_cast<std::size_t>(tokens.data<std::int32_t>()[n] * kIndexedColumns +
                                                i)] += value;
          position_wanted[static_cast<std::size_t>(n % 7 * kIndexedColumns + i)] += value;
        }
      }
      embedding_backward(dtoken, mode, dposition, mode, dy, tokens, stream);
      expect_close(dtoken, token_wanted, 1e-5);
      expect_close(dposition, position_wanted, 1e-5);
    }
  }
}

TEST(Embedding, BackwardRepeatsBitForBit) {
  const Stream stream = cpu_stream();
  const Tensor tokens = random_ids({40, 9}, 3, 8, stream);
  const Tensor dy = random_tensor({40, 9, 130}, DType::kF32, 9, stream);
  const Tensor position = Tensor::empty({9, 130}, DType::kF32, MemoryKind::kGradients, stream);
  const Tensor first = Tensor::empty({3, 130}, DType::kF32, MemoryKind::kGradients, stream);
  const Tensor second = Tensor::empty_like(first, MemoryKind::kGradients, stream);
  for (const Tensor& table : {first, second}) {
    embedding_backward(table, GradientMode::kOverwrite, position, GradientMode::kOverwrite, dy,
                       tokens, stream);
  }
  expect_same_bits(first, second);
}

TEST(Embedding, RefusesTokensAndPositionsOutOfRange) {
  const Stream stream = cpu_stream();
  const Tensor table = random_tensor({kVocabulary, kIndexedColumns}, DType::kF32, 1, stream);
  const Tensor positions = random_tensor({kContext, kIndexedColumns}, DType::kF32, 1, stream);
  const Tensor y =
      Tensor::empty({1, 3, kIndexedColumns}, DType::kF32, MemoryKind::kActivations, stream);
  const Tensor tokens = tensor_of({0, -1, 11}, {1, 3}, DType::kI32, stream);
  try {
    embedding_forward(y, tokens, table, positions, 0, stream);
    FAIL() << "accepted token -1";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("token 1 is -1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(embedding_forward(y, tokens, table, positions, 7, stream), ShapeMismatch);
  EXPECT_THROW(
      embedding_forward(y, tokens, table, table.view({kIndexedColumns, kVocabulary}), 0, stream),
      ShapeMismatch);
}

TEST(Columns, GatherAndScatterUseIndices) {
  const Stream stream = cpu_stream();
  const Tensor indices = tensor_of({3, 0}, {2}, DType::kI32, stream);
  const Tensor x =
      tensor_of({0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}, {3, 4}, DType::kF32, stream);
  const Tensor columns = Tensor::empty({2, 3}, DType::kF32, MemoryKind::kActivations, stream);
  gather_columns(columns, x, indices, stream);
  expect_close(columns, {3, 13, 23, 0, 10, 20}, 0);
  const Tensor changed = tensor_of({1.5, 2.5, 3.5, -1, -2, -3}, {2, 3}, DType::kF32, stream);
  for (const DType dtype : kRealTypes) {
    const Tensor y = tensor_of(values_of(x), {3, 4}, dtype, stream);
    scatter_columns(y, changed, indices, stream);
    expect_close(y, {-1, 1, 2, 1.5, -2, 11, 12, 2.5, -3, 21, 22, 3.5}, 0);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
