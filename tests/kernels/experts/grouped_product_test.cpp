#include "hybrid_trainer/kernels/experts.h"

#include "src/core/machine.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Groups of rows with one matrix per group.
struct GroupCase {
  std::vector<std::int64_t> rows;  // number of rows of each group
  std::int64_t inputs, outputs;
  std::int64_t all() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : rows) sum += count;
    return sum;
  }
};

/// Odd sizes; groups of no rows, a few, and more than a block; sizes of complete panels.
const GroupCase kGroupCases[] = {
    {{3, 0, 21, 1}, 7, 5}, {{0, 0}, 4, 3}, {{40, 17, 0, 270}, 96, 64}, {{33, 17}, 544, 160}};

Tensor offsets_of(const GroupCase& groups, const Stream& stream) {
  Values offsets{0};
  for (const std::int64_t count : groups.rows)
    offsets.push_back(offsets.back() + static_cast<double>(count));
  return tensor_of(offsets, {std::ssize(offsets)}, DType::kI32, stream);
}

std::vector<Tensor> matrices(const GroupCase& groups, const Shape& shape, DType dtype,
                             std::uint64_t seed, const Stream& stream) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < groups.rows.size(); ++i)
    all.push_back(random_tensor(shape, dtype, seed + i, stream, 0.3));
  return all;
}

std::vector<Values> all_values(const std::vector<Tensor>& tensors) {
  std::vector<Values> values;
  for (const Tensor& tensor : tensors) values.push_back(values_of(tensor));
  return values;
}

/// Reference sums in f64 over each group's rows.
struct GroupReference {
  const GroupCase& groups;
  /// Calls visit(group, row) for all rows.
  template <class Visit>
  void for_rows(const Visit& visit) const {
    std::int64_t row = 0;
    for (std::size_t group = 0; group < groups.rows.size(); ++group)
      for (std::int64_t i = 0; i < groups.rows[group]; ++i, ++row) visit(group, row);
  }
  /// start + x·wᵀ.
  Values forward(const Tensor& x, const std::vector<Tensor>& w, Values start) const {
    const Values from = values_of(x);
    const std::vector<Values> weights = all_values(w);
    for_rows([&](std::size_t group, std::int64_t row) {
      const Values& weight = weights[group];
      for (std::int64_t o = 0; o < groups.outputs; ++o)
        for (std::int64_t i = 0; i < groups.inputs; ++i)
          start[at(row, o, groups.outputs)] +=
              from[at(row, i, groups.inputs)] * weight[at(o, i, groups.inputs)];
    });
    return start;
  }
  Values input(const Tensor& dy, const std::vector<Tensor>& w, Values start) const {
    const Values from = values_of(dy);
    const std::vector<Values> weights = all_values(w);
    for_rows([&](std::size_t group, std::int64_t row) {
      const Values& weight = weights[group];
      for (std::int64_t o = 0; o < groups.outputs; ++o)
        for (std::int64_t i = 0; i < groups.inputs; ++i)
          start[at(row, i, groups.inputs)] +=
              from[at(row, o, groups.outputs)] * weight[at(o, i, groups.inputs)];
    });
    return start;
  }
  Values weight(std::size_t wanted, const Tensor& dy, const Tensor& x, Values start) const {
    const Values left = values_of(dy), right = values_of(x);
    for_rows([&](std::size_t group, std::int64_t row) {
      for (std::int64_t o = 0; o < groups.outputs && group == wanted; ++o)
        for (std::int64_t i = 0; i < groups.inputs; ++i)
          start[at(o, i, groups.inputs)] +=
              left[at(row, o, groups.outputs)] * right[at(row, i, groups.inputs)];
    });
    return start;
  }
  static std::size_t at(std::int64_t row, std::int64_t column, std::int64_t columns) {
    return static_cast<std::size_t>(row * columns + column);
  }
};

Values start_of(const Tensor& c, GradientMode mode) {
  return mode == GradientMode::kAccumulate ? values_of(c)
                                           : Values(static_cast<std::size_t>(c.elements()));
}

/// Calls test(case, dtype, mode) for all combinations.
template <class Test>
void for_cases(const Test& test) {
  for (const GroupCase& groups : kGroupCases)
    for (const DType dtype : kRealTypes)
      for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate})
        test(groups, dtype, mode);
}

