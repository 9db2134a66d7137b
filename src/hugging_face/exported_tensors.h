#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "src/hugging_face/origin_folder.h"

namespace hybrid_trainer {

/// A copy of f32 values.
Tensor rounded_to_bf16(const Tensor& values, const Stream& host);
/// Form of the first quantized weight, as lora.base names it; empty where there is none.
std::string quantization_of(Network& model);
/// Dtype of what is not quantized in such a model: all in one, as transformers computes in one; bf16
/// where that rounds nothing, the vectors being the only ones that are held in f32.
DType dtype_beside_codes(Network& model, const Stream& stream);
/// The model's own tensors of a folder's model.safetensors: rounded to `dtype`, quantized ones as they
/// are held, without adapters.
std::vector<NamedTensor> exported_tensors(Network& model, const OriginFolder& origin, DType dtype,
                                          const Stream& stream);

}  // namespace hybrid_trainer
