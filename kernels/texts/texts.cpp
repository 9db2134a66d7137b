#include "kernels/generated/texts.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

namespace {

void check_elements(const KernelCall& call, const NamedTensor& argument, std::int64_t wanted,
                    DType dtype = DType::kF32) {
  check_dtype(call, argument, dtype);
  if (argument.tensor.elements() != wanted)
    throw_mismatch(call, argument.name, " is ", argument.tensor.shape().text(), ", want ", wanted,
                   " elements");
}

std::int64_t check_f32_rows(const KernelCall& call, const NamedTensor& argument) {
  check_rank(call, argument, 2, DType::kF32);
  return argument.tensor.size(0);
}

void check_scale(const KernelCall& call, float scale) {
  if (!(scale > 0 && scale <= kMaxCosineScale))
    throw Error(ExitCode::kInternal, concat(call.kernel, ": the scale is ", scale,
                                            ", want above 0 and at most ", kMaxCosineScale));
}

void check_packed_texts(const KernelCall& call, const NamedTensor& hidden,
                        const NamedTensor& pooled, const Tensor& ends) {
  check_real(call, hidden, 2);
  check_rank(call, {"ends", ends}, 2, DType::kI32);
  const std::int64_t sequences = ends.size(0), rows = hidden.tensor.size(0);
  if (sequences == 0 || rows % sequences != 0)
    throw_mismatch(call, hidden.name, " has ", rows, " rows, want a multiple of the ", sequences,
                   " sequences of ends");
  check_shape(call, pooled, {ends.elements(), hidden.tensor.size(1)}, DType::kF32);
}

void check_dimensions(const KernelCall& call, std::int64_t dimensions, std::int64_t columns) {
  if (dimensions < 1 || dimensions > columns)
    throw_mismatch(call, "dimensions is ", dimensions, ", want 1 to ", columns);
}

template <auto& on_cpu, auto& on_cuda>
void label_loss(const KernelCall& call, const Tensor& losses, const NamedTensor& x,
                const Tensor& labels, const Tensor& roles, float gradient_scale) {
  const std::int64_t rows = check_f32_rows(call, x);
  check_elements(call, {"losses", losses}, rows);
  check_elements(call, {"labels", labels}, x.tensor.elements());
  check_elements(call, {"roles", roles}, rows, DType::kI32);
  dispatch<on_cpu, on_cuda>(call, losses, x.tensor, labels, roles, gradient_scale);
}

}  // namespace

void pool_texts(const Tensor& pooled, const Tensor& hidden, const Tensor& ends, Pooling pooling,
                const Stream& stream) {
  const KernelCall call{"pool_texts", stream, Work::kReduction};
  check_packed_texts(call, {"hidden", hidden}, {"pooled", pooled}, ends);
  dispatch<cpu::pool_texts, cuda::pool_texts>(call, pooled, hidden, ends, pooling);
}

void pool_texts_backward(const Tensor& dhidden, const Tensor& dpooled, const Tensor& ends,
                         Pooling pooling, const Stream& stream) {
  const KernelCall call{"pool_texts_backward", stream, Work::kElementwise};
  check_packed_texts(call, {"dhidden", dhidden}, {"dpooled", dpooled}, ends);
  dispatch<cpu::pool_texts_backward, cuda::pool_texts_backward>(call, dhidden, dpooled, ends,
                                                                pooling);
}

void normalize_rows(const Tensor& y, const Tensor& norms, const Tensor& x, std::int64_t dimensions,
                    const Stream& stream) {
  const KernelCall call{"normalize_rows", stream, Work::kNormalization};
  const std::int64_t rows = check_f32_rows(call, {"x", x});
  check_shape(call, {"y", y}, x.shape(), DType::kF32);
  check_shape(call, {"norms", norms}, {rows}, DType::kF32);
  check_dimensions(call, dimensions, x.size(1));
  dispatch<cpu::normalize_rows, cuda::normalize_rows>(call, y, norms, x, dimensions);
}

void normalize_rows_backward(const Tensor& dx, GradientMode mode, const Tensor& dy, const Tensor& y,
                             const Tensor& norms, std::int64_t dimensions, const Stream& stream) {
  const KernelCall call{"normalize_rows_backward", stream, Work::kNormalization};
  const std::int64_t rows = check_f32_rows(call, {"y", y});
  check_shape(call, {"dx", dx}, y.shape(), DType::kF32);
  check_shape(call, {"dy", dy}, y.shape(), DType::kF32);
  check_shape(call, {"norms", norms}, {rows}, DType::kF32);
  check_dimensions(call, dimensions, y.size(1));
  dispatch<cpu::normalize_rows_backward, cuda::normalize_rows_backward>(call, dx, mode, dy, y,
                                                                        norms, dimensions);
}

