#include "hybrid_trainer/kernels/attention.h"

#include "kernels/check.h"
#include "kernels/cpu/attention.h"
#include "kernels/cuda/attention.h"

namespace hybrid_trainer::kernels {
namespace {

/// The channels C of rows that hold query, key and value of `heads` heads.
std::int64_t channels_of(const char* kernel, const Tensor& qkv, int rank, int heads) {
  check_rank(kernel, {"qkv", qkv}, rank);
  check_real(kernel, {"qkv", qkv});
  const std::int64_t width = qkv.size(rank - 1);
  if (heads < 1 || width % (3 * std::int64_t{heads}) != 0) {
    throw ShapeMismatch(concat(kernel, ": qkv is ", qkv.shape().text(), ", heads is ", heads,
                               "; want a last dimension of 3·heads·head_size"));
  }
  return width / 3;
}

void check_log_sum_exp(const char* kernel, const Tensor& log_sum_exp, const Tensor& qkv,
                       int heads) {
  check_shape(kernel, {"log_sum_exp", log_sum_exp}, {qkv.size(0), heads, qkv.size(1)});
  check_dtype(kernel, {"log_sum_exp", log_sum_exp}, DType::kF32);
}

}  // namespace

void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                       const Stream& stream) {
  constexpr auto kKernel = "attention_forward";
  const std::int64_t channels = channels_of(kKernel, qkv, 3, heads);
  check_shape(kKernel, {"y", y}, {qkv.size(0), qkv.size(1), channels});
  check_dtype(kKernel, {"y", y}, qkv.dtype());
  if (log_sum_exp) check_log_sum_exp(kKernel, log_sum_exp, qkv, heads);
  visit_backend(stream, Work::kAttention,
                [&](auto backend) { attention_forward(backend, y, log_sum_exp, qkv, heads); });
}

void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                        const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                        const Stream& stream) {
  constexpr auto kKernel = "attention_backward";
  const std::int64_t channels = channels_of(kKernel, qkv, 3, heads);
  check_alike(kKernel, {{"qkv", qkv}, {"dqkv", dqkv}});
  check_shape(kKernel, {"y", y}, {qkv.size(0), qkv.size(1), channels});
  check_dtype(kKernel, {"y", y}, qkv.dtype());
  check_alike(kKernel, {{"y", y}, {"dy", dy}});
  check_log_sum_exp(kKernel, log_sum_exp, qkv, heads);
  visit_backend(stream, Work::kAttention, [&](auto backend) {
    attention_backward(backend, dqkv, dy, y, log_sum_exp, qkv, heads);
  });
}

void store_keys_values(const Tensor& key_cache, const Tensor& value_cache, const Tensor& qkv,
                       const Stream& stream) {
  constexpr auto kKernel = "store_keys_values";
  const std::int64_t channels = channels_of(kKernel, qkv, 3, 1);
  check_rank(kKernel, {"key_cache", key_cache}, 3);
  check_shape(kKernel, {"key_cache", key_cache}, {qkv.size(0), key_cache.size(1), channels});
  check_alike(kKernel, {{"key_cache", key_cache}, {"value_cache", value_cache}});
  check_dtype(kKernel, {"key_cache", key_cache}, qkv.dtype());
  if (qkv.size(1) > key_cache.size(1)) {
    throw ShapeMismatch(concat(kKernel, ": qkv is ", qkv.shape().text(), ", key_cache is ",
                               key_cache.shape().text(), "; want as many rows at least"));
  }
  visit_backend(stream, Work::kAttention,
                [&](auto backend) { store_keys_values(backend, key_cache, value_cache, qkv); });
}

void attention_decode(const Tensor& y, const Tensor& key_cache, const Tensor& value_cache,
                      const Tensor& qkv, std::int64_t position, int heads, const Stream& stream) {
  constexpr auto kKernel = "attention_decode";
  const std::int64_t channels = channels_of(kKernel, qkv, 2, heads);
  check_shape(kKernel, {"y", y}, {qkv.size(0), channels});
  check_rank(kKernel, {"key_cache", key_cache}, 3);
  check_shape(kKernel, {"key_cache", key_cache}, {qkv.size(0), key_cache.size(1), channels});
  check_alike(kKernel, {{"key_cache", key_cache}, {"value_cache", value_cache}});
  check_dtype(kKernel, {"key_cache", key_cache}, qkv.dtype());
  check_dtype(kKernel, {"y", y}, qkv.dtype());
  if (position < 0 || position >= key_cache.size(1)) {
    throw ShapeMismatch(concat(kKernel, ": position is ", position, ", key_cache is ",
                               key_cache.shape().text(), "; want 0 to ", key_cache.size(1) - 1));
  }
  visit_backend(stream, Work::kAttention, [&](auto backend) {
    attention_decode(backend, y, key_cache, value_cache, qkv, position, heads);
  });
}

}  // namespace hybrid_trainer::kernels
