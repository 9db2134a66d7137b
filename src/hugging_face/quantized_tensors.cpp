#include "src/hugging_face/quantized_tensors.h"

#include <boost/json.hpp>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "src/hugging_face/micro_scaling_tensors.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

using kernels::EightBitTensors, kernels::FourBitTensors, kernels::FourBitType,
    kernels::MicroScalingTensors;

constexpr std::int64_t kMostStateBytes = 4096;

std::string state_name(const std::string& name, const std::string& form) {
  return name + ".quant_state.bitsandbytes__" + form;
}
/// Of X.weight: X.SCB, the rows' magnitudes.
std::string magnitudes_name(const std::string& name) {
  return name.substr(0, name.rfind('.')) + ".SCB";
}
std::string format_name(const std::string& name) {
  return name.substr(0, name.rfind('.')) + ".weight_format";
}

[[noreturn]] void refuse(const HuggingFaceWeights& weights, const std::string& name,
                         const std::string& problem) {
  throw DataError(concat(weights.file_of(name).path(), ": ", name, ": ", problem));
}

/// As many elements as wanted, in whatever shape they are stored.
Tensor read_flat(const HuggingFaceWeights& weights, const std::string& name, DType dtype,
                 std::int64_t elements) {
  const SafetensorsFile& file = weights.file_of(name);
  const Shape shape = file.entry(name).tensor_shape();
  if (shape.elements() != elements)
    refuse(weights, name, concat("is ", shape.text(), ", want ", elements, " elements"));
  const Stream host(MemoryPool::create("host"));
  const Tensor tensor = Tensor::empty(shape, dtype, MemoryKind::kWorkspace, host);
  file.read(name, tensor);
  return tensor.view({elements});
}

void put(const Tensor& to, const Tensor& from, const Stream& home) {
  if (!home.device().simulated) wait_for_copy(to, from.view(to.shape()), home);
}

template <std::size_t kCount>
void check_table(const HuggingFaceWeights& weights, const std::string& name,
                 const std::array<float, kCount>& ours) {
  const Tensor theirs = read_flat(weights, name, DType::kF32, std::int64_t{kCount});
  if (std::memcmp(theirs.raw(), ours.data(), theirs.bytes()) != 0)
    refuse(weights, name, "is another table than bitsandbytes' own");
}

/// Checks what is told beside the tensors; returns the offset.
float read_state(const HuggingFaceWeights& weights, const std::string& name,
                 const std::string& form, std::int64_t rows, std::int64_t columns, bool is_nested) {
  const std::string key = state_name(name, form);
  const std::int64_t bytes = weights.file_of(key).entry(key).tensor_shape().elements();
  if (bytes > kMostStateBytes) refuse(weights, key, concat("has ", bytes, " bytes"));
  const Tensor text = read_flat(weights, key, DType::kU8, bytes);
  const json::value state =
      parse_json_text({static_cast<const char*>(text.raw()), static_cast<std::size_t>(bytes)}, key);
  const auto member = [&](const char* member_key) {
    const json::value* value =
        state.is_object() ? state.get_object().if_contains(member_key) : nullptr;
    return value == nullptr ? json::value() : *value;
  };
  const auto expect = [&](const char* member_key, const json::value& wanted) {
    if (member(member_key) == wanted) return;
    refuse(weights, key,
           concat(member_key, ": got ", json_line(member(member_key)).substr(0, 60), ", want ",
                  json_line(wanted)));
  };
  expect("quant_type", json::value(form));
  expect("blocksize", kernels::kFourBitBlock);
  expect("shape", json::array{rows, columns});
  if (!is_nested) return 0;
  expect("nested_blocksize", kernels::kFourBitLevelBlock);
  expect("nested_dtype", "float32");
  if (!member("nested_offset").is_number()) refuse(weights, key, "nested_offset is no number");
  return member("nested_offset").to_number<float>();
}

FourBitTensors read_four_bit(const HuggingFaceWeights& weights, const std::string& name,
                             const std::string& form, std::int64_t rows, std::int64_t columns,
                             const Stream& home) {
  const FourBitType type = form == "nf4" ? FourBitType::kNormal : FourBitType::kFloat;
  const std::int64_t count = rows * columns,
                     blocks = (count + kernels::kFourBitBlock - 1) / kernels::kFourBitBlock;
  const bool is_nested = weights.contains(name + ".nested_absmax");
  check_table(weights, name + ".quant_map", kernels::four_bit_values(type));
  FourBitTensors tensors = FourBitTensors::empty(count, type, home);
  tensors.offset = read_state(weights, name, form, rows, columns, is_nested);
  put(tensors.codes, read_flat(weights, name, DType::kU8, tensors.codes.elements()), home);
  if (is_nested) {
    check_table(weights, name + ".nested_quant_map", kernels::kFourBitLevels);
    put(tensors.levels, read_flat(weights, name + ".absmax", DType::kU8, blocks), home);
    put(tensors.scales,
        read_flat(weights, name + ".nested_absmax", DType::kF32, tensors.scales.elements()), home);
  } else {
    tensors.levels = {};
    tensors.scales = Tensor::empty({blocks}, DType::kF32, MemoryKind::kParameters, home);
    put(tensors.scales, read_flat(weights, name + ".absmax", DType::kF32, blocks), home);
  }
  return tensors;
}

