#include "src/hugging_face/weight_in_files.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/file_layout.h"
#include "src/hugging_face/micro_scaling_tensors.h"
#include "src/hugging_face/quantized_order.h"
#include "src/hugging_face/quantized_tensors.h"

namespace hybrid_trainer {
namespace {

/// What is no number would spread over the model, or be rounded to something that looks like one.
void check_finite(const Tensor& values, const std::string& file, const std::string& name) {
  const float* const begin = values.data<float>();
  const auto bad = values.elements() - std::count_if(begin, begin + values.elements(),
                                                     [](float x) { return std::isfinite(x); });
  if (bad == 0) return;
  throw DataError(concat(file, ": of the ", values.elements(), " numbers of ", name, " ", bad,
                         bad == 1 ? " is" : " are",
                         " NaN or infinite; copy the folder anew, or train the model again from a "
                         "checkpoint before that"));
}

std::int64_t columns(const FileTensor& part) { return part.shape[part.transposed ? 0 : 1]; }

}  // namespace

std::vector<std::string> OpenFolder::keys_of(const FileTensor& part) const {
  const bool is_packed = quantization == kMicroScalingForm;
  if (part.shape.rank() != 2 || (part.parts > 1 && !is_packed)) return {};
  return quantization_keys(weights, name_of(part), quantization);
}

std::vector<std::string> OpenFolder::names_of(const FileTensor& part) const {
  std::vector<std::string> names = keys_of(part);
  if (names.empty() || quantization != kMicroScalingForm) names.push_back(name_of(part));
  return names;
}

QuantizedRows WeightInFiles::quantized_part(const FileTensor& part, const Stream& home) const {
  const std::string name = folder_.name_of(part);
  const QuantizedRows read =
      folder_.quantization == kMicroScalingForm
          ? QuantizedRows{part.rows(),
                          read_micro_scaling(folder_.weights, name, part, columns(part), home)}
          : read_quantized(folder_.weights, name, folder_.quantization, part.rows(), columns(part),
                           home);
  return reordered(read, columns(part), part.order, RowsTo::kHere,
                   concat(folder_.weights.path(), ": ", name), home);
}

void WeightInFiles::read_part(const Tensor& values, const FileTensor& part) const {
  if (folder_.lacks(part)) return fill_zero(values, host_stream());
  read_unchecked(values, part);
  check_finite(values, folder_.weights.path(), folder_.name_of(part));
}

void WeightInFiles::read_unchecked(const Tensor& values, const FileTensor& part) const {
  const Stream host = host_stream();
  if (!folder_.keys_of(part).empty())
    return dequantize_rows(values, quantized_part(part, host), host);
  const std::string name = folder_.name_of(part);
  const SafetensorsFile& file = folder_.weights.file_of(name);
  const Shape found = file.entry(name).tensor_shape(), wanted = part.whole_shape();
  // Gates and ups of all experts, one after the other, may be told as (experts, both, width).
  const bool are_pairs = found.rank() == 3 && wanted.rank() == 3 && found[0] * 2 == wanted[0] &&
                         found[1] == 2 * wanted[1] && found[2] == wanted[2];
  if (found != wanted && !are_pairs) {
    throw DataError(
        concat(file.path(), ": ", name, " is ", found.text(), ", want ", wanted.text()));
  }
  const std::string& dtype = file.entry(name).dtype;
  if (dtype != "F32" && dtype != "BF16" && dtype != "F16" && dtype != "F64")
    throw DataError(concat(file.path(), ": ", name, " is of ", dtype, ", want F32, BF16 or F16"));
  if (lies_alike(part)) return file.read_part(name, part.part, values.view(part.shape));
  const Tensor in_file = Tensor::empty(part.shape, DType::kF32, MemoryKind::kWorkspace, host);
  file.read_part(name, part.part, in_file);
  take_from_file(values, in_file, part);
}

void WeightInFiles::read(const Tensor& values) const {
  std::int64_t row = 0;
  for (const FileTensor& part : parts_) {
    read_part(values.rows(row, row + part.rows()), part);
    row += part.rows();
  }
  fill_zero(values.rows(row, values.size(0)), host_stream());
}

Tensor WeightInFiles::values() const {
  const Tensor values = Tensor::empty(shape_, DType::kF32, MemoryKind::kWorkspace, host_stream());
  read(values);
  return values;
}

bool WeightInFiles::is_quantized() const {
  return std::ranges::any_of(
      parts_, [&](const FileTensor& part) { return !folder_.keys_of(part).empty(); });
}

std::vector<QuantizedRows> WeightInFiles::quantized(const Stream& home) const {
  std::vector<QuantizedRows> quantized;
  for (const FileTensor& part : parts_) {
    if (!folder_.keys_of(part).empty()) {
      quantized.push_back(quantized_part(part, home));
      continue;
    }
    const Tensor values = Tensor::empty({part.rows(), columns(part)}, DType::kF32,
                                        MemoryKind::kWorkspace, host_stream());
    read_part(values, part);
    quantized.push_back(quantize_rows(values, folder_.quantization, home));
  }
  return quantized;
}

}  // namespace hybrid_trainer
