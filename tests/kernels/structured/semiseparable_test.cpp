#include "hybrid_trainer/kernels/semiseparable.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

Semiseparable random_semiseparable(std::int64_t size, std::int64_t rank, const Stream& stream) {
  return {.diagonal = random_tensor({size}, DType::kF32, 1, stream),
          .above = random_tensor({size - 1}, DType::kF32, 2, stream),
          .below = random_tensor({size - 1}, DType::kF32, 3, stream),
          .u = random_tensor({rank, size}, DType::kF32, 4, stream),
          .v = random_tensor({rank, size}, DType::kF32, 5, stream)};
}

/// The matrix by rows.
Values dense(const Semiseparable& h) {
  const auto n = static_cast<std::size_t>(h.size()), r = static_cast<std::size_t>(h.rank());
  const Values a = values_of(h.diagonal), b = values_of(h.above), c = values_of(h.below),
               u = values_of(h.u), v = values_of(h.v);
  Values all(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    all[i * n + i] = a[i];
    if (i + 1 < n) all[i * n + i + 1] = b[i], all[(i + 1) * n + i] = c[i];
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < r; ++k) all[i * n + j] += u[k * n + i] * v[k * n + j];
  }
  return all;
}

Values products(const Values& all, const Values& x, Transpose transpose, std::size_t n) {
  Values y(x.size(), 0);
  for (std::size_t row = 0; row < x.size() / n; ++row)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        y[row * n + i] +=
            (transpose == Transpose::kYes ? all[j * n + i] : all[i * n + j]) * x[row * n + j];
  return y;
}

TEST(Semiseparable, ProductsMatchDenseMatrix) {
  const Stream stream = cpu_stream();
  for (const auto& [size, rank, batch] : {std::array<std::int64_t, 3>{1, 1, 3},
                                          {2, 1, 1},
                                          {15, 4, 5},
                                          {16, 3, 4},
                                          {67, 7, 9},
                                          {130, 11, 2},
                                          {48, 0, 6}}) {
    const Semiseparable h = random_semiseparable(size, rank, stream);
    const Values all = dense(h);
    for (const DType dtype : kRealTypes) {
      for (const Transpose transpose : {Transpose::kNo, Transpose::kYes}) {
        const Tensor x = random_tensor({batch, size}, dtype, 6, stream), y = clone(x, stream);
        semiseparable_forward(y, x, h, transpose, stream);
        expect_close(y, products(all, values_of(x), transpose, static_cast<std::size_t>(size)),
                     tolerance_of(dtype) * 2, concat(size, " ", rank, " ", name_of(dtype)));
      }
    }
  }
}

TEST(Semiseparable, RowBitsDoNotDependOnOtherRows) {
  const Stream stream = cpu_stream();
  const Semiseparable h = random_semiseparable(83, 6, stream);
  const Tensor x = random_tensor({7, 83}, DType::kF32, 6, stream), y = clone(x, stream);
  semiseparable_forward(y, x, h, Transpose::kNo, stream);
  for (std::int64_t row = 0; row < 7; ++row) {
    const Tensor alone = clone(y.rows(row, row + 1), stream);
    semiseparable_forward(alone, x.rows(row, row + 1), h, Transpose::kNo, stream);
    expect_same_bits(alone, y.rows(row, row + 1));
  }
}

