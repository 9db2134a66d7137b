#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/semiseparable.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/half_float.h"
#include "kernels/structured/thin_decompositions_cpu.h"

namespace hybrid_trainer::kernels {

namespace {

using Qr = Eigen::HouseholderQR<Eigen::MatrixXd>;

Eigen::MatrixXd upper_of(const Qr& qr) {
  const Eigen::Index columns = qr.matrixQR().cols();
  return qr.matrixQR().topRows(columns).triangularView<Eigen::Upper>();
}

/// Returns Q·right, computing only the columns of Q that `right` needs.
Eigen::MatrixXd basis_times(const Qr& qr, const Eigen::MatrixXd& right) {
  Eigen::MatrixXd tall = Eigen::MatrixXd::Zero(qr.rows(), right.cols());
  tall.topRows(right.rows()) = right;
  tall.applyOnTheLeft(qr.householderQ());
  return tall;
}

using FactorMatrix = Eigen::MatrixXd;
using ComplexMatrix = Eigen::MatrixXcd;
using ComplexVector = Eigen::VectorXcd;

std::int64_t ceil_log2(std::int64_t x) {
  return x <= 1
             ? 1
             : std::max<std::int64_t>(
                   1, static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(x - 1))));
}

DType dtype_of(FactorType type) {
  switch (type) {
    case FactorType::kF32: return DType::kF32;
    case FactorType::kBF16: return DType::kBF16;
    case FactorType::kF16: return DType::kU16;
    case FactorType::kI8: return DType::kI8;
  }
  return DType::kF32;
}

std::size_t bytes_of(std::int64_t size, std::int64_t rank, DType factors) {
  const auto tridiagonal = static_cast<std::size_t>(3 * size - 2) * sizeof(float),
             numbers = static_cast<std::size_t>(2 * size * rank),
             scales =
                 factors == DType::kI8 ? static_cast<std::size_t>(2 * rank) * sizeof(float) : 0;
  return tridiagonal + numbers * size_of(factors) + scales;
}

Tensor host_floats(const Shape& shape, const Stream& stream) {
  return Tensor::empty(shape, DType::kF32, MemoryKind::kParameters, stream);
}

FactorMatrix to_matrix(const Tensor& tensor) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using RowMajorFloats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t rows = tensor.size(0), columns = tensor.size(1);
  if (tensor.dtype() == DType::kF64)
    return Eigen::Map<const RowMajor>(tensor.data<double>(), rows, columns);
  return Eigen::Map<const RowMajorFloats>(tensor.data<float>(), rows, columns).cast<double>();
}

Tensor to_rows(const FactorMatrix& columns, const Stream& stream) {
  const Tensor rows = host_floats({columns.cols(), columns.rows()}, stream);
  Eigen::Map<Eigen::MatrixXf>(rows.data<float>(), columns.rows(), columns.cols()) =
      columns.cast<float>();
  return rows;
}

/// Returns the three diagonals, and sets them to 0 in `rest`.
Semiseparable take_tridiagonal(FactorMatrix& rest, const Stream& stream) {
  const std::int64_t size = rest.rows();
  Semiseparable h{.diagonal = host_floats({size}, stream),
                  .above = host_floats({size - 1}, stream),
                  .below = host_floats({size - 1}, stream)};
  const auto take = [&](const Tensor& to, std::int64_t offset) {
    auto diagonal = rest.diagonal(offset);
    for (std::int64_t i = 0; i < to.elements(); ++i)
      to.data<float>()[i] = static_cast<float>(diagonal[i]);
    diagonal.setZero();
  };
  take(h.diagonal, 0);
  take(h.above, 1);
  take(h.below, -1);
  return h;
}

/// Returns an orthonormal basis that approximately spans the matrix's largest singular vectors.
FactorMatrix range_of(const FactorMatrix& matrix, std::int64_t columns,
                      const FactorizationSpec& spec) {
  FactorMatrix sketch(matrix.cols(), columns);
  for (std::int64_t i = 0; i < sketch.size(); ++i)
    sketch.data()[i] =
        static_cast<double>(random_normal({spec.seed, 0, 0}, static_cast<std::uint64_t>(i)));
  FactorMatrix range = orthonormal_basis(matrix * sketch);
  for (int i = 0; i < spec.power_iterations; ++i)
    range = orthonormal_basis(matrix * orthonormal_basis(matrix.transpose() * range));
  return range;
}

void check_host(const char* function, const Stream& stream) {
  if (stream.device().type != DeviceType::kCpu)
    throw Error(ExitCode::kInternal,
                concat(function, ": runs only on the CPU, but the stream is on ",
                       name_of(stream.device()), "; run it on a CPU stream and copy the result"));
}

void check_factor_rank(std::int64_t rank, std::int64_t size) {
  if (rank >= 0 && rank <= size) return;
  throw Error(ExitCode::kConfig,
              concat("factorize: the rank is ", rank, ", the matrix is (", size, ", ", size,
                     "); want a rank of at most ", size, ", or 0 for ", default_rank(size)));
}

