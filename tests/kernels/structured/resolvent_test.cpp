#include "hybrid_trainer/kernels/structured.h"

#include <complex>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

using Complex = std::complex<double>;
using Complexes = std::vector<Complex>;

Tensor doubles(const Values& values, const Shape& shape, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, DType::kF64, MemoryKind::kActivations, stream);
  std::copy(values.begin(), values.end(), tensor.data<double>());
  return tensor;
}

Values random_values(std::int64_t count, std::uint64_t seed) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(
        static_cast<double>(random_normal({seed, 0, 0}, static_cast<std::uint64_t>(i))));
  return values;
}

/// One tridiagonal matrix: v, b and c.
struct Chain {
  Values v, b, c;
};

/// The diagonal of (T − z)⁻¹ by Gauss-Jordan elimination with column pivoting, O(N³).
Complexes dense_diagonal(const Chain& chain, Complex z, double shift) {
  const std::size_t n = chain.v.size();
  std::vector<Complexes> rows(n, Complexes(2 * n));
  for (std::size_t i = 0; i < n; ++i) {
    rows[i][i] = chain.v[i] + shift - z;
    rows[i][n + i] = 1;
    if (i + 1 < n) rows[i][i + 1] = chain.b[i], rows[i + 1][i] = chain.c[i];
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
      if (i == k || factor == 0.0) continue;
      for (std::size_t j = k; j < n + k + 2 && j < 2 * n; ++j)
        if (rows[k][j] != 0.0) rows[i][j] -= factor * rows[k][j];
    }
  }
  Complexes diagonal(n);
  for (std::size_t i = 0; i < n; ++i) diagonal[i] = rows[i][n + i];
  return diagonal;
}

Complexes diagonal_of(const Chain& chain, const ResolventSpec& spec, const Stream& stream) {
  const auto n = static_cast<std::int64_t>(chain.v.size());
  const Tensor g = Tensor::empty({1, n, 2}, DType::kF64, MemoryKind::kActivations, stream);
  const ResolventInput input{.values = doubles(chain.v, {1, n, 1}, stream),
                             .above = doubles(chain.b, {n - 1, 1}, stream),
                             .below = doubles(chain.c, {n - 1, 1}, stream),
                             .positions = {}};
  resolvent_forward(g, input, spec, stream);
  Complexes result;
  for (std::int64_t i = 0; i < n; ++i)
    result.emplace_back(g.data<double>()[2 * i], g.data<double>()[2 * i + 1]);
  return result;
}

double furthest(const Complexes& x, const Complexes& y) {
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double distance = std::abs(x[i] - y[i]);
    if (!(distance <= most)) most = distance;
  }
  return most;
}

Chain random_chain(std::int64_t n, std::uint64_t seed) {
  Chain chain{random_values(n, seed), random_values(n - 1, seed + 1),
              random_values(n - 1, seed + 2)};
  for (std::size_t i = 0; i < chain.b.size(); ++i)  // b·c > 0: otherwise a pivot may be near 0
    chain.c[i] = std::copysign(chain.c[i], chain.b[i]);
  return chain;
}

TEST(Resolvent, DiagonalMatchesDenseInverse) {
  const Stream stream = cpu_stream();
  for (const std::int64_t n : {1, 2, 3, 33, 512}) {
    const Chain chain = random_chain(n, static_cast<std::uint64_t>(10 * n));
    const ResolventSpec spec{.z = {0.3, n == 33 ? -0.7 : 0.8}, .shift = -1.5};
    EXPECT_LE(furthest(diagonal_of(chain, spec, stream), dense_diagonal(chain, spec.z, spec.shift)),
              1e-12)
        << n;
  }
}

TEST(Resolvent, FreeChainMatchesClosedForm) {
  const Stream stream = cpu_stream();
  const std::size_t n = 50;
  const ResolventSpec spec{.z = {-0.4, 0.5}};
  const Chain chain{Values(n, 0), Values(n - 1, 1), Values(n - 1, 1)};
  Complexes wanted(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 1; k <= n; ++k) {
      const double angle = static_cast<double>(k) * M_PI / static_cast<double>(n + 1),
                   wave = std::sin(static_cast<double>(i + 1) * angle);
      wanted[i] += 2.0 / static_cast<double>(n + 1) * wave * wave /
                   (Complex(-2 + 2 * std::cos(angle)) - spec.z);
    }
  }
  const Complexes got = diagonal_of(chain, spec, stream);
  EXPECT_LE(furthest(got, wanted), 1e-13);
  for (const Complex g : got) {
    EXPECT_GT(g.imag(), 0);
    EXPECT_LE(std::abs(g), 1 / spec.z.imag());
  }
}

TEST(Resolvent, ReversedChainGivesReversedDiagonal) {
  const Stream stream = cpu_stream();
  Chain chain = random_chain(41, 5);
  const Complexes forward = diagonal_of(chain, {}, stream);
  for (Values* values : {&chain.v, &chain.b, &chain.c})
    std::reverse(values->begin(), values->end());
  std::swap(chain.b, chain.c);
  Complexes backward = diagonal_of(chain, {}, stream);
  std::reverse(backward.begin(), backward.end());
  EXPECT_LE(furthest(forward, backward), 1e-14);
}

