#pragma once

#include <string>

#include "src/hugging_face/adapter_contents.h"
#include "src/hugging_face/adapter_tensors.h"

namespace hybrid_trainer {

/// Adapters that PEFT holds of all experts of a layer together: "….experts.base_layer" of gate and up,
/// "….experts" of down. A is (E·r, inputs), the experts one after the other; B is (outputs, r·E), the
/// experts of a number side by side. Source: PEFT 0.21, tuners/lora/layer.py, ParamWrapper.

/// Over transformers 4, Granite's are "….input_linear" and "….output_linear".

/// Whether a module of an adapter's tensor is one of these.
bool is_fused(const std::string& module, const AdapterConfig& config);
/// Whether it is of gates and ups where the folder has both, and not of the last maps.
bool is_of_first(const std::string& module);

/// The module in which the folder has a tensor's expert among others; empty where it has none.
std::string fused_module_of(const AdapterTensor& tensor, const AdapterContents& contents);

/// The expert's own rows of A or B, of as many columns as they are there. Throws DataError where the
/// file's tensors are of other shapes.
Tensor read_expert(const AdapterTensor& tensor, const std::string& module,
                   const AdapterContents& contents, const Stream& host);

/// Puts an expert's A or B into the tensor of all of them; `whole` is made by whole_shape.
void write_expert(const Tensor& whole, const AdapterTensor& tensor, const Tensor& values);
Shape whole_shape(const AdapterTensor& tensor);

}  // namespace hybrid_trainer
