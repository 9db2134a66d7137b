#include "hybrid_trainer/kernels/indexing.h"

#include "kernels/check.h"
#include "kernels/cpu/indexing.h"
#include "kernels/cuda/indexing.h"

namespace hybrid_trainer::kernels {
namespace {

/// Checks that tables (V, C) and (max T, C) fit rows (B, T, C) at positions from `first_position`.
void check_tables(const char* kernel, const NamedTensor& rows, const Tensor& tokens,
                  const NamedTensor& token_table, const NamedTensor& position_table,
                  std::int64_t first_position) {
  check_rank(kernel, {"tokens", tokens}, 2);
  check_dtype(kernel, {"tokens", tokens}, DType::kI32);
  check_rank(kernel, token_table, 2);
  check_rank(kernel, position_table, 2);
  const std::int64_t columns = token_table.tensor.size(1);
  check_shape(kernel, rows, {tokens.size(0), tokens.size(1), columns});
  check_shape(kernel, position_table, {position_table.tensor.size(0), columns});
  const std::int64_t last_position = first_position + tokens.size(1);
  if (first_position < 0 || last_position > position_table.tensor.size(0)) {
    throw ShapeMismatch(concat(kernel, ": positions are ", first_position, " to ",
                               last_position - 1, ", ", position_table.name, " is ",
                               position_table.tensor.shape().text(),
                               "; use a shorter sequence or a larger model.context"));
  }
}

}  // namespace

void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream) {
  constexpr auto kKernel = "embedding_forward";
  check_tables(kKernel, {"y", y}, tokens, {"token_table", token_table},
               {"position_table", position_table}, first_position);
  check_real(kKernel, {"y", y});
  check_dtype(kKernel, {"token_table", token_table}, y.dtype());
  check_dtype(kKernel, {"position_table", position_table}, y.dtype());
  visit_backend(stream, Work::kEmbedding, [&](auto backend) {
    embedding_forward(backend, y, tokens, token_table, position_table, first_position);
  });
}

void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream) {
  constexpr auto kKernel = "embedding_backward";
  check_tables(kKernel, {"dy", dy}, tokens, {"dtoken_table", dtoken_table},
               {"dposition_table", dposition_table}, 0);
  check_real(kKernel, {"dy", dy});
  check_dtype(kKernel, {"dtoken_table", dtoken_table}, DType::kF32);
  check_dtype(kKernel, {"dposition_table", dposition_table}, DType::kF32);
  visit_backend(stream, Work::kEmbedding, [&](auto backend) {
    embedding_backward(backend, dtoken_table, token_mode, dposition_table, position_mode, dy,
                       tokens);
  });
}

}  // namespace hybrid_trainer::kernels