void contrastive_loss(const Tensor& losses, const Tensor& similarities, const Tensor& roles,
                      ContrastiveRows rows, float scale, float gradient_scale,
                      const Stream& stream) {
  const KernelCall call{"contrastive_loss", stream, Work::kLoss};
  const std::int64_t slots = check_f32_rows(call, {"similarities", similarities});
  check_shape(call, {"similarities", similarities}, {slots, slots});
  check_elements(call, {"losses", losses}, slots);
  check_elements(call, {"roles", roles}, slots, DType::kI32);
  check_scale(call, scale);
  dispatch<cpu::contrastive_loss, cuda::contrastive_loss>(call, losses, similarities, roles, rows,
                                                          scale, gradient_scale);
}

void pair_cosines(const Tensor& cosines, const Tensor& y, const Tensor& roles,
                  const Stream& stream) {
  const KernelCall call{"pair_cosines", stream, Work::kReduction};
  const std::int64_t slots = check_f32_rows(call, {"y", y});
  check_elements(call, {"cosines", cosines}, slots);
  check_elements(call, {"roles", roles}, slots, DType::kI32);
  dispatch<cpu::pair_cosines, cuda::pair_cosines>(call, cosines, y, roles);
}

void pair_cosines_backward(const Tensor& dy, const Tensor& dcosines, const Tensor& y,
                           const Tensor& roles, const Stream& stream) {
  const KernelCall call{"pair_cosines_backward", stream, Work::kElementwise};
  const std::int64_t slots = check_f32_rows(call, {"y", y});
  check_shape(call, {"dy", dy}, y.shape(), DType::kF32);
  check_elements(call, {"dcosines", dcosines}, slots);
  check_elements(call, {"roles", roles}, slots, DType::kI32);
  dispatch<cpu::pair_cosines_backward, cuda::pair_cosines_backward>(call, dy, dcosines, y, roles);
}

void cosent_loss(const Tensor& losses, const Tensor& cosines, const Tensor& labels,
                 const Tensor& roles, float scale, float gradient_scale, const Stream& stream) {
  const KernelCall call{"cosent_loss", stream, Work::kLoss};
  const std::int64_t slots = losses.elements();
  check_elements(call, {"losses", losses}, slots);
  check_elements(call, {"cosines", cosines}, slots);
  check_elements(call, {"labels", labels}, slots);
  check_elements(call, {"roles", roles}, slots, DType::kI32);
  check_scale(call, scale);
  dispatch_with_workspace<cpu::cosent_loss, cuda::cosent_loss>(call, losses, cosines, labels, roles,
                                                               scale, gradient_scale);
}

void reward_loss(const Tensor& losses, const Tensor& scores, const Tensor& roles,
                 const Tensor& measures, float gradient_scale, const Stream& stream) {
  const KernelCall call{"reward_loss", stream, Work::kLoss};
  const std::int64_t slots = losses.elements();
  check_elements(call, {"losses", losses}, slots);
  check_elements(call, {"scores", scores}, slots);
  check_elements(call, {"roles", roles}, slots, DType::kI32);
  if (measures) check_shape(call, {"measures", measures}, {kRewardMeasures}, DType::kF64);
  dispatch<cpu::reward_loss, cuda::reward_loss>(call, losses, scores, roles, measures,
                                                gradient_scale);
}

void binary_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                          const Tensor& roles, float gradient_scale, const Stream& stream) {
  label_loss<cpu::binary_cross_entropy, cuda::binary_cross_entropy>(
      {"binary_cross_entropy", stream, Work::kLoss}, losses, {"logits", logits}, labels, roles,
      gradient_scale);
}

void mean_squared_error(const Tensor& losses, const Tensor& x, const Tensor& labels,
                        const Tensor& roles, float gradient_scale, const Stream& stream) {
  label_loss<cpu::mean_squared_error, cuda::mean_squared_error>(
      {"mean_squared_error", stream, Work::kLoss}, losses, {"x", x}, labels, roles, gradient_scale);
}

}  // namespace hybrid_trainer::kernels
