#include "hybrid_trainer/kernels/cross_attention.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::cross_attention_forward) cross_attention_forward;
decltype(kernels::cross_attention_backward) cross_attention_backward;
decltype(kernels::cross_attention_decode) cross_attention_decode;
}  // namespace cpu
namespace cuda {
decltype(kernels::cross_attention_forward) cross_attention_forward;
decltype(kernels::cross_attention_backward) cross_attention_backward;
decltype(kernels::cross_attention_decode) cross_attention_decode;
}  // namespace cuda

namespace {

/// That q and kv have heads of one size; `rank`: of q.
void check_heads(const KernelCall& call, const Tensor& q, const Tensor& kv, int rank,
                 const AttentionSpec& spec) {
  check_real(call, {"q", q}, rank);
  check_real(call, {"kv", kv}, 3);
  require(spec.scale >= 0 && spec.cap >= 0, "cross_attention: scale and cap want 0 or more");
  require(spec.window == 0 && !spec.pattern.is_on() && !spec.sinks && !spec.bias,
          "cross_attention: it has no windows, patterns, sinks or biases of scores");
  const std::int64_t width = q.size(rank - 1);
  const bool fits = spec.keys >= 1 && spec.queries >= 1 && spec.queries % spec.keys == 0 &&
                    width % spec.queries == 0 && q.dtype() == kv.dtype() &&
                    kv.size(2) == width / spec.queries * 2 * spec.keys;
  if (fits) return;
  throw ShapeMismatch(concat(call.kernel, ": q is ", q.shape().text(), " ", name_of(q.dtype()),
                             ", kv is ", kv.shape().text(), " ", name_of(kv.dtype()),
                             ", heads are ", spec.queries, " of queries and ", spec.keys,
                             " of keys; want queries·head_size and 2·keys·head_size in their last "
                             "dimensions, and one dtype"));
}

void check_lengths(const KernelCall& call, const Tensor& lengths, const Tensor& kv) {
  if (lengths) check_shape(call, {"lengths", lengths}, {kv.size(0)}, DType::kI32);
}

/// That q and kv have as many rows.
void check_sequences(const KernelCall& call, const Tensor& q, const Tensor& kv) {
  if (q.size(0) == kv.size(0)) return;
  throw ShapeMismatch(concat(call.kernel, ": q is ", q.shape().text(), ", kv is ",
                             kv.shape().text(), "; want as many sequences in both"));
}

void check_log_sums(const KernelCall& call, const Tensor& log_sum_exp, const Tensor& q,
                    const AttentionSpec& spec) {
  check_shape(call, {"log_sum_exp", log_sum_exp}, {q.size(0), spec.queries, q.size(1)},
              DType::kF32);
}

}  // namespace

void cross_attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                             const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                             const Stream& stream) {
  const KernelCall call{"cross_attention_forward", stream};
  check_heads(call, q, kv, 3, spec);
  check_sequences(call, q, kv);
  check_alike(call, {{"q", q}, {"y", y}});
  check_lengths(call, lengths, kv);
  if (log_sum_exp) check_log_sums(call, log_sum_exp, q, spec);
  dispatch_with_workspace<cpu::cross_attention_forward, cuda::cross_attention_forward>(
      call, Work::kAttention, y, log_sum_exp, q, kv, lengths, spec);
}

void cross_attention_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& q,
                              const Tensor& kv, const Tensor& lengths, AttentionSpec spec,
                              const Stream& stream) {
  const KernelCall call{"cross_attention_backward", stream};
  check_heads(call, q, kv, 3, spec);
  check_sequences(call, q, kv);
  check_alike(call, {{"q", q}, {"dq", dq}, {"y", y}, {"dy", dy}});
  check_alike(call, {{"kv", kv}, {"dkv", dkv}});
  check_lengths(call, lengths, kv);
  check_log_sums(call, log_sum_exp, q, spec);
  dispatch_with_workspace<cpu::cross_attention_backward, cuda::cross_attention_backward>(
      call, Work::kAttention, dq, dkv, dy, y, log_sum_exp, q, kv, lengths, spec);
}

void cross_attention_decode(const Tensor& y, const Tensor& q, const Tensor& kv, const Tensor& texts,
                            std::int64_t texts_per_source, const Tensor& lengths,
                            AttentionSpec spec, const Stream& stream) {
  const KernelCall call{"cross_attention_decode", stream};
  check_heads(call, q, kv, 2, spec);
  check_alike(call, {{"q", q}, {"y", y}});
  check_shape(call, {"texts", texts}, {q.size(0)}, DType::kI32);
  require(texts_per_source >= 1, "cross_attention_decode: each source wants 1 text or more");
  check_lengths(call, lengths, kv);
  dispatch_with_workspace<cpu::cross_attention_decode, cuda::cross_attention_decode>(
      call, Work::kAttention, y, q, kv, texts, texts_per_source, lengths, spec);
}

}  // namespace hybrid_trainer::kernels
