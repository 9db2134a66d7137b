#include "src/model_files/hugging_face/upcycling.h"

#include <cmath>
#include <numeric>

#include "src/core/messages.h"
#include "src/core/threads.h"
#include "src/files/output_file.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/exported_tensors.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/hugging_face/hugging_face.h"

namespace hybrid_trainer {

namespace {

/// Matrices of a gated feed-forward branch: two that read its input, (inner, width) in files, and
/// the last one, (width, inner).
enum class ExpertPart { kGate, kUp, kDown };

struct ExpertMatrix {
  std::int64_t layer = 0, expert = 0;
  ExpertPart part = ExpertPart::kGate;
  double scale = 1;
};

constexpr double kRouterDeviation = 0.02;  // transformers' initializer_range

enum class RandomStream { kRouter, kColumns, kNoise, kNewColumns };

RandomKey key_of(const Upcycling& requested, const ExpertMatrix& which, RandomStream draw) {
  const auto layer = static_cast<std::uint64_t>(which.layer);
  const auto part = draw == RandomStream::kColumns ? 0 : static_cast<std::uint64_t>(which.part);
  return {.seed = requested.seed,
          .step = (layer * 4 + part) * 4 + static_cast<std::uint64_t>(draw),
          .tensor = static_cast<std::uint64_t>(which.expert)};
}

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments_of(const Tensor& matrix) {
  const float* const begin = matrix.data<float>();
  const float* const end = begin + matrix.elements();
  const auto count = static_cast<double>(matrix.elements());
  const double mean = std::accumulate(begin, end, 0.0) / count;
  const double squares = std::accumulate(
      begin, end, 0.0, [&](double sum, double x) { return sum + (x - mean) * (x - mean); });
  return {mean, std::sqrt(squares / count)};
}

/// Returns the columns in part number `part` of `parts` equal parts.
Tensor part_of_columns(const Tensor& whole, std::int64_t part, std::int64_t parts) {
  const std::int64_t rows = whole.size(0), columns = whole.size(1) / parts;
  const Tensor own = host_tensor({rows, columns});
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const from = whole.data<float>() + i * whole.size(1) + part * columns;
    std::copy(from, from + columns, own.data<float>() + i * columns);
  }
  return own;
}

Tensor read_shard(const SafetensorsFile& file, const std::string& name, const ExpertMatrix& which,
                  std::int64_t shards) {
  const Shape shape = file.entry(name).tensor_shape();
  const std::int64_t shard = which.expert % shards;
  const bool by_rows = which.part != ExpertPart::kDown;
  const Tensor read = host_tensor({by_rows ? shape[0] / shards : shape[0], shape[1]});
  file.read_part(name, by_rows ? shard : 0, read);
  return by_rows || shards == 1 ? read : part_of_columns(read, shard, shards);
}

template <class Element>
void for_each_element(const Tensor& matrix, const Element& element) {
  const std::int64_t columns = matrix.size(1);
  run_tasks(matrix.size(0), [&](std::int64_t, std::int64_t row) {
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      element(matrix.data<float>()[i], i);
  });
}

void add_noise(const Tensor& matrix, const ExpertMatrix& which, const Upcycling& requested) {
  const RandomKey key = key_of(requested, which, RandomStream::kNoise);
  const auto deviation = static_cast<float>(requested.noise * moments_of(matrix).deviation);
  for_each_element(matrix, [&](float& value, std::int64_t i) {
    value += deviation * random_normal(key, static_cast<std::uint64_t>(i));
  });
}

/// Returns for each inner column whether to redraw it. All matrices of an expert redraw the same.
std::vector<bool> reinitialized_columns(const ExpertMatrix& which, const Upcycling& requested,
                                        std::int64_t intermediate_size) {
  const RandomKey key = key_of(requested, which, RandomStream::kColumns);
  const auto width = static_cast<std::uint64_t>(intermediate_size);
  const auto count = std::llround(requested.redraw * static_cast<double>(intermediate_size));
  std::vector<bool> drawn(static_cast<std::size_t>(intermediate_size));
  for (std::int64_t i = 0; i < count; ++i)
    drawn[random_permuted(key, static_cast<std::uint64_t>(i), width)] = true;
  return drawn;
}

/// Redraws columns, normally distributed like the matrix. Source: Nakamura et al. 2025,
/// "Drop-Upcycling".
void redraw(const Tensor& matrix, const ExpertMatrix& which, const Upcycling& requested) {
  const bool by_rows = which.part != ExpertPart::kDown;
  const std::int64_t columns = matrix.size(1);
  const std::vector<bool> drawn =
      reinitialized_columns(which, requested, by_rows ? matrix.size(0) : columns);
  const RandomKey key = key_of(requested, which, RandomStream::kNewColumns);
  const Moments moments = moments_of(matrix);
  for_each_element(matrix, [&](float& value, std::int64_t i) {
    if (drawn[static_cast<std::size_t>(by_rows ? i / columns : i % columns)])
      value = static_cast<float>(
          moments.mean + moments.deviation * random_normal(key, static_cast<std::uint64_t>(i)));
  });
}

/// Returns the expert's part of a dense model's matrix, in f32, with noise and redrawn columns,
/// which depend only on the seed, the layer and the expert.
Tensor expert_matrix(const SafetensorsFile& file, const std::string& name,
                     const ExpertMatrix& which, const Upcycling& requested) {
  const Tensor matrix = read_shard(file, name, which, requested.shards);
  if (requested.noise > 0) add_noise(matrix, which, requested);
  if (requested.redraw > 0) redraw(matrix, which, requested);
  const auto scale = static_cast<float>(which.scale);
  if (scale != 1) for_each_element(matrix, [&](float& value, std::int64_t) { value *= scale; });
  return matrix;
}

/// Returns a new router, (experts, width). The rows of a copy's shards are equal, so that these
/// shards have equal scores.
Tensor new_router(std::int64_t layer, std::int64_t width, const Upcycling& requested) {
  const Tensor router = host_tensor({requested.experts, width});
  for (std::int64_t i = 0; i < router.elements(); ++i) {
    const std::int64_t copy = i / width / requested.shards;
    const RandomKey key =
        key_of(requested, {.layer = layer, .expert = copy}, RandomStream::kRouter);
    router.data<float>()[i] = static_cast<float>(
        kRouterDeviation * random_normal(key, static_cast<std::uint64_t>(i % width)));
  }
  return router;
}

constexpr std::int64_t kMaxExperts = 1024, kMaxChosen = 64;
constexpr std::array kDenseProducts{"gate_proj", "up_proj", "down_proj"};

/// A family of mixtures that can express everything a dense family computes.
struct MixtureFormat {
  const char *dense, *mixture;
  const char* module = "mlp";  // in files
  std::array<const char*, 3> products = kDenseProducts;
  bool has_dense_layers = false;  // so it has a key for their inner width
  bool has_shared = false;        // has a shared expert for all tokens, with a gate
};

constexpr std::array<const char*, 3> kMixtralProducts{"w1", "w3", "w2"};
constexpr MixtureFormat kMixtures[] = {
    {"llama", "mixtral", "block_sparse_moe", kMixtralProducts},
    {"mistral", "mixtral", "block_sparse_moe", kMixtralProducts},
    {.dense = "qwen2", .mixture = "qwen2_moe", .has_dense_layers = true, .has_shared = true},
    {.dense = "qwen3", .mixture = "qwen3_moe", .has_dense_layers = true},
};
/// Weight of a shared expert whose gate is zero. The chosen experts have the remaining weight.
constexpr double kSharedWeight = 0.5;

void check(const Upcycling& requested) {
  const auto refuse = [](const char* option, auto got, const std::string& want) {
    throw UsageError(concat("upcycle: ", option, ": got ", got, ", want ", want));
  };
  if (requested.experts < 2 || requested.experts > kMaxExperts)
    refuse("--experts", requested.experts, concat("2 to ", kMaxExperts));
  const std::int64_t most = std::min(requested.experts, kMaxChosen);
  if (requested.chosen < 1 || requested.chosen > most)
    refuse("--chosen", requested.chosen,
           concat("1 to ", most,
                  requested.experts <= kMaxChosen ? ", as there are no more experts" : ""));
  if (requested.shards < 1) refuse("--shards", requested.shards, "1 or more");
  if (requested.experts % requested.shards != 0 || requested.chosen % requested.shards != 0)
    refuse("--shards", requested.shards,
           concat("a divisor of ", requested.experts, " experts and of ", requested.chosen,
                  " chosen experts"));
  if (!(requested.redraw >= 0 && requested.redraw < 1))
    refuse("--redraw", requested.redraw, "a share of at least 0 and below 1");
  if (!(requested.noise >= 0 && requested.noise <= 1)) refuse("--noise", requested.noise, "0 to 1");
}

const MixtureFormat& mixture_family_of(const ModelConfig& dense, const std::string& folder) {
  std::vector<std::string> known;
  if (dense.experts.count > 0)
    throw DataError(concat(folder, ": is a mixture of ", dense.experts.count,
                           " experts already; give a dense model's folder"));
  for (const MixtureFormat& mixture : kMixtures) {
    if (dense.family == mixture.dense) return mixture;
    known.push_back(concat(mixture.dense, " (as ", mixture.mixture, ")"));
  }
  throw DataError(concat(folder, ": there is no mixture family that matches ", dense.family,
                         "; want one of ", join(known)));
}

void check_supported(const ModelConfig& dense, const MixtureFormat& mixture, std::int64_t shards,
                     const std::string& folder, const ModelRegistry& registry) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(concat(folder, ": ", what, ", which ", mixture.mixture, " does not support"));
  };
  const ModelFamily& family = find_family(mixture.mixture, registry);
  if (dense.mlp_bias) refuse("has biases in its feed-forward branches (mlp_bias)");
  if (dense.attention_bias && !family.has("attention_bias"))
    refuse("has biases in attention (attention_bias)");
  const bool some_layers = dense.window_layers.find('a') != std::string::npos;
  if (dense.window > 0 && some_layers && mixture.mixture == std::string("qwen3_moe"))
    refuse("has an attention window in only some layers");
  if (dense.intermediate_size % shards != 0)
    throw DataError(concat(folder, ": its inner width (intermediate_size), ",
                           dense.intermediate_size, ", is not divisible by ", shards, " shards"));
}

