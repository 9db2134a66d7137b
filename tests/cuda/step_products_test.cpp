// Products at real shapes: bit-identical repetitions, and a few rows against double precision.

#include "hybrid_trainer/kernels/matmul.h"
#include "tests/cuda/step_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr double kTolerance = 1e-2;  // of one rounding to bf16
constexpr double kWeight = 0.05;     // puts GELU's inputs in its nonlinear range

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double step = 1e-5;
  return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

/// One row times the transposed matrix (outputs, inputs), computed on the host.
Values times_transposed(const Values& row, const Values& matrix, std::size_t outputs) {
  Values result(outputs, 0);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t i = 0; i < row.size(); ++i) result[o] += row[i] * matrix[o * row.size() + i];
  }
  return result;
}

/// One row times the matrix (outputs, inputs), computed on the host.
Values times(const Values& row, const Values& matrix, std::size_t inputs) {
  Values result(inputs, 0);
  for (std::size_t o = 0; o < row.size(); ++o) {
    for (std::size_t i = 0; i < inputs; ++i) result[i] += row[o] * matrix[o * inputs + i];
  }
  return result;
}

class CudaStepProducts : public StepCase {
 protected:
  struct Linear {
    Tensor x, w, bias;
    std::int64_t outputs;
  };
  Linear linear(std::int64_t outputs, std::int64_t inputs, DType dtype = kStepType) const {
    return {noise({sizes_.rows(), inputs}, dtype, 1), noise({outputs, inputs}, dtype, 2, kWeight),
            noise({outputs}, DType::kF32, 3), outputs};
  }
  Tensor like_output(const Linear& l) const {
    return Tensor::empty({sizes_.rows(), l.outputs}, l.x.dtype(), MemoryKind::kActivations,
                         stream_);
  }
  /// x·wᵀ + bias of one row, with the bias rounded as in the product.
  Values sum_of_row(const Linear& l, const Values& w, std::int64_t row) const {
    Values sum = times_transposed(row_of(on_host(l.x.rows(row, row + 1)), 0), w,
                                  static_cast<std::size_t>(l.outputs));
    const Values bias = values_of(on_host(l.bias));
    for (std::size_t o = 0; o < sum.size(); ++o) {
      const auto rounded = to_float(to_bfloat16(static_cast<float>(bias[o])));
      sum[o] += l.x.dtype() == DType::kBF16 ? static_cast<double>(rounded) : bias[o];
    }
    return sum;
  }
};

TEST_F(CudaStepProducts, ForwardWithBiasMatchesReference) {
  for (const DType dtype : kRealTypes) {
    const Linear l = linear(3 * sizes_.channels(), sizes_.channels(), dtype);
    const Tensor y = like_output(l);
    const Tensor found =
        same_each_time({y}, [&] { linear_forward(y, l.x, l.w, l.bias, Tensor(), stream_); })[0];
    const Values w = values_of(on_host(l.w));
    for (const std::int64_t row : some_of(sizes_.rows())) {
      expect_close(found.rows(row, row + 1), sum_of_row(l, w, row),
                   dtype == kStepType ? kTolerance : 2e-5, concat("row ", row));
    }
  }
}

/// The residual is cuBLASLt's C with beta 1, which the choice of an algorithm does not consider.
TEST_F(CudaStepProducts, ForwardWithResidualMatchesReference) {
  for (const std::int64_t inputs : {sizes_.channels(), 4 * sizes_.channels()}) {
    const Linear l = linear(sizes_.channels(), inputs);
    const Tensor residual = noise({sizes_.rows(), l.outputs}, kStepType, 4), y = like_output(l);
    const Values w = values_of(on_host(l.w));
    for (const bool in_place : {false, true}) {
      const Tensor found = same_each_time({y}, [&] {
        if (in_place) copy(y, residual, stream_);
        linear_forward(y, l.x, l.w, l.bias, in_place ? y : residual, stream_);
      })[0];
      for (const std::int64_t row : some_of(sizes_.rows())) {
        Values wanted = sum_of_row(l, w, row);
        const Values added = values_of(on_host(residual.rows(row, row + 1)));
        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += added[i];
        expect_close(found.rows(row, row + 1), wanted, kTolerance, concat("row ", row));
      }
    }
  }
}

