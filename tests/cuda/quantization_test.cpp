#include "kernels/quantized/quantization.h"

#include <limits>

#include "kernels/updates/optimizer_update.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

Tensor bytes(std::int64_t n, const Stream& stream) {
  return Tensor::zeros({n}, DType::kU8, MemoryKind::kOptimizerState, stream);
}

Tensor scales_for(std::int64_t n, const Stream& stream) {
  return Tensor::zeros({quantization_blocks(n)}, DType::kF32, MemoryKind::kOptimizerState, stream);
}

/// Numbers of many magnitudes; for large n, with blocks that contain zeros, a NaN and an infinity.
Tensor hard_numbers(std::int64_t n, QuantizationMap map, const Stream& stream) {
  const Tensor x = random_tensor({n}, DType::kF32, 7, stream);
  float* const data = x.data<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    data[i] *= std::pow(10.0f, -static_cast<float>(i * 7 % 10));
    if (map == QuantizationMap::kUnsigned) data[i] = std::abs(data[i]);
    if (i / kQuantizationBlock == 2) data[i] = 0;
    if (i / kQuantizationBlock == 3) data[i] *= 1e-30f;  // including subnormals
  }
  if (n > 1400) data[1400] = std::numeric_limits<float>::quiet_NaN();
  if (n > 1700) data[1700] = std::numeric_limits<float>::infinity();
  return x;
}

/// Makes NaNs comparable, because the bits of a computed NaN depend on the machine.
Tensor with_one_nan(const Tensor& x) {
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    float& value = x.data<float>()[i];
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  }
  return x;
}

TEST(CudaQuantization, MatchesCpuBitForBit) {
  const Stream host = cpu_stream();
  for (const QuantizationMap map : {QuantizationMap::kSigned, QuantizationMap::kUnsigned}) {
    for (const std::int64_t n : {1, 255, 256, 1023, 2600}) {
      for (const std::int64_t skipped : {0, 1}) {  // 1 misaligns vector loads
        const Tensor x = hard_numbers(n, map, host).rows(skipped, n);
        const Tensor codes = bytes(n, host).rows(skipped, n);
        const Tensor scales = scales_for(n - skipped, host);
        quantize(codes, scales, x, map, host);
        const Tensor back = Tensor::empty_like(x, MemoryKind::kWorkspace, host);
        dequantize(back, codes, scales, map, host);
        in_several_orders([&] {
          const Stream stream = cuda_stream();
          const Tensor from = copy_to(hard_numbers(n, map, host), stream).rows(skipped, n);
          const Tensor to = copy_to(bytes(n, host), stream).rows(skipped, n);
          const Tensor scaled = copy_to(scales_for(n - skipped, host), stream);
          quantize(to, scaled, from, map, stream);
          expect_same_bits(wait_for_host(to, stream), codes);
          expect_same_bits(wait_for_host(scaled, stream), scales);
          dequantize(from, to, scaled, map, stream);
          expect_same_bits(with_one_nan(wait_for_host(from, stream)), with_one_nan(back));
        });
      }
    }
  }
}

/// {w, g, working, direction, m_codes, m_scales, v_codes, v_scales} of n elements.
Tensors eight_bit_case(std::int64_t n, bool with_copy, const Stream& host) {
  const Tensor m = random_tensor({n}, DType::kF32, 3, host);
  const Tensor v = random_tensor({n}, DType::kF32, 4, host);
  for (std::int64_t i = 0; i < n; ++i) v.data<float>()[i] *= v.data<float>()[i];
  Tensors tensors{random_tensor({n}, DType::kF32, 1, host),
                  random_tensor({n}, DType::kF32, 2, host),
                  with_copy ? random_tensor({n}, DType::kBF16, 5, host) : Tensor{},
                  random_tensor({n}, DType::kF32, 6, host),
                  bytes(n, host),
                  scales_for(n, host),
                  bytes(n, host),
                  scales_for(n, host)};
  quantize(tensors[4], tensors[5], m, QuantizationMap::kSigned, host);
  quantize(tensors[6], tensors[7], v, QuantizationMap::kUnsigned, host);
  return tensors;
}

