#include "src/run_folder/run_base.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/hugging_face/adapter_files.h"
#include "hybrid_trainer/hugging_face/hugging_face_weights.h"
#include "hybrid_trainer/io/checksum.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSampleBytes = 1 << 16, kMostBaseConfigBytes = 1 << 20;

std::string base_file(const RunPaths& paths) { return paths.root + "/base.json"; }

void add_text(Checksum& sum, const std::string& text) { sum.add(text.data(), text.size()); }

void add_samples(Checksum& sum, const fs::path& path) {
  const InputFile file(path);
  std::string bytes(std::min(kSampleBytes, file.bytes()), '\0');
  const std::size_t last = file.bytes() - bytes.size();
  for (const std::size_t offset : {std::size_t{0}, last / 2, last}) {
    file.read_at(bytes.data(), bytes.size(), offset);
    sum.add(bytes.data(), bytes.size());
  }
}

}  // namespace

std::string identity_of_base(const fs::path& folder) {
  Checksum sum;
  if (GgufFile::is_one(folder)) {
    const GgufFile file(folder);
    for (const GgufTensor& tensor : file.tensors())
      add_text(sum, concat(tensor.name, ' ', name_of(tensor.type), ' ', tensor.offset, '\n'));
    add_samples(sum, folder);
    return sum.text();
  }
  const std::string config = read_file(folder / "config.json", kMostBaseConfigBytes);
  sum.add(config.data(), config.size());
  const HuggingFaceWeights weights(folder);
  for (const SafetensorsFile& file : weights.files()) {
    for (const SafetensorsEntry& entry : file.entries()) {
      add_text(sum, concat(entry.name, ' ', entry.dtype, ' ', entry.bytes, '\n'));
    }
    add_samples(sum, file.path());
  }
  return sum.text();
}

std::string identity_of_adapter(const fs::path& folder) {
  Checksum sum;
  for (const char* name : {kAdapterConfig, kAdapterTensors}) add_samples(sum, folder / name);
  return sum.text();
}

void write_run_base(const RunPaths& paths, const fs::path& folder) {
  const boost::json::object base{{"folder", fs::absolute(folder).lexically_normal().string()},
                                 {"identity", identity_of_base(folder)}};
  replace_file(base_file(paths), json_line(base) + "\n");
}

std::optional<fs::path> base_of_run(const RunPaths& paths, const std::optional<fs::path>& given) {
  const std::string file = base_file(paths);
  const bool is_of_a_start = given && !paths.hold_a_run();  // killed before it was a run
  if (!fs::exists(file) || is_of_a_start) return given;
  const boost::json::value value = read_json(file, {.max_bytes = 1 << 16});
  const auto text = [&](const char* key) -> std::string {
    const auto* found = value.is_object() ? value.get_object().if_contains(key) : nullptr;
    if (found == nullptr || !found->is_string())
      throw DataError(file + ": want {\"folder\": \"...\", \"identity\": \"...\"}");
    return std::string(found->get_string());
  };
  const std::string remembered = text("folder");
  const fs::path folder = given.value_or(remembered);
  if (!HuggingFaceWeights::are_in(folder)) {
    throw MissingInput(concat(folder.string(), ": the model is gone whose weights the run's ",
                              "adapters belong to; put it back, or resume the run with its folder ",
                              "(train --init-from, finetune --model)"));
  }
  if (identity_of_base(folder) == text("identity")) return folder;
  throw DataError(concat(folder.string(), " is not the model that the run's adapters were trained ",
                         "beside (", remembered, " when it began): its files differ"));
}

}  // namespace hybrid_trainer
