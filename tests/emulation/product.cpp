// Products of the tests: implements kernels/products/product_cuda.h by plain loops in stream order.
// It is linked instead of cuBLASLt and offers algorithms that add in different orders.

#include "kernels/products/product_cuda.h"

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/products/algorithm_choice_cuda.h"
#include "src/core/cuda_runtime.h"

#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// Address of a matrix. A Tensor would keep its pool block until the stream reaches the product.
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
  Enqueued(const Product& p, std::size_t chosen)
      : algorithm(chosen),
        transpose_a(p.transpose_a),
        transpose_b(p.transpose_b),
        epilogue(p.epilogue),
        k(p.k()),
        c(p.c),
        a(p.a),
        b(p.b),
        addend(p.addend),
        bias(p.bias),
        aux(p.aux) {}
  std::size_t algorithm;
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
  if (p.bias && p.epilogue != Epilogue::kRowSums) sum += p.bias.at(i % p.c.columns);
  if (p.epilogue == Epilogue::kGelu && p.aux) p.aux.put(i, sum);
  if (p.epilogue == Epilogue::kGelu) sum = gelu(sum);
  if (p.epilogue == Epilogue::kGeluSlope) sum *= gelu_slope(p.aux.at(i));
  p.c.put(i, sum);
}

/// Index of the term, of k, that an algorithm adds in a step: from front, back or its own start.
std::size_t place_of(std::size_t step, std::size_t k, std::size_t algorithm) {
  if (algorithm == 0) return step;
  return algorithm == 1 ? k - 1 - step : (step + k * algorithm / 7) % k;
}

void multiply(const Enqueued& p) {
  const std::vector<float> a = laid_out(p.a, p.transpose_a);
  const std::vector<float> b = laid_out(p.b, p.transpose_b);
  const auto n = static_cast<std::size_t>(p.c.columns);
  const auto k = static_cast<std::size_t>(p.k);
  std::vector<float> sums(n);
  for (std::size_t row = 0; row < static_cast<std::size_t>(p.c.rows); ++row) {
    sums.assign(n, 0.0f);
    for (std::size_t step = 0; step < k; ++step) {
      const std::size_t l = place_of(step, k, p.algorithm);
      const float factor = a[row * k + l];
      for (std::size_t j = 0; j < n; ++j) sums[j] += factor * b[l * n + j];
    }
    if (p.epilogue == Epilogue::kRowSums) {
      float sum = 0;
      for (std::size_t step = 0; step < k; ++step)
        sum += a[row * k + place_of(step, k, p.algorithm)];
      p.bias.put(static_cast<std::int64_t>(row), sum);
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
  require(p.epilogue != Epilogue::kRowSums || (p.bias && p.bias.size(0) == p.m() && !p.addend),
          "product: sums of rows to where, or with what else?");
}

bool has_epilogue(const Product& p) { return p.bias || p.epilogue != Epilogue::kNone; }

void enqueue(const Product& product, std::size_t algorithm, const Stream& stream) {
  emulation::enqueue(stream.native(),
                     [enqueued = Enqueued(product, algorithm)] { multiply(enqueued); });
}

AlgorithmChooser::Settings settings_of(const ProductRun& run) {
  AlgorithmChooser::Settings settings = AlgorithmChooser::environment(run);
  settings.min_operations = 0;
  return settings;
}

/// Choice for one kind of product.
struct Choice {
  std::size_t algorithm = 0;
  bool sums_apart = false;
};

/// Process-wide state of the products.
struct Library {
  explicit Library(const ProductRun& run) : chooser(settings_of(run), {1, "emulated"}) {}
  AlgorithmChooser chooser;
  std::map<ProductKind, Choice> chosen;
};
std::recursive_mutex library_mutex;  // recursive: a product with sums also chooses one without
ProductRun begun;                    // run for which the first product makes the library
std::unique_ptr<Library> library;

Choice choice_for(const Product& product, const Stream& stream);

/// Enqueues a trial of the algorithm and advances the stream's clock by its time.
void spend_on(const Product& trial, std::size_t algorithm, const Stream& on) {
  const double seconds = emulation::device().algorithm_seconds[algorithm];
  if (seconds < 0) throw DeviceError("does not run");
  enqueue(trial, algorithm, on);
  emulation::spend(
      on.native(),
      seconds + (trial.epilogue == Epilogue::kRowSums ? emulation::device().row_sums_seconds : 0));
}

/// Chooses the algorithm for this product with the product's chooser, but with the test's times.
Choice choice_for(const Product& product, const Stream& stream) {
  const std::vector<double>& seconds = emulation::device().algorithm_seconds;
  if (seconds.empty()) return {};
  const std::lock_guard lock(library_mutex);
  if (!library) library = std::make_unique<Library>(begun);
  if (product.epilogue == Epilogue::kRowSums) choice_for(without_sums(product), stream);
  const auto [entry, is_new] = library->chosen.try_emplace(ProductKind(product));
  Choice& chosen = entry->second;
  if (!is_new) return chosen;
  const AlgorithmOffer offer{
      .candidates =
          [&] {
            std::vector<AlgorithmBits> all(seconds.size());
            for (std::size_t i = 0; i < all.size(); ++i) all[i][0] = i;
            return all;
          },
      .take =
          [&](const AlgorithmBits& bits) {
            chosen.algorithm = static_cast<std::size_t>(bits[0]);
            return chosen.algorithm < seconds.size();
          },
      .run = [&](const Product& trial,
                 const Stream& on) { spend_on(trial, chosen.algorithm, on); }};
  const auto multiply = [](const Product& plain, const Stream& on) {
    spend_on(plain, choice_for(plain, on).algorithm, on);
  };
  library->chooser.choose(product, with_separate_sums(product, offer, chosen.sums_apart, multiply),
                          stream);
  return chosen;
}

}  // namespace

void begin_products(const ProductRun& run, int) {
  const std::lock_guard lock(library_mutex);
  begun = run;
  library.reset();
}

bool try_multiply(const Product& product, const Stream& stream) {
  check(product);
  if (!emulation::device().load_library()) {
    throw_out_of_device_memory("cuBLASLt: cublasLtMatmul failed with CUBLAS_STATUS_ALLOC_FAILED",
                               stream.device().index);
  }
  const std::string& refuses = emulation::device().refuses;
  const bool refused = refuses == "product" || (refuses == "epilogue" && has_epilogue(product));
  if (refused || (product.aux && product.n() % 8 != 0)) return false;
  const Choice choice = choice_for(product, stream);
  if (choice.sums_apart) return false;
  if (const auto& sees = emulation::device().sees_launch) {
    sees(concat("product ", product.m(), " ", product.n(), " ", product.k()), {});
  }
  enqueue(product, choice.algorithm, stream);
  return true;
}

}  // namespace hybrid_trainer::kernels::cuda

void hybrid_trainer::emulation::restart_products() {
  kernels::cuda::begin_products({}, 0);
  device().unload_library();
}