TEST_F(CudaStepProducts, ForwardWithGeluMatchesReference) {
  const Linear l = linear(4 * sizes_.channels(), sizes_.channels());
  const Tensor active = like_output(l), pre_activation = like_output(l);
  const Tensors found = same_each_time({active, pre_activation}, [&] {
    linear_gelu_forward(active, pre_activation, l.x, l.w, l.bias, stream_);
  });
  const Values w = values_of(on_host(l.w));
  for (const std::int64_t row : some_of(sizes_.rows())) {
    Values wanted = sum_of_row(l, w, row);
    expect_close(found[1].rows(row, row + 1), wanted, kTolerance,
                 concat("pre_activation, row ", row));
    for (double& x : wanted) x = gelu(x);
    expect_close(found[0].rows(row, row + 1), wanted, kTolerance, concat("active, row ", row));
  }
}

/// Forward applies GELU to the f32 sum, backward to the sum rounded to bf16. They may differ only
/// by that rounding and their own, so that backward differentiates forward's function.
TEST_F(CudaStepProducts, RecomputedGeluMatchesForwardUpToRounding) {
  const Linear l = linear(4 * sizes_.channels(), sizes_.channels());
  const Tensor active = like_output(l), pre_activation = like_output(l), again = like_output(l);
  linear_gelu_forward(active, pre_activation, l.x, l.w, l.bias, stream_);
  gelu_forward(again, pre_activation, stream_);
  double worst = 0;
  for (const std::int64_t row : some_of(sizes_.rows())) {
    const Values had = values_of(on_host(active.rows(row, row + 1)));
    const Values has = values_of(on_host(again.rows(row, row + 1)));
    const Values of = values_of(on_host(pre_activation.rows(row, row + 1)));
    for (std::size_t i = 0; i < had.size(); ++i) {
      // Rounding to bf16 changes a value by at most 2^-8. The slope of GELU is at most 1.13, and a
      // library's GELU may be off by 1e-4.
      const double allowed = (1.13 * std::abs(of[i]) + std::abs(had[i]) + std::abs(has[i])) / 256;
      worst = std::max(worst, std::abs(had[i] - has[i]) / (allowed + 1e-4));
    }
  }
  RecordProperty("worst_share_of_what_roundings_allow", std::to_string(worst));
  EXPECT_LE(worst, 1);
}

TEST_F(CudaStepProducts, InputGradientMatchesReference) {
  const std::int64_t n = sizes_.rows(), c = sizes_.channels();
  for (const std::int64_t outputs : {3 * c, 4 * c}) {
    const Tensor dy = noise({n, outputs}, kStepType, 1);
    const Tensor w = noise({outputs, c}, kStepType, 2, kWeight);
    const Tensor dx = noise({n, c}, kStepType, 3);
    const Tensor found =
        same_each_time({dx}, [&] { linear_backward_input(dx, dy, w, stream_); })[0];
    const Values weights = values_of(on_host(w));
    for (const std::int64_t row : some_of(n)) {
      const Values of = values_of(on_host(dy.rows(row, row + 1)));
      expect_close(found.rows(row, row + 1), times(of, weights, static_cast<std::size_t>(c)),
                   kTolerance, concat("row ", row));
    }
  }
}