/// norms[k]² = last² + the sum of the squares of the values from k on.
std::vector<double> errors_of(const Eigen::VectorXd& values, double last) {
  std::vector<double> errors(static_cast<std::size_t>(values.size()) + 1);
  double squares = last * last;
  errors.back() = last;
  for (std::int64_t k = values.size() - 1; k >= 0; --k) {
    squares += values[k] * values[k];
    errors[static_cast<std::size_t>(k)] = std::sqrt(squares);
  }
  return errors;
}

Tensor rounded_factor(const Tensor& factor, const Tensor& scales, FactorType type,
                      const Stream& stream) {
  const Tensor rounded =
      Tensor::empty(factor.shape(), dtype_of(type), MemoryKind::kParameters, stream);
  const float* const from = factor.data<float>();
  const std::int64_t size = factor.size(1);
  for (std::int64_t k = 0; k < factor.size(0); ++k) {
    float most = 0;
    for (std::int64_t i = k * size; i < (k + 1) * size; ++i)
      most = std::max(most, std::fabs(from[i]));
    const float scale = most / 127.0f;
    if (scales) scales.data<float>()[k] = scale;
    for (std::int64_t i = k * size; i < (k + 1) * size; ++i) {
      if (type == FactorType::kF32) rounded.data<float>()[i] = from[i];
      if (type == FactorType::kBF16) rounded.data<BFloat16>()[i] = to_bfloat16(from[i]);
      if (type == FactorType::kF16) rounded.data<std::uint16_t>()[i] = to_half_bits(from[i]);
      if (type == FactorType::kI8)
        rounded.data<std::int8_t>()[i] =
            static_cast<std::int8_t>(scale > 0 ? std::nearbyint(from[i] / scale) : 0.0f);
    }
  }
  return rounded;
}

/// T − z, factored by pivots from both ends. Solves systems with it and with its transpose.
struct ShiftedChain {
  ComplexVector delta, rho, s;
  Eigen::VectorXd above, below;

  ShiftedChain(const Semiseparable& h, std::complex<double> z) : above(h.size()), below(h.size()) {
    const std::int64_t n = h.size();
    delta.resize(n), rho.resize(n), s.resize(n);
    for (std::int64_t i = 0; i < n; ++i)
      s[i] = static_cast<double>(h.diagonal.data<float>()[i]) - z;
    for (std::int64_t i = 0; i + 1 < n; ++i) {
      above[i] = static_cast<double>(h.above.data<float>()[i]);
      below[i] = static_cast<double>(h.below.data<float>()[i]);
    }
    for (std::int64_t i = 0; i < n; ++i)
      delta[i] = i == 0 ? s[0] : s[i] - above[i - 1] * below[i - 1] / delta[i - 1];
    for (std::int64_t i = n - 1; i >= 0; --i)
      rho[i] = i == n - 1 ? s[i] : s[i] - above[i] * below[i] / rho[i + 1];
  }
  std::complex<double> diagonal(std::int64_t i) const { return 1.0 / (delta[i] + rho[i] - s[i]); }
  /// Replaces each column x by (T − z)⁻¹·x, or by (Tᵀ − z)⁻¹·x if transposed.
  void solve(ComplexMatrix& x, Transpose transpose) const {
    const bool transposed = transpose == Transpose::kYes;
    const Eigen::VectorXd &upper = transposed ? below : above, &lower = transposed ? above : below;
    const std::int64_t n = x.rows();
    for (std::int64_t i = 1; i < n; ++i) x.row(i) -= lower[i - 1] / delta[i - 1] * x.row(i - 1);
    x.row(n - 1) /= delta[n - 1];
    for (std::int64_t i = n - 2; i >= 0; --i)
      x.row(i) = (x.row(i) - upper[i] * x.row(i + 1)) / delta[i];
  }
};

/// Returns the rows of a factor, f32 or rounded, as columns.
ComplexMatrix factor_columns(const Tensor& factor, const Tensor& scales) {
  ComplexMatrix columns(factor.size(1), factor.size(0));
  for (std::int64_t k = 0; k < columns.cols(); ++k) {
    for (std::int64_t i = 0; i < columns.rows(); ++i) {
      const std::int64_t at = k * columns.rows() + i;
      float value = 0;
      if (factor.dtype() == DType::kF32) value = factor.data<float>()[at];
      if (factor.dtype() == DType::kBF16) value = to_float(factor.data<BFloat16>()[at]);
      if (factor.dtype() == DType::kU16) value = from_half_bits(factor.data<std::uint16_t>()[at]);
      if (factor.dtype() == DType::kI8)
        value = scales.data<float>()[k] * static_cast<float>(factor.data<std::int8_t>()[at]);
      columns(i, k) = static_cast<double>(value);
    }
  }
  return columns;
}

}  // namespace

Eigen::MatrixXd orthonormal_basis(const Eigen::MatrixXd& columns) {
  return basis_times(Qr(columns), Eigen::MatrixXd::Identity(columns.cols(), columns.cols()));
}

