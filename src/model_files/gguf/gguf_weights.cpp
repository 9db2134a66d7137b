#include <cmath>
#include <cstring>
#include <set>

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/lora.h"
#include "src/core/messages.h"
#include "src/gguf/block_formats.h"
#include "src/gguf/gguf_file.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/gguf/gguf_names.h"
#include "src/model_files/hugging_face/file_layout.h"

namespace hybrid_trainer {

namespace {

/// Returns whether a tensor is a quantized matrix. Quantized vectors are read as f32.
bool is_in_blocks(const GgufTensor& tensor) {
  return tensor.shape.rank() >= 2 && block_format_of(tensor.type).has_value();
}

class WeightInGguf final : public FolderWeight {
 public:
  WeightInGguf(const GgufFile& file, std::vector<GgufPart> parts, const Shape& shape)
      : FolderWeight(shape), file_(file), parts_(std::move(parts)) {}

  void read(const Tensor& values) const override {
    std::int64_t row = 0;
    for (const GgufPart& part : parts_) {
      read_part(values.rows(row, row + part.in_file.rows()), part);
      row += part.in_file.rows();
    }
    fill_zero(values.rows(row, values.size(0)), host_stream());
  }
  bool is_quantized() const override {
    return std::ranges::all_of(parts_, [&](const GgufPart& part) {
      return part.name.change != GgufChange::kLaterRows && !part.name.tiles &&
             is_in_blocks(file_.tensor(part.name.name));
    });
  }
  std::vector<QuantizedRows> quantized(const Stream& home) const override {
    std::vector<QuantizedRows> all;
    std::int64_t row = 0;
    for (const GgufPart& part : parts_) {
      row += part.in_file.rows();
      const std::int64_t padding = &part == &parts_.back() ? shape()[0] - row : 0;
      all.push_back(blocks_of(part, padding, home));
    }
    return all;
  }

 private:
  /// Returns the tensor of a part. For an expert, it is an element of the tensor of all experts.
  GgufTensor tensor_of(const GgufPart& part) const {
    const GgufTensor& tensor = file_.tensor(part.name.name);
    FileTensor in_file = part.in_file;
    in_file.shape = part.name.shape(in_file.shape);
    const Shape wanted = in_file.whole_shape();
    // Older files store the gate of a shared expert, a matrix of one row, as a vector.
    const bool is_one_row =
        wanted.rank() == 2 && wanted[0] == 1 && tensor.shape == Shape{wanted[1]};
    if (tensor.shape != wanted && !is_one_row)
      throw DataError(concat(file_.path().string(), ": the tensor ", tensor.name, " has shape ",
                             tensor.shape.text(), ", want ", wanted.text()));
    return in_file.parts > 1 ? tensor.element(in_file.part) : tensor;
  }
  void check_finite(const GgufTensor& tensor, const Tensor& values) const {
    const float* const begin = values.data<float>();
    const auto finite = std::count_if(begin, begin + values.elements(),
                                      [](float value) { return std::isfinite(value); });
    if (finite != values.elements())
      throw DataError(concat(file_.path().string(), ": ", values.elements() - finite, " of the ",
                             values.elements(), " numbers of ", tensor.name,
                             " are NaN or infinite; copy the file again"));
  }
  void read_part(const Tensor& values, const GgufPart& part) const {
    const GgufTensor tensor = tensor_of(part);
    const Tensor found = file_.values_of(tensor);
    check_finite(tensor, found);
    take_from_file(values, from_gguf(found, part.name), part.in_file);
  }
  /// Throws DataError for non-finite dequantized values. Checks few rows at a time, to save memory.
  void check_blocks(const GgufTensor& tensor, const kernels::BlockTensors& blocks) const {
    constexpr std::int64_t kElements = std::int64_t{1} << 20;
    const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1],
                       step = std::clamp<std::int64_t>(kElements / columns, 1, rows);
    const Stream host = host_stream();
    const Tensor values = host_tensor({step, columns});
    const std::int64_t bytes = blocks.bytes.elements() / rows;  // per row
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t end = std::min(rows, row + step);
      const Tensor some = values.rows(0, end - row);
      kernels::dequantize_blocks(some, {blocks.bytes.rows(row * bytes, end * bytes), blocks.format},
                                 host);
      check_finite(tensor, some);
    }
  }
  QuantizedRows blocks_of(const GgufPart& part, std::int64_t padding, const Stream& home) const {
    const GgufTensor tensor = tensor_of(part);
    const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const auto format = block_format_of(tensor.type).value();
    QuantizedRows held{rows + padding,
                       kernels::BlockTensors::empty(rows + padding, columns, format, home)};
    if (home.device().simulated) return held;
    const Stream host = host_stream();
    const auto in_file = kernels::BlockTensors::empty(rows, columns, format, host),
               made = kernels::BlockTensors::empty(rows + padding, columns, format, host);
    file_.input().read_at(in_file.bytes.raw(), tensor.bytes(), tensor.offset);
    check_blocks(tensor, in_file);
    fill_zero(made.bytes, host);
    take_rows(made.bytes.raw(), in_file.bytes.raw(), part,
              tensor.bytes() / static_cast<std::size_t>(rows));
    wait_for_copy(std::get<kernels::BlockTensors>(held.tensors).bytes, made.bytes, home);
    return held;
  }
  /// Copies rows of `bytes` bytes in the model's order.
  static void take_rows(void* to, const void* from, const GgufPart& part, std::size_t bytes) {
    const std::int64_t rows = part.in_file.rows();
    std::vector<std::byte> unpaired;
    if (part.name.change == GgufChange::kPairedRows) {
      unpaired.resize(static_cast<std::size_t>(rows) * bytes);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto paired = static_cast<std::size_t>(paired_row(row, rows, part.name.heads));
        std::memcpy(unpaired.data() + static_cast<std::size_t>(row) * bytes,
                    static_cast<const std::byte*>(from) + paired * bytes, bytes);
      }
      from = unpaired.data();
    }
    if (part.in_file.order.are_alike()) {
      std::memcpy(to, from, static_cast<std::size_t>(rows) * bytes);
    } else {
      copy_rows(to, from, part.in_file.order, bytes, TargetOrder::kHere);
    }
  }
  const GgufFile& file_;
  std::vector<GgufPart> parts_;
};

