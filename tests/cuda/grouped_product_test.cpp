#include "hybrid_trainer/kernels/experts.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Number of rows of each group; each group has a matrix (outputs, inputs).
struct GroupSizes {
  std::vector<std::int64_t> rows;
  std::int64_t inputs, outputs;
  std::int64_t all() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : rows) sum += count;
    return sum;
  }
  Tensor offsets(const Stream& host) const {
    Values offsets{0};
    for (const std::int64_t count : rows)
      offsets.push_back(offsets.back() + static_cast<double>(count));
    return tensor_of(offsets, {std::ssize(offsets)}, DType::kI32, host);
  }
};

/// Sizes that do and do not allow vector loads; groups with no rows, a few, and more than a tile;
/// more columns than a tile.
const GroupSizes kGroupSizes[] = {
    {{3, 0, 21, 1}, 7, 5}, {{0, 0}, 8, 8}, {{0, 131, 2, 40}, 168, 72}, {{5, 70}, 130, 17}};

std::string text(const GroupSizes& s, DType dtype, GradientMode mode) {
  return concat(s.rows.size(), " groups of ", s.outputs, "x", s.inputs, " ", name_of(dtype),
                mode == GradientMode::kAccumulate ? " adding" : "");
}

/// The shared tensors, then the matrices of the groups.
Tensors with_matrices(Tensors shared, const GroupSizes& s, const Shape& shape, DType dtype,
                      const Stream& host) {
  for (std::size_t i = 0; i < s.rows.size(); ++i)
    shared.push_back(random_tensor(shape, dtype, 10 + i, host, 0.3));
  return shared;
}

std::span<const Tensor> from(const Tensors& t, std::size_t first, std::size_t count = 64) {
  return std::span(t).subspan(first, std::min(count, t.size() - first));
}

/// Calls test(sizes, dtype, mode), alternating between the modes.
template <class Test>
void for_sizes(const Test& test) {
  bool adds = false;
  for (const GroupSizes& s : kGroupSizes) {
    for (const DType dtype : kRealTypes) {
      test(s, dtype, adds ? GradientMode::kAccumulate : GradientMode::kOverwrite);
      adds = !adds;
    }
    adds = !adds;
  }
}

TEST(CudaGroupedProduct, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for_sizes([&](const GroupSizes& s, DType dtype, GradientMode mode) {
    const Tensors tensors =
        with_matrices({random_tensor({s.all(), s.outputs}, dtype, 1, host),
                       random_tensor({s.all(), s.inputs}, dtype, 2, host, 0.3), s.offsets(host)},
                      s, {s.outputs, s.inputs}, dtype, host);
    expect_like_cpu(tensors, tolerance_of(dtype), text(s, dtype, mode),
                    [&](const Tensors& t, const Stream& stream) {
                      grouped_forward(t[0], t[1], {t[2]}, from(t, 3), {}, mode, stream);
                    });
  });
}

TEST(CudaGroupedProduct, ForwardWithBiasesMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const GroupSizes& s = kGroupSizes[dtype == DType::kF32 ? 0 : 3];
    Tensors tensors =
        with_matrices({random_tensor({s.all(), s.outputs}, dtype, 1, host),
                       random_tensor({s.all(), s.inputs}, dtype, 2, host, 0.3), s.offsets(host)},
                      s, {s.outputs, s.inputs}, dtype, host);
    tensors = with_matrices(tensors, s, {s.outputs}, DType::kF32, host);
    const std::size_t count = s.rows.size();
    expect_like_cpu(tensors, tolerance_of(dtype), name_of(dtype),
                    [&](const Tensors& t, const Stream& stream) {
                      grouped_forward(t[0], t[1], {t[2]}, from(t, 3, count), from(t, 3 + count),
                                      GradientMode::kAccumulate, stream);
                    });
  }
}

TEST(CudaGroupedProduct, InputGradientMatchesCpu) {
  const Stream host = cpu_stream();
  for_sizes([&](const GroupSizes& s, DType dtype, GradientMode mode) {
    const Tensors tensors =
        with_matrices({random_tensor({s.all(), s.inputs}, dtype, 1, host),
                       random_tensor({s.all(), s.outputs}, dtype, 2, host, 0.3), s.offsets(host)},
                      s, {s.outputs, s.inputs}, dtype, host);
    expect_like_cpu(tensors, tolerance_of(dtype), text(s, dtype, mode),
                    [&](const Tensors& t, const Stream& stream) {
                      grouped_backward_input(t[0], t[1], {t[2]}, from(t, 3), mode, stream);
                    });
  });
}

TEST(CudaGroupedProduct, WeightGradientMatchesCpu) {
  const Stream host = cpu_stream();
  for_sizes([&](const GroupSizes& s, DType dtype, GradientMode mode) {
    const DType output = s.inputs == 7 ? DType::kF32 : dtype;
    const Tensors tensors =
        with_matrices({random_tensor({s.all(), s.outputs}, dtype, 1, host, 0.3),
                       random_tensor({s.all(), s.inputs}, dtype, 2, host, 0.3), s.offsets(host)},
                      s, {s.outputs, s.inputs}, output, host);
    expect_like_cpu(tensors, tolerance_of(output), text(s, dtype, mode),
                    [&](const Tensors& t, const Stream& stream) {
                      grouped_backward_weight(from(t, 3), t[0], t[1], {t[2]}, mode, stream);
                    });
  });
}

