#include "tests/cuda/cuda_case.h"
#include "tests/kernels/attention/cross_attention_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Tiles of 64, 32 and 16 queries and keys; groups; lengths of partial tiles, whole tiles and zero.
const CrossCase kCrossCases[] = {
    {.batch = 1, .queries = 1, .keys = 1, .heads = 1, .kv_heads = 1, .head_size = 1},
    {.batch = 2,
     .queries = 17,
     .keys = 5,
     .heads = 3,
     .kv_heads = 3,
     .head_size = 5,
     .lengths = {5, 2}},
    {.batch = 1, .queries = 70, .keys = 130, .heads = 2, .kv_heads = 1, .head_size = 64},
    {.batch = 2,
     .queries = 65,
     .keys = 70,
     .heads = 4,
     .kv_heads = 2,
     .head_size = 16,
     .lengths = {64, 0},
     .scale = 0.3f,
     .cap = 1.5f},
    {.batch = 3,
     .queries = 9,
     .keys = 200,
     .heads = 1,
     .kv_heads = 1,
     .head_size = 33,
     .lengths = {0, 200, 129}},
    {.batch = 1,
     .queries = 20,
     .keys = 40,
     .heads = 2,
     .kv_heads = 2,
     .head_size = 80,
     .lengths = {33}},
    {.batch = 2,
     .queries = 3,
     .keys = 70,
     .heads = 1,
     .kv_heads = 1,
     .head_size = 200,
     .lengths = {17, 70},
     .cap = 2},
    {.batch = 2,
     .queries = 3,
     .keys = 20,
     .heads = 2,
     .kv_heads = 1,
     .head_size = 400,
     .lengths = {17, 0}}};

/// Outputs y and log_sum_exp, then q, kv and lengths.
Tensors cross_tensors(const CrossCase& c, DType dtype) {
  const CrossTensors t(c, dtype, cpu_stream());
  return {t.y, t.log_sum_exp, t.q, t.kv, t.lengths};
}

TEST(CudaCrossAttention, ForwardMatchesCpu) {
  for (const DType dtype : kRealTypes) {
    for (const CrossCase& c : kCrossCases) {
      Tensors tensors = cross_tensors(c, dtype);
      if (c.keys_of(c.batch - 1) == 0 || c.keys_of(0) == 0) tensors[1] = Tensor();  // −∞
      expect_like_cpu(tensors, tolerance_of(dtype), c.text(dtype),
                      [&](const Tensors& t, const Stream& stream) {
                        cross_attention_forward(t[0], t[1], t[2], t[3], t[4], c.spec(), stream);
                      });
    }
  }
}

TEST(CudaCrossAttention, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const CrossCase& c : kCrossCases) {
      const CrossTensors given(c, dtype, host);
      given.forward(host);
      // Tolerances of tests/kernels/attention/cross_attention_test.cpp.
      expect_like_cpu({given.dq, given.dkv, given.dy, given.y, given.q, given.kv, given.lengths},
                      dtype == DType::kF32 ? 2e-5 : 4e-2, c.text(dtype),
                      [&](const Tensors& t, const Stream& stream) {
                        cross_attention_backward(t[0], t[1], t[2], t[3],
                                                 copy_to(given.log_sum_exp, stream), t[4], t[5],
                                                 t[6], c.spec(), stream);
                      });
    }
  }
}

/// One and several parts of the keys, with texts that see all, some or none of them.
TEST(CudaCrossAttention, DecodeWithSharedSourcesMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const CrossCase& c :
         {CrossCase{.batch = 3,
         .queries = 1,
         .keys = 300,
         .heads = 2,
         .kv_heads = 1,
         .head_size = 5,
         .lengths = {300, 0, 129}},
          CrossCase{.batch = 3,
          .queries = 1,
          .keys = 90,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 64,
          .lengths = {90, 0, 7}},
          CrossCase{
              .batch = 3, .queries = 1, .keys = 70, .heads = 2, .kv_heads = 2, .head_size = 80},
          CrossCase{.batch = 3,
          .queries = 1,
          .keys = 140,
          .heads = 2,
          .kv_heads = 1,
          .head_size = 512,
          .lengths = {140, 0, 7}},
          CrossCase{.batch = 3,
          .queries = 1,
          .keys = 260,
          .heads = 1,
          .kv_heads = 1,
          .head_size = 256,
          .scale = 0.2f,
          .cap = 1}}) {
      const CrossTensors given(c, dtype, host);
      const Shape rows{4, c.heads * c.head_size};
      expect_like_cpu({random_tensor(rows, dtype, 5, host), random_tensor(rows, dtype, 6, host),
                       given.kv, tensor_of({5, 0, 4, 2}, {4}, DType::kI32, host), given.lengths},
                      tolerance_of(dtype), c.text(dtype),
                      [&](const Tensors& t, const Stream& stream) {
                        cross_attention_decode(t[0], t[1], t[2], t[3], 2, t[4], c.spec(), stream);
                      });
    }
  }
}

TEST(CudaCrossAttention, RefusesLargeHeads) {
  const Stream stream = cuda_stream();
  const auto rows = [&](std::int64_t width) {
    return Tensor::empty({1, 2, width}, DType::kF32, MemoryKind::kActivations, stream);
  };
  EXPECT_THROW(
      cross_attention_forward(rows(513), Tensor(), rows(513), rows(1026), Tensor(), 1, stream),
      Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
