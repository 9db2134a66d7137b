#include "hybrid_trainer/kernels/indexing.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct IndexSize {
  std::int64_t batch, length, vocabulary, columns;
};
/// Rows with and without vector loads, and vocabularies of one to three radix-sort digits.
constexpr IndexSize kIndexSizes[] = {
    {1, 1, 1, 1}, {3, 5, 11, 37}, {2, 70, 300, 64}, {5, 33, 70'000, 24}, {9, 8, 255, 520}};

std::string text(const IndexSize& s, DType dtype) {
  return concat(s.batch, "x", s.length, " of ", s.vocabulary, "x", s.columns, " ", name_of(dtype));
}

TEST(CudaEmbedding, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const IndexSize& s : kIndexSizes) {
    for (DType dtype : kRealTypes) {
      const Tensors tensors{random_tensor({s.batch, s.length, s.columns}, dtype, 1, host),
                            random_ids({s.batch, s.length}, s.vocabulary, 2, host),
                            random_tensor({s.vocabulary, s.columns}, dtype, 3, host),
                            random_tensor({s.length + 4, s.columns}, dtype, 4, host)};
      expect_like_cpu(tensors, 0, text(s, dtype), [](const Tensors& t, const Stream& stream) {
        embedding_forward(t[0], t[1], t[2], t[3], 3, stream);
      });
    }
  }
}

TEST(CudaColumns, GatherAndScatterMatchCpu) {
  const Stream host = cpu_stream();
  const Tensor indices = tensor_of({40, 3, 0, 17}, {4}, DType::kI32, host);
  for (const std::int64_t rows : {1, 7, 300}) {
    const Tensor columns = random_tensor({4, rows}, DType::kF32, 1, host);
    expect_like_cpu({columns, random_tensor({rows, 41}, DType::kF32, 2, host), indices}, 0,
                    concat("gather ", rows), [](const Tensors& t, const Stream& stream) {
                      gather_columns(t[0], t[1], t[2], stream);
                    });
    for (const DType dtype : kRealTypes) {
      expect_like_cpu({random_tensor({rows, 41}, dtype, 2, host), columns, indices}, 0,
                      concat("scatter ", rows), [](const Tensors& t, const Stream& stream) {
                        scatter_columns(t[0], t[1], t[2], stream);
                      });
    }
  }
}

TEST(CudaEmbedding, TokenOutsideTableGivesNaN) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  const Tensor tokens = copy_to(tensor_of({2, -1, 1, 7}, {1, 4}, DType::kI32, host), stream);
  const Tensor table = copy_to(random_tensor({7, 16}, DType::kBF16, 1, host), stream);
  const Tensor y = Tensor::empty({1, 4, 16}, DType::kBF16, MemoryKind::kActivations, stream);
  embedding_forward(y, tokens, table, table, 0, stream);
  const Values values = values_of(wait_for_host(y, stream));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::isnan(values[i]), i / 16 == 1 || i / 16 == 3) << i;
  }
}

/// Integers, whose sums are exact in any order.
Tensor whole_numbers(const Shape& shape, DType dtype, std::uint64_t seed, const Stream& stream) {
  Values values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(random_below({seed, 2, 0}, i, 15)) - 7;
  }
  return tensor_of(values, shape, dtype, stream);
}

void expect_backward(const IndexSize& s, const Tensor& tokens, DType dtype, GradientMode mode) {
  const Stream host = cpu_stream();
  const Tensors tensors{whole_numbers({s.vocabulary, s.columns}, DType::kF32, 1, host),
                        whole_numbers({s.length + 2, s.columns}, DType::kF32, 2, host),
                        whole_numbers({s.batch, s.length, s.columns}, dtype, 3, host), tokens};
  expect_like_cpu(tensors, 0, text(s, dtype), [&](const Tensors& t, const Stream& stream) {
    embedding_backward(t[0], mode, t[1], mode, t[2], t[3], stream);
  });
}

TEST(CudaEmbedding, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const IndexSize& s : kIndexSizes) {
    const Tensor tokens = random_ids({s.batch, s.length}, s.vocabulary, 5, host);
    expect_backward(s, tokens, DType::kF32, GradientMode::kOverwrite);
    expect_backward(s, tokens, DType::kBF16, GradientMode::kAccumulate);
  }
}

TEST(CudaEmbedding, BackwardAcrossSortTilesMatchesCpu) {
  const Stream host = cpu_stream();
  for (const std::int64_t vocabulary : {1, 2, 40, 1000}) {
    const IndexSize s{5, 821, vocabulary, 8};
    expect_backward(s, random_ids({s.batch, s.length}, vocabulary, 6, host),
                    vocabulary == 2 ? DType::kF32 : DType::kBF16, GradientMode::kOverwrite);
  }
}

TEST(CudaEmbedding, BackwardOfRealNumbersMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensors tensors{
      random_tensor({30, 20}, DType::kF32, 1, host), random_tensor({50, 20}, DType::kF32, 2, host),
      random_tensor({9, 50, 20}, DType::kF32, 3, host), random_ids({9, 50}, 30, 4, host)};
  expect_like_cpu(tensors, 1e-5, "any numbers", [](const Tensors& t, const Stream& stream) {
    embedding_backward(t[0], GradientMode::kAccumulate, t[1], GradientMode::kOverwrite, t[2], t[3],
                       stream);
  });
}

TEST(CudaEmbedding, BackwardAtSegmentBoundariesMatchesCpu) {
  const Stream host = cpu_stream();
  const IndexSize s{2, 160, 9, 40};
  Values ids;
  for (int i = 0; i < 320; ++i) ids.push_back(i < 64 ? 3 : i < 128 ? 0 : i < 257 ? 8 : 5);
  for (DType dtype : kRealTypes) {
    expect_backward(s, tensor_of(ids, {2, 160}, DType::kI32, host), dtype,
                    GradientMode::kAccumulate);
  }
}

TEST(CudaEmbedding, BackwardIntoTableRowsMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensors tensors{
      random_tensor({12, 6}, DType::kF32, 1, host), random_tensor({11, 6}, DType::kF32, 2, host),
      random_tensor({4, 9, 6}, DType::kF32, 3, host), random_ids({4, 9}, 10, 4, host)};
  expect_like_cpu(tensors, 1e-5, "rows", [](const Tensors& t, const Stream& stream) {
    embedding_backward(t[0].rows(1, 11), GradientMode::kOverwrite, t[1].rows(1, 11),
                       GradientMode::kOverwrite, t[2].rows(1, 4), t[3].rows(1, 4), stream);
  });
}

TEST(CudaEmbedding, BackwardSkipsTokensOutsideTable) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  Values ids(300, 256);
  ids[7] = -5;
  ids[40] = 2;
  const Tensor tokens = copy_to(tensor_of(ids, {300, 1}, DType::kI32, host), stream);
  const Tensor dy = copy_to(tensor_of(Values(300 * 4, 1), {300, 1, 4}, DType::kF32, host), stream);
  const Tensor table = Tensor::empty({256, 4}, DType::kF32, MemoryKind::kGradients, stream);
  const Tensor positions = Tensor::empty({1, 4}, DType::kF32, MemoryKind::kGradients, stream);
  embedding_backward(table, GradientMode::kOverwrite, positions, GradientMode::kOverwrite, dy,
                     tokens, stream);
  Values wanted(256 * 4, 0.0);
  for (std::size_t i = 8; i < 12; ++i) wanted[i] = 1;
  expect_close(wait_for_host(table, stream), wanted, 0);
  expect_close(wait_for_host(positions, stream), Values(4, 300), 0);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