TEST(GroupedProduct, ForwardMatchesPerGroupProducts) {
  const Stream stream = cpu_stream();
  for_cases([&](const GroupCase& groups, DType dtype, GradientMode mode) {
    const Tensor x = random_tensor({groups.all(), groups.inputs}, dtype, 1, stream, 0.3),
                 y = random_tensor({groups.all(), groups.outputs}, dtype, 2, stream);
    const auto w = matrices(groups, {groups.outputs, groups.inputs}, dtype, 10, stream);
    const Values wanted = GroupReference{groups}.forward(x, w, start_of(y, mode));
    grouped_forward(y, x, {offsets_of(groups, stream)}, w, {}, mode, stream);
    expect_close(y, wanted, tolerance_of(dtype), name_of(dtype));
  });
}

TEST(GroupedProduct, AddsBiasOfEachGroup) {
  const Stream stream = cpu_stream();
  for (const GroupCase& groups : kGroupCases) {
    const Tensor x = random_tensor({groups.all(), groups.inputs}, DType::kF32, 1, stream, 0.3),
                 y = Tensor::empty({groups.all(), groups.outputs}, DType::kF32,
                                   MemoryKind::kActivations, stream);
    const auto w = matrices(groups, {groups.outputs, groups.inputs}, DType::kF32, 10, stream),
               biases = matrices(groups, {groups.outputs}, DType::kF32, 50, stream);
    Values start(static_cast<std::size_t>(y.elements()));
    GroupReference{groups}.for_rows([&](std::size_t group, std::int64_t row) {
      const Values bias = values_of(biases[group]);
      std::copy(bias.begin(), bias.end(), start.begin() + row * groups.outputs);
    });
    grouped_forward(y, x, {offsets_of(groups, stream)}, w, biases, GradientMode::kOverwrite,
                    stream);
    expect_close(y, GroupReference{groups}.forward(x, w, start), 2e-5);
  }
}

TEST(GroupedProduct, InputGradientMatchesPerGroupProducts) {
  const Stream stream = cpu_stream();
  for_cases([&](const GroupCase& groups, DType dtype, GradientMode mode) {
    const Tensor dx = random_tensor({groups.all(), groups.inputs}, dtype, 1, stream),
                 dy = random_tensor({groups.all(), groups.outputs}, dtype, 2, stream, 0.3);
    const auto w = matrices(groups, {groups.outputs, groups.inputs}, dtype, 10, stream);
    const Values wanted = GroupReference{groups}.input(dy, w, start_of(dx, mode));
    grouped_backward_input(dx, dy, {offsets_of(groups, stream)}, w, mode, stream);
    expect_close(dx, wanted, tolerance_of(dtype), name_of(dtype));
  });
}

TEST(GroupedProduct, WeightGradientMatchesPerGroupProducts) {
  const Stream stream = cpu_stream();
  for_cases([&](const GroupCase& groups, DType dtype, GradientMode mode) {
    for (const DType output : {DType::kF32, dtype}) {
      const Tensor x = random_tensor({groups.all(), groups.inputs}, dtype, 1, stream, 0.3),
                   dy = random_tensor({groups.all(), groups.outputs}, dtype, 2, stream, 0.3);
      const auto dw = matrices(groups, {groups.outputs, groups.inputs}, output, 10, stream);
      std::vector<Values> wanted;
      for (std::size_t i = 0; i < dw.size(); ++i)
        wanted.push_back(GroupReference{groups}.weight(i, dy, x, start_of(dw[i], mode)));
      grouped_backward_weight(dw, dy, x, {offsets_of(groups, stream)}, mode, stream);
      for (std::size_t i = 0; i < dw.size(); ++i)
        expect_close(dw[i], wanted[i], tolerance_of(output), name_of(output));
    }
  });
}

TEST(GroupedProduct, BiasGradientSumsWeightedRows) {
  const Stream stream = cpu_stream();
  const GroupCase& groups = kGroupCases[0];
  const Tensor dy = random_tensor({groups.all(), groups.outputs}, DType::kF32, 1, stream),
               factors = random_tensor({groups.all()}, DType::kF32, 2, stream);
  const auto dbiases = matrices(groups, {groups.outputs}, DType::kF32, 3, stream);
  std::vector<Values> wanted;
  for (const Tensor& bias : dbiases) wanted.push_back(values_of(bias));
  const Values of_rows = values_of(factors), from = values_of(dy);
  GroupReference{groups}.for_rows([&](std::size_t group, std::int64_t row) {
    for (std::int64_t o = 0; o < groups.outputs; ++o)
      wanted[group][static_cast<std::size_t>(o)] +=
          of_rows[static_cast<std::size_t>(row)] * from[GroupReference::at(row, o, groups.outputs)];
  });
  grouped_bias_backward(dbiases, dy, factors, {offsets_of(groups, stream)},
                        GradientMode::kAccumulate, stream);
  for (std::size_t i = 0; i < dbiases.size(); ++i) expect_close(dbiases[i], wanted[i], 1e-5);
}

