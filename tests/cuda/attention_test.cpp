#include "hybrid_trainer/kernels/attention.h"

#include "src/core/cuda_runtime.h"
#include "tests/cuda/cuda_case.h"
#include "tests/kernels/attention/attention_case.h"

namespace hybrid_trainer::kernels {
namespace {

std::string text(const char* what, const AttentionCase& c, DType dtype) {
  return concat(what, " B ", c.batch, " T ", c.length, " H ", c.heads, " of ", c.counts().keys,
                " head ", c.head_size, " ", name_of(dtype));
}

/// Outputs y and log_sum_exp, then qkv, positions and sinks.
Tensors forward_tensors(const AttentionCase& c, DType dtype) {
  const Stream host = cpu_stream();
  const std::int64_t channels = c.heads * c.head_size;
  return {random_tensor({c.batch, c.length, channels}, dtype, 3, host),
          random_tensor({c.batch, c.heads, c.length}, DType::kF32, 4, host),
          random_tensor({c.batch, c.length, c.counts().all() * c.head_size}, dtype, 1, host),
          c.positions(host), c.sinks(host)};
}

/// Output dqkv, then dy, y, log_sum_exp, qkv and positions.
Tensors backward_tensors(const AttentionCase& c, DType dtype) {
  const Stream host = cpu_stream();
  const Tensors forward = forward_tensors(c, dtype);
  attention_forward(forward[0], forward[1], forward[2], forward[3], c.counts(forward[4]), host);
  return {random_tensor(forward[2].shape(), dtype, 5, host),
          random_tensor(forward[0].shape(), dtype, 2, host),
          forward[0],
          forward[1],
          forward[2],
          forward[3]};
}

void check_forward(const AttentionCase& c, DType dtype) {
  expect_like_cpu(forward_tensors(c, dtype), tolerance_of(dtype), text("forward", c, dtype),
                  [&](const Tensors& t, const Stream& stream) {
                    attention_forward(t[0], t[1], t[2], t[3], c.counts(t[4]), stream);
                  });
}

void check_backward(const AttentionCase& c, DType dtype) {
  // Tolerances of tests/kernels/attention/attention_test.cpp.
  expect_like_cpu(backward_tensors(c, dtype), dtype == DType::kF32 ? 2e-5 : 4e-2,
                  text("backward", c, dtype), [&](const Tensors& t, const Stream& stream) {
                    attention_backward(t[0], t[1], t[2], t[3], t[4], t[5], c.counts(), stream);
                  });
}

constexpr AttentionCase kTensorCoreCases[] = {
    {{2, 1, 2, 64}, {}},      {{1, 17, 3, 64}, {}},     {{1, 64, 1, 64}, {}},
    {{1, 65, 1, 64}, {}},     {{1, 130, 1, 64}, {}},    {{1, 200, 1, 64}, {}},
    {{2, 17, 1, 128}, {}},    {{1, 65, 2, 128}, {}},    {{1, 130, 1, 128}, {}},
    {{1, 130, 4, 64, 2}, {}}, {{2, 70, 3, 128, 1}, {}}, {{2, 17, 1, 256}, {}},
    {{1, 130, 1, 256}, {}},   {{1, 70, 4, 256, 2}, {}}};
constexpr AttentionCase kGeneralCases[] = {
    {{2, 1, 3, 1}, {}},       {{2, 17, 3, 5}, {}},  {{1, 64, 1, 16}, {}},  {{1, 65, 1, 33}, {}},
    {{1, 130, 1, 5}, {}},     {{1, 65, 1, 80}, {}}, {{1, 40, 1, 200}, {}}, {{2, 70, 6, 5, 2}, {}},
    {{1, 33, 2, 512, 1}, {}}, {{1, 17, 1, 301}, {}}};
constexpr AttentionCase kMaskedCases[] = {
    {{1, 70, 2, 8, 1}, {.scale = 0.3f, .cap = 1.5f}},
    {{1, 130, 1, 64, 1}, {.window = 1}},
    {{2, 200, 1, 64, 1}, {.window = 70}},
    {{2, 140, 1, 128, 1}, {.document = 37}},
    {{2, 70, 2, 64, 2}, {.document = 1}},
    {{2, 200, 4, 64, 2}, {.scale = 0.25f, .cap = 2, .window = 90, .document = 80}},
    {{1, 40, 1, 200, 1}, {.cap = 2, .window = 9, .document = 13}},
    {{1, 100, 2, 256, 1}, {.scale = 0.125f, .cap = 2, .window = 33}},
    {{2, 70, 1, 256, 1}, {.document = 37}},
    {{1, 40, 2, 512, 1}, {.scale = 0.125f, .cap = 2, .window = 19, .document = 30}}};
constexpr AttentionCase kTwoWayCases[] = {
    {{2, 1, 3, 1, 1}, {.bidirectional = true}},
    {{1, 100, 2, 64, 1}, {.bidirectional = true}},
    {{2, 70, 3, 5, 1}, {.cap = 1.5f, .bidirectional = true}},
    {{1, 70, 1, 64, 1}, {.window = 1, .bidirectional = true}},
    {{1, 130, 1, 80, 1}, {.window = 70, .bidirectional = true}},
    {{2, 90, 1, 64, 1}, {.document = 37, .bidirectional = true}},
    {{1, 140, 2, 8, 1},
     {.scale = 0.25f, .cap = 2, .window = 60, .document = 50, .bidirectional = true}},
    {{1, 40, 1, 200, 1}, {.cap = 2, .window = 9, .document = 13, .bidirectional = true}},
    {{1, 20, 1, 400, 1}, {.document = 13, .bidirectional = true}}};
/// Enough key heads for the kernel with one block per head on the emulated device. Lengths are
/// around its blocks of 128 keys and tiles of 64 queries; covers grouped heads and excess heads.
constexpr AttentionCase kJointCases[] = {
    {{3, 1, 1, 64}, {}},      {{1, 128, 3, 64}, {}}, {{4, 129, 1, 64}, {}},
    {{3, 200, 2, 64, 1}, {}}, {{7, 65, 1, 64}, {}},  {{3, 200, 2, 64, 1}, {.document = 37}}};
constexpr AttentionCase kLargeJointCases[] = {
    {{1, 260, 3, 64}, {}},
    {{1, 200, 4, 64}, {.cap = 3}},
    {{1, 260, 3, 64}, {.window = 1}},
    {{2, 200, 4, 64, 2}, {.scale = 0.25f, .cap = 2, .window = 140}},
    {{3, 260, 1, 64}, {.window = 90}},
    {{3, 260, 1, 64}, {.document = 150}}};

TEST(CudaAttention, TensorCoreForwardMatchesCpu) {
  for (const AttentionCase& c : kTensorCoreCases) check_forward(c, DType::kBF16);
}

TEST(CudaAttention, TensorCoreBackwardMatchesCpu) {
  for (const AttentionCase& c : kTensorCoreCases) check_backward(c, DType::kBF16);
}

TEST(CudaAttention, ForwardMatchesCpuForAnyHeadSize) {
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kGeneralCases) check_forward(c, dtype);
  }
  check_forward({{1, 70, 1, 64}, {}}, DType::kF32);
  check_forward({{1, 33, 1, 128}, {}}, DType::kF32);
}

