#include "src/distributed/reduce_elements.h"

#include <algorithm>

namespace hybrid_trainer {
namespace {

template <class T, class Combine>
void combine_elements(void* into, const void* from, std::int64_t elements, const Combine& combine) {
  T* const y = static_cast<T*>(into);
  const T* const x = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < elements; ++i) y[i] = combine(y[i], x[i]);
}

template <class T>
void reduce_as(void* into, const void* from, std::int64_t elements, Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return combine_elements<T>(into, from, elements, [](T a, T b) { return a + b; });
    case Reduction::kMin:
      return combine_elements<T>(into, from, elements, [](T a, T b) { return std::min(a, b); });
    case Reduction::kMax:
      return combine_elements<T>(into, from, elements, [](T a, T b) { return std::max(a, b); });
  }
}

}  // namespace

void check_reducible(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32) return;
  throw Error(ExitCode::kInternal,
              concat("ranks reduce f32, f64 and i32, not ", name_of(dtype), ": convert it first"));
}

void reduce_elements(void* into, const void* from, std::int64_t elements, DType dtype,
                     Reduction reduction) {
  check_reducible(dtype);
  if (dtype == DType::kF32) return reduce_as<float>(into, from, elements, reduction);
  if (dtype == DType::kF64) return reduce_as<double>(into, from, elements, reduction);
  reduce_as<std::int32_t>(into, from, elements, reduction);
}

}  // namespace hybrid_trainer