TEST(GroupedProduct, DotsUseVectorOfEachGroup) {
  const Stream stream = cpu_stream();
  const GroupCase& groups = kGroupCases[0];
  const auto vectors = matrices(groups, {groups.inputs}, DType::kF32, 3, stream);
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({groups.all(), groups.inputs}, dtype, 1, stream),
                 sums = Tensor::zeros({groups.all()}, DType::kF32, MemoryKind::kWorkspace, stream);
    grouped_dots(sums, x, {offsets_of(groups, stream)}, vectors, stream);
    const Values from = values_of(x);
    Values wanted(static_cast<std::size_t>(groups.all()));
    GroupReference{groups}.for_rows([&](std::size_t group, std::int64_t row) {
      const Values vector = values_of(vectors[group]);
      for (std::int64_t i = 0; i < groups.inputs; ++i)
        wanted[static_cast<std::size_t>(row)] +=
            vector[static_cast<std::size_t>(i)] * from[GroupReference::at(row, i, groups.inputs)];
    });
    expect_close(sums, wanted, 1e-5, name_of(dtype));
  }
}

TEST(GroupedProduct, OneGroupAtATimeGivesSameBits) {
  const Stream stream = cpu_stream();
  const GroupCase& groups = kGroupCases[2];
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({groups.all(), groups.inputs}, dtype, 1, stream),
                 dy = random_tensor({groups.all(), groups.outputs}, dtype, 2, stream),
                 offsets = offsets_of(groups, stream);
    const auto w = matrices(groups, {groups.outputs, groups.inputs}, dtype, 10, stream);
    const Tensor y = Tensor::empty_like(dy, MemoryKind::kActivations, stream),
                 apart = Tensor::empty_like(dy, MemoryKind::kActivations, stream),
                 dx = Tensor::empty_like(x, MemoryKind::kActivations, stream),
                 dx_apart = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    const auto dw = matrices(groups, {groups.outputs, groups.inputs}, DType::kF32, 20, stream),
               dw_apart =
                   matrices(groups, {groups.outputs, groups.inputs}, DType::kF32, 30, stream);
    grouped_forward(y, x, {offsets}, w, {}, GradientMode::kOverwrite, stream);
    grouped_backward_input(dx, dy, {offsets}, w, GradientMode::kOverwrite, stream);
    grouped_backward_weight(dw, dy, x, {offsets}, GradientMode::kOverwrite, stream);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const GroupedRows rows{offsets, static_cast<std::int64_t>(i)};
      grouped_forward(apart, x, rows, {&w[i], 1}, {}, GradientMode::kOverwrite, stream);
      grouped_backward_input(dx_apart, dy, rows, {&w[i], 1}, GradientMode::kOverwrite, stream);
      grouped_backward_weight({&dw_apart[i], 1}, dy, x, rows, GradientMode::kOverwrite, stream);
      expect_same_bits(dw[i], dw_apart[i]);
    }
    expect_same_bits(y, apart);
    expect_same_bits(dx, dx_apart);
  }
}

TEST(GroupedProduct, FewRowsMatchSingleRowsBitForBit) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({6, 96}, dtype, 1, stream),
                 y = Tensor::empty({6, 70}, dtype, MemoryKind::kActivations, stream),
                 alone = Tensor::empty({6, 70}, dtype, MemoryKind::kActivations, stream);
    const std::vector<Tensor> w{random_tensor({70, 96}, dtype, 2, stream)};
    grouped_forward(y, x, {tensor_of({0, 6}, {2}, DType::kI32, stream)}, w, {},
                    GradientMode::kOverwrite, stream);
    for (int row = 0; row < 6; ++row)
      grouped_forward(alone, x, {tensor_of({1.0 * row, row + 1.0}, {2}, DType::kI32, stream)}, w,
                      {}, GradientMode::kOverwrite, stream);
    expect_same_bits(y, alone);
  }
}

TEST(GroupedProduct, RefusesMissingGroups) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({4, 8}, DType::kF32, 1, stream),
               offsets = tensor_of({0, 4}, {2}, DType::kI32, stream);
  const std::vector<Tensor> w(2, random_tensor({8, 8}, DType::kF32, 2, stream));
  EXPECT_THROW(grouped_forward(x, x, {offsets}, w, {}, GradientMode::kOverwrite, stream),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
