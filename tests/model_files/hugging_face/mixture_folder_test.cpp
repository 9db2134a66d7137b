#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>

#include "hybrid_trainer/files/input_file.h"
#include "src/files/safetensors.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

TEST(MixtureFolder, RejectsNaNWeightsByTensor) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const std::string folder = golden("mixtral_a");
  for (const auto& [role, said] : {std::pair{Role::kRouter, "of the 120 numbers of "},
                                   std::pair{Role::kExpert, "experts.0.w1.weight is NaN"}}) {
    const auto model = make_model(read_hugging_face_model_config(folder, 0), 1, stream);
    read_hugging_face_weights(folder, *model, stream);
    bool is_set = false;
    model->visit_parameters([&, wanted = role](Parameter& parameter) {
      if (parameter.role() != wanted || std::exchange(is_set, is_set || parameter.role() == wanted))
        return;
      parameter.master_in_place().data<float>()[3] = NAN;
    });
    const fs::path output = scratch / name_of(role);
    export_hugging_face(*model, nullptr, output, stream);
    const std::string message =
        message_of<DataError>([&] { read_hugging_face_weights(output, *model, stream); });
    EXPECT_TRUE(contains(message, said)) << message;
  }
}

/// transformers 5's name of a tensor and, for an expert, its offset in the fused tensor.
struct Place {
  std::string name;
  std::int64_t expert = -1, part = 0, parts = 1;
};

Place place_of(const std::string& name) {
  static const std::regex expert(
      R"((.*)\.(mlp|block_sparse_moe|feed_forward)\.experts\.(\d+)\.(\w+)\.weight)");
  std::smatch found;
  if (std::regex_match(name, found, expert)) {
    const std::string module = found[4],
                      mixture = found[2] == "feed_forward" ? ".feed_forward" : ".mlp";
    const bool is_last = module == "down_proj" || module == "w2";
    const bool is_up = module == "up_proj" || module == "w3";
    return {concat(found[1].str(), mixture, ".experts.", is_last ? "down_proj" : "gate_up_proj"),
            std::stoll(found[3]), is_up ? 1 : 0, is_last ? 1 : 2};
  }
  std::string renamed = name;
  for (const auto& [here, there] :
       {std::pair{"block_sparse_moe.gate.weight", "mlp.gate.weight"},
        {"block_sparse_moe.router.layer.weight", "block_sparse_moe.router.weight"},
        {"block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"},
        {"block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"}})
    if (name.ends_with(here))
      renamed = name.substr(0, name.size() - std::string(here).size()) + there;
  return {renamed};
}

/// Writes a folder with each layer's experts in one tensor, like save_original_format=False.
void write_as_version_5(const fs::path& from, const fs::path& to, std::int64_t experts,
                        const Stream& stream) {
  const SafetensorsFile file((from / "model.safetensors").string());
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    const Tensor values = file.load(entry.name, MemoryKind::kData, stream);
    const Place place = place_of(entry.name);
    if (place.expert < 0) {
      tensors[place.name] = values;
      continue;
    }
    const std::int64_t rows = values.size(0), columns = values.size(1);
    Tensor& all = tensors[place.name];
    if (!all)
      all = Tensor::empty({experts, place.parts * rows, columns}, values.dtype(), MemoryKind::kData,
                          stream);
    const Tensor of_expert = all.rows(place.expert, place.expert + 1);
    std::memcpy(
        static_cast<char*>(of_expert.raw()) + static_cast<std::size_t>(place.part) * values.bytes(),
        values.raw(), values.bytes());
  }
  fs::create_directories(to);
  fs::copy_file(from / "config.json", to / "config.json");
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
  write_safetensors((to / "model.safetensors").string(), named);
}

