#include "src/model_files/hugging_face/quantized_tensors.h"

#include <cstring>

#include "src/files/json.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/model_folder.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

using kernels::BlockTensors, kernels::EightBitTensors, kernels::FourBitTensors,
    kernels::FourBitType, kernels::kMicroScalingBlock, kernels::MicroScalingTensors;

std::string codes_name(const std::string& name) { return name + "_blocks"; }
std::string exponents_name(const std::string& name) { return name + "_scales"; }

/// Reads a part's bytes into `to`, which has the shape `shape` in the file.
void read_part(const HuggingFaceWeights& weights, const std::string& name, const FileTensor& part,
               const Shape& shape, const Tensor& to, const Stream& home) {
  const SafetensorsFile& file = weights.file_of(name);
  const SafetensorsEntry& entry = file.entry(name);
  const Shape wanted = FileTensor{.name = name, .shape = shape, .parts = part.parts}.whole_shape();
  if (entry.dtype != "U8" || entry.tensor_shape() != wanted)
    throw DataError(concat(file.path(), ": ", name, " is ", entry.tensor_shape().text(), " of ",
                           entry.dtype, ", want ", wanted.text(), " of U8"));
  if (home.device().simulated) return;
  const Tensor read = host_tensor(to.shape(), DType::kU8);
  const auto bytes = static_cast<std::size_t>(read.bytes());
  file.read_bytes(name, static_cast<std::size_t>(part.part) * bytes, read.raw(), bytes);
  wait_for_copy(to, read, home);
}

void check_exponents(const HuggingFaceWeights& weights, const std::string& name,
                     const Tensor& exponents, const Stream& home) {
  if (home.device().simulated) return;
  const Tensor here = wait_for_host(exponents, home);
  const std::uint8_t* const begin = here.data<std::uint8_t>();
  const std::uint8_t largest = *std::max_element(begin, begin + here.elements());
  if (largest <= kernels::kMaxMicroScalingExponent) return;
  throw DataError(concat(weights.file_of(name).path(), ": ", name, " has the exponent ",
                         int{largest}, ", which ",
                         largest == 255 ? "means NaN" : "makes numbers infinite", "; want at most ",
                         int{kernels::kMaxMicroScalingExponent}, "; copy the folder again"));
}

constexpr std::int64_t kMaxStateBytes = 4096;

std::string state_name(const std::string& name, const std::string& form) {
  return name + ".quant_state.bitsandbytes__" + form;
}
/// Returns X.SCB for X.weight: the magnitudes of the rows.
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

/// Reads a tensor of `elements` elements, stored in any shape.
Tensor read_flat(const HuggingFaceWeights& weights, const std::string& name, DType dtype,
                 std::int64_t elements) {
  const SafetensorsFile& file = weights.file_of(name);
  const Shape shape = file.entry(name).tensor_shape();
  if (shape.elements() != elements)
    refuse(weights, name, concat("is ", shape.text(), ", want ", elements, " elements"));
  const Tensor tensor = host_tensor(shape, dtype);
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
    refuse(weights, name, "differs from bitsandbytes' own table");
}

