#include "src/hugging_face/micro_scaling_tensors.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using kernels::kMicroScalingBlock, kernels::MicroScalingTensors;

std::string codes_name(const std::string& name) { return name + "_blocks"; }
std::string exponents_name(const std::string& name) { return name + "_scales"; }

/// Reads a part's bytes into `to`, which has the shape `shape` in the file.
void read_part(const HuggingFaceWeights& weights, const std::string& name, const FileTensor& part,
               const Shape& shape, const Tensor& to, const Stream& home) {
  const SafetensorsFile& file = weights.file_of(name);
  const SafetensorsEntry& entry = file.entry(name);
  const Shape wanted = FileTensor{.name = name, .shape = shape, .parts = part.parts}.whole_shape();
  if (entry.dtype != "U8" || entry.tensor_shape() != wanted)
    throw DataError(concat(file.path(), ": ", name, " is ", entry.tensor_shape().text(), " of ",
                           entry.dtype, ", want ", wanted.text(), " of U8"));
  if (home.device().simulated) return;
  const Tensor read = Tensor::empty(to.shape(), DType::kU8, MemoryKind::kWorkspace,
                                    Stream(MemoryPool::create("host")));
  const auto bytes = static_cast<std::size_t>(read.bytes());
  file.read_bytes(name, static_cast<std::size_t>(part.part) * bytes, read.raw(), bytes);
  wait_for_copy(to, read, home);
}

void check_exponents(const HuggingFaceWeights& weights, const std::string& name,
                     const Tensor& exponents, const Stream& home) {
  if (home.device().simulated) return;
  const Tensor here = wait_for_host(exponents, home);
  const std::uint8_t* const begin = here.data<std::uint8_t>();
  const std::uint8_t largest = *std::max_element(begin, begin + here.elements());
  if (largest <= kernels::kMostMicroScalingExponent) return;
  throw DataError(concat(weights.file_of(name).path(), ": ", name, " has the exponent ",
                         int{largest}, ", which ",
                         largest == 255 ? "means NaN" : "makes numbers infinite", "; want at most ",
                         int{kernels::kMostMicroScalingExponent}, "; copy the folder anew"));
}

}  // namespace

std::vector<std::string> micro_scaling_keys(const HuggingFaceWeights& weights,
                                            const std::string& name) {
  const std::string codes = codes_name(name), exponents = exponents_name(name);
  if (!weights.contains(codes) && !weights.contains(exponents)) return {};
  return {codes, exponents};
}

MicroScalingTensors read_micro_scaling(const HuggingFaceWeights& weights, const std::string& name,
                                       const FileTensor& part, std::int64_t columns,
                                       const Stream& home) {
  const std::int64_t rows = part.rows(), blocks = columns / kMicroScalingBlock;
  if (columns % kMicroScalingBlock != 0)
    throw DataError(concat(weights.path(), ": ", name, " has ", columns, " columns in mxfp4, want ",
                           "a multiple of ", kMicroScalingBlock));
  const MicroScalingTensors tensors = MicroScalingTensors::empty(rows, columns, home);
  read_part(weights, codes_name(name), part, {rows, blocks, kMicroScalingBlock / 2}, tensors.codes,
            home);
  read_part(weights, exponents_name(name), part, {rows, blocks}, tensors.exponents, home);
  check_exponents(weights, exponents_name(name), tensors.exponents, home);
  return tensors;
}

std::vector<NamedTensor> micro_scaling_tensors(const std::string& name, std::int64_t rows,
                                               const MicroScalingTensors& from,
                                               const Stream& stream) {
  const std::int64_t blocks = from.exponents.elements() / rows;
  return {{codes_name(name),
           wait_for_host(from.codes, stream).view({rows, blocks, kMicroScalingBlock / 2})},
          {exponents_name(name), wait_for_host(from.exponents, stream).view({rows, blocks})}};
}

}  // namespace hybrid_trainer
