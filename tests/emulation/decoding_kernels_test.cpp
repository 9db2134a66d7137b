// What makes the kernels of generation fast: threads of a launch, and how much each of them reads.

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/four_bit.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/block.h"

namespace hybrid_trainer::kernels {
namespace {

/// Threads of a kernel that `run` launches.
std::int64_t threads_of(const std::string& kernel, const Stream& stream,
                        const std::function<void()>& run) {
  const std::int64_t before = emulation::threads_run(kernel);
  run();
  stream.synchronize();
  return emulation::threads_run(kernel) - before;
}

TEST(EmulatedDecoding, DequantizesEightCodesAThread) {
  const Stream stream = cuda_stream();
  const std::int64_t count = 8 * 4 * 256;
  const FourBitTensors codes = FourBitTensors::empty(count, FourBitType::kNormal, stream);
  for (const Tensor& tensor : {codes.codes, codes.levels, codes.scales}) fill_zero(tensor, stream);
  const Tensor values = Tensor::empty({count}, DType::kBF16, MemoryKind::kWorkspace, stream);
  EXPECT_EQ(threads_of("dequantize_four_bit", stream,
                       [&] { dequantize_four_bit(values, codes, stream); }),
            count / 8);
}

/// One text of twelve heads fills a card of about 100 multiprocessors.
TEST(EmulatedDecoding, ReadsTheKeysOfOneTextInManyBlocks) {
  const Stream stream = cuda_stream();
  const auto zeros = [&](const Shape& shape, DType dtype) {
    return Tensor::zeros(shape, dtype, MemoryKind::kActivations, stream);
  };
  const Tensor y = zeros({1, 96}, DType::kBF16), keys = zeros({1, 1024, 96}, DType::kBF16),
               qkv = zeros({1, 288}, DType::kBF16), text = zeros({1}, DType::kI32);
  EXPECT_EQ(threads_of("attention_decode", stream,
                       [&] { attention_decode(y, keys, keys, qkv, text, text, 12, stream); }),
            96 * 256);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