/// Codes may differ by one value if the moments differ by a rounding, which depends on the two
/// compilers' fused multiply-adds. The codes are therefore compared as dequantized numbers.
TEST(CudaQuantization, EightBitAdamWMatchesCpu) {
  const Stream host = cpu_stream();
  for (const std::int64_t n : {1, 255, 1023, 2600}) {
    for (const bool with_copy : {false, true}) {
      const std::string of = concat("adamw_update_8bit ", n, with_copy ? " with a copy" : "");
      const auto kernel = [](const Tensors& t, const Stream& s) {
        const QuantizedMoments moments{t[4], t[5], t[6], t[7]};
        adamw_direction_8bit(t[3], moments, kAdamW, s);
        adamw_update_8bit(t[0], moments, t[1], t[2], kAdamW, s);
        dequantize(t[8], t[4], t[5], QuantizationMap::kSigned, s);
        dequantize(t[9], t[6], t[7], QuantizationMap::kUnsigned, s);
      };
      Tensors tensors = eight_bit_case(n, with_copy, host);
      tensors.push_back(random_tensor({n}, DType::kF32, 8, host));
      tensors.push_back(random_tensor({n}, DType::kF32, 9, host));
      Tensors results = copies_to(tensors, host);
      kernel(results, host);
      in_several_orders([&] {
        const Stream stream = cuda_stream();
        const Tensors device = copies_to(tensors, stream);
        kernel(device, stream);
        const auto compare = [&](std::size_t i, double tolerance) {
          expect_close(wait_for_host(device[i], stream), values_of(results[i]), tolerance, of);
        };
        compare(0, 1e-6);
        if (with_copy) compare(2, 5e-3);
        compare(3, 1e-6);
        compare(5, 1e-6);
        compare(7, 1e-6);
        std::int64_t differing = 0;
        for (const std::size_t i : {4u, 6u}) {
          const Tensor got = wait_for_host(device[i], stream);
          for (std::int64_t k = 0; k < n; ++k) {
            differing += got.data<std::uint8_t>()[k] != results[i].data<std::uint8_t>()[k];
          }
        }
        EXPECT_LE(differing, n / 500) << of;
        if (differing > 0) return;
        compare(8, 1e-6);
        compare(9, 1e-6);
      });
    }
  }
}

/// The direction matches the codes, which may differ by one value as above.
TEST(CudaQuantization, EightBitLionMatchesCpu) {
  const Stream host = cpu_stream();
  const LionSettings settings{.learning_rate = 0.1f, .weight_decay = 0.2f, .gradient_scale = 0.5f};
  for (const std::int64_t n : {1, 255, 1023, 2600}) {
    for (const bool with_copy : {false, true}) {
      const Tensors tensors = eight_bit_case(n, with_copy, host);
      const auto kernel = [&](const Tensors& t, const Stream& s) {
        lion_direction(t[3], t[4], 0.1f, s);
        lion_update_8bit(t[0], t[4], t[5], t[1], t[2], settings, s);
        dequantize(t[1], t[4], t[5], QuantizationMap::kSigned, s);
      };
      const Tensors results = copies_to(tensors, host);
      kernel(results, host);
      in_several_orders([&] {
        const Stream stream = cuda_stream();
        const Tensors device = copies_to(tensors, stream);
        kernel(device, stream);
        const auto compare = [&](std::size_t i, double tolerance) {
          expect_close(wait_for_host(device[i], stream), values_of(results[i]), tolerance,
                       concat("lion_update_8bit ", n, ", tensor ", i));
        };
        compare(0, 1e-6);
        compare(1, 0.015 * static_cast<double>(results[5].data<float>()[0]));
        if (with_copy) compare(2, 5e-3);
        compare(5, 1e-6);
        expect_same_bits(wait_for_host(device[3], stream), results[3]);
      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
