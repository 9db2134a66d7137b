// Performance properties of the generation kernels: number of threads, and bytes read by each.

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/linear.h"
#include "kernels/quantized/quantization.h"
#include "memory/quantized_weight.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/block.h"

namespace hybrid_trainer::kernels {
namespace {

/// Number of threads of a kernel that `run` launches.
std::int64_t threads_of(const std::string& kernel, const Stream& stream,
                        const std::function<void()>& run) {
  const std::int64_t before = emulation::threads_run(kernel);
  run();
  stream.synchronize();
  return emulation::threads_run(kernel) - before;
}

TEST(EmulatedDecoding, DequantizesEightCodesPerThread) {
  const Stream stream = cuda_stream();
  const std::int64_t count = 8 * 4 * 256;
  const FourBitTensors codes = FourBitTensors::empty(count, FourBitType::kNormal, stream);
  for (const Tensor& tensor : {codes.codes, codes.levels, codes.scales}) fill_zero(tensor, stream);
  const Tensor values = Tensor::empty({count}, DType::kBF16, MemoryKind::kWorkspace, stream);
  EXPECT_EQ(threads_of("dequantize_four_bit", stream,
                       [&] { dequantize_four_bit(values, codes, stream); }),
            count / 8);
}

/// One text of twelve heads must fill a GPU of about 100 multiprocessors.
TEST(EmulatedDecoding, SplitsKeysOfOneTextIntoManyBlocks) {
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

/// Two modules quantized separately, such as the queries and keys of a model folder. Generation
/// multiplies by their codes without dequantizing them.
TEST(EmulatedDecoding, MultipliesFewRowsByQuantizedCodes) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  Linear linear("l", 128, 96, stream);
  std::vector<QuantizedRows> parts;
  for (const std::int64_t rows : {64, 32})
    parts.push_back(
        quantize_rows(random_tensor({rows, 128}, DType::kF32, 1, host, 0.1), "nf4", stream));
  linear.weight().set_storage(std::make_unique<QuantizedWeight>(Shape{96, 128}, std::move(parts)));
  const Tensor residual = copy_to(random_tensor({3, 96}, DType::kBF16, 3, host), stream);
  const auto product_of = [&](std::int64_t rows, bool training) {
    const Tensor x = copy_to(random_tensor({rows, 128}, DType::kBF16, 2, host), stream);
    const Pass pass{.training = training, .dtype = DType::kBF16};
    return wait_for_host(linear.product(x, rows == 3 ? residual : Tensor{}, pass, stream), stream);
  };
  Tensor by_values, by_codes;
  EXPECT_GT(threads_of("dequantize_four_bit", stream, [&] { by_values = product_of(3, true); }), 0);
  EXPECT_EQ(threads_of("dequantize_four_bit", stream, [&] { by_codes = product_of(3, false); }), 0);
  expect_close(by_codes, values_of(by_values), 2 * tolerance_of(DType::kBF16));
  EXPECT_GT(threads_of("dequantize_four_bit", stream, [&] { product_of(17, false); }), 0)
      << "many rows";
}

}  // namespace
}  // namespace hybrid_trainer::kernels
