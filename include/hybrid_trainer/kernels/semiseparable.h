#pragma once

#include <complex>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// H = T + U·Vᵀ, (N, N), T tridiagonal, in 3·N − 2 + 2·N·r numbers.
struct Semiseparable {
  Tensor diagonal{};  // a, (N) f32
  Tensor above{};     // b, (N − 1) f32: T[i, i + 1]
  Tensor below{};     // c, (N − 1) f32: T[i + 1, i]
  /// (r, N), whose row k is column k of U or V: f32, bf16, u16 (the bits of IEEE half precision) or
  /// i8. So the first rows of both are a coarser H.
  Tensor u{}, v{};
  Tensor u_scales{}, v_scales{};  // (r) f32, of which row k of i8 factors is a multiple; else none

  std::int64_t size() const { return diagonal.size(0); }
  std::int64_t rank() const { return u.size(0); }
};

/// Each row of y = H·(that row of x), or Hᵀ·. x, y: (B, N) f32 or bf16, of one dtype; sums in f32.
/// O(B·N·r). A row has the same bits whatever rows are beside it.
void semiseparable_forward(const Tensor& y, const Tensor& x, const Semiseparable& h,
                           Transpose transpose, const Stream& stream);

/// Where the gradients of y = H·x go; undefined: not wanted. Those of U and V are f32 whatever the
/// dtype of the factors.
struct SemiseparableGradients {
  Tensor x{};                                     // (B, N), as x; overwritten
  Tensor diagonal{}, above{}, below{}, u{}, v{};  // as in Semiseparable, f32, (+)= as `mode` says
  GradientMode mode = GradientMode::kOverwrite;
};

/// Gradients for dy, as x, in O(B·N·r). Sums over rows in a fixed order.
void semiseparable_backward(const SemiseparableGradients& gradients, const Tensor& dy,
                            const Tensor& x, const Semiseparable& h, const Stream& stream);

// Matrices T + U·Vᵀ on the host, by products and decompositions in f64.

/// max(1, ⌈log₂ size⌉).
std::int64_t default_rank(std::int64_t size);
/// Ranks of the levels of a progressive truncation: ⌈log₂ size⌉, then ⌈log₂⌉ of the one before, until
/// 1. Their sum is at most `size`.
std::vector<std::int64_t> level_ranks(std::int64_t size);

/// What a factor's numbers are stored as; T is f32.
enum class FactorType { kF32, kBF16, kF16, kI8 };  // i8 with an f32 scale for each column
/// Bytes of T + U·Vᵀ: 4·(3·size − 2) of T and 2·size·rank numbers, and scales.
std::size_t semiseparable_bytes(std::int64_t size, std::int64_t rank, FactorType type);
std::size_t semiseparable_bytes(const Semiseparable& h);

struct FactorizationSpec {
  std::int64_t rank = 0;  // 0: default_rank
  int power_iterations = 2;
  std::int64_t extra_columns = 8;  // of the sketch
  std::uint64_t seed = 0;
};

struct Factorization {
  Semiseparable h{};           // f32
  std::vector<double> errors;  // [k]: the Frobenius norm of what H of rank k leaves out, 0 to rank
};

/// T = the three diagonals of the matrix, and U·Vᵀ the best approximation of the rest for that T
/// which a randomized range finder finds; the singular values are in U. Rows of U and V are in falling
/// order of them. matrix: (N, N) f32 or f64. The errors are exact: the last is computed from the
/// matrix, the others by Pythagoras. O(N²·(rank + extra)). Throws Error where the rank is larger than
/// N or below 0. Source: Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1.
Factorization factorize(const Tensor& matrix, const FactorizationSpec& spec, const Stream& stream);

/// The first `rank` columns of U and V, sharing their memory. Throws Error where there are fewer.
Semiseparable truncated(const Semiseparable& h, std::int64_t rank);
/// The factors, f32 so far, in another type, by rounding to nearest; T shares its memory.
Semiseparable with_factors(const Semiseparable& h, FactorType type, const Stream& stream);

/// The diagonal of (T + U·Vᵀ − z·I)⁻¹ by Woodbury's formula in O(N·r² + r³), in f64. Throws Error
/// where z is real.
std::vector<std::complex<double>> semiseparable_resolvent(const Semiseparable& h,
                                                          std::complex<double> z,
                                                          const Stream& stream);

}  // namespace hybrid_trainer::kernels