/// Throws DataError for a tensor that belongs to no part of the model.
void check_all_wanted(const GgufFile& file, std::set<std::string> wanted) {
  for (const char* divisors :
       {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
    wanted.insert(divisors);
  if (own_head(file) == nullptr) wanted.insert("output.weight");
  for (const GgufTensor& tensor : file.tensors()) {
    if (wanted.contains(tensor.name)) continue;
    throw DataError(concat(file.path().string(), ": the tensor ", tensor.name,
                           " does not belong to the model that the file describes; use the "
                           "model's Hugging Face folder instead"));
  }
}

}  // namespace

void visit_gguf_weights(const GgufFile& file, Network& network, const ModelConfig& config,
                        const std::function<void(Parameter&, const FolderWeight&)>& visit) {
  const bool shares_head = own_head(file) == nullptr;
  TextHead* const head = network.text_head();
  std::set<std::string> wanted;
  if (head != nullptr)
    wanted = {"cls.weight",        "cls.bias",        "cls.norm.weight",
              "cls.output.weight", "cls.output.bias", "output.weight"};
  const auto add_parts = [&](std::vector<GgufPart>& parts, const FileTensor& tensor) {
    for (GgufPart& part : gguf_parts(config, tensor)) {
      if (part.name.name == "output.weight" && shares_head) part.name.name = "token_embd.weight";
      wanted.insert(part.name.name);
      parts.push_back(std::move(part));
    }
  };
  const auto is_new = [&](const Parameter& parameter) {
    if (head == nullptr || !head->owns(parameter)) return false;
    const GgufTensor* tensor =
        file.find_tensor(gguf_name(config, parameter.in_files().front()).name);
    return tensor == nullptr ||
           (head->is_last(parameter) && tensor->shape[0] != std::ssize(config.labels));
  };
  std::vector<std::pair<Parameter*, std::vector<GgufPart>>> weights;
  network.visit_parameters([&](Parameter& parameter) {
    if (belongs_to_adapter(parameter) || is_new(parameter)) return;
    std::vector<GgufPart> parts;
    for (const FileTensor& tensor : parameter.in_files()) add_parts(parts, tensor);
    weights.emplace_back(&parameter, std::move(parts));
  });
  if (const auto unused = find_family(config.family).hugging_face.unused)
    for (const std::string& prefix : unused(config))
      if (prefix.starts_with("layers."))
        wanted.insert(gguf_name(config, {.name = prefix + "weight", .shape = {}}).name);
  check_all_wanted(file, wanted);
  for (auto& [parameter, parts] : weights)
    visit(*parameter, WeightInGguf(file, std::move(parts), parameter->shape()));
}

bool is_mostly_quantized(const GgufFile& file) {
  constexpr double kMostly = 0.9;
  double all = 0, in_blocks = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.rank() < 2) continue;
    const auto elements = static_cast<double>(tensor.shape.elements());
    all += elements;
    in_blocks += is_in_blocks(tensor) ? elements : 0;
  }
  return in_blocks > kMostly * all;
}

bool is_all_bf16(const GgufFile& file) {
  return std::ranges::all_of(file.tensors(), [](const GgufTensor& tensor) {
    const bool is_always_f32 = tensor.shape.rank() < 2 || tensor.name.ends_with(".bias") ||
                               tensor.name.ends_with("ffn_gate_inp.weight");
    return is_always_f32 || tensor.type == GgufType::kBF16;
  });
}

}  // namespace hybrid_trainer