TEST(MixtureFolder, Version5LayoutHasSameWeights) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  for (const char* name : {"mixtral_a", "qwen2_moe_a", "qwen3_moe_plain", "olmoe_a", "granitemoe_a",
                           "granite_moe_hybrid", "qwen3_next_moe", "lfm2_moe_a"}) {
    const ModelConfig config = read_hugging_face_model_config(golden(name), 0);
    write_as_version_5(golden(name), scratch / name, config.experts.count, stream);
    const auto usual = make_model(config, 1, stream), other = make_model(config, 2, stream);
    read_hugging_face_weights(golden(name), *usual, stream);
    read_hugging_face_weights(scratch / name, *other, stream);
    std::map<std::string, Tensor> wanted;
    usual->visit_parameters(
        [&](Parameter& parameter) { wanted[parameter.name()] = parameter.master_in_place(); });
    other->visit_parameters([&](Parameter& parameter) {
      EXPECT_TRUE(same_bits(parameter.master_in_place(), wanted.at(parameter.name())))
          << name << " " << parameter.name();
    });
  }
}

/// Writes a folder with separate tensors for each expert, given one with stacked tensors.
void write_each_expert(const fs::path& from, const fs::path& to, const Stream& stream) {
  const SafetensorsFile file((from / "model.safetensors").string());
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    const Tensor values = file.load(entry.name, MemoryKind::kData, stream);
    const bool is_first = entry.name.ends_with(".experts.gate_up_proj");
    if (!is_first && !entry.name.ends_with(".experts.down_proj")) {
      tensors.push_back({entry.name, values});
      continue;
    }
    const std::string stem = entry.name.substr(0, entry.name.rfind('.') + 1);
    const std::vector<const char*> modules =
        is_first ? std::vector{"gate_proj", "up_proj"} : std::vector{"down_proj"};
    const std::int64_t count = std::ssize(modules), rows = values.size(1) / count;
    for (std::int64_t part = 0; part < values.size(0) * count; ++part) {
      const Tensor all = values.view({values.size(0) * count, rows, values.size(2)});
      tensors.push_back({concat(stem, part / count, ".",
                                modules[static_cast<std::size_t>(part % count)], ".weight"),
                         all.rows(part, part + 1).view({rows, values.size(2)})});
    }
  }
  fs::create_directories(to);
  fs::copy_file(from / "config.json", to / "config.json");
  write_safetensors((to / "model.safetensors").string(), tensors);
}

TEST(MixtureFolder, ExportStoresExpertsAsInOriginBitForBit) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const auto bytes_of = [](const SafetensorsFile& file, const std::string& name) {
    std::string bytes(file.entry(name).bytes, '\0');
    file.read_bytes(name, 0, bytes.data(), bytes.size());
    return bytes;
  };
  for (const char* name : {"qwen3_next_moe", "qwen3_5_moe_text", "lfm2_moe_a"}) {
    const ModelConfig config = read_hugging_face_model_config(golden(name), 0);
    const fs::path other = scratch / name;
    if (std::string(name) == "qwen3_5_moe_text") {
      write_each_expert(golden(name), other, stream);
    } else {
      write_as_version_5(golden(name), other, config.experts.count, stream);
    }
    for (const fs::path& origin : {fs::path(golden(name)), other}) {
      const auto model = make_model(config, 1, stream);
      read_hugging_face_weights(origin, *model, stream);
      const fs::path out = scratch / concat(name, origin == other ? ".other" : ".golden");
      export_hugging_face(*model, nullptr, out, stream, model_families(), DType::kF32, "", origin);
      const SafetensorsFile before((origin / "model.safetensors").string()),
          after((out / "model.safetensors").string());
      ASSERT_EQ(after.entries().size(), before.entries().size()) << origin;
      for (const SafetensorsEntry& entry : before.entries()) {
        EXPECT_EQ(after.entry(entry.name).shape, entry.shape) << entry.name;
        EXPECT_TRUE(bytes_of(after, entry.name) == bytes_of(before, entry.name)) << entry.name;
      }
    }
  }
}

TEST(MixtureFolder, GptOssWithoutWindowWritesContextAsWindow) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  ModelConfig config = read_hugging_face_model_config(golden("gpt_oss_a"), 0);
  config.window = 0;
  config.window_layers.clear();
  const auto model = make_model(config, 1, stream);
  export_hugging_face(*model, nullptr, scratch / "out", stream);
  const std::string text = read_file(scratch / "out" / "config.json", 1 << 20);
  EXPECT_TRUE(contains(text, concat("\"sliding_window\": ", config.context))) << text;
  EXPECT_EQ(read_hugging_face_model_config(scratch / "out", 0).window, 0);
}

}  // namespace
}  // namespace hybrid_trainer::testing
