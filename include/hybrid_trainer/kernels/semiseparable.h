#pragma once

#include <complex>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Semiseparable (N, N) matrix H = T + U·Vᵀ with tridiagonal T, stored in 3·N − 2 + 2·N·r numbers.
struct Semiseparable {
  Tensor diagonal{};  // a, (N) f32
  Tensor above{};     // b, (N − 1) f32: T[i, i + 1]
  Tensor below{};     // c, (N − 1) f32: T[i + 1, i]
  /// (r, N); row k is column k of U or V. f32, bf16, u16 (bits of IEEE half precision) or i8. To
  /// reduce the rank of U·Vᵀ to k, use the first k rows of both.
  Tensor u{}, v{};
  Tensor u_scales{}, v_scales{};  // (r) f32, scale of each row of i8 factors; else undefined

  std::int64_t size() const { return diagonal.size(0); }
  std::int64_t rank() const { return u.size(0); }
};

/// Multiplies each row of x by H or Hᵀ. x, y: (B, N) f32 or bf16; accumulates in f32. O(B·N·r).
void semiseparable_forward(const Tensor& y, const Tensor& x, const Semiseparable& h,
                           Transpose transpose, const Stream& stream);

/// Gradients of y = H·x. Unwanted gradients may be undefined. U and V have f32 gradients for any
/// factor dtype.
struct SemiseparableGradients {
  Tensor x{};                                     // (B, N); overwritten
  Tensor diagonal{}, above{}, below{}, u{}, v{};  // f32, (+)= according to `mode`
  GradientMode mode = GradientMode::kOverwrite;
};

/// Computes gradients from dy (shaped like x) in O(B·N·r). Sums over rows in a fixed order.
void semiseparable_backward(const SemiseparableGradients& gradients, const Tensor& dy,
                            const Tensor& x, const Semiseparable& h, const Stream& stream);

// Matrices T + U·Vᵀ on the host, with products and decompositions in f64.

/// Returns max(1, ⌈log₂ size⌉).
std::int64_t default_rank(std::int64_t size);
/// Returns the ranks of a progressive truncation: ⌈log₂ size⌉, then repeatedly ⌈log₂⌉ of the
/// previous rank down to 1. Their sum is at most `size`.
std::vector<std::int64_t> level_ranks(std::int64_t size);

/// Storage type of the factors; T is f32.
enum class FactorType { kF32, kBF16, kF16, kI8 };  // i8 with an f32 scale for each column
/// Returns the bytes of T + U·Vᵀ: 4·(3·size − 2) for T, 2·size·rank factor elements, and scales.
std::size_t semiseparable_bytes(std::int64_t size, std::int64_t rank, FactorType type);
std::size_t semiseparable_bytes(const Semiseparable& h);

struct FactorizationSpec {
  std::int64_t rank = 0;  // 0: default_rank
  int power_iterations = 2;
  std::int64_t extra_columns = 8;  // columns of the random sketch in addition to the rank
  std::uint64_t seed = 0;
};

struct Factorization {
  Semiseparable h{};           // f32
  std::vector<double> errors;  // Frobenius norm of the error by rank, from 0 to `rank`
};

/// Factors a matrix into T + U·Vᵀ. T contains its three diagonals; U·Vᵀ approximates the rest by a
/// randomized range finder. U includes the singular values, in descending order. matrix: (N, N) f32
/// or f64. Errors are exact. O(N²·(rank + extra)). Throws Error for a negative or too large rank.
/// Source: Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1.
Factorization factorize(const Tensor& matrix, const FactorizationSpec& spec, const Stream& stream);

/// Returns a view of the first `rank` columns of U and V. Throws Error if there are fewer.
Semiseparable truncated(const Semiseparable& h, std::int64_t rank);
/// Converts f32 factors to another type, rounding to nearest; shares T.
Semiseparable with_factors(const Semiseparable& h, FactorType type, const Stream& stream);

/// Returns the diagonal of (H − z·I)⁻¹ in O(N·r² + r³) (Woodbury). Throws Error if z is real.
std::vector<std::complex<double>> semiseparable_resolvent(const Semiseparable& h,
                                                          std::complex<double> z,
                                                          const Stream& stream);

}  // namespace hybrid_trainer::kernels
