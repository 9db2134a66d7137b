#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

/// y = function(x …) in f32, element by element.
template <class Function, class To, class... From>
void map_elements(std::int64_t elements, Function function, To* y, const From*... x) {
  parallel_for(elements, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(y + i, function(load(x + i)...));
  });
}

/// Like map_elements, for tensors of y's dtype.
template <class Function, class... Inputs>
void map(const Function& function, const Tensor& y, const Inputs&... x) {
  visit_real(y.dtype(), [&]<class T>(T) {
    map_elements(y.elements(), function, y.data<T>(), x.template data<T>()...);
  });
}

}  // namespace hybrid_trainer::kernels::cpu