ThinSvd svd_of_product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  const Qr left(a), right(b);
  const Eigen::MatrixXd middle = upper_of(left) * upper_of(right).transpose();
  const Eigen::JacobiSVD<Eigen::MatrixXd, Eigen::NoQRPreconditioner> svd(
      middle, Eigen::ComputeFullU | Eigen::ComputeFullV);
  return {basis_times(left, svd.matrixU()), basis_times(right, svd.matrixV()),
          svd.singularValues()};
}

std::int64_t default_rank(std::int64_t size) { return ceil_log2(size); }

std::vector<std::int64_t> level_ranks(std::int64_t size) {
  std::vector<std::int64_t> ranks;
  std::int64_t rank = ceil_log2(size), left = size;
  while (left > 0) {
    rank = std::min(rank, left);
    ranks.push_back(rank);
    left -= rank;
    if (rank == 1) break;
    rank = ceil_log2(rank);
  }
  return ranks;
}

std::size_t semiseparable_bytes(std::int64_t size, std::int64_t rank, FactorType type) {
  return bytes_of(size, rank, dtype_of(type));
}
std::size_t semiseparable_bytes(const Semiseparable& h) {
  return bytes_of(h.size(), h.rank(), h.u.dtype());
}

Factorization factorize(const Tensor& matrix, const FactorizationSpec& spec, const Stream& stream) {
  check_host("factorize", stream);
  const Tensor host = wait_for_host(matrix, stream);
  if (host.shape().rank() != 2 || host.size(0) != host.size(1) || host.size(0) == 0)
    throw ShapeMismatch(concat("factorize: the matrix is ", host.shape().text(), ", want (N, N)"));
  const std::int64_t size = host.size(0);
  check_factor_rank(spec.rank, size);
  const std::int64_t rank = spec.rank == 0 ? default_rank(size) : spec.rank;
  FactorMatrix rest = to_matrix(host);
  if (!rest.allFinite())
    throw Error(ExitCode::kInternal, "factorize: the matrix has an element that is not finite");
  Factorization result{.h = take_tridiagonal(rest, stream), .errors = {}};
  const FactorMatrix range = range_of(rest, std::min(size, rank + spec.extra_columns), spec);
  const ThinSvd svd = svd_of_product(range, rest.transpose() * range);
  const Eigen::VectorXd values = svd.values.head(rank);
  const FactorMatrix u = svd.u.leftCols(rank) * values.asDiagonal(), v = svd.v.leftCols(rank);
  rest.noalias() -= u * v.transpose();
  result.errors = errors_of(values, rest.norm());
  result.h.u = to_rows(u, stream);
  result.h.v = to_rows(v, stream);
  return result;
}

Semiseparable truncated(const Semiseparable& h, std::int64_t rank) {
  if (rank < 0 || rank > h.rank())
    throw Error(ExitCode::kConfig, concat("truncated: the rank is ", rank, "; want at most ",
                                          h.rank(), ", the rank of the factors"));
  Semiseparable coarse = h;
  for (Tensor* part : {&coarse.u, &coarse.v, &coarse.u_scales, &coarse.v_scales})
    if (*part) *part = part->rows(0, rank);
  return coarse;
}

Semiseparable with_factors(const Semiseparable& h, FactorType type, const Stream& stream) {
  check_host("with_factors", stream);
  Semiseparable rounded = h;
  if (type == FactorType::kI8) {
    rounded.u_scales = host_floats({h.rank()}, stream);
    rounded.v_scales = host_floats({h.rank()}, stream);
  }
  rounded.u = rounded_factor(h.u, rounded.u_scales, type, stream);
  rounded.v = rounded_factor(h.v, rounded.v_scales, type, stream);
  return rounded;
}

std::vector<std::complex<double>> semiseparable_resolvent(const Semiseparable& h,
                                                          std::complex<double> z,
                                                          const Stream& stream) {
  if (!(z.imag() != 0))
    throw Error(ExitCode::kConfig, concat("semiseparable_resolvent: z = ", z.real(), " + ",
                                          z.imag(), "i has no imaginary part; want a nonzero one"));
  Semiseparable here = h;
  for (Tensor* part :
       {&here.diagonal, &here.above, &here.below, &here.u, &here.v, &here.u_scales, &here.v_scales})
    if (*part) *part = wait_for_host(*part, stream);
  const ShiftedChain chain(here, z);
  ComplexMatrix x = factor_columns(here.u, here.u_scales),
                y = factor_columns(here.v, here.v_scales);
  const ComplexMatrix v = y;
  chain.solve(x, Transpose::kNo);
  chain.solve(y, Transpose::kYes);
  const ComplexMatrix middle = ComplexMatrix::Identity(x.cols(), x.cols()) + v.transpose() * x;
  const ComplexMatrix left = middle.transpose().partialPivLu().solve(x.transpose()).transpose();
  std::vector<std::complex<double>> diagonal;
  for (std::int64_t i = 0; i < x.rows(); ++i)
    diagonal.push_back(chain.diagonal(i) - (left.row(i).array() * y.row(i).array()).sum());
  return diagonal;
}

}  // namespace hybrid_trainer::kernels
