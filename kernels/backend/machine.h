#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// Returns the current highest rate of matrix products on this machine, in floating-point
/// operations per second (2·M·N·K for a product), over the shapes and layouts of a GPT-2 step.
/// Takes about half a second. `inputs` is f32 or bf16; for bf16, measures `matmul` on bf16
/// operands, even if the CPU has no bf16 instructions.
double measure_product_rate(DType inputs, const Stream& stream);

/// Returns the bytes read plus the bytes written per second by a copy between two arrays. Each
/// array has `array_bytes` bytes, by default much more than the caches hold.
double measure_copy_rate(const Stream& stream, std::optional<std::size_t> array_bytes = {});

double measure_read_rate(const Stream& stream);

/// bits = the bitwise OR of all elements of x, each of which is read. x: f32. bits: (1) i32.
void find_all_bits(const Tensor& bits, const Tensor& x, const Stream& stream);

struct ProductRun {
  std::string folder{};  // folder in which the run stores its selections; "" to store none
  bool resumes = false;  // reuses stored selections, even if they were never timed
};

/// Runs two small products, so that the libraries' memory is allocated before memory is planned.
/// Later products select their algorithms for `run`. Throws DeviceError, OutOfMemory.
void prepare_products(const ProductRun& run, const Stream& stream);

}  // namespace hybrid_trainer::kernels