ModelConfig mixture_config(const ModelConfig& dense, const MixtureFormat& mixture,
                           const Upcycling& requested, const ModelRegistry& registry) {
  ModelConfig model = dense;
  model.family = mixture.mixture;
  model.experts = {.count = requested.experts,
                   .chosen = requested.chosen,
                   .intermediate_size = dense.intermediate_size / requested.shards,
                   .rule = kSoftmaxOfChosenRule};
  if (mixture.has_shared) model.experts.shared_width = dense.intermediate_size;
  if (!mixture.has_dense_layers) model.intermediate_size = 0;
  std::vector<std::string> problems;
  collect_model_problems(model, problems, registry);
  if (!problems.empty()) throw ConfigError(problems);
  return resolved_model_config(model, registry);
}

struct DenseFolder {
  ModelFolder folder;
  ModelConfig model;
  const HuggingFaceWeights& weights;
  DType dtype;
  std::string prefix;  // prefix of the names in its files

  std::string branch(std::int64_t layer) const { return concat(prefix, "layers.", layer, ".mlp."); }
};

DenseFolder open_dense(const ModelFolder& folder, const HuggingFaceLayout& layout,
                       ModelConfig model) {
  const bool prefixed = folder.weights().contains(layout.prefix + layout.tied_head);
  return {folder, std::move(model), folder.weights(), dtype_of_hugging_face_weights(folder),
          prefixed ? layout.prefix : ""};
}