EightBitTensors read_eight_bit(const HuggingFaceWeights& weights, const std::string& name,
                               std::int64_t rows, std::int64_t columns, const Stream& home) {
  const std::string format = format_name(name);
  if (weights.contains(format) &&
      read_flat(weights, format, DType::kU8, 1).data<std::uint8_t>()[0] != 0)
    refuse(weights, format, "want 0, rows one after the other");
  const SafetensorsFile& file = weights.file_of(name);
  if (file.entry(name).tensor_shape() != Shape{rows, columns})
    refuse(weights, name,
           concat("is ", file.entry(name).tensor_shape().text(), ", want ",
                  Shape{rows, columns}.text()));
  const auto tensors = EightBitTensors::empty(rows, columns, home);
  put(tensors.codes, read_flat(weights, name, DType::kI8, rows * columns), home);
  put(tensors.magnitudes, read_flat(weights, magnitudes_name(name), DType::kF32, rows), home);
  return tensors;
}

Tensor host_tensor(const void* values, std::int64_t count, DType dtype) {
  const Stream host(MemoryPool::create("host"));
  const Tensor tensor = Tensor::empty({count}, dtype, MemoryKind::kWorkspace, host);
  std::memcpy(tensor.raw(), values, tensor.bytes());
  return tensor;
}

void append(std::vector<NamedTensor>& to, const std::string& name, std::int64_t rows,
            std::int64_t columns, const FourBitTensors& from, const Stream& stream) {
  const std::string form = from.type == FourBitType::kNormal ? "nf4" : "fp4";
  const bool is_nested = from.levels.defined();
  json::object state{{"quant_type", form},
                     {"blocksize", kernels::kFourBitBlock},
                     {"dtype", "bfloat16"},
                     {"shape", json::array{rows, columns}}};
  const auto host = [&](const Tensor& tensor) { return wait_for_host(tensor, stream); };
  to.push_back({name, host(from.codes).view({from.codes.elements(), 1})});
  to.push_back({name + ".absmax", host(is_nested ? from.levels : from.scales)});
  to.push_back({name + ".quant_map",
                host_tensor(kernels::four_bit_values(from.type).data(), 16, DType::kF32)});
  if (is_nested) {
    to.push_back({name + ".nested_absmax", host(from.scales)});
    to.push_back({name + ".nested_quant_map",
                  host_tensor(kernels::kFourBitLevels.data(), 256, DType::kF32)});
    state["nested_blocksize"] = kernels::kFourBitLevelBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = from.offset;
  }
  const std::string text = json::serialize(state);
  to.push_back({state_name(name, form), host_tensor(text.data(), std::ssize(text), DType::kU8)});
}

void append(std::vector<NamedTensor>& to, const std::string& name, std::int64_t rows, std::int64_t,
            const MicroScalingTensors& from, const Stream& stream) {
  for (NamedTensor& tensor : micro_scaling_tensors(name, rows, from, stream))
    to.push_back(std::move(tensor));
}

void append(std::vector<NamedTensor>& to, const std::string& name, std::int64_t, std::int64_t,
            const EightBitTensors& from, const Stream& stream) {
  constexpr std::uint8_t kRows = 0;
  to.push_back({name, wait_for_host(from.codes, stream)});
  to.push_back({magnitudes_name(name), wait_for_host(from.magnitudes, stream)});
  to.push_back({format_name(name), host_tensor(&kRows, 1, DType::kU8)});
}

}  // namespace

std::vector<std::string> quantization_keys(const HuggingFaceWeights& weights,
                                           const std::string& name, const std::string& form) {
  std::vector<std::string> keys;
  if (form == kMicroScalingForm) return micro_scaling_keys(weights, name);
  const auto add = [&](const std::string& key) { keys.push_back(key); };
  if (form == "int8" && weights.contains(magnitudes_name(name))) {
    add(magnitudes_name(name));
    if (weights.contains(format_name(name))) add(format_name(name));
  } else if (form != "int8" && !form.empty() && weights.contains(name + ".absmax")) {
    for (const char* key : {".absmax", ".quant_map"}) add(name + key);
    add(state_name(name, form));
    if (weights.contains(name + ".nested_absmax"))
      for (const char* key : {".nested_absmax", ".nested_quant_map"}) add(name + key);
  }
  return keys;
}

QuantizedRows read_quantized(const HuggingFaceWeights& weights, const std::string& name,
                             const std::string& form, std::int64_t rows, std::int64_t columns,
                             const Stream& home) {
  if (form == "int8") return {rows, read_eight_bit(weights, name, rows, columns, home)};
  return {rows, read_four_bit(weights, name, form, rows, columns, home)};
}

void append_quantized(std::vector<NamedTensor>& to, const std::string& name, std::int64_t columns,
                      const QuantizedRows& part, const Stream& stream) {
  const auto append_these = [&](const auto& tensors) {
    if constexpr (requires { append(to, name, part.rows, columns, tensors, stream); }) {
      append(to, name, part.rows, columns, tensors, stream);
    } else {
      require(false, "no folder of Hugging Face has weights in a GGUF file's blocks");
    }
  };
  std::visit(append_these, part.tensors);
}

std::string form_of(const QuantizedRows& part) {
  if (std::holds_alternative<kernels::BlockTensors>(part.tensors)) return "";
  if (std::holds_alternative<MicroScalingTensors>(part.tensors)) return kMicroScalingForm;
  const auto* four_bit = std::get_if<FourBitTensors>(&part.tensors);
  if (four_bit == nullptr) return "int8";
  return four_bit->type == FourBitType::kNormal ? "nf4" : "fp4";
}

}  // namespace hybrid_trainer