/// Σ dy·(H·x) is linear in each number of H and in x, so the gradients are sums of products,
/// computed here in f64 by definition.
TEST(Semiseparable, GradientsMatchReference) {
  const Stream stream = cpu_stream();
  const std::int64_t size = 37, rank = 5, batch = 6;
  const Semiseparable h = random_semiseparable(size, rank, stream);
  const auto n = static_cast<std::size_t>(size), r = static_cast<std::size_t>(rank);
  for (const DType dtype : kRealTypes) {
    const Tensor x = random_tensor({batch, size}, dtype, 6, stream),
                 dy = random_tensor({batch, size}, dtype, 7, stream);
    const Values xs = values_of(x), gs = values_of(dy), u = values_of(h.u), v = values_of(h.v);
    Values da(n, 1), db(n - 1, 1), dc(n - 1, 1), du(r * n, 1), dv(r * n, 1);
    for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row) {
      const double *const xr = &xs[row * n], *const gr = &gs[row * n];
      for (std::size_t i = 0; i < n; ++i) {
        da[i] += gr[i] * xr[i];
        if (i + 1 < n) db[i] += gr[i] * xr[i + 1], dc[i] += gr[i + 1] * xr[i];
        for (std::size_t j = 0; j < n; ++j)
          for (std::size_t k = 0; k < r; ++k) {
            du[k * n + i] += gr[i] * v[k * n + j] * xr[j];
            dv[k * n + j] += gr[i] * u[k * n + i] * xr[j];
          }
      }
    }
    const auto ones = [&](const Tensor& like) {
      return tensor_of(Values(static_cast<std::size_t>(like.elements()), 1), like.shape(),
                       DType::kF32, stream);
    };
    const SemiseparableGradients gradients{.x = clone(x, stream),
                                           .diagonal = ones(h.diagonal),
                                           .above = ones(h.above),
                                           .below = ones(h.below),
                                           .u = ones(h.u),
                                           .v = ones(h.v),
                                           .mode = GradientMode::kAccumulate};
    semiseparable_backward(gradients, dy, x, h, stream);
    expect_close(gradients.x, products(dense(h), gs, Transpose::kYes, n), 2 * tolerance_of(dtype));
    expect_close(gradients.diagonal, da, 2e-5);
    expect_close(gradients.above, db, 2e-5);
    expect_close(gradients.below, dc, 2e-5);
    expect_close(gradients.u, du, 4e-5);
    expect_close(gradients.v, dv, 4e-5);
  }
}

TEST(Semiseparable, FactorTypesStayWithinErrorBounds) {
  const Stream stream = cpu_stream();
  const Semiseparable h = random_semiseparable(64, 6, stream);
  const Tensor x = random_tensor({3, 64}, DType::kF32, 6, stream), y = clone(x, stream);
  const Values exact = products(dense(h), values_of(x), Transpose::kNo, 64);
  double before = 0;
  for (const auto& [type, most] :
       {std::pair{FactorType::kF32, 1e-5}, std::pair{FactorType::kF16, 2e-2},
        std::pair{FactorType::kBF16, 0.2}, std::pair{FactorType::kI8, 0.7}}) {
    semiseparable_forward(y, x, with_factors(h, type, stream), Transpose::kNo, stream);
    const Values got = values_of(y);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - exact[i]));
    EXPECT_LE(worst, most);
    EXPECT_GT(worst, before) << "each type is coarser than the one before";
    before = worst;
  }
}

TEST(Semiseparable, ByteCountMatchesFormula) {
  EXPECT_EQ(semiseparable_bytes(2048, default_rank(2048), FactorType::kF32), 204'792u);
  EXPECT_EQ(semiseparable_bytes(2048, 11, FactorType::kBF16), 114'680u);
  EXPECT_EQ(semiseparable_bytes(2048, 11, FactorType::kF16), 114'680u);
  EXPECT_EQ(semiseparable_bytes(2048, 11, FactorType::kI8), 24'568u + 45'056u + 88u);
  const Stream stream = cpu_stream();
  const Semiseparable h = random_semiseparable(19, 3, stream);
  for (const FactorType type : {FactorType::kF32, FactorType::kI8}) {
    const Semiseparable typed = with_factors(h, type, stream);
    std::size_t bytes = 0;
    for (const Tensor* part : {&typed.diagonal, &typed.above, &typed.below, &typed.u, &typed.v,
                               &typed.u_scales, &typed.v_scales})
      bytes += part->defined() ? part->bytes() : 0;
    EXPECT_EQ(semiseparable_bytes(typed), bytes);
    EXPECT_EQ(semiseparable_bytes(19, 3, type), bytes);
  }
}

TEST(Semiseparable, RefusesMismatchedFactors) {
  const Stream stream = cpu_stream();
  Semiseparable h = random_semiseparable(8, 2, stream);
  const Tensor x = random_tensor({2, 8}, DType::kF32, 6, stream), y = clone(x, stream);
  h.v = random_tensor({3, 8}, DType::kF32, 5, stream);
  EXPECT_THROW(semiseparable_forward(y, x, h, Transpose::kNo, stream), ShapeMismatch);
  h = with_factors(random_semiseparable(8, 2, stream), FactorType::kI8, stream);
  h.u_scales = {};
  EXPECT_THROW(semiseparable_forward(y, x, h, Transpose::kNo, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
