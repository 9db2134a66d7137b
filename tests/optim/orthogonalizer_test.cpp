#include "src/optim/muon.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "src/core/machine.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix to_eigen(const Tensor& tensor) {
  using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return Eigen::Map<const Floats>(tensor.data<float>(), tensor.size(0), tensor.size(1))
      .cast<double>();
}

/// The five steps as written in the paper, for a wide matrix.
Matrix newton_schulz(const Matrix& matrix) {
  Matrix x = matrix / (matrix.norm() + 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = x * x.transpose();
    x = (3.4445 * x + (-4.7750 * gram + 2.0315 * gram * gram) * x).eval();
  }
  return x;
}

class OrthogonalizerShapes : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(OrthogonalizerShapes, BringsSingularValuesNearOne) {
  const auto [rows, columns] = GetParam();
  const Stream stream(MemoryPool::create("device"));
  Orthogonalizer orthogonalizer(4000, 64, stream);  // larger than all of the shapes
  const Tensor u = orthogonalizer.input(rows, columns);
  copy(u, testing::normal_tensor({rows, columns}, 5, stream), stream);
  const Matrix before = to_eigen(u);
  const Matrix after = to_eigen(orthogonalizer.orthogonal(u, DType::kF32, stream));
  const Eigen::JacobiSVD<Matrix> svd(after);
  EXPECT_LT(svd.singularValues().maxCoeff(), 1.25);
  EXPECT_GT(svd.singularValues().minCoeff(), 0.6);
  const Matrix want =
      rows <= columns ? newton_schulz(before) : newton_schulz(before.transpose()).transpose();
  EXPECT_LT((after - want).cwiseAbs().maxCoeff(), 1e-4);  // f32 error times 3.4445⁵
}

TEST_P(OrthogonalizerShapes, RoundsOnlyFactorsInBf16) {
  const auto [rows, columns] = GetParam();
  const Stream stream(MemoryPool::create("device"));
  Orthogonalizer orthogonalizer(4000, 64, stream);
  const auto run = [&, rows = rows, columns = columns](DType products) {
    const Tensor u = orthogonalizer.input(rows, columns);
    copy(u, testing::normal_tensor({rows, columns}, 5, stream), stream);
    return to_eigen(orthogonalizer.orthogonal(u, products, stream));
  };
  const Matrix exact = run(DType::kF32), rounded = run(DType::kBF16);
  EXPECT_LT((rounded - exact).cwiseAbs().maxCoeff(), 0.03);
  EXPECT_NE(rounded, exact);
  EXPECT_EQ(run(DType::kBF16), rounded);
  const std::size_t fresh = stream.pool()->use().fresh_total;
  run(DType::kBF16);
  EXPECT_EQ(stream.pool()->use().fresh_total, fresh);
}

INSTANTIATE_TEST_SUITE_P(All, OrthogonalizerShapes,
                         ::testing::Values(std::pair{20, 48}, std::pair{48, 20}, std::pair{1, 9},
                                           std::pair{9, 1}, std::pair{16, 17}, std::pair{32, 64}));

Matrix orthogonal(const Matrix& matrix) {
  if (matrix.rows() <= matrix.cols()) return newton_schulz(matrix);
  return newton_schulz(matrix.transpose()).transpose();
}

TEST(Orthogonalizer, OrthogonalizesRowBlocksSeparately) {
  const Stream stream(MemoryPool::create("device"));
  for (const auto& [rows, columns] : {std::pair{20, 48}, std::pair{50, 16}, std::pair{9, 9}}) {
    for (const int together : {1, 3, 4, 8}) {
      Orthogonalizer orthogonalizer(4000, 64, stream);
      const Tensor u = orthogonalizer.input(rows, columns);
      copy(u, testing::normal_tensor({rows, columns}, 5, stream), stream);
      const Matrix before = to_eigen(u);
      const Matrix after =
          to_eigen(orthogonalizer.orthogonal_blocks(u, together, DType::kF32, stream));
      for (int begin = 0; begin < rows; begin += together) {
        const int count = std::min(together, rows - begin);
        const Matrix want = orthogonal(before.middleRows(begin, count));
        EXPECT_LT((after.middleRows(begin, count) - want).cwiseAbs().maxCoeff(), 2e-4)
            << rows << " x " << columns << ", rows from " << begin;
      }
    }
  }
}

TEST(Orthogonalizer, RowBlocksReduceFlops) {
  for (const Shape& shape : {Shape{768, 256}, Shape{256, 1024}, Shape{256, 256}}) {
    const double whole = Orthogonalizer::flops(shape, shape[0], DType::kBF16),
                 blocks = Orthogonalizer::flops(shape, 64, DType::kBF16);
    EXPECT_LT(4 * blocks, 1.05 * whole) << shape.text();
    EXPECT_GT(6 * blocks, whole) << shape.text();
  }
}