TEST(CudaGroupedProduct, BiasGradientMatchesCpu) {
  const Stream host = cpu_stream();
  for_sizes([&](const GroupSizes& s, DType dtype, GradientMode mode) {
    const Tensors tensors =
        with_matrices({random_tensor({s.all(), s.outputs}, dtype, 1, host),
                       s.inputs == 168 ? Tensor() : random_tensor({s.all()}, DType::kF32, 2, host),
                       s.offsets(host)},
                      s, {s.outputs}, DType::kF32, host);
    expect_like_cpu(tensors, 1e-5, text(s, dtype, mode),
                    [&](const Tensors& t, const Stream& stream) {
                      grouped_bias_backward(from(t, 3), t[0], t[1], {t[2]}, mode, stream);
                    });
  });
}

TEST(CudaGroupedProduct, DotsMatchCpu) {
  const Stream host = cpu_stream();
  for_sizes([&](const GroupSizes& s, DType dtype, GradientMode mode) {
    const Tensors tensors =
        with_matrices({Tensor::zeros({s.all()}, DType::kF32, MemoryKind::kWorkspace, host),
                       random_tensor({s.all(), s.inputs}, dtype, 2, host), s.offsets(host)},
                      s, {s.inputs}, DType::kF32, host);
    expect_like_cpu(tensors, 1e-5, text(s, dtype, mode),
                    [](const Tensors& t, const Stream& stream) {
                      grouped_dots(t[0], t[1], {t[2]}, from(t, 3), stream);
                    });
  });
}

/// Results of one call for all groups, or (`apart`) one for each: y, dx and each group's dw.
Tensors results(const GroupSizes& s, DType dtype, bool apart, const Stream& host) {
  const Stream stream = cuda_stream();
  const Tensor x = copy_to(random_tensor({s.all(), s.inputs}, dtype, 1, host), stream),
               dy = copy_to(random_tensor({s.all(), s.outputs}, dtype, 2, host), stream),
               offsets = copy_to(s.offsets(host), stream);
  const Shape matrix{s.outputs, s.inputs};
  const Tensors w = copies_to(with_matrices({}, s, matrix, dtype, host), stream);
  Tensors all{Tensor::empty_like(dy, MemoryKind::kActivations, stream),
              Tensor::empty_like(x, MemoryKind::kActivations, stream)};
  for (std::size_t i = 0; i < w.size(); ++i)
    all.push_back(Tensor::empty(matrix, DType::kF32, MemoryKind::kGradients, stream));
  const std::size_t count = apart ? 1 : w.size();
  for (std::size_t i = 0; i < w.size(); i += count) {
    const GroupedRows rows{offsets, static_cast<std::int64_t>(i)};
    grouped_forward(all[0], x, rows, from(w, i, count), {}, GradientMode::kOverwrite, stream);
    grouped_backward_input(all[1], dy, rows, from(w, i, count), GradientMode::kOverwrite, stream);
    grouped_backward_weight(from(all, 2 + i, count), dy, x, rows, GradientMode::kOverwrite, stream);
  }
  for (Tensor& tensor : all) tensor = wait_for_host(tensor, stream);
  return all;
}

TEST(CudaGroupedProduct, OneGroupAtATimeGivesSameBits) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensors together = results(kGroupSizes[2], dtype, false, host),
                  apart = results(kGroupSizes[2], dtype, true, host);
    for (std::size_t i = 0; i < together.size(); ++i) expect_same_bits(together[i], apart[i]);
  }
}

/// The groups' addresses do not fit in the parameters of one launch.
TEST(CudaGroupedProduct, ManyGroupsMatchCpu) {
  const Stream host = cpu_stream();
  GroupSizes s{std::vector<std::int64_t>(300, 0), 8, 8};
  for (const std::size_t group : {0, 127, 128, 255, 299}) s.rows[group] = 2;
  const Tensors tensors =
      with_matrices({random_tensor({s.all(), 8}, DType::kF32, 1, host),
                     random_tensor({s.all(), 8}, DType::kF32, 2, host, 0.3), s.offsets(host)},
                    s, {8, 8}, DType::kF32, host);
  expect_like_cpu(tensors, 2e-5, "300", [&](const Tensors& t, const Stream& stream) {
    grouped_forward(t[0], t[1], {t[2]}, from(t, 3, 300), {}, GradientMode::kOverwrite, stream);
  });
}

/// Columns of one and of several tiles. Rows outside the groups stay unchanged.
TEST(CudaGroupedProduct, WideMatrixOfOneGroupMatchesCpu) {
  const Stream host = cpu_stream();
  const GroupSizes s{{2, 10, 3}, 16, 264};
  for (const bool forward : {true, false}) {
    const Shape matrix = forward ? Shape{264, 16} : Shape{16, 264};
    const Tensors tensors =
        with_matrices({random_tensor({s.all(), 264}, DType::kBF16, 1, host),
                       random_tensor({s.all(), 16}, DType::kBF16, 2, host, 0.3), s.offsets(host)},
                      s, matrix, DType::kBF16, host);
    expect_like_cpu(tensors, 1e-2, "wide", [&](const Tensors& t, const Stream& stream) {
      if (forward) {
        grouped_forward(t[0], t[1], {t[2], 1}, from(t, 3, 1), {}, GradientMode::kOverwrite, stream);
      } else {
        grouped_backward_input(t[0], t[1], {t[2], 1}, from(t, 3, 1), GradientMode::kOverwrite,
                               stream);
      }
    });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
