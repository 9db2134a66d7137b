// Kernels that compute each element of y from the elements of other tensors at the same place.

#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "kernels/backend/elements.cuh"

namespace hybrid_trainer::kernels::cuda {

template <class To, class From, int kInputs, class Function>
struct MapElements {
  To* y;
  const From* x[kInputs];
  Function function;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[kInputs][N];
    load_pack(values[0], x[0] + i);
    if constexpr (kInputs == 2) load_pack(values[1], x[1] + i);
    for (int k = 0; k < N; ++k) {
      if constexpr (kInputs == 1) values[0][k] = function(values[0][k]);
      if constexpr (kInputs == 2) values[0][k] = function(values[0][k], values[1][k]);
    }
    store_pack(y + i, values[0]);
  }
};

/// Enqueues y = function(x …) in f32, element by element, for one or two x of one dtype.
template <class To, class From, class Function, class... Inputs>
void map(const Stream& stream, const char* name, Function function, const Tensor& y,
         const Inputs&... x) {
  const MapElements<To, From, sizeof...(x), Function> body{
      y.data<To>(), {x.template data<From>()...}, function};
  constexpr int kPack = kPackSize<To> < kPackSize<From> ? kPackSize<To> : kPackSize<From>;
  for_packs<kPack>(stream, name, y.elements(), body, y.raw(), x.raw()...);
}

/// Like map, for tensors of y's dtype.
template <class Function, class... Inputs>
void map_real(const Stream& stream, const char* name, Function function, const Tensor& y,
              const Inputs&... x) {
  visit_real(y.dtype(), [&]<class T>(T) { map<T, T>(stream, name, function, y, x...); });
}

}  // namespace hybrid_trainer::kernels::cuda