/// Checks the settings stored with the tensors. Returns the offset of quantized magnitudes, or 0.
float read_state(const HuggingFaceWeights& weights, const std::string& name,
                 const std::string& form, std::int64_t rows, std::int64_t columns, bool is_nested) {
  const std::string key = state_name(name, form);
  const std::int64_t bytes = weights.file_of(key).entry(key).tensor_shape().elements();
  if (bytes > kMaxStateBytes) refuse(weights, key, concat("has ", bytes, " bytes"));
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
  if (!member("nested_offset").is_number()) refuse(weights, key, "nested_offset is not a number");
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
    refuse(weights, format, "want 0, which means row-major");
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

Tensor copy_of(const void* values, std::int64_t count, DType dtype) {
  const Tensor tensor = host_tensor({count}, dtype);
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
  to.push_back(
      {name + ".quant_map", copy_of(kernels::four_bit_values(from.type).data(), 16, DType::kF32)});
  if (is_nested) {
    to.push_back({name + ".nested_absmax", host(from.scales)});
    to.push_back(
        {name + ".nested_quant_map", copy_of(kernels::kFourBitLevels.data(), 256, DType::kF32)});
    state["nested_blocksize"] = kernels::kFourBitLevelBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = from.offset;
  }
  const std::string text = json::serialize(state);
  to.push_back({state_name(name, form), copy_of(text.data(), std::ssize(text), DType::kU8)});
}

void append(std::vector<NamedTensor>& to, const std::string& name, std::int64_t rows, std::int64_t,
            const MicroScalingTensors& from, const Stream& stream) {
  const std::int64_t blocks = from.exponents.elements() / rows;
  to.push_back({codes_name(name),
                wait_for_host(from.codes, stream).view({rows, blocks, kMicroScalingBlock / 2})});
  to.push_back({exponents_name(name), wait_for_host(from.exponents, stream).view({rows, blocks})});
}

void append(std::vector<NamedTensor>& to, const std::string& name, std::int64_t, std::int64_t,
            const EightBitTensors& from, const Stream& stream) {
  constexpr std::uint8_t kRows = 0;
  to.push_back({name, wait_for_host(from.codes, stream)});
  to.push_back({magnitudes_name(name), wait_for_host(from.magnitudes, stream)});
  to.push_back({format_name(name), copy_of(&kRows, 1, DType::kU8)});
}

/// Computes each block's magnitude in the same way as dequantize_four_bit.
Tensor plain_magnitudes(const FourBitTensors& from, const Stream& host) {
  const Tensor scales = wait_for_host(from.scales, host);
  if (!from.levels.defined()) return scales;
  const Tensor levels = wait_for_host(from.levels, host), all = host_tensor({levels.elements()});
  for (std::int64_t i = 0; i < all.elements(); ++i) {
    const float product = kernels::kFourBitLevels[levels.data<std::uint8_t>()[i]] *
                          scales.data<float>()[i / kernels::kFourBitLevelBlock];
    all.data<float>()[i] = product + from.offset;
  }
  return all;
}

Tensor moved_rows(const Tensor& flat, std::int64_t rows, const RowGroups& order, TargetOrder side,
                  const Stream& home) {
  const Tensor matrix = wait_for_host(flat, home).view({rows, flat.elements() / rows});
  const Tensor moved = reordered(matrix, order, side);
  const Tensor to = Tensor::empty(flat.shape(), flat.dtype(), MemoryKind::kParameters, home);
  if (!home.device().simulated) wait_for_copy(to, moved.view(flat.shape()), home);
  return to;
}

bool is_true(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::string four_bit_form(const json::object& requested) {
  const json::value* type = requested.if_contains("bnb_4bit_quant_type");
  return type != nullptr && *type == "nf4" ? "nf4" : "fp4";  // fp4 is the library's default
}

}  // namespace

MicroScalingTensors read_micro_scaling(const HuggingFaceWeights& weights, const std::string& name,
                                       const FileTensor& part, std::int64_t columns,
                                       const Stream& home) {
  const std::int64_t rows = part.rows(), blocks = columns / kMicroScalingBlock;
  if (columns % kMicroScalingBlock != 0)
    throw DataError(concat(weights.path(), ": ", name, " has ", columns, " columns in mxfp4, want ",
                           "a multiple of ", kMicroScalingBlock));
  const MicroScalingTensors tensors = MicroScalingTensors::empty(rows, columns, home);
  read_part(weights, codes_name(name), part, {rows, blocks, kMicroScalingBlock / 2}, tensors.codes,
            home);
  read_part(weights, exponents_name(name), part, {rows, blocks}, tensors.exponents, home);
  check_exponents(weights, exponents_name(name), tensors.exponents, home);
  return tensors;
}

std::vector<std::string> quantization_keys(const HuggingFaceWeights& weights,
                                           const std::string& name, const std::string& form) {
  std::vector<std::string> keys;
  if (form == kMicroScalingForm) {
    keys = {codes_name(name), exponents_name(name)};
    const bool has_some = weights.contains(keys[0]) || weights.contains(keys[1]);
    return has_some ? keys : std::vector<std::string>();
  }
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
      require(false, "a Hugging Face folder cannot have weights in a GGUF file's blocks");
    }
  };
  std::visit(append_these, part.tensors);
}

std::string form_of(const QuantizedRows& part) {
  if (std::holds_alternative<BlockTensors>(part.tensors)) return "";
  if (std::holds_alternative<MicroScalingTensors>(part.tensors)) return kMicroScalingForm;
  const auto* four_bit = std::get_if<FourBitTensors>(&part.tensors);
  if (four_bit == nullptr) return "int8";
  return four_bit->type == FourBitType::kNormal ? "nf4" : "fp4";
}