TEST(CudaAttention, BackwardMatchesCpuForAnyHeadSize) {
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kGeneralCases) check_backward(c, dtype);
  }
  check_backward({{1, 70, 1, 64}, {}}, DType::kF32);
  check_backward({{1, 33, 1, 128}, {}}, DType::kF32);
}

TEST(CudaAttention, MatchesCpuWithMasksCapsAndScales) {
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kMaskedCases) {
      check_forward(c, dtype);
      check_backward(c, dtype);
    }
  }
}

TEST(CudaAttention, BidirectionalMatchesCpu) {
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kTwoWayCases) {
      check_forward(c, dtype);
      check_backward(c, dtype);
    }
  }
}

/// With and without tensor cores. Backward reads the sinks' contribution from log_sum_exp.
constexpr AttentionCase kSinkCases[] = {
    {{1, 70, 3, 5, 1}, {.cap = 1.5f, .has_sinks = true}},
    {{1, 20, 3, 5, 1}, {.bidirectional = true, .has_sinks = true}},
    {{1, 70, 3, 64}, {.has_sinks = true}},
    {{1, 40, 2, 128, 1}, {.window = 20, .document = 30, .has_sinks = true}},
    {{1, 9, 3, 256}, {.has_sinks = true}}};

TEST(CudaAttention, ForwardWithSinksMatchesCpu) {
  for (const AttentionCase& c : kSinkCases) check_forward(c, DType::kBF16);
  check_forward(kSinkCases[0], DType::kF32);
}

