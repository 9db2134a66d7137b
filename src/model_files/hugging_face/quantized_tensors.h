#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/language_model.h"
#include "memory/quantization.h"
#include "memory/quantized_weight.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// The form of quantization in which OpenAI released gpt-oss: X_blocks (…, rows, columns/32, 16) and
/// X_scales (…, rows, columns/32), u8, in place of the tensor X. Where X lies transposed, these do not.
inline constexpr const char* kMicroScalingForm = "mxfp4";

/// Reads the part of X that `part` is, with its rows as the file has them. Throws DataError for other
/// shapes, and for exponents with which numbers would be infinite.
kernels::MicroScalingTensors read_micro_scaling(const HuggingFaceWeights& weights,
                                                const std::string& name, const FileTensor& part,
                                                std::int64_t columns, const Stream& home);

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

/// Codes of a matrix with its rows in the other order, in the pool of `home`; they stand for the
/// same numbers. 4-bit codes then have one f32 magnitude a block. `name` is for messages. Throws
/// DataError for 4-bit codes where a block spans two rows.
QuantizedRows reordered(const QuantizedRows& from, std::int64_t columns, const RowGroups& order,
                        RowsTo side, const std::string& name, const Stream& home);

/// What the quantization_config in a config.json asks for, as lora.base names it: nf4, fp4 or int8;
/// empty where there is none. `name` stands for the file in messages. Throws DataError that names
/// every key that asks for something else.
std::string parse_quantization_config(const boost::json::object& config, const std::string& name);

/// As transformers writes it.
boost::json::object quantization_config(const std::string& form);

}  // namespace hybrid_trainer