/// Compares the kernel's gradients with central differences of the dense inverse, for two sequences
/// of three matrices that share b and c. The second sequence has two documents.
TEST(Resolvent, GradientsMatchFiniteDifferences) {
  const Stream stream = cpu_stream();
  const std::int64_t batch = 2, n = 7, m = 3;
  Values v = random_values(batch * n * m, 1), b = random_values((n - 1) * m, 2),
         c = random_values((n - 1) * m, 3);
  for (std::size_t i = 0; i < b.size(); ++i) c[i] = std::copysign(c[i], b[i]);
  v[4] = 7, v[9] = -3;  // beyond the limit
  Values z{0.2, 0.9};
  const Values weights = random_values(batch * n * 2 * m, 4);
  const double limit = 2;
  const auto objective = [&] {
    double sum = 0;
    for (std::int64_t s = 0; s < batch; ++s) {
      for (std::int64_t k = 0; k < m; ++k) {
        Chain chain;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<std::size_t>((s * n + i) * m + k),
                     edge = static_cast<std::size_t>(i * m + k);
          chain.v.push_back(std::clamp(v[at], -limit, limit));
          const double joins = s == 1 && i + 1 == 4 ? 0 : 1;
          if (i + 1 < n) chain.b.push_back(joins * b[edge]), chain.c.push_back(joins * c[edge]);
        }
        const Complexes g = dense_diagonal(chain, {z[0], z[1]}, -2);
        for (std::int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<std::size_t>((s * n + i) * 2 * m + k);
          sum += weights[at] * g[static_cast<std::size_t>(i)].real() +
                 weights[at + static_cast<std::size_t>(m)] * g[static_cast<std::size_t>(i)].imag();
        }
      }
    }
    return sum;
  };
  const auto differences = [&](Values& x) {
    Values result;
    for (double& one : x) {
      const double kept = one, step = 1e-5;
      one = kept + step;
      const double above = objective();
      one = kept - step;
      result.push_back((above - objective()) / (2 * step));
      one = kept;
    }
    return result;
  };
  const ResolventInput input{.values = doubles(v, {batch, n, m}, stream),
                             .above = doubles(b, {n - 1, m}, stream),
                             .below = doubles(c, {n - 1, m}, stream),
                             .positions = tensor_of({0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 0, 1, 2},
                                                    {batch, n}, DType::kI32, stream)};
  const ResolventSpec spec{.z = {z[0], z[1]}, .limit = limit};
  const auto like = [&](const Values& x, const Shape& shape) {
    return doubles(Values(x.size(), 0.5), shape, stream);
  };
  const ResolventGradients gradients{
      .values = like(v, {batch, n, m}),
      .above = like(b, {n - 1, m}),
      .below = like(c, {n - 1, m}),
      .z = like(z, {2}),
      .mode = GradientMode::kAccumulate,
  };
  resolvent_backward(gradients, doubles(weights, {batch, n, 2 * m}, stream), input, spec, stream);
  const auto expect = [&](const Tensor& got, Values& x, double before) {
    const Values wanted = differences(x);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got.data<double>()[i] - before, wanted[i], 1e-7) << i;
  };
  expect(gradients.values, v, 0);
  expect(gradients.above, b, 0.5);
  expect(gradients.below, c, 0.5);
  expect(gradients.z, z, 0.5);
}

/// 17 matrices, more than one vector. The last rows begin new documents.
TEST(Resolvent, MatchesDoubleInEachDtypeAndLane) {
  const Stream stream = cpu_stream();
  const std::int64_t batch = 2, n = 37, m = 17;
  const ResolventSpec spec{.z = {0, 1}, .limit = 3};
  for (const DType dtype : kRealTypes) {
    const Tensor v = random_tensor({batch, n, m}, dtype, 1, stream, 2),
                 g = Tensor::empty({batch, n, 2 * m}, dtype, MemoryKind::kActivations, stream),
                 dg = random_tensor(g.shape(), dtype, 2, stream), dv = clone(v, stream);
    const Tensor v64 = doubles(values_of(v), v.shape(), stream),
                 g64 = doubles(values_of(g), g.shape(), stream),
                 dg64 = doubles(values_of(dg), g.shape(), stream),
                 dv64 = doubles(values_of(v), v.shape(), stream);
    resolvent_forward(g, {.values = v}, spec, stream);
    resolvent_backward({.values = dv}, dg, {.values = v}, spec, stream);
    resolvent_forward(g64, {.values = v64}, spec, stream);
    resolvent_backward({.values = dv64}, dg64, {.values = v64}, spec, stream);
    const auto list = [](const Tensor& x) {
      return Values(x.data<double>(), x.data<double>() + x.elements());
    };
    expect_close(g, list(g64), tolerance_of(dtype), "g");
    expect_close(dv, list(dv64), tolerance_of(dtype), "dv");
  }
}

