#include "src/trainer/frozen_weights.h"

#include <algorithm>

#include "hybrid_trainer/memory/four_bit_weight.h"
#include "hybrid_trainer/models/lora_config.h"

namespace hybrid_trainer {
namespace {

std::vector<std::int64_t> part_rows(const Parameter& parameter, const LanguageModel& model,
                                    const HuggingFaceLayout& layout) {
  std::vector<std::int64_t> rows;
  for (const FileTensor& part : layout.tensors(parameter, model.config()))
    rows.push_back(part.rows());
  return rows;
}

}  // namespace

void hold_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                 const LanguageModel& model, const HuggingFaceLayout& layout, const Stream& home) {
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  if (is_quantized_base(form) && is_matrix(parameter.role())) {
    return parameter.set_storage(
        std::make_unique<FourBitWeight>(values, part_rows(parameter, model, layout), home));
  }
  const bool is_short = form != "fp32" && parameter.role() != Role::kVector;
  parameter.set_storage(
      std::make_unique<FrozenRealWeight>(values, is_short ? DType::kBF16 : DType::kF32, home));
}

void hold_all_frozen(LanguageModel& model, const std::string& form, const Stream& stream,
                     const ModelRegistry& registry) {
  const HuggingFaceLayout& layout = find_family(model.config().family, registry).hugging_face;
  model.visit_parameters([&](Parameter& parameter) {
    const Tensor values = wait_for_host(parameter.home_master(), stream);
    hold_frozen(parameter, values, form, model, layout, stream);
  });
}

}  // namespace hybrid_trainer