/// Tensor cores need blocks of whole tiles; other kernels take any size.
constexpr AttentionCase kPatternsOnTensorCores[] = {
    {{1, 200, 1, 64, 1}, {.pattern = {.block = 64, .random = 1}}},
    {{1, 140, 2, 128, 1},
     {.document = 90, .has_sinks = true, .pattern = {.block = 64, .global = 1}}},
    {{1, 130, 1, 256, 1}, {.cap = 1.5f, .pattern = {.block = 64, .random = 1}}}};
constexpr AttentionCase kPatterns[] = {
    {{1, 140, 1, 64, 1}, {.pattern = {.block = 64, .random = 1}}},
    {{2, 50, 2, 5, 1}, {.pattern = {.block = 9, .local = 2, .global = 1, .random = 1}}},
    {{1, 40, 1, 80, 1},
     {.cap = 2,
      .window = 30,
      .document = 20,
      .has_sinks = true,
      .pattern = {.block = 8, .global = 1}}},
    {{1, 20, 1, 200, 1}, {.pattern = {.block = 1, .global = 2, .random = 3}}}};

TEST(CudaAttention, BlockPatternMatchesCpu) {
  for (const AttentionCase& c : kPatternsOnTensorCores) {
    check_forward(c, DType::kBF16);
    check_backward(c, DType::kBF16);
  }
  for (const AttentionCase& c : kPatterns) {
    check_forward(c, DType::kF32);
    check_backward(c, DType::kF32);
  }
}

/// Causal and bidirectional, in documents, with a logit cap; sizes at and around the tile size.
constexpr AttentionCase kBiasedCases[] = {
    {{2, 20, 2, 5, 1}, {.scale = 1, .reach = 20}},
    {{1, 70, 2, 64, 2}, {.cap = 1.5f, .document = 30, .bidirectional = true, .reach = 80}},
    {{1, 70, 1, 80, 1}, {.window = 40, .bidirectional = true, .reach = 70}},
    {{1, 20, 1, 200, 1}, {.has_sinks = true, .pattern = {.block = 8}, .reach = 33}}};

TEST(CudaAttention, DistanceBiasMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kBiasedCases) {
      const AttentionSpec spec = c.counts(c.sinks(host)).with_bias(c.bias(host));
      Tensors given = backward_tensors(c, dtype);
      attention_forward(given[2], given[3], given[4], given[5], spec, host);
      given.push_back(spec.bias);
      const auto spec_of = [&](const Tensors& t, const Stream& stream) {
        return c.counts(copy_to(c.sinks(host), stream)).with_bias(t[6]);
      };
      expect_like_cpu(given, tolerance_of(dtype), text("bias forward", c, dtype),
                      [&](const Tensors& t, const Stream& stream) {
                        attention_forward(t[2], t[3], t[4], t[5], spec_of(t, stream), stream);
                      });
      const double tolerance = dtype == DType::kF32 ? 2e-5 : 4e-2;
      expect_like_cpu(given, tolerance, text("bias backward", c, dtype),
                      [&](const Tensors& t, const Stream& stream) {
                        attention_backward(t[0], t[1], t[2], t[3], t[4], t[5], spec_of(t, stream),
                                           stream);
                      });
      given.push_back(random_tensor(spec.bias.shape(), DType::kF32, 9, host));
      for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
        expect_like_cpu(given, tolerance, text("gradient of the bias", c, dtype),
                        [&](const Tensors& t, const Stream& stream) {
                          attention_bias_backward(t[7], mode, t[1], t[2], t[3], t[4], t[5],
                                                  spec_of(t, stream), stream);
                        });
      }
    }
  }
}

TEST(CudaAttention, SinksBackwardMatchesCpu) {
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kSinkCases) {
      const Tensors backward = backward_tensors(c, dtype);
      const Tensor dsinks = random_tensor({c.heads}, DType::kF32, 6, cpu_stream());
      for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
        expect_like_cpu({dsinks, backward[1], backward[2], backward[3], c.sinks(cpu_stream())},
                        2e-5, text("sinks", c, dtype), [&](const Tensors& t, const Stream& stream) {
                          attention_sinks_backward(t[0], mode, t[1], t[2], t[3], t[4], stream);
                        });
      }
    }
  }
}

