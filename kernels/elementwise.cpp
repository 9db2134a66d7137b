#include "hybrid_trainer/kernels/elementwise.h"

#include "kernels/check.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cuda/elementwise.h"

namespace hybrid_trainer::kernels {

void add(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream) {
  check_real("add", {"y", y});
  check_alike("add", {{"y", y}, {"x", x}, {"z", z}});
  visit_backend(stream, Work::kElementwise, [&](auto backend) { add(backend, y, x, z); });
}

void scale(const Tensor& y, const Tensor& x, float a, const Stream& stream) {
  check_dtype("scale", {"y", y}, DType::kF32);
  check_alike("scale", {{"y", y}, {"x", x}});
  visit_backend(stream, Work::kElementwise, [&](auto backend) { scale(backend, y, x, a); });
}

void normalize(const Tensor& y, const Tensor& x, const Tensor& squares, double floor,
               const Stream& stream) {
  check_dtype("normalize", {"y", y}, DType::kF32);
  check_alike("normalize", {{"y", y}, {"x", x}});
  check_dtype("normalize", {"squares", squares}, DType::kF64);
  check_shape("normalize", {"squares", squares}, {1});
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { normalize(backend, y, x, squares, floor); });
}

void axpy(const Tensor& y, float a, const Tensor& x, const Stream& stream) {
  move_along(y, y, a, x, stream);
}

void move_along(const Tensor& y, const Tensor& from, float a, const Tensor& direction,
                const Stream& stream) {
  check_dtype("move_along", {"y", y}, DType::kF32);
  check_alike("move_along", {{"y", y}, {"from", from}, {"direction", direction}});
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { move_along(backend, y, from, a, direction); });
}

void cast(const Tensor& y, const Tensor& x, const Stream& stream) {
  check_real("cast", {"y", y});
  check_real("cast", {"x", x});
  check_shape("cast", {"y", y}, x.shape());
  visit_backend(stream, Work::kElementwise, [&](auto backend) { cast(backend, y, x); });
}

void gelu_forward(const Tensor& y, const Tensor& x, const Stream& stream) {
  check_real("gelu_forward", {"y", y});
  check_alike("gelu_forward", {{"y", y}, {"x", x}});
  visit_backend(stream, Work::kElementwise, [&](auto backend) { gelu_forward(backend, y, x); });
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Stream& stream) {
  check_real("gelu_backward", {"dx", dx});
  check_alike("gelu_backward", {{"dx", dx}, {"dy", dy}, {"x", x}});
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { gelu_backward(backend, dx, dy, x); });
}

void dropout(const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers,
             const Stream& stream) {
  check_real("dropout", {"y", y});
  check_alike("dropout", {{"y", y}, {"x", x}});
  require(p >= 0 && p < 1, "dropout: p must be in [0, 1)");
  check_optional_shape("dropout", {"step_words", numbers.step_words}, {2});
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { dropout(backend, y, x, p, numbers); });
}

}  // namespace hybrid_trainer::kernels
