#include "src/trainer/frozen_weights.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/hugging_face/gguf_weights.h"
#include "hybrid_trainer/memory/quantized_weight.h"
#include "hybrid_trainer/models/lora_config.h"

namespace hybrid_trainer {
namespace {

std::unique_ptr<QuantizedWeight> quantized(const Tensor& values, const std::string& form,
                                           const std::vector<FileTensor>& parts,
                                           const Stream& home) {
  std::vector<QuantizedRows> quantized;
  std::int64_t row = 0;
  for (const FileTensor& part : parts) {
    quantized.push_back(quantize_rows(values.rows(row, row + part.rows()), form, home));
    row += part.rows();
  }
  return std::make_unique<QuantizedWeight>(values.shape(), std::move(quantized));
}

/// In the blocks of a GGUF file, or in f32 where the file has none.
void hold_as_in_file(Parameter& parameter, const FolderWeight& weight, const Stream& home) {
  if (!weight.is_quantized())
    return hold_frozen(parameter,
                       home.device().simulated ? parameter.home_master() : weight.values(), "fp32",
                       home);
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  parameter.set_storage(
      std::make_unique<QuantizedWeight>(parameter.shape(), weight.quantized(home)));
}

}  // namespace

void hold_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                 const Stream& home) {
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  if (is_quantized_base(form) && is_matrix(parameter.role()))
    return parameter.set_storage(quantized(values, form, parameter.in_files(), home));
  const bool is_short = form != "fp32" && parameter.role() != Role::kVector;
  parameter.set_storage(
      std::make_unique<FrozenRealWeight>(values, is_short ? DType::kBF16 : DType::kF32, home));
}

void hold_frozen(Parameter& parameter, const FolderWeight& weight, const std::string& form,
                 const std::string& form_of_folder, const Stream& home) {
  if (form == kFileBase) return hold_as_in_file(parameter, weight, home);
  const bool are_alike = is_quantized_base(form) && form == form_of_folder;
  if (!are_alike || !is_matrix(parameter.role()))
    return hold_frozen(parameter, weight.values(), form, home);
  if (!weight.is_quantized()) return hold_frozen(parameter, weight.values(), "bf16", home);
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  parameter.set_storage(
      std::make_unique<QuantizedWeight>(parameter.shape(), weight.quantized(home)));
}

std::string form_held(const std::filesystem::path& folder, const std::string& asked) {
  if (asked == kFileBase) {
    if (is_gguf_file(folder)) return asked;
    throw UsageError(concat(folder.string(), " is no GGUF file, whose blocks alone weights can be ",
                            "held in (file); ask for another form, such as nf4 or bf16"));
  }
  const std::string held = quantization_of_hugging_face(folder);
  if (held.empty() || held == asked) return asked;
  if (!is_quantized_base(asked)) return held;
  throw DataError(concat(folder.string(), ": its weights are quantised already (", held,
                         "), so they cannot be held as ", asked, "; ask for ", held,
                         " or give the folder that they were made from"));
}

void hold_all_frozen(Network& model, const std::string& form, const Stream& stream) {
  model.visit_parameters([&](Parameter& parameter) {
    const Tensor values = wait_for_host(parameter.home_master(), stream);
    hold_frozen(parameter, values, form, stream);
  });
}

}  // namespace hybrid_trainer
