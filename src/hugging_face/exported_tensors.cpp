#include "src/hugging_face/exported_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "hybrid_trainer/hugging_face/file_layout.h"
#include "hybrid_trainer/memory/quantized_weight.h"
#include "hybrid_trainer/models/lora.h"
#include "src/hugging_face/micro_scaling_tensors.h"
#include "src/hugging_face/quantized_order.h"
#include "src/hugging_face/quantized_tensors.h"

namespace hybrid_trainer {
namespace {

/// Where a part of a tensor in files goes: a new tensor, or its place in one that has begun.
class ExportedParts {
 public:
  explicit ExportedParts(std::vector<NamedTensor>& tensors) : tensors_(tensors) {}
  void add(const NamedTensor& made, const FileTensor& of) {
    const auto& [name, values] = made;
    if (of.parts == 1) return tensors_.push_back(made);
    const auto [begun, is_new] = begun_.emplace(name, tensors_.size());
    if (is_new) {
      const Stream host(MemoryPool::create("host"));
      const Shape whole =
          FileTensor{.name = name, .shape = values.shape(), .parts = of.parts}.whole_shape();
      tensors_.push_back(
          {name, Tensor::empty(whole, values.dtype(), MemoryKind::kWorkspace, host)});
    }
    const Tensor place = tensors_[begun->second].tensor.rows(of.part, of.part + 1);
    std::memcpy(place.raw(), values.raw(), values.bytes());
  }

 private:
  std::vector<NamedTensor>& tensors_;
  std::map<std::string, std::size_t> begun_;
};

void append_values(ExportedParts& parts, Parameter& parameter, const OriginFolder& origin,
                   DType dtype, const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  const Tensor value = wait_for_host(parameter.acquire_master(stream), stream);
  std::int64_t row = 0;
  for (const FileTensor& in_file : parameter.in_files()) {
    const std::string name = origin.layout().full_name(in_file);
    Tensor tensor = in_file_layout(value.rows(row, row + in_file.rows()), in_file);
    row += in_file.rows();
    if (dtype != DType::kF32 && !origin.holds_in_f32(name)) tensor = rounded_to_bf16(tensor, host);
    parts.add({name, tensor}, in_file);
  }
}

/// Throws DataError for a tensor of all experts in a form of bitsandbytes, which has none of such.
void append_codes(ExportedParts& parts, const Parameter& parameter, const QuantizedWeight& weight,
                  const OriginFolder& origin, const Stream& stream) {
  const std::vector<FileTensor>& in_files = parameter.in_files();
  const std::int64_t columns = parameter.shape()[1];
  for (std::size_t i = 0; i < in_files.size(); ++i) {
    const std::string name = origin.layout().full_name(in_files[i]);
    const QuantizedRows part =
        reordered(weight.parts().at(i), columns, in_files[i].order, RowsTo::kFile, name, stream);
    if (in_files[i].parts > 1 && form_of(part) != kMicroScalingForm)
      throw DataError(concat(name, " holds all experts of a layer, and bitsandbytes quantizes no ",
                             "such tensor; export without --quantize"));
    std::vector<NamedTensor> tensors;
    append_quantized(tensors, name, columns, part, stream);
    for (const NamedTensor& tensor : tensors) parts.add(tensor, in_files[i]);
  }
}

}  // namespace

Tensor rounded_to_bf16(const Tensor& values, const Stream& host) {
  const Tensor rounded = Tensor::empty(values.shape(), DType::kBF16, MemoryKind::kWorkspace, host);
  std::transform(values.data<float>(), values.data<float>() + values.elements(),
                 rounded.data<BFloat16>(), to_bfloat16);
  return rounded;
}

std::string quantization_of(Network& model) {
  std::string form;
  model.visit_parameters([&](Parameter& parameter) {
    const auto* weight = dynamic_cast<const QuantizedWeight*>(&parameter.storage());
    if (weight != nullptr && form.empty()) form = form_of(weight->parts().front());
  });
  return form;
}

DType dtype_beside_codes(Network& model, const Stream& stream) {
  bool all_short = true;
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.role() != Role::kVector || is_of_adapter(parameter)) return;
    const Tensor values = wait_for_host(parameter.acquire_master(stream), stream);
    const float* const begin = values.data<float>();
    all_short = all_short && std::all_of(begin, begin + values.elements(),
                                         [](float x) { return to_float(to_bfloat16(x)) == x; });
  });
  return all_short ? DType::kBF16 : DType::kF32;
}

std::vector<NamedTensor> exported_tensors(Network& model, const OriginFolder& origin, DType dtype,
                                          const Stream& stream) {
  std::vector<NamedTensor> tensors;
  ExportedParts parts(tensors);
  model.visit_parameters([&](Parameter& parameter) {
    if (is_of_adapter(parameter)) return;
    const auto* weight = dynamic_cast<const QuantizedWeight*>(&parameter.storage());
    if (weight != nullptr && !form_of(weight->parts().front()).empty()) {
      append_codes(parts, parameter, *weight, origin, stream);
    } else {
      append_values(parts, parameter, origin, dtype, stream);
    }
  });
  return tensors;
}

}  // namespace hybrid_trainer