TEST_F(CudaStepProducts, GeluGradientMatchesReference) {
  const std::int64_t n = sizes_.rows(), c = sizes_.channels();
  const Tensor dy = noise({n, c}, kStepType, 1), w = noise({c, 4 * c}, kStepType, 2, kWeight);
  const Tensor pre_activation = noise({n, 4 * c}, kStepType, 3, 3),
               dpre_activation = noise({n, 4 * c}, kStepType, 4);
  const Tensor found = same_each_time({dpre_activation}, [&] {
    linear_gelu_backward_input(dpre_activation, dy, w, pre_activation, stream_);
  })[0];
  const Values weights = values_of(on_host(w));
  for (const std::int64_t row : some_of(n)) {
    Values wanted =
        times(values_of(on_host(dy.rows(row, row + 1))), weights, static_cast<std::size_t>(4 * c));
    const Values of = values_of(on_host(pre_activation.rows(row, row + 1)));
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] *= gelu_slope(of[i]);
    expect_close(found.rows(row, row + 1), wanted, kTolerance, concat("row ", row));
  }
}

/// The longest sum of a step, over all tokens; if split, its parts must be added in a fixed order.
TEST_F(CudaStepProducts, WeightGradientMatchesReference) {
  const std::int64_t n = sizes_.rows(), c = sizes_.channels();
  const auto columns = static_cast<std::size_t>(c);
  const Tensor x = noise({n, c}, kStepType, 1), dy = noise({n, 3 * c}, kStepType, 2);
  const Tensor before = noise({3 * c, c}, DType::kF32, 3), dw = noise({3 * c, c}, DType::kF32, 4);
  const Tensor x_host = on_host(x), dy_host = on_host(dy), before_host = on_host(before);
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    const Tensor found = same_each_time({dw}, [&] {
      copy(dw, before, stream_);
      linear_backward_weight(dw, dy, x, mode, stream_);
    })[0];
    for (const std::int64_t output : some_of(3 * c)) {
      Values wanted =
          mode == GradientMode::kAccumulate ? row_of(before_host, output) : Values(columns, 0);
      for (std::int64_t token = 0; token < n; ++token) {
        const auto factor =
            static_cast<double>(to_float(dy_host.data<BFloat16>()[token * 3 * c + output]));
        for (std::size_t i = 0; i < columns; ++i) {
          const BFloat16 value = x_host.data<BFloat16>()[static_cast<std::size_t>(token * c) + i];
          wanted[i] += factor * static_cast<double>(to_float(value));
        }
      }
      // Partial sums of 65,536 terms are about 85, and tensor cores do not round them to nearest.
      expect_close(found.rows(output, output + 1), wanted, 2e-3, concat("row ", output));
    }
  }
}

TEST_F(CudaStepProducts, HeadMatchesReference) {
  const std::int64_t n = sizes_.head_rows, c = sizes_.channels(), v = sizes_.padded_vocabulary;
  const Tensor x = noise({n, c}, kStepType, 1), table = noise({v, c}, kStepType, 2, kWeight);
  const Tensor logits = noise({n, v}, kStepType, 3), dx = noise({n, c}, kStepType, 4);
  const Tensor dtable = noise({v, c}, DType::kF32, 5);
  const Tensor found = same_each_time(
      {logits}, [&] { linear_forward(logits, x, table, Tensor(), Tensor(), stream_); })[0];
  const Tensor back =
      same_each_time({dx}, [&] { linear_backward_input(dx, logits, table, stream_); })[0];
  same_each_time({dtable}, [&] {
    linear_backward_weight(dtable, logits, x, GradientMode::kOverwrite, stream_);
    linear_backward_weight(dtable, logits, x, GradientMode::kAccumulate, stream_);
  });
  const Values words = values_of(on_host(table));
  for (const std::int64_t row : some_of(n)) {
    const Values wanted = times_transposed(values_of(on_host(x.rows(row, row + 1))), words,
                                           static_cast<std::size_t>(v));
    expect_close(found.rows(row, row + 1), wanted, kTolerance, concat("logits, row ", row));
    expect_close(back.rows(row, row + 1),
                 times(row_of(found, row), words, static_cast<std::size_t>(c)), kTolerance,
                 concat("dx, row ", row));
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
