#pragma once

#include <complex>
#include <vector>

#include "hybrid_trainer/kernels/semiseparable.h"

namespace hybrid_trainer::kernels {

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
