#include "hybrid_trainer/kernels/attention.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::attention_forward) attention_forward;
decltype(kernels::attention_backward) attention_backward;
decltype(kernels::store_keys_values) store_keys_values;
decltype(kernels::attention_decode) attention_decode;
}  // namespace cpu
namespace cuda {
decltype(kernels::attention_forward) attention_forward;
decltype(kernels::attention_backward) attention_backward;
decltype(kernels::store_keys_values) store_keys_values;
decltype(kernels::attention_decode) attention_decode;
}  // namespace cuda

namespace {

/// The channels C of rows that hold query, key and value of `heads` heads.
std::int64_t channels_of(const KernelCall& call, const Tensor& qkv, int rank, int heads) {
  check_rank(call, {"qkv", qkv}, rank);
  check_real(call, {"qkv", qkv});
  const std::int64_t width = qkv.size(rank - 1);
  if (heads < 1 || width % (3 * std::int64_t{heads}) != 0) {
    throw ShapeMismatch(concat(call.kernel, ": qkv is ", qkv.shape().text(), ", heads is ", heads,
                               "; want a last dimension of 3·heads·head_size"));
  }
  return width / 3;
}

void check_log_sum_exp(const KernelCall& call, const Tensor& log_sum_exp, const Tensor& qkv,
                       int heads) {
  check_shape(call, {"log_sum_exp", log_sum_exp}, {qkv.size(0), heads, qkv.size(1)});
  check_dtype(call, {"log_sum_exp", log_sum_exp}, DType::kF32);
}

}  // namespace

void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                       const Stream& stream) {
  const KernelCall call{"attention_forward", stream};
  const std::int64_t channels = channels_of(call, qkv, 3, heads);
  check_shape(call, {"y", y}, {qkv.size(0), qkv.size(1), channels});
  check_dtype(call, {"y", y}, qkv.dtype());
  if (log_sum_exp) check_log_sum_exp(call, log_sum_exp, qkv, heads);
  dispatch_with_workspace<cpu::attention_forward, cuda::attention_forward>(
      call, Work::kAttention, y, log_sum_exp, qkv, heads);
}

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                        const Stream& stream) {
  const KernelCall call{"attention_backward", stream};
  const std::int64_t channels = channels_of(call, qkv, 3, heads);
  check_alike(call, {{"qkv", qkv}, {"dqkv", dqkv}});
  check_shape(call, {"y", y}, {qkv.size(0), qkv.size(1), channels});
  check_dtype(call, {"y", y}, qkv.dtype());
  check_alike(call, {{"y", y}, {"dy", dy}});
  check_log_sum_exp(call, log_sum_exp, qkv, heads);
  dispatch_with_workspace<cpu::attention_backward, cuda::attention_backward>(
      call, Work::kAttention, dqkv, dy, y, log_sum_exp, qkv, heads);
}

void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream) {
  const KernelCall call{"store_keys_values", stream};
  const std::int64_t channels = channels_of(call, qkv, 3, 1);
  check_rank(call, {"key_cache", key_cache}, 3);
  check_shape(call, {"key_cache", key_cache}, {qkv.size(0), key_cache.size(1), channels});
  check_alike(call, {{"key_cache", key_cache}, {"value_cache", value_cache}});
  check_dtype(call, {"key_cache", key_cache}, qkv.dtype());
  if (qkv.size(1) > key_cache.size(1)) {
    throw ShapeMismatch(concat(call.kernel, ": qkv is ", qkv.shape().text(), ", key_cache is ",
                               key_cache.shape().text(), "; want as many rows at least"));
  }
  dispatch<cpu::store_keys_values, cuda::store_keys_values>(call, Work::kAttention, key_cache,
                                                            value_cache, qkv);
}

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, std::int64_t position, int heads, const Stream& stream) {
  const KernelCall call{"attention_decode", stream};
  const std::int64_t channels = channels_of(call, qkv, 2, heads);
  check_shape(call, {"y", y}, {qkv.size(0), channels});
  check_rank(call, {"key_cache", key_cache}, 3);
  check_shape(call, {"key_cache", key_cache}, {qkv.size(0), key_cache.size(1), channels});
  check_alike(call, {{"key_cache", key_cache}, {"value_cache", value_cache}});
  check_dtype(call, {"key_cache", key_cache}, qkv.dtype());
  check_dtype(call, {"y", y}, qkv.dtype());
  if (position < 0 || position >= key_cache.size(1)) {
    throw ShapeMismatch(concat(call.kernel, ": position is ", position, ", key_cache is ",
                               key_cache.shape().text(), "; want 0 to ", key_cache.size(1) - 1));
  }
  dispatch_with_workspace<cpu::attention_decode, cuda::attention_decode>(
      call, Work::kAttention, y, key_cache, value_cache, qkv, position, heads);
}

}  // namespace hybrid_trainer::kernels
