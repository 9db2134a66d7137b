#include "src/hugging_face/adapter_tensors.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::vector<AdapterTensor> tensors_of_adapters(LanguageModel& model) {
  using Matrix = AdapterTensor::Matrix;
  std::vector<AdapterTensor> tensors;
  model.visit_linears([&](Linear& linear) {
    LowRankAdapter* const adapter = linear.adapter();
    if (adapter == nullptr) return;
    const auto& [rank, scale, dropout, decomposed, site] = adapter->spec();
    std::int64_t a_row = 0, b_row = 0;
    for (const AdapterPart& part : adapter->parts()) {
      const std::string stem = concat(kAdapterPrefix, part.name, ".lora_");
      tensors.push_back(
          {stem + "A.weight", part.name, Matrix::kA, &adapter->a(), a_row, rank, scale});
      tensors.push_back({stem + "B.weight", part.name, Matrix::kB, &adapter->b(), b_row, part.rows,
                         scale, part.order});
      if (decomposed)
        tensors.push_back({stem + "magnitude_vector", part.name, Matrix::kMagnitudes,
                           adapter->magnitude(), b_row, part.rows, scale, part.order});
      a_row += rank;
      b_row += part.rows;
    }
  });
  return tensors;
}

}  // namespace hybrid_trainer
