#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/hugging_face/hugging_face_weights.h"
#include "hybrid_trainer/memory/quantized_weight.h"

namespace hybrid_trainer {

/// Matrices as bitsandbytes stores them in safetensors files, by names of lora.base.

/// The tensors that a folder must have beside `name`, X.weight, because it is quantized; none where
/// it is not.
std::vector<std::string> quantization_keys(const HuggingFaceWeights& weights,
                                           const std::string& name, const std::string& form);

/// A matrix (rows, columns) that has such keys, in the pool of `home`. Throws DataError for another
/// size, table of codes or size of blocks, IoError.
QuantizedRows read_quantized(const HuggingFaceWeights& weights, const std::string& name,
                             const std::string& form, std::int64_t rows, std::int64_t columns,
                             const Stream& home);

/// Appends what a file holds of a matrix named X.weight, on the host.
void append_quantized(std::vector<NamedTensor>& to, const std::string& name, std::int64_t columns,
                      const QuantizedRows& part, const Stream& stream);

std::string form_of(const QuantizedRows& part);

}  // namespace hybrid_trainer
