#include "hybrid_trainer/kernels/columns.h"

#include <cstring>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// The first of the columns in row `row`.
template <class T>
T* columns_of_row(const Columns& columns, std::int64_t row) {
  return columns.rows.data<T>() + row * columns.rows.size(1) + columns.first;
}

}  // namespace

void copy_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream&) {
  const std::size_t bytes = size_of(to.rows.dtype());
  const auto at = [bytes](const Columns& columns, std::int64_t row) {
    const auto element = static_cast<std::size_t>(row * columns.rows.size(1) + columns.first);
    return static_cast<char*>(columns.rows.raw()) + element * bytes;
  };
  parallel_rows(to.rows.size(0), count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      std::memcpy(at(to, row), at(from, row), static_cast<std::size_t>(count) * bytes);
  });
}

void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream&) {
  visit_real(to.rows.dtype(), [&](auto real) {
    using T = decltype(real);
    parallel_rows(to.rows.size(0), count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const sums = columns_of_row<T>(to, row);
        const T* const more = columns_of_row<T>(from, row);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) store(sums + i, load(sums + i) + load(more + i));
      }
    });
  });
}

void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate, const Stream&) {
  const std::int64_t columns = x.size(1);
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    parallel_rows(x.size(0), columns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const out = y.data<T>() + row * columns;
        const T *const in = x.data<T>() + row * columns, *const gates =
                                                             columns_of_row<T>(gate, row);
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i)
          store(out + i, load(in + i) * sigmoid(load(gates + i)));
      }
    });
  });
}

void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream&) {
  const std::int64_t columns = x.size(1);
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    parallel_rows(x.size(0), columns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T *const to = dx.data<T>() + row * columns, *const dgates = columns_of_row<T>(dgate, row);
        const T *const from = dy.data<T>() + row * columns, *const in = x.data<T>() + row * columns,
                       *const gates = columns_of_row<T>(gate, row);
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) {
          const float share = sigmoid(load(gates + i)), slope = load(from + i);
          store(dgates + i, slope * load(in + i) * share * (1.0f - share));
          store(to + i, slope * share);
        }
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