TEST(Orthogonalizer, CountsFlopsOfProducts) {
  const double cube = 2.0 * 16 * 16 * 16;  // one product of (16, 16) matrices
  EXPECT_EQ(Orthogonalizer::flops({16, 64}, 16, DType::kBF16), 5 * (2 * 4 + 1) * cube);
  EXPECT_EQ(Orthogonalizer::flops({16, 64}, 16, DType::kF32), (2 * 4 + 17) * cube);
  EXPECT_EQ(Orthogonalizer::flops({64, 16}, 64, DType::kF32), (2 * 4 + 17) * cube);
  EXPECT_EQ(Orthogonalizer::flops({16, 16}, 16, DType::kF32), 5 * 3 * cube);
}

/// A matrix with these singular values and random orthonormal vectors.
Matrix with_singular_values(const Eigen::VectorXd& values, Eigen::Index columns,
                            const Stream& stream) {
  const auto basis = [&](Eigen::Index size, std::uint64_t seed) {
    const Matrix normal = to_eigen(testing::normal_tensor({size, values.size()}, seed, stream));
    return Matrix(Eigen::HouseholderQR<Matrix>(normal).householderQ() *
                  Matrix::Identity(size, values.size()));
  };
  return basis(values.size(), 1) * values.asDiagonal() * basis(columns, 2).transpose();
}

/// Rounding makes small eigenvalues of the Gram matrix negative, and the error grows with the
/// steps. Compares in spectral norm with the five steps in double, whose result has norm about 1.
TEST(Orthogonalizer, StaysNearDoubleForThinMatrices) {
  const Stream stream(MemoryPool::create("device"));
  constexpr int kRows = 48;
  const auto decades = [](double count) {
    return Eigen::VectorXd(Eigen::VectorXd::LinSpaced(kRows, 0, -count).unaryExpr([](double power) {
      return std::pow(10.0, power);
    }));
  };
  Eigen::VectorXd one = Eigen::VectorXd::Zero(kRows), half = Eigen::VectorXd::Ones(kRows),
                  outlier = Eigen::VectorXd::Constant(kRows, 1e-3);
  one[0] = 1;
  half.tail(kRows / 2).setZero();
  outlier[0] = 1;
  for (const Eigen::VectorXd& values : {decades(2), decades(4), decades(8), one, half, outlier}) {
    const auto error_at = [&, &values = values](int columns) {
      const Matrix before = with_singular_values(values, columns, stream);
      double worst = 0;
      for (const bool is_tall : {false, true}) {
        const Matrix given = is_tall ? Matrix(before.transpose()) : before;
        Orthogonalizer orthogonalizer(given.size(), kRows, stream);
        const Tensor u = orthogonalizer.input(given.rows(), given.cols());
        for (Eigen::Index i = 0; i < given.size(); ++i)
          u.data<float>()[i] = static_cast<float>(given.data()[i]);
        const Matrix want = orthogonal(to_eigen(u));
        const Matrix after = to_eigen(orthogonalizer.orthogonal(u, DType::kF32, stream));
        worst = std::max(worst, Eigen::JacobiSVD<Matrix>(after - want).singularValues()[0]);
      }
      return worst;
    };
    const double anew = error_at(2 * kRows - 1), by_gram = error_at(2 * kRows),
                 by_long_gram = error_at(8 * kRows);
    EXPECT_LT(anew, 1e-4) << values.transpose();
    EXPECT_LT(by_gram, 3e-3) << values.transpose();
    EXPECT_LT(by_long_gram, 3e-3) << values.transpose();
  }
}

TEST(Orthogonalizer, IgnoresLengthAndKeepsZeros) {
  const Stream stream(MemoryPool::create("device"));
  Orthogonalizer orthogonalizer(60, 6, stream);
  std::vector<std::vector<float>> results;
  for (const float length : {1.0f, 1024.0f, 0.0f}) {
    const Tensor u = orthogonalizer.input(6, 10);
    const auto values = testing::numbers(testing::normal_tensor({6, 10}, 5, stream));
    for (std::size_t i = 0; i < values.size(); ++i) u.data<float>()[i] = length * values[i];
    results.push_back(testing::numbers(orthogonalizer.orthogonal(u, DType::kF32, stream)));
  }
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_NEAR(results[0][i], results[1][i], 1e-5);
    EXPECT_EQ(results[2][i], 0);
  }
}

/// Holds with AVX-512 for any number of threads; oneDNN's AVX2 products divide sums among them.
TEST(Orthogonalizer, IsReproducibleBitwise) {
  const int most = threads(), least = instruction_set() == InstructionSet::kAvx512 ? 1 : most;
  for (const DType products : {DType::kF32, DType::kBF16}) {
    for (const auto& [rows, columns] : {std::pair{512, 512}, std::pair{256, 1024}}) {
      std::vector<float> first;
      for (const int count : {least, most}) {
        set_threads(count);
        const Stream stream(MemoryPool::create("device"));
        Orthogonalizer orthogonalizer(rows * columns, std::min(rows, columns), stream);
        const Tensor u = orthogonalizer.input(rows, columns);
        copy(u, testing::normal_tensor({rows, columns}, 5, stream), stream);
        const auto after = testing::numbers(orthogonalizer.orthogonal(u, products, stream));
        if (first.empty()) first = after;
        EXPECT_EQ(after == first, true) << count << " threads, " << name_of(products);
      }
    }
  }
  set_threads(most);
}

}  // namespace
}  // namespace hybrid_trainer
