#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/hugging_face/hugging_face_weights.h"
#include "hybrid_trainer/memory/micro_scaling_quantization.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// The form of quantization in which OpenAI released gpt-oss: X_blocks (…, rows, columns/32, 16) and
/// X_scales (…, rows, columns/32), u8, in place of the tensor X. Where X lies transposed, these do not.
inline constexpr const char* kMicroScalingForm = "mxfp4";

/// The names of both tensors; empty where the folder has neither. Throws DataError where it has one.
std::vector<std::string> micro_scaling_keys(const HuggingFaceWeights& weights,
                                            const std::string& name);
/// Reads the part of X that `part` is, with its rows as the file has them. Throws DataError for other
/// shapes, and for exponents with which numbers would be infinite.
kernels::MicroScalingTensors read_micro_scaling(const HuggingFaceWeights& weights,
                                                const std::string& name, const FileTensor& part,
                                                std::int64_t columns, const Stream& home);
/// Both tensors of a part.
std::vector<NamedTensor> micro_scaling_tensors(const std::string& name, std::int64_t rows,
                                               const kernels::MicroScalingTensors& from,
                                               const Stream& stream);

}  // namespace hybrid_trainer