TEST(CudaAttention, OnePassBackwardMatchesCpu) {
  for (const AttentionCase& c : kJointCases) check_backward(c, DType::kBF16);
}

TEST(CudaAttention, LargeOnePassBackwardMatchesCpu) {
  for (const AttentionCase& c : kLargeJointCases) check_backward(c, DType::kBF16);
  // Enough heads to fill the device.
  const std::int64_t batch = 2 * cuda_runtime().properties(0).processors;
  check_backward({{batch, 140, 1, 64}, {}}, DType::kBF16);
  check_backward({{batch, 140, 1, 64, 1}, {.cap = 1.5f, .window = 50, .document = 60}},
                 DType::kBF16);
}

TEST(CudaAttention, ForwardWithoutLogSumExpMatchesCpu) {
  for (const std::int64_t head_size : {16, 64}) {
    const AttentionCase c{{1, 20, 2, head_size}, {}};
    Tensors tensors = forward_tensors(c, DType::kBF16);
    tensors[1] = Tensor();
    expect_like_cpu(tensors, tolerance_of(DType::kBF16), text("alone", c, DType::kBF16),
                    [&](const Tensors& t, const Stream& stream) {
                      attention_forward(t[0], t[1], t[2], t[3], c.counts(t[4]), stream);
                    });
  }
}

TEST(CudaAttention, StaysFiniteWithLargeScores) {
  for (const AttentionCase& c :
       {AttentionCase{{1, 100, 1, 8}, {}}, AttentionCase{{1, 100, 1, 64}, {}}}) {
    const DType dtype = c.head_size == 64 ? DType::kBF16 : DType::kF32;
    Tensors tensors = forward_tensors(c, dtype);
    tensors[2] = random_tensor(tensors[2].shape(), dtype, 1, cpu_stream(), 30);
    expect_like_cpu(tensors, dtype == DType::kF32 ? 1e-3 : 2e-2, text("large", c, dtype),
                    [&](const Tensors& t, const Stream& stream) {
                      attention_forward(t[0], t[1], t[2], t[3], c.counts(t[4]), stream);
                    });
  }
}

/// Rows misaligned by 2 bytes, which neither vector loads nor tensor cores can read.
TEST(CudaAttention, MisalignedForwardMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensor all = random_tensor({1 + 9 * 3 * 64}, DType::kBF16, 1, host);
  const Tensors tensors{random_tensor({1, 9, 64}, DType::kBF16, 2, host), all,
                        random_tensor({1, 1, 9}, DType::kF32, 3, host)};
  expect_like_cpu(tensors, tolerance_of(DType::kBF16), "misaligned",
                  [](const Tensors& t, const Stream& stream) {
                    const Tensor qkv = t[1].rows(1, 1 + 9 * 3 * 64).view({1, 9, 192});
                    attention_forward(t[0], t[2], qkv, Tensor(), 1, stream);
                  });
}

TEST(CudaAttention, DecodeWithPerTextPositionsMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensor texts = tensor_of({2, 0}, {2}, DType::kI32, host);
  AttentionSpec window(2);
  window.window = 9;
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t head_size : {5, 64, 80, 256, 512}) {
      for (const double position : {0, 1, 31, 70}) {
        const std::int64_t channels = 2 * head_size;
        const Tensor keys = random_tensor({3, 75, channels}, dtype, 2, host);
        const Tensors tensors{random_tensor({2, channels}, dtype, 1, host),
                              keys,
                              random_tensor(keys.shape(), dtype, 3, host),
                              random_tensor({2, 3 * channels}, dtype, 4, host),
                              texts,
                              tensor_of({position, 40}, {2}, DType::kI32, host)};
        for (const AttentionSpec& spec : {AttentionSpec(2), window}) {
          expect_like_cpu(tensors, tolerance_of(dtype),
                          concat("decode ", head_size, " at ", position, " ", name_of(dtype)),
                          [=](const Tensors& t, const Stream& stream) {
                            attention_decode(t[0], t[1], t[2], t[3], t[4], t[5], spec, stream);
                          });
        }
      }
    }
  }
}

