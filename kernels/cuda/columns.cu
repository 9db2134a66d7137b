#include "hybrid_trainer/kernels/columns.h"

#include "kernels/cuda/for_packs.cuh"
#include "kernels/cuda/sigmoid.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// Where element i of `count` columns a row lies.
template <class T>
struct ColumnsOf {
  T* first;
  std::int64_t stride, count;
  __device__ T* at(std::int64_t i) const { return first + i / count * stride + i % count; }
};

template <class T>
ColumnsOf<T> columns_of(const Columns& columns, std::int64_t count) {
  return {columns.rows.data<T>() + columns.first, columns.rows.size(1), count};
}

/// Whether packs of the columns are whole and aligned in each row.
template <class T>
bool packs_fit_columns(const ColumnsOf<T>& columns) {
  return columns.count % kPackSize<T> == 0 && packs_fit<T>(columns.stride, columns.first);
}

template <class T>
struct CopyColumns {
  ColumnsOf<T> to, from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load_pack(values, from.at(i));
    store_pack(to.at(i), values);
  }
};

template <class T>
struct AddColumns {
  ColumnsOf<T> to, from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float sums[N], more[N];
    load_pack(sums, to.at(i));
    load_pack(more, from.at(i));
    for (int k = 0; k < N; ++k) sums[k] += more[k];
    store_pack(to.at(i), sums);
  }
};

/// Elements of four bytes that are copied and not computed with.
struct CopyWords {
  ColumnsOf<std::int32_t> to, from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    *to.at(i) = *from.at(i);
  }
};

template <class T>
struct SigmoidGate {
  T* y;
  const T* x;
  ColumnsOf<T> gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N], gates[N];
    load_pack(values, x + i);
    load_pack(gates, gate.at(i));
    for (int k = 0; k < N; ++k) values[k] *= sigmoid(gates[k]);
    store_pack(y + i, values);
  }
};

template <class T>
struct SigmoidGateGradient {
  T* dx;
  ColumnsOf<T> dgate;
  const T* dy;
  const T* x;
  ColumnsOf<T> gate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float slopes[N], values[N], gates[N];
    load_pack(slopes, dy + i);
    load_pack(values, x + i);
    load_pack(gates, gate.at(i));
    for (int k = 0; k < N; ++k) {
      const float share = sigmoid(gates[k]);
      gates[k] = slopes[k] * values[k] * share * (1.0f - share);
      slopes[k] *= share;
    }
    store_pack(dgate.at(i), gates);
    store_pack(dx + i, slopes);
  }
};

}  // namespace

namespace {

/// Body of the columns in packs where they fit.
template <template <class> class Body>
void for_columns(const char* name, const Columns& to, const Columns& from, std::int64_t count,
                 const Stream& stream) {
  visit_real(to.rows.dtype(), [&](auto real) {
    using T = decltype(real);
    const Body<T> body{columns_of<T>(to, count), columns_of<T>(from, count)};
    const std::int64_t elements = to.rows.size(0) * count;
    if (packs_fit_columns(body.to) && packs_fit_columns(body.from))
      return for_packs<kPackSize<T>>(stream, name, elements, body);
    for_packs<1>(stream, name, elements, body);
  });
}

}  // namespace

void copy_columns(const Columns& to, const Columns& from, std::int64_t count,
                  const Stream& stream) {
  if (to.rows.dtype() != DType::kI32)
    return for_columns<CopyColumns>("copy_columns", to, from, count, stream);
  const CopyWords body{columns_of<std::int32_t>(to, count), columns_of<std::int32_t>(from, count)};
  for_packs<1>(stream, "copy_columns", to.rows.size(0) * count, body);
}

void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream) {
  for_columns<AddColumns>("add_columns", to, from, count, stream);
}

void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const SigmoidGate<T> body{y.data<T>(), x.data<T>(), columns_of<T>(gate, x.size(1))};
    if (packs_fit_columns(body.gate))
      return for_packs<kPackSize<T>>(stream, "sigmoid_gate_forward", x.elements(), body, body.y,
                                     body.x);
    for_packs<1>(stream, "sigmoid_gate_forward", x.elements(), body);
  });
}

void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const SigmoidGateGradient<T> body{dx.data<T>(), columns_of<T>(dgate, x.size(1)), dy.data<T>(),
                                      x.data<T>(), columns_of<T>(gate, x.size(1))};
    if (packs_fit_columns(body.gate) && packs_fit_columns(body.dgate))
      return for_packs<kPackSize<T>>(stream, "sigmoid_gate_backward", x.elements(), body, body.dx,
                                     body.dy, body.x);
    for_packs<1>(stream, "sigmoid_gate_backward", x.elements(), body);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
