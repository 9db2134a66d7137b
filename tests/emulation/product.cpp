// The products of the tests: what kernels/cuda/product.h promises, by plain loops in the order of
// the stream. It is linked in place of cuBLASLt.

#include "kernels/cuda/product.h"

#include <cmath>
#include <vector>

#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::kernels {
namespace {

/// Where a matrix lies. A Tensor would keep its block from the pool until the stream comes to it.
struct Matrix {
  Matrix(const Tensor& tensor)
      : data(tensor.raw()),
        dtype(tensor.dtype()),
        rows(tensor.shape().rank() == 2 ? tensor.size(0) : 1),
        columns(tensor.shape().rank() == 0 ? 0 : tensor.size(tensor.shape().rank() - 1)) {}
  explicit operator bool() const { return data != nullptr; }
  float at(std::int64_t i) const {
    return dtype == DType::kF32 ? static_cast<const float*>(data)[i]
                                : to_float(static_cast<const BFloat16*>(data)[i]);
  }
  void put(std::int64_t i, float value) const {
    if (dtype == DType::kF32) {
      static_cast<float*>(data)[i] = value;
    } else {
      static_cast<BFloat16*>(data)[i] = to_bfloat16(value);
    }
  }

  void* data;
  DType dtype;
  std::int64_t rows;
  std::int64_t columns;
};

struct Enqueued {
  explicit Enqueued(const Product& p)
      : transpose_a(p.transpose_a),
        transpose_b(p.transpose_b),
        epilogue(p.epilogue),
        k(p.k()),
        c(p.c),
        a(p.a),
        b(p.b),
        addend(p.addend),
        bias(p.bias),
        aux(p.aux) {}
  Transpose transpose_a, transpose_b;
  Epilogue epilogue;
  std::int64_t k;
  Matrix c, a, b, addend, bias, aux;
};

float gelu_tanh(float x) { return std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)); }

float gelu(float x) { return 0.5f * x * (1 + gelu_tanh(x)); }

float gelu_slope(float x) {
  const float tanh = gelu_tanh(x);
  return 0.5f * (1 + tanh) + 0.5f * x * (1 - tanh * tanh) * 0.7978845608f * (1 + 0.134145f * x * x);
}

/// op(matrix) in f32, row-major.
std::vector<float> laid_out(const Matrix& matrix, Transpose transpose) {
  const std::int64_t rows = matrix.rows;
  const std::int64_t columns = matrix.columns;
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t to = transpose == Transpose::kYes ? j * rows + i : i * columns + j;
      values[static_cast<std::size_t>(to)] = matrix.at(i * columns + j);
    }
  }
  return values;
}

void finish(const Enqueued& p, std::int64_t i, float sum) {
  if (p.addend) sum += p.addend.at(i);
  if (p.bias) sum += p.bias.at(i % p.c.columns);
  if (p.epilogue == Epilogue::kGelu && p.aux) p.aux.put(i, sum);
  if (p.epilogue == Epilogue::kGelu) sum = gelu(sum);
  if (p.epilogue == Epilogue::kGeluSlope) sum *= gelu_slope(p.aux.at(i));
  p.c.put(i, sum);
}

void multiply(const Enqueued& p) {
  const std::vector<float> a = laid_out(p.a, p.transpose_a);
  const std::vector<float> b = laid_out(p.b, p.transpose_b);
  const auto n = static_cast<std::size_t>(p.c.columns);
  const auto k = static_cast<std::size_t>(p.k);
  std::vector<float> sums(n);
  for (std::size_t row = 0; row < static_cast<std::size_t>(p.c.rows); ++row) {
    sums.assign(n, 0.0f);
    for (std::size_t l = 0; l < k; ++l) {
      const float factor = a[row * k + l];
      for (std::size_t j = 0; j < n; ++j) sums[j] += factor * b[l * n + j];
    }
    for (std::size_t j = 0; j < n; ++j) finish(p, static_cast<std::int64_t>(row * n + j), sums[j]);
  }
}

void check(const Product& p) {
  const DType out = p.c.dtype();
  const bool types = p.a.dtype() == p.b.dtype() && (out == p.a.dtype() || out == DType::kF32);
  const bool extras = (!p.addend || p.addend.dtype() == out) &&
                      (!p.bias || p.bias.dtype() == out) && (!p.aux || p.aux.dtype() == out);
  require(types && extras, "product: dtypes that cuBLASLt does not multiply");
  require(p.epilogue != Epilogue::kGeluSlope || (p.aux && !p.bias),
          "product: GELU's slope of what?");
}

bool has_epilogue(const Product& p) { return p.bias || p.epilogue != Epilogue::kNone; }

}  // namespace

bool try_multiply(Cuda cuda, const Product& product) {
  check(product);
  const bool refused = emulation::device().refuses == "epilogue" && has_epilogue(product);
  if (refused || (product.aux && product.n() % 8 != 0)) return false;
  emulation::enqueue(cuda.stream.native(), [enqueued = Enqueued(product)] { multiply(enqueued); });
  return true;
}

}  // namespace hybrid_trainer::kernels
