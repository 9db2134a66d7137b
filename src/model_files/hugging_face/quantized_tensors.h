#pragma once

#include <boost/json.hpp>

#include "memory/quantization.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// The quantized form of OpenAI's gpt-oss: X_blocks (…, rows, columns/32, 16) and X_scales (…,
/// rows, columns/32), u8, in place of the tensor X. These tensors are not transposed, even if X
/// would be.
inline constexpr const char* kMicroScalingForm = "mxfp4";

/// Reads `part` of X in the file's row order. Throws DataError for other shapes or infinities.
kernels::MicroScalingTensors read_micro_scaling(const HuggingFaceWeights& weights,
                                                const std::string& name, const FileTensor& part,
                                                std::int64_t columns, const Stream& home);

/// Matrices in bitsandbytes' format in safetensors files. Formats have the names of lora.base.

/// Returns the names of the additional tensors of the matrix `name` (X.weight) if it is quantized.
std::vector<std::string> quantization_keys(const HuggingFaceWeights& weights,
                                           const std::string& name, const std::string& form);

/// Reads a quantized matrix (rows, columns) to the pool of `home`. Throws DataError for another
/// size, code table or block size, IoError.
QuantizedRows read_quantized(const HuggingFaceWeights& weights, const std::string& name,
                             const std::string& form, std::int64_t rows, std::int64_t columns,
                             const Stream& home);

/// Appends the tensors of a matrix named X.weight in a file, on the host.
void append_quantized(std::vector<NamedTensor>& to, const std::string& name, std::int64_t columns,
                      const QuantizedRows& part, const Stream& stream);

std::string form_of(const QuantizedRows& part);

/// Returns the codes with reordered rows, in the pool of `home`. 4-bit codes then have one f32
/// magnitude per block. Throws DataError if a 4-bit block spans two rows; `name` is for messages.
QuantizedRows reordered(const QuantizedRows& from, std::int64_t columns, const RowGroups& order,
                        TargetOrder side, const std::string& name, const Stream& home);

/// Returns the quantized form in a config.json's quantization_config, as a name of lora.base, or
/// "". `name` is the file's name in messages. Throws DataError naming every unsupported key.
std::string parse_quantization_config(const boost::json::object& config, const std::string& name);

/// Returns the quantization_config in transformers' format.
boost::json::object quantization_config(const std::string& form);

}  // namespace hybrid_trainer
