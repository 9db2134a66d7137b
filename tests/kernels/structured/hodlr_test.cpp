#include "hybrid_trainer/kernels/hodlr.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

Values normals(std::int64_t count, std::uint64_t seed) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(
        static_cast<double>(random_normal({seed, 0, 0}, static_cast<std::uint64_t>(i))));
  return values;
}

/// A nonsymmetric kernel of points i/size, with a diagonal that makes it regular.
MatrixEntry smooth_kernel(std::int64_t size) {
  return [size](std::int64_t i, std::int64_t j) {
    const double x = static_cast<double>(i) / static_cast<double>(size),
                 y = static_cast<double>(j) / static_cast<double>(size);
    return (i == j ? 2.0 : 0.0) +
           (1 + 0.5 * x) / (1 + 20 * std::abs(x - y)) / static_cast<double>(size) * 50;
  };
}

Values product(const MatrixEntry& entry, const Values& x, std::int64_t size, Transpose transpose) {
  Values y(x.size(), 0);
  for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(size))
    for (std::int64_t i = 0; i < size; ++i)
      for (std::int64_t j = 0; j < size; ++j)
        y[at + static_cast<std::size_t>(i)] +=
            (transpose == Transpose::kYes ? entry(j, i) : entry(i, j)) *
            x[at + static_cast<std::size_t>(j)];
  return y;
}

double norm(const Values& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}
double distance(const Values& x, const Values& y) {
  Values left(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) left[i] = x[i] - y[i];
  return norm(left) / norm(y);
}

TEST(Hodlr, MatchesDenseProductAndSolve) {
  for (const std::int64_t size : {1, 5, 64, 100, 257}) {
    const MatrixEntry entry = smooth_kernel(size);
    const Hodlr matrix(size, entry, {.tolerance = 1e-9, .leaf = 16});
    const Values x = normals(3 * size, 1);
    Values y(x.size());
    for (const Transpose transpose : {Transpose::kNo, Transpose::kYes}) {
      matrix.multiply(y, x, transpose);
      EXPECT_LE(distance(y, product(entry, x, size, transpose)), 1e-8) << size;
    }
    Values solved = product(entry, x, size, Transpose::kNo);
    HodlrSolver(matrix).solve(solved);
    EXPECT_LE(distance(solved, x), 1e-7) << size;
  }
}

/// Blocks with a single nonzero row, which the first crosses miss, and random blocks of full rank.
TEST(Hodlr, SupportsNonSmoothMatrices) {
  const std::int64_t size = 96;
  const Values noise = normals(size * size, 3);
  const MatrixEntry spiked = [](std::int64_t i, std::int64_t j) {
    return i == j ? 1.0 : i == 13 && j > 48 ? 0.1 * static_cast<double>(j) : 0.0;
  };
  const MatrixEntry random = [&](std::int64_t i, std::int64_t j) {
    return noise[static_cast<std::size_t>(i * size + j)];
  };
  const Values x = normals(size, 1);
  Values y(x.size());
  const Hodlr full(size, random, {.tolerance = 1e-10, .leaf = 12});
  full.multiply(y, x, Transpose::kNo);
  EXPECT_LE(distance(y, product(random, x, size, Transpose::kNo)), 1e-9);
  EXPECT_EQ(full.largest_rank(), 48);
  const Hodlr one(size, spiked, {.leaf = 12});
  one.multiply(y, x, Transpose::kNo);
  EXPECT_LE(distance(y, product(spiked, x, size, Transpose::kNo)), 1e-9);
  EXPECT_EQ(one.largest_rank(), 1);
}

/// Checks some numbers of each block against central differences of Σ dy·(A·x).
TEST(Hodlr, GradientsMatchFiniteDifferences) {
  const std::int64_t size = 70;
  Hodlr matrix(size, smooth_kernel(size), {.tolerance = 1e-4, .leaf = 20});
  const Values x = normals(2 * size, 1), dy = normals(2 * size, 2);
  const Hodlr gradients = matrix.gradients(dy, x);
  const auto objective = [&] {
    Values y(x.size());
    matrix.multiply(y, x, Transpose::kNo);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& numbers, const std::vector<double>& got) {
    ASSERT_EQ(numbers.size(), got.size());
    for (std::size_t i = 0; i < numbers.size(); i += 1 + numbers.size() / 5) {
      const double kept = numbers[i];
      numbers[i] = kept + 0.5;
      const double above = objective();
      numbers[i] = kept - 0.5;
      EXPECT_NEAR(got[i], above - objective(), 1e-9);
      numbers[i] = kept;
    }
  };
  for (std::size_t i = 0; i < matrix.leaves().size(); ++i)
    check(matrix.leaves()[i].values, gradients.leaves()[i].values);
  for (std::size_t level = 0; level < matrix.levels().size(); ++level) {
    for (std::size_t i = 0; i < matrix.levels()[level].size(); ++i) {
      check(matrix.levels()[level][i].u, gradients.levels()[level][i].u);
      check(matrix.levels()[level][i].v, gradients.levels()[level][i].v);
    }
  }
}

/// Compares only random rows, because the dense matrix would take 2 GiB.
TEST(Hodlr, LargeKernelIsCompactAndAccurate) {
  const std::int64_t size = 16'384;
  const MatrixEntry entry = smooth_kernel(size);
  const Hodlr matrix(size, entry);
  EXPECT_LE(static_cast<double>(matrix.bytes()), 0.05 * static_cast<double>(matrix.dense_bytes()));
  const Values x = normals(size, 1);
  Values y(x.size()), solved = x;
  matrix.multiply(y, x, Transpose::kNo);
  HodlrSolver(matrix).solve(solved);
  Values got, wanted, left, right;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const auto row =
        static_cast<std::int64_t>(random_below({5, 0, 0}, i, static_cast<std::uint64_t>(size)));
    double product = 0, of_solved = 0;
    for (std::int64_t j = 0; j < size; ++j) {
      const double a = entry(row, j);
      product += a * x[static_cast<std::size_t>(j)];
      of_solved += a * solved[static_cast<std::size_t>(j)];
    }
    got.push_back(y[static_cast<std::size_t>(row)]), wanted.push_back(product);
    left.push_back(of_solved), right.push_back(x[static_cast<std::size_t>(row)]);
  }
  EXPECT_LE(distance(got, wanted), 1e-5);
  EXPECT_LE(distance(left, right), 1e-6);
}

TEST(Hodlr, RefusesInvalidArguments) {
  const MatrixEntry entry = smooth_kernel(8);
  EXPECT_THROW(Hodlr(0, entry), Error);
  EXPECT_THROW(Hodlr(8, entry, {.tolerance = 0}), Error);
  EXPECT_THROW(Hodlr(8, [](std::int64_t, std::int64_t) { return NAN; }, {.leaf = 2}), Error);
  const Hodlr matrix(8, entry);
  Values x(9), y(9);
  EXPECT_THROW(matrix.multiply(y, x, Transpose::kNo), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
