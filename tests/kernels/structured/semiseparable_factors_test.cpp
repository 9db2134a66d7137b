#include "hybrid_trainer/kernels/semiseparable.h"

#include <complex>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

using Complex = std::complex<double>;

/// T with diagonals of a few units, plus a sum of `rank` outer products of decreasing size.
Tensor matrix_of(std::int64_t size, std::int64_t rank, double ratio, const Stream& stream) {
  const Values u = values_of(random_tensor({rank, size}, DType::kF32, 1, stream)),
               v = values_of(random_tensor({rank, size}, DType::kF32, 2, stream)),
               t = values_of(random_tensor({3, size}, DType::kF32, 3, stream, 3));
  const auto n = static_cast<std::size_t>(size);
  Values all(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i + 1 >= j && j + 1 >= i) all[i * n + j] = t[(1 + i - j) * n + i];
      double factor = 1;
      for (std::size_t k = 0; k < static_cast<std::size_t>(rank); ++k, factor *= ratio)
        all[i * n + j] += factor * u[k * n + i] * v[k * n + j];
    }
  }
  return tensor_of(all, {size, size}, DType::kF32, stream);
}

/// Element (i, j) of H at a rank, in f64 from the f32 factors.
double element(const Semiseparable& h, std::int64_t rank, std::int64_t i, std::int64_t j) {
  double sum = 0;
  if (i == j) sum = static_cast<double>(h.diagonal.data<float>()[i]);
  if (i + 1 == j) sum = static_cast<double>(h.above.data<float>()[i]);
  if (j + 1 == i) sum = static_cast<double>(h.below.data<float>()[j]);
  for (std::int64_t k = 0; k < rank; ++k)
    sum += static_cast<double>(h.u.data<float>()[k * h.size() + i]) *
           static_cast<double>(h.v.data<float>()[k * h.size() + j]);
  return sum;
}

double distance_between(const Tensor& matrix, const Semiseparable& h, std::int64_t rank) {
  double sum = 0;
  for (std::int64_t i = 0; i < h.size(); ++i)
    for (std::int64_t j = 0; j < h.size(); ++j) {
      const double left =
          static_cast<double>(matrix.data<float>()[i * h.size() + j]) - element(h, rank, i, j);
      sum += left * left;
    }
  return std::sqrt(sum);
}

TEST(SemiseparableFactors, ReportedErrorsMatchMatrixDistance) {
  const Stream stream = cpu_stream();
  for (const double ratio : {0.6, 0.97}) {
    const Tensor matrix = matrix_of(60, 30, ratio, stream);
    const Factorization found = factorize(matrix, {.rank = 12}, stream);
    ASSERT_EQ(found.errors.size(), 13u);
    for (std::int64_t rank = 0; rank <= 12; ++rank) {
      const double wanted = distance_between(matrix, found.h, rank);
      EXPECT_NEAR(found.errors[static_cast<std::size_t>(rank)], wanted, 1e-5 * wanted) << rank;
    }
    const Semiseparable coarse = truncated(found.h, 5);
    EXPECT_EQ(coarse.rank(), 5);
    EXPECT_EQ(coarse.u.raw(), found.h.u.raw());
  }
}

/// A sketch of all columns finds the exact singular values.
TEST(SemiseparableFactors, RandomSketchIsNearlyOptimal) {
  const Stream stream = cpu_stream();
  for (const double ratio : {0.6, 0.97}) {
    const Tensor matrix = matrix_of(80, 40, ratio, stream);
    const double best = factorize(matrix, {.rank = 7, .extra_columns = 80}, stream).errors.back();
    EXPECT_LE(factorize(matrix, {.rank = 7}, stream).errors.back(), 1.001 * best) << ratio;
    EXPECT_GE(factorize(matrix, {.rank = 7}, stream).errors.back(), (1 - 1e-9) * best) << ratio;
  }
}

