#include "hybrid_trainer/hugging_face/gguf_weights.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/gguf/gguf_names.h"
#include "hybrid_trainer/hugging_face/file_layout.h"
#include "hybrid_trainer/models/lora.h"
#include "src/hugging_face/gguf_config.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kUsualForm = "nf4";

Stream host_stream() { return Stream(MemoryPool::create("host")); }

/// As a product has them, outputs first, whichever way the folder does.
FileTensor outputs_first(FileTensor tensor) {
  if (!tensor.transposed) return tensor;
  tensor.transposed = false;
  tensor.shape = {tensor.shape[1], tensor.shape[0]};
  return tensor;
}

/// A part of a weight: its place in a folder, and what it is in the file.
struct GgufPart {
  FileTensor in_folder;
  GgufName name;
};

/// A weight of `shape` in a file, which must outlive it.
class WeightInGguf final : public FolderWeight {
 public:
  WeightInGguf(const GgufFile& file, std::vector<GgufPart> parts, const Shape& shape)
      : file_(file), parts_(std::move(parts)), shape_(shape) {}

  void read(const Tensor& values) const override {
    std::int64_t row = 0;
    for (const GgufPart& part : parts_) {
      read_part(values.rows(row, row + part.in_folder.rows()), part);
      row += part.in_folder.rows();
    }
    fill_zero(values.rows(row, values.size(0)), host_stream());
  }
  Tensor values() const override {
    const Tensor values = Tensor::empty(shape_, DType::kF32, MemoryKind::kWorkspace, host_stream());
    read(values);
    return values;
  }
  bool is_quantized() const override { return false; }
  std::vector<QuantizedRows> quantized(const Stream& home) const override {
    return {quantize_rows(values(), kUsualForm, home)};
  }

 private:
  void read_part(const Tensor& values, const GgufPart& part) const {
    const GgufTensor& tensor = file_.tensor(part.name.name);
    const Shape& wanted = part.in_folder.shape;
    if (tensor.shape != wanted)
      throw DataError(concat(file_.path().string(), ": the tensor ", tensor.name, " is of shape ",
                             tensor.shape.text(), "; the model wants ", wanted.text()));
    const Tensor found = file_.values_of(tensor);
    const float* const begin = found.data<float>();
    const auto finite = std::count_if(begin, begin + found.elements(),
                                      [](float value) { return std::isfinite(value); });
    if (finite != found.elements())
      throw DataError(concat(file_.path().string(), ": of the ", found.elements(), " numbers of ",
                             tensor.name, " ", found.elements() - finite,
                             " are NaN or infinite; copy the file anew"));
    take_from_file(values, from_gguf(found, part.name), part.in_folder);
  }
  const GgufFile& file_;
  std::vector<GgufPart> parts_;
  Shape shape_;
};

/// Throws DataError for a tensor of no part of the model.
void check_all_wanted(const GgufFile& file, std::set<std::string> wanted) {
  wanted.insert("rope_freqs.weight");
  if (own_head(file) == nullptr) wanted.insert("output.weight");
  for (const GgufTensor& tensor : file.tensors()) {
    if (wanted.contains(tensor.name)) continue;
    throw DataError(concat(file.path().string(), ": the tensor ", tensor.name,
                           " belongs to no part of the model that its values tell of; take the "
                           "model's Hugging Face folder instead"));
  }
}

}  // namespace

void visit_gguf_weights(const std::filesystem::path& path, LanguageModel& model,
                        const std::function<void(Parameter&, const FolderWeight&)>& visit) {
  const GgufFile file(path);
  const ModelConfig& config = model.config();
  const GgufArchitecture* architecture = gguf_architecture_of_family(config.family);
  require(architecture != nullptr, "a GGUF file's model of another family");
  const bool shares_head = own_head(file) == nullptr;
  std::set<std::string> wanted;
  const auto part_of = [&](const FileTensor& tensor) {
    GgufPart part{outputs_first(tensor),
                  gguf_name(*architecture, config.heads,
                            config.key_heads > 0 ? config.key_heads : config.heads, tensor.name)};
    if (part.name.name == "output.weight" && shares_head) part.name.name = "token_embd.weight";
    wanted.insert(part.name.name);
    return part;
  };
  std::vector<std::pair<Parameter*, std::vector<GgufPart>>> weights;
  model.visit_parameters([&](Parameter& parameter) {
    if (is_of_adapter(parameter)) return;
    std::vector<GgufPart> parts;
    for (const FileTensor& tensor : parameter.in_files()) parts.push_back(part_of(tensor));
    weights.emplace_back(&parameter, std::move(parts));
  });
  check_all_wanted(file, wanted);
  for (auto& [parameter, parts] : weights)
    visit(*parameter, WeightInGguf(file, std::move(parts), parameter->shape()));
}

bool is_all_bf16(const std::filesystem::path& path) {
  const GgufFile file(path);
  return std::ranges::all_of(file.tensors(), [](const GgufTensor& tensor) {
    return tensor.shape.rank() < 2 || tensor.type == GgufType::kBF16;
  });
}

}  // namespace hybrid_trainer
