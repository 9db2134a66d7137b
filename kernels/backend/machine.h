#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// The highest rate that matrix products reach on this machine now, in floating-point operations
/// per second (2·M·N·K for a product), over the shapes and layouts of a GPT-2 step. Takes about
/// half a second. f32 or bf16; bf16 is the rate of matmul on bf16 inputs, even if the processor has
/// no bf16 product.
double measure_product_rate(DType inputs, const Stream& stream);

/// Bytes read plus bytes written per second by a copy between arrays much larger than the caches, or
/// of the given bytes each.
double measure_copy_rate(const Stream& stream, std::optional<std::size_t> array_bytes = {});

/// Bytes per second at which arrays much larger than the caches can be read.
double measure_read_rate(const Stream& stream);

/// bits = the bitwise or of all elements of x, for which each of them is read. x: f32. bits: (1)
/// i32.
void find_all_bits(const Tensor& bits, const Tensor& x, const Stream& stream);

/// A run whose products choose algorithms.
struct ProductRun {
  std::string folder{};  // which keeps those that the run has; "" for none
  bool resumes = false;  // takes those that it had, even if they were never timed
};

/// Loads what products need on the stream's device by two small products, and waits for them, so
/// that its memory is taken before the rest is planned with. Products that follow choose their
/// algorithms for `run`. Nothing on a processor. Throws DeviceError, and OutOfMemory where the
/// device has no memory for it.
void prepare_products(const ProductRun& run, const Stream& stream);

}  // namespace hybrid_trainer::kernels