TEST(Resolvent, AccessesOnlyItsColumns) {
  const Stream stream = cpu_stream();
  const Shape wide{2, 9, 7};
  const Tensor all = random_tensor(wide, DType::kF32, 1, stream),
               v = Tensor::empty({2, 9, 3}, DType::kF32, MemoryKind::kActivations, stream);
  const auto part = [](const Tensor& from, std::int64_t i) {
    return from.data<float>() + i / 3 * 7 + 2 + i % 3;
  };
  for (std::int64_t i = 0; i < v.elements(); ++i) v.data<float>()[i] = *part(all, i);
  const Tensor g = random_tensor({2, 9, 6}, DType::kF32, 2, stream), same = clone(g, stream),
               dg = random_tensor({2, 9, 6}, DType::kF32, 3, stream), dv = clone(v, stream),
               dall = clone(all, stream);
  resolvent_forward(g, {.values = v}, {}, stream);
  resolvent_forward(same, {.values = all, .first = 2}, {}, stream);
  expect_same_bits(g, same);
  resolvent_backward({.values = dv}, dg, {.values = v}, {}, stream);
  resolvent_backward({.values = dall}, dg, {.values = all, .first = 2}, {}, stream);
  for (std::int64_t i = 0; i < v.elements(); ++i) *part(all, i) = dv.data<float>()[i];
  expect_same_bits(all, dall);
  EXPECT_THROW(resolvent_forward(g, {.values = all, .first = 5}, {}, stream), ShapeMismatch);
}

TEST(Resolvent, SeparatesDocuments) {
  const Stream stream = cpu_stream();
  const std::int64_t n = 12, first = 5, m = 2;
  const Tensor v = random_tensor({1, n, m}, DType::kF32, 1, stream);
  Values places;
  for (std::int64_t i = 0; i < n; ++i)
    places.push_back(static_cast<double>(i < first ? i : i - first));
  const Tensor positions = tensor_of(places, {1, n}, DType::kI32, stream);
  const Tensor g = Tensor::empty({1, n, 2 * m}, DType::kF32, MemoryKind::kActivations, stream),
               dg = random_tensor(g.shape(), DType::kF32, 2, stream), dv = clone(v, stream);
  resolvent_forward(g, {.values = v, .positions = positions}, {}, stream);
  resolvent_backward({.values = dv}, dg, {.values = v, .positions = positions}, {}, stream);
  for (const std::int64_t begin : {std::int64_t{0}, first}) {
    const std::int64_t end = begin == 0 ? first : n, count = end - begin;
    const auto part = [&](const Tensor& x) {
      return clone(x.as_rows().rows(begin, end).view({1, count, x.size(2)}), stream);
    };
    const Tensor alone = part(v), g_alone = part(g), dv_alone = part(v);
    resolvent_forward(g_alone, {.values = alone}, {}, stream);
    resolvent_backward({.values = dv_alone}, part(dg), {.values = alone}, {}, stream);
    expect_same_bits(g_alone, part(g));
    expect_same_bits(dv_alone, part(dv));
  }
}

TEST(Resolvent, StaysAccurateOver100000Tokens) {
  const Stream stream = cpu_stream();
  const std::int64_t n = 100'000;
  const Tensor v = random_tensor({1, n, 1}, DType::kF32, 1, stream, 2),
               g = Tensor::empty({1, n, 2}, DType::kF32, MemoryKind::kActivations, stream),
               dv = clone(v, stream);
  const Tensor v64 = doubles(values_of(v), v.shape(), stream),
               g64 = Tensor::empty({1, n, 2}, DType::kF64, MemoryKind::kActivations, stream),
               dv64 = Tensor::empty({1, n, 1}, DType::kF64, MemoryKind::kActivations, stream);
  const ResolventSpec spec{.limit = 3};
  resolvent_forward(g, {.values = v}, spec, stream);
  resolvent_backward({.values = dv}, g, {.values = v}, spec, stream);
  resolvent_forward(g64, {.values = v64}, spec, stream);
  resolvent_backward({.values = dv64}, g64, {.values = v64}, spec, stream);
  expect_close(g, Values(g64.data<double>(), g64.data<double>() + 2 * n), 1e-5);
  expect_close(dv, Values(dv64.data<double>(), dv64.data<double>() + n), 1e-5);
}

TEST(Resolvent, RefusesRealPointAndIncompleteChain) {
  const Stream stream = cpu_stream();
  const Tensor v = random_tensor({1, 4, 1}, DType::kF32, 1, stream),
               g = random_tensor({1, 4, 2}, DType::kF32, 2, stream);
  try {
    resolvent_forward(g, {.values = v}, {.z = {0.5, 0}}, stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("z = 0.5 + 0i has no imaginary part"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(resolvent_forward(g, {.values = v, .above = g.view({8})}, {}, stream), Error);
  EXPECT_THROW(resolvent_forward(v, {.values = v}, {}, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