struct MixtureTensors {
  std::vector<CopiedTensor> carried;
  std::vector<LazyTensor> made;
};

class MixturePlan {
 public:
  MixturePlan(const DenseFolder& dense, const MixtureFormat& mixture, const Upcycling& requested,
              const HuggingFaceLayout& layout)
      : dense_(dense), mixture_(mixture), asked_(requested), layout_(layout) {}

  MixtureTensors tensors() {
    for (std::int64_t layer = 0; layer < dense_.model.layers; ++layer) add_mixture(layer);
    for (const SafetensorsFile& file : dense_.weights.files()) {
      for (const SafetensorsEntry& entry : file.entries())
        if (!replaced_.contains(entry.name)) add_copied_tensor(file, entry);
    }
    return std::move(tensors_);
  }

 private:
  std::string module(std::int64_t layer) const {
    return concat(layout_.prefix, "layers.", layer, ".", mixture_.module, ".");
  }

  void add_lazy_tensor(const std::string& name, const Shape& shape,
                       const std::function<Tensor()>& make) {
    const DType dtype = dense_.dtype;
    tensors_.made.push_back({name, shape, dtype, [dtype, make] {
                               const Tensor values = make();
                               return dtype == DType::kF32 ? values : rounded_to_bf16(values);
                             }});
  }