/// Checks R·v = u and Rᵀ·u = |u|²·v in decreasing order. The columns are singular vectors, so each
/// level equals the SVD of the previous levels' residual.
TEST(SemiseparableFactors, LevelsMatchSingularVectors) {
  const Stream stream = cpu_stream();
  EXPECT_EQ(level_ranks(2048), (std::vector<std::int64_t>{11, 4, 2, 1}));
  EXPECT_EQ(level_ranks(1), std::vector<std::int64_t>{1});
  EXPECT_EQ(level_ranks(3), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(level_ranks(64), (std::vector<std::int64_t>{6, 3, 2, 1}));
  const std::int64_t size = 64, rank = 12;
  const Tensor matrix = matrix_of(size, 32, 0.8, stream);
  const Semiseparable h = factorize(matrix, {.rank = rank, .extra_columns = 52}, stream).h;
  const Values u = values_of(h.u), v = values_of(h.v), m = values_of(matrix);
  double before = INFINITY;
  for (std::int64_t k = 0; k < rank; ++k) {
    const double *const left = &u[static_cast<std::size_t>(k * size)],
                        *const right = &v[static_cast<std::size_t>(k * size)];
    double square = 0;
    for (std::int64_t i = 0; i < size; ++i) square += left[i] * left[i];
    EXPECT_LT(square, before);
    before = square;
    for (std::int64_t i = 0; i < size; ++i) {
      double forward = 0, backward = 0;
      for (std::int64_t j = 0; j < size; ++j) {
        if (std::abs(i - j) <= 1) continue;
        forward += m[static_cast<std::size_t>(i * size + j)] * right[j];
        backward += m[static_cast<std::size_t>(j * size + i)] * left[j];
      }
      EXPECT_NEAR(forward, left[i], 1e-4 * std::sqrt(square));
      EXPECT_NEAR(backward, square * right[i], 1e-4 * square);
    }
  }
}

TEST(SemiseparableFactors, DefaultRankFollowsSizeAndLargerIsRefused) {
  const Stream stream = cpu_stream();
  const Tensor matrix = matrix_of(20, 8, 0.7, stream);
  EXPECT_EQ(factorize(matrix, {}, stream).h.rank(), 5);
  try {
    factorize(matrix, {.rank = 21}, stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("want a rank of at most 20"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(truncated(factorize(matrix, {}, stream).h, 6), Error);
  EXPECT_THROW(factorize(matrix.rows(0, 5), {}, stream), ShapeMismatch);
  const Factorization one = factorize(tensor_of({3}, {1, 1}, DType::kF32, stream), {}, stream);
  EXPECT_EQ(one.errors.back(), 0);
}

/// Compares with Gaussian elimination of T + U·Vᵀ − z.
TEST(SemiseparableFactors, ResolventMatchesDenseInverse) {
  const Stream stream = cpu_stream();
  const std::int64_t size = 24;
  const Semiseparable h = factorize(matrix_of(size, 10, 0.5, stream), {.rank = 4}, stream).h;
  const Complex z{0.2, 1.3};
  const auto n = static_cast<std::size_t>(size);
  std::vector<std::vector<Complex>> rows(n, std::vector<Complex>(2 * n));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      rows[i][j] = element(h, 4, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
    rows[i][i] -= z;
    rows[i][n + i] = 1;
  }
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(rows[i][k]) > std::abs(rows[best][k])) best = i;
    std::swap(rows[k], rows[best]);
    const Complex inverse = 1.0 / rows[k][k];
    for (Complex& x : rows[k]) x *= inverse;
    for (std::size_t i = 0; i < n; ++i) {
      const Complex factor = rows[i][k];
      for (std::size_t j = 0; i != k && j < 2 * n; ++j) rows[i][j] -= factor * rows[k][j];
    }
  }
  const std::vector<Complex> diagonal = semiseparable_resolvent(h, z, stream);
  for (std::size_t i = 0; i < n; ++i) EXPECT_LE(std::abs(diagonal[i] - rows[i][n + i]), 1e-12) << i;
  EXPECT_THROW(semiseparable_resolvent(h, {1, 0}, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
