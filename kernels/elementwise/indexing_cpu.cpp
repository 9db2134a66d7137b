#include <cstring>

#include "hybrid_trainer/kernels/indexing.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

template <class T>
T* columns_of_row(const Columns& columns, std::int64_t row) {
  return columns.rows.data<T>() + row * columns.rows.size(1) + columns.first;
}

void check_tokens(const char* kernel, const Tensor& tokens, std::int64_t vocabulary) {
  const std::int32_t* const ids = tokens.data<std::int32_t>();
  for (std::int64_t i = 0; i < tokens.elements(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary)
      throw DataError(concat(kernel, ": token ", i, " is ", ids[i], ", want 0 to ", vocabulary - 1,
                             "; was the data tokenized for another vocabulary?"));
  }
}

/// Calls body(row, k, column) for each row and each index; column is the k-th index.
template <class Body>
void for_columns(std::int64_t rows, const Tensor& indices, const Body& body) {
  const std::int64_t count = indices.elements();
  const std::int32_t* const ids = indices.data<std::int32_t>();
  for_each_row(rows, count, [=](std::int64_t row) {
    for (std::int64_t k = 0; k < count; ++k) body(row, k, ids[k]);
  });
}

/// to = function(a, b), element by element, for `count` columns of each row.
template <class Function>
void map_columns(std::int64_t count, const Function& function, const Columns& to, const Columns& a,
                 const Columns& b) {
  visit_real(to.rows.dtype(), [&]<class T>(T) {
    for_each_row(to.rows.size(0), count, [&](std::int64_t row) {
      T* const out = columns_of_row<T>(to, row);
      const T *const left = columns_of_row<T>(a, row), *const right = columns_of_row<T>(b, row);
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        store(out + i, function(load(left + i), load(right + i)));
    });
  });
}

}  // namespace

void copy_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream&) {
  const std::size_t bytes = size_of(to.rows.dtype());
  const auto at = [bytes](const Columns& columns, std::int64_t row) {
    const auto element = static_cast<std::size_t>(row * columns.rows.size(1) + columns.first);
    return static_cast<char*>(columns.rows.raw()) + element * bytes;
  };
  for_each_row(to.rows.size(0), count, [&](std::int64_t row) {
    std::memcpy(at(to, row), at(from, row), static_cast<std::size_t>(count) * bytes);
  });
}

void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream&) {
  map_columns(
      count, [](float sum, float more) { return sum + more; }, to, to, from);
}

void multiply_columns(const Columns& to, const Columns& a, const Columns& b, std::int64_t count,
                      const Stream&) {
  map_columns(
      count, [](float left, float right) { return left * right; }, to, a, b);
}

void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate, const Stream&) {
  map_columns(
      x.size(1), [](float value, float open) { return value * sigmoid(open); }, {y, 0}, {x, 0},
      gate);
}

void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream&) {
  const std::int64_t columns = x.size(1);
  visit_real(x.dtype(), [&]<class T>(T) {
    for_each_row(x.size(0), columns, [&](std::int64_t row) {
      T *const to = dx.data<T>() + row * columns, *const dgates = columns_of_row<T>(dgate, row);
      const T *const from = dy.data<T>() + row * columns, *const in = x.data<T>() + row * columns,
                     *const gates = columns_of_row<T>(gate, row);
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) {
        const float share = sigmoid(load(gates + i)), slope = load(from + i);
        store(dgates + i, slope * load(in + i) * share * (1.0f - share));
        store(to + i, slope * share);
      }
    });
  });
}

void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position, const Stream&) {
  check_tokens("embedding_forward", tokens, token_table.size(0));
  const std::int64_t columns = token_table.size(1);
  const std::int64_t length = tokens.size(1);
  const std::int32_t* const ids = tokens.data<std::int32_t>();
  visit_real(y.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T* const token_rows = token_table.data<T>();
    const T* const position_rows =
        position_table ? position_table.data<T>() + first_position * columns : nullptr;
    for_each_row(tokens.elements(), columns, [=](std::int64_t n) {
      const T* const token = token_rows + ids[n] * columns;
      T* const to = out + n * columns;
      if (position_rows == nullptr) {
        std::copy_n(token, columns, to);
        return;
      }
      const T* const position = position_rows + n % length * columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        store(to + i, load(token + i) + load(position + i));
    });
  });
}

/// Each thread adds all tokens for its own columns, so that every sum is in token order.
void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream) {
  check_tokens("embedding_backward", tokens, dtoken_table.size(0));
  if (token_mode == GradientMode::kOverwrite) fill_zero(dtoken_table, stream);
  if (dposition_table && position_mode == GradientMode::kOverwrite)
    fill_zero(dposition_table, stream);
  const std::int64_t columns = dtoken_table.size(1);
  const std::int64_t count = tokens.elements();
  const std::int64_t length = tokens.size(1);
  const std::int32_t* const ids = tokens.data<std::int32_t>();
  float* const token_rows = dtoken_table.data<float>();
  float* const position_rows = optional_data<float>(dposition_table);
  visit_real(dy.dtype(), [&]<class T>(T) {
    const T* const gradient = dy.data<T>();
    parallel_rows(columns, count, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = 0; n < count; ++n) {
        const T* const from = gradient + n * columns;
        float* const token = token_rows + ids[n] * columns;
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) token[i] += load(from + i);
        if (position_rows == nullptr) continue;
        float* const position = position_rows + n % length * columns;
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) position[i] += load(from + i);
      }
    });
  });
}

void gather_columns(const Tensor& columns, const Tensor& x, const Tensor& indices, const Stream&) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  float* const to = columns.data<float>();
  const float* const from = x.data<float>();
  for_columns(rows, indices, [=](std::int64_t row, std::int64_t k, std::int64_t column) {
    to[k * rows + row] = from[row * width + column];
  });
}

void scatter_columns(const Tensor& x, const Tensor& columns, const Tensor& indices, const Stream&) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  const float* const from = columns.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    auto* const to = x.data<T>();
    for_columns(rows, indices, [=](std::int64_t row, std::int64_t k, std::int64_t column) {
      store(to + row * width + column, from[k * rows + row]);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