  void add_copy(const SafetensorsFile& file, const std::string& from, const std::string& name) {
    const Shape shape = file.entry(from).tensor_shape();
    add_lazy_tensor(name, shape, [&file, from, shape] {
      const Tensor values = host_tensor(shape);
      file.read(from, values);
      return values;
    });
  }

  void add_mixture(std::int64_t layer) {
    const std::int64_t width = dense_.model.width;
    add_lazy_tensor(
        module(layer) + "gate.weight", {asked_.experts, width},
        [&requested = asked_, layer, width] { return new_router(layer, width, requested); });
    for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp, ExpertPart::kDown}) {
      const auto product = static_cast<std::size_t>(part);
      const std::string from = concat(dense_.branch(layer), kDenseProducts[product], ".weight");
      check_shape(from, part);
      replaced_.insert(from);
      for (std::int64_t expert = 0; expert < asked_.experts; ++expert)
        add_expert(from, concat(module(layer), "experts.", expert, ".", mixture_.products[product]),
                   {.layer = layer, .expert = expert, .part = part});
      if (mixture_.has_shared)
        add_copy(dense_.weights.file_of(from), from,
                 concat(module(layer), "shared_expert.", kDenseProducts[product], ".weight"));
    }
    if (mixture_.has_shared)
      add_lazy_tensor(module(layer) + "shared_expert_gate.weight", {1, width}, [width] {
        return Tensor::zeros({1, width}, DType::kF32, MemoryKind::kWorkspace, host_stream());
      });
  }

  void check_shape(const std::string& name, ExpertPart part) const {
    const std::int64_t inner = dense_.model.intermediate_size, width = dense_.model.width;
    const Shape want = part == ExpertPart::kDown ? Shape{width, inner} : Shape{inner, width};
    const SafetensorsFile& file = dense_.weights.file_of(name);
    const Shape got = file.entry(name).tensor_shape();
    if (got != want)
      throw DataError(concat(file.path(), ": tensor \"", name, "\" has shape ", got.text(),
                             ", want ", want.text()));
  }

  void add_expert(const std::string& from, const std::string& name, ExpertMatrix which) {
    const std::int64_t inner = dense_.model.intermediate_size / asked_.shards,
                       width = dense_.model.width;
    const bool is_last = which.part == ExpertPart::kDown;
    if (is_last)  // the router gives each shard its copy's weight / shards
      which.scale = static_cast<double>(asked_.shards) * (mixture_.has_shared ? kSharedWeight : 1);
    add_lazy_tensor(name + ".weight", is_last ? Shape{width, inner} : Shape{inner, width},
                    [&requested = asked_, &file = dense_.weights.file_of(from), from, which] {
                      return expert_matrix(file, from, which, requested);
                    });
  }

  /// Adds a tensor that both models have, named with the family's prefix.
  void add_copied_tensor(const SafetensorsFile& file, const SafetensorsEntry& entry) {
    const auto ends = [&](const std::string& end) { return entry.name.ends_with(end); };
    if (std::ranges::any_of(layout_.ignored, ends)) return;
    if (entry.name.find(".mlp.") != std::string::npos)
      throw DataError(concat(file.path(), ": the tensor ", entry.name,
                             " does not belong to the model that config.json describes"));
    const bool is_renamed = dense_.prefix.empty() && entry.name != "lm_head.weight";
    const bool has_same_dtype = entry.dtype == (dense_.dtype == DType::kF32 ? "F32" : "BF16");
    if (has_same_dtype && !is_renamed) return tensors_.carried.push_back({&file, entry.name});
    add_copy(file, entry.name, is_renamed ? layout_.prefix + entry.name : entry.name);
  }

  const DenseFolder& dense_;
  const MixtureFormat& mixture_;
  const Upcycling& asked_;
  const HuggingFaceLayout& layout_;
  std::set<std::string> replaced_;  // names in the dense model's files
  MixtureTensors tensors_;
};