QuantizedRows reordered(const QuantizedRows& from, std::int64_t columns, const RowGroups& order,
                        TargetOrder side, const std::string& name, const Stream& home) {
  if (order.are_alike()) return from;
  const auto move = [&](const Tensor& flat) {
    return moved_rows(flat, from.rows, order, side, home);
  };
  if (const auto* eight = std::get_if<EightBitTensors>(&from.tensors))
    return {from.rows, EightBitTensors{move(eight->codes), move(eight->magnitudes)}};
  if (const auto* micro = std::get_if<MicroScalingTensors>(&from.tensors))
    return {from.rows, MicroScalingTensors{move(micro->codes), move(micro->exponents)}};
  if (const auto* blocks = std::get_if<BlockTensors>(&from.tensors))
    return {from.rows, BlockTensors{move(blocks->bytes), blocks->format}};
  const auto& four = std::get<FourBitTensors>(from.tensors);
  if (columns % kernels::kFourBitBlock != 0) {
    const char* const hint = side == TargetOrder::kHere
                                 ? "give the folder that it was quantized from"
                                 : "quantize to int8, which quantizes each row separately";
    throw DataError(
        concat(name, ": rows of ", columns, " numbers are not a multiple of the 4-bit blocks of ",
               kernels::kFourBitBlock, ", and the rows have another order in the files; ", hint));
  }
  return {from.rows, FourBitTensors{.codes = move(four.codes),
                                    .levels = {},
                                    .scales = move(plain_magnitudes(four, home)),
                                    .offset = 0,
                                    .type = four.type}};
}

std::string parse_quantization_config(const json::object& config, const std::string& name) {
  const json::value* value = config.if_contains("quantization_config");
  if (value == nullptr || value->is_null()) return "";
  const json::object none;
  const json::object& requested = value->is_object() ? value->get_object() : none;
  const json::value* method = requested.if_contains("quant_method");
  if (method != nullptr && *method == kMicroScalingForm) return kMicroScalingForm;
  ConfigReader reader(requested, "quantization_config.");
  reader.expect("quant_method", {"bitsandbytes"});
  reader.expect("bnb_4bit_quant_storage", {"uint8"});
  reader.expect("bnb_4bit_quant_type", {"nf4", "fp4"});
  reader.expect("llm_int8_has_fp16_weight", {false});
  for (const char* key :
       {"load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit",
        "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype", "llm_int8_skip_modules",
        "llm_int8_threshold", "llm_int8_enable_fp32_cpu_offload"})
    reader.know(key);
  reader.sort_unread(ForeignFile::kQuantizationConfig);
  const bool four = is_true(requested, "load_in_4bit"), eight = is_true(requested, "load_in_8bit");
  warn_of_unknown_keys(name, reader.unknown());
  if (reader.problems().empty() && four != eight) return four ? four_bit_form(requested) : "int8";
  throw DataError(concat(name,
                         ": quantization_config: unsupported weights: want bitsandbytes "
                         "(load_in_4bit or load_in_8bit) or mxfp4, or give the folder that they "
                         "were quantized from (lora.base quantizes it here)",
                         reader.problems()));
}

json::object quantization_config(const std::string& form) {
  if (form == kMicroScalingForm)
    return {{"quant_method", form},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
              "lm_head"}}};
  const bool eight = form == "int8";
  json::object config{{"quant_method", "bitsandbytes"},
                      {"load_in_4bit", !eight},
                      {"load_in_8bit", eight},
                      {"llm_int8_skip_modules", json::array{"lm_head"}}};
  if (eight) return config;
  config["bnb_4bit_quant_type"] = form;
  config["bnb_4bit_use_double_quant"] = true;
  config["bnb_4bit_compute_dtype"] = "bfloat16";
  config["bnb_4bit_quant_storage"] = "uint8";
  return config;
}

std::string quantization_of_hugging_face(const ModelFolder& folder) {
  if (folder.is_gguf()) return "";
  return parse_quantization_config(read_python_object(folder.files(), "config.json"),
                                   (folder.path() / "config.json").string());
}

}  // namespace hybrid_trainer