/// Lengths around multiples of 128 keys, each read by a separate block.
TEST(CudaAttention, SplitKeyDecodeMatchesCpu) {
  const Stream host = cpu_stream();
  AttentionSpec grouped(2, 1), window = grouped, capped = grouped, blocks = grouped;
  const AttentionSpec biased = grouped.with_bias(random_tensor({2, 1001}, DType::kF32, 8, host));
  window.window = 130;
  capped.cap = 0.5f;
  blocks.pattern = {60, 1, 0, 1};
  const Tensor sinks = tensor_of({0.7, 9}, {2}, DType::kF32, host);
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t head_size : {5, 64, 301, 512}) {
      const Tensor keys = random_tensor({3, 400, head_size}, dtype, 2, host);
      for (const AttentionSpec& spec : {grouped, window, capped, blocks, biased}) {
        const Tensors tensors{random_tensor({3, 2 * head_size}, dtype, 1, host),
                              keys,
                              random_tensor(keys.shape(), dtype, 3, host),
                              random_tensor({3, 4 * head_size}, dtype, 4, host),
                              tensor_of({1, 0, 2}, {3}, DType::kI32, host),
                              tensor_of({127, 128, 399}, {3}, DType::kI32, host),
                              spec.cap > 0 ? sinks : Tensor(),
                              spec.bias};
        expect_like_cpu(tensors, tolerance_of(dtype),
                        concat("parts, head ", head_size, " ", name_of(dtype)),
                        [=](const Tensors& t, const Stream& stream) {
                          attention_decode(t[0], t[1], t[2], t[3], t[4], t[5],
                                           spec.with_sinks(t[6]).with_bias(t[7]), stream);
                        });
      }
    }
  }
}

/// The bits of a text's row do not depend on the capacity of its caches.
TEST(CudaAttention, DecodeBitsDoNotDependOnCacheSize) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  const Tensor keys = random_tensor({300, 32}, DType::kBF16, 2, host),
               values = random_tensor({300, 32}, DType::kBF16, 3, host),
               qkv = random_tensor({1, 96}, DType::kBF16, 4, host);
  const Tensor sinks = copy_to(tensor_of({0.7, 9}, {2}, DType::kF32, host), stream);
  for (const double position : {100, 290}) {
    Tensor first;
    for (const std::int64_t rows : {300, 1000}) {
      const auto cache_of = [&](const Tensor& of) {
        const Tensor cache = Tensor::zeros({1, rows, 32}, DType::kBF16, MemoryKind::kData, host);
        copy(cache.view({rows, 32}).rows(0, 300), of, host);
        return copy_to(cache, stream);
      };
      const Tensor y = Tensor::empty({1, 32}, DType::kBF16, MemoryKind::kActivations, stream);
      attention_decode(y, cache_of(keys), cache_of(values), copy_to(qkv, stream),
                       copy_to(tensor_of({0}, {1}, DType::kI32, host), stream),
                       copy_to(tensor_of({position}, {1}, DType::kI32, host), stream),
                       AttentionSpec(2).with_sinks(sinks), stream);
      const Tensor found = wait_for_host(y, stream);
      if (first) expect_same_bits(found, first);
      first = found;
    }
  }
}

TEST(CudaAttention, StoreKeysAndValuesMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensor keys = random_tensor({3, 9, 10}, DType::kBF16, 1, host);
  const Tensors tensors{keys, random_tensor(keys.shape(), DType::kBF16, 2, host),
                        random_tensor({3, 7, 30}, DType::kBF16, 3, host)};
  expect_like_cpu(tensors, 0, "store", [](const Tensors& t, const Stream& stream) {
    store_keys_values(t[0], t[1], t[2], stream);
  });
}

TEST(CudaAttention, RefusesLargeHeads) {
  const Stream stream = cuda_stream();
  const Tensor qkv = Tensor::empty({1, 2, 3 * 513}, DType::kF32, MemoryKind::kActivations, stream);
  const Tensor y = Tensor::empty({1, 2, 513}, DType::kF32, MemoryKind::kActivations, stream);
  EXPECT_THROW(attention_forward(y, Tensor(), qkv, Tensor(), 1, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