void write_mixture(const DenseFolder& dense, const MixtureTensors& tensors,
                   const ModelConfig& model, const HuggingFaceLayout& layout,
                   const std::string& folder, const ModelRegistry& registry) {
  const auto tokenizer =
      contains_tokenizer(dense.folder.path()) ? dense.folder.tokenizer() : nullptr;
  check_tokenizer_fits(tokenizer.get(), model);
  const auto end_of_text = tokenizer == nullptr ? std::nullopt : tokenizer->end_of_text();
  const std::string token_ids = token_ids_in(dense.folder);
  const auto written = [&](const ModelConfig& of_model) {
    return hugging_face_config(of_model, layout, end_of_text, dense.dtype, "", token_ids);
  };
  const fs::path base = dense.folder.path() / "config.json";
  replace_file(folder + "/config.json",
               typed_pretty_json(config_over_base(
                   written(model), python_object_in(dense.folder.files(), "config.json"),
                   base.string(), written, registry)));
  write_token_files(tokenizer.get(), model, token_ids, folder);
  write_safetensors(folder + "/model.safetensors", {}, {{"format", "pt"}}, tensors.carried,
                    tensors.made);
}

}  // namespace

UpcycledFolder upcycle_hugging_face(const ModelFolder& dense, const Upcycling& requested,
                                    const fs::path& output, const ModelRegistry& registry) {
  check(requested);
  if (dense.is_gguf())
    throw DataError(
        concat(dense.string(),
               ": is a GGUF file, but upcycle needs a folder; convert it with `hybrid export ",
               shell_path(dense.path()), " --output FOLDER`"));
  const ModelConfig model = read_hugging_face_model_config(dense, 0, registry);
  const MixtureFormat& mixture = mixture_family_of(model, dense.string());
  const std::string form = quantization_of_hugging_face(dense);
  if (!form.empty())
    throw DataError(concat(dense.string(), ": its weights are quantized (", form,
                           "); give the folder that they were quantized from"));
  check_supported(model, mixture, requested.shards, dense.string(), registry);
  const ModelConfig whole = mixture_config(model, mixture, requested, registry);
  const HuggingFaceLayout& layout = find_family(mixture.mixture, registry).hugging_face;
  const DenseFolder folder =
      open_dense(dense, find_family(model.family, registry).hugging_face, model);
  const MixtureTensors tensors = MixturePlan(folder, mixture, requested, layout).tensors();
  OutputFolder result(output, OutputFolder::Existing::kRefuse);
  write_mixture(folder, tensors, whole, layout, result.create().string(), registry);
  result.commit();
  return {whole, folder.dtype};
}

}  // namespace hybrid_trainer
