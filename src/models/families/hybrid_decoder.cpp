#include "src/models/families/hybrid_decoder.h"

#include <algorithm>

#include "hybrid_trainer/nn/mixers.h"
#include "src/models/families/decoder_parts.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

bool has_attention_layers(const std::string& letters) {
  return letters.find_first_of("ac") != std::string::npos;
}

bool has_attention(const HybridDecoder& kind) { return has_attention_layers(kind.letters); }

std::vector<std::string> keys_of(const HybridDecoder& kind) {
  std::vector<std::string> keys{"initializer_range", "norm_epsilon", "tied_head", "mixers",
                                "state_space"};
  const auto add = [&](bool has, std::initializer_list<const char*> more) {
    if (has) keys.insert(keys.end(), more.begin(), more.end());
  };
  add(has_attention(kind), {"heads", "kv_heads", "head_size", "rope_theta", "rope_scaling",
                            "rotary_share", "window", "attention_pattern"});
  add(!kind.encoder_letters.empty(), {"bidirectional", "semiseparable"});
  add(kind.has_feed_forward, {"intermediate_size"});
  add(kind.has_feed_forward || kind.has_experts, {"dropout"});
  add(kind.attention_bias, {"attention_bias"});
  add(kind.mlp_bias, {"mlp_bias"});
  add(kind.has_experts, {"experts"});
  add(kind.scales, {"query_scalar", "embedding_scale", "residual_scale", "logit_scale"});
  return keys;
}

ModelConfig resolved_hybrid(const HybridDecoder& kind, const ModelConfig& given) {
  ModelConfig config = given;
  if (config.mixers.empty()) config.mixers = kind.pattern;
  if (has_attention(kind)) resolve_attention(config);
  if (kind.has_feed_forward) resolve_intermediate_size(config);
  if (kind.has_experts)
    resolve_experts(config.experts, config.width, kind.experts, kind.chosen_experts,
                    kind.expert_rule);
  if (kind.scales && config.query_scalar == 0)
    config.query_scalar = static_cast<double>(config.head_size);
  config.rope_scaling = config.rope_scaling.resolved(config.context);
  StateSpaceConfig& mixer = config.state_space;
  if (mixer.head_size == 0) mixer.head_size = config.width < 512 ? 32 : 64;
  if (mixer.heads == 0) mixer.heads = std::max<std::int64_t>(1, 2 * config.width / mixer.head_size);
  return config;
}

/// `taps`: number of taps of a convolution over queries, keys and values; 0 without a convolution.
Attention::Spec hybrid_attention(const HybridDecoder& kind, const ModelConfig& config,
                                 const std::shared_ptr<RotaryTable>& rotary, const NormSpec& norm,
                                 std::int64_t taps) {
  Attention::Spec spec =
      attention_of(config, config.window, config.rotary_share > 0 ? rotary : nullptr);
  if (kind.query_key_norm) spec.query_key_norm = norm.of_root_mean_square();
  spec.norm_in_files = kind.files.query_key_norm;
  spec.gated = kind.gated_attention;
  spec.taps = taps;
  spec.bidirectional = config.bidirectional;
  spec.files = kind.files.attention(config);
  return spec;
}

StateSpaceMixer::Spec state_space_of(const HybridDecoder& kind, const ModelConfig& config) {
  const StateSpaceConfig& sizes = config.state_space;
  StateSpaceMixer::Spec spec{.width = config.width,
                             .scan = {.heads = sizes.heads,
                                      .head_size = sizes.head_size,
                                      .groups = sizes.groups,
                                      .state_size = sizes.state_size,
                                      .least_step = static_cast<float>(sizes.least_step)},
                             .taps = sizes.taps,
                             .biases = sizes.biases,
                             .convolution_bias = sizes.convolution_bias,
                             .norm_epsilon = static_cast<float>(config.norm_epsilon),
                             .files = kind.files.mixer_products(config)};
  if (sizes.most_step > 0) spec.scan.most_step = static_cast<float>(sizes.most_step);
  return spec;
}

ShortConvolution::Spec short_convolution_of(const HybridDecoder& kind, const ModelConfig& config) {
  return {.width = config.width,
          .taps = config.state_space.taps,
          .biases = config.state_space.biases,
          .files = kind.files.mixer_products(config)};
}

DeltaRuleMixer::Spec delta_rule_of(const HybridDecoder& kind, const ModelConfig& config) {
  const StateSpaceConfig& sizes = config.state_space;
  return {.width = config.width,
          .scan = {.key_heads = sizes.groups,
                   .value_heads = sizes.heads,
                   .key_size = sizes.state_size,
                   .value_size = sizes.head_size},
          .taps = sizes.taps,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .files = kind.files.mixer_products(config)};
}

SemiseparableMixer::Spec semiseparable_of(const HybridDecoder& kind, const ModelConfig& config,
                                          std::int64_t positions) {
  return {.width = config.width,
          .heads = config.heads,
          .head_size = config.head_size,
          .rank = config.semiseparable.rank,
          .bidirectional = config.bidirectional,
          .positions = positions,
          .files = kind.files.mixer_products(config)};
}

ResolventMixer::Spec resolvent_of(const HybridDecoder& kind, const ModelConfig& config) {
  return {.width = config.width,
          .potentials = config.semiseparable.potentials,
          .imaginary = config.semiseparable.imaginary,
          .limit = config.semiseparable.limit,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .files = kind.files.mixer_products(config)};
}

/// Makes a layer from its mixer and a mixture of experts or the family's feed-forward branch.
LayerSpec layer_of(const HybridDecoder& kind, const ModelConfig& config, BranchSpec mixer,
                   bool has_mixture) {
  LayerSpec layer{std::move(mixer)};
  if (has_mixture) {
    const bool is_gated = kind.shared_expert != HybridDecoder::SharedExpert::kFeedForward;
    ExpertMixture::Spec mixture{
        .experts = experts_of(config, kernels::Gate::kSilu),
        .shared_width = is_gated ? config.experts.shared_width : config.intermediate_size,
        .shared_gate = is_gated,
        .files = kind.files.mixture_products};
    mixture.experts.routing.epsilon = kind.expert_epsilon;
    layer.push_back({.name = {"mlp", kind.files.mixture},
                     .norm = {"ln_2", kind.files.mlp_norm},
                     .make = branch_of<ExpertMixture>(mixture)});
    return layer;
  }
  if (!kind.has_feed_forward) return layer;
  const GatedFeedForward::Spec feed_forward{.width = config.width,
                                            .intermediate_size = config.intermediate_size,
                                            .biases = config.mlp_bias,
                                            .files = kind.files.mlp_products};
  layer.push_back({.name = {"mlp", kind.files.mlp},
                   .norm = {"ln_2", kind.files.mlp_norm},
                   .make = branch_of<GatedFeedForward>(feed_forward)});
  return layer;
}

const std::string& letters_of(const HybridDecoder& kind, const ModelConfig& config) {
  return config.bidirectional ? kind.encoder_letters : kind.letters;
}

BranchMaker mixer_of(char letter, const HybridDecoder& kind, const ModelConfig& config,
                     const std::shared_ptr<RotaryTable>& rotary, const NormSpec& norm) {
  switch (letter) {
    case 'a': return branch_of<Attention>(hybrid_attention(kind, config, rotary, norm, 0));
    case 'c':
      return branch_of<Attention>(
          hybrid_attention(kind, config, rotary, norm, config.state_space.taps));
    case 'm': return branch_of<StateSpaceMixer>(state_space_of(kind, config));
    case 'd': return branch_of<DeltaRuleMixer>(delta_rule_of(kind, config));
    case 's': return branch_of<ShortConvolution>(short_convolution_of(kind, config));
    case 'h': return branch_of<HydraMixer>(state_space_of(kind, config));
    case 't': return branch_of<SemiseparableMixer>(semiseparable_of(kind, config, 0));
    case 'p': return branch_of<SemiseparableMixer>(semiseparable_of(kind, config, config.context));
    default: return branch_of<ResolventMixer>(resolvent_of(kind, config));  // 'b'
  }
}

char mixture_letter(char letter) { return static_cast<char>(letter - 'a' + 'A'); }

std::string layer_letters(const ModelConfig& config) {
  std::string letters;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const char letter = kind_of_layer(config.mixers, i);
    letters += has_experts(config.experts, i) ? mixture_letter(letter) : letter;
  }
  return letters;
}

std::map<char, LayerSpec> kinds_of(const HybridDecoder& kind, const ModelConfig& config,
                                   const std::shared_ptr<RotaryTable>& rotary,
                                   const NormSpec& norm) {
  std::map<char, LayerSpec> kinds;
  for (const char letter : letters_of(kind, config)) {
    const ModuleName name = has_attention_layers({letter}) ? ModuleName("attn", "self_attn")
                                                           : ModuleName("mix", kind.files.mixer);
    const BranchSpec mixer{.name = name,
                           .norm = {"ln_1", kind.files.mixer_norm},
                           .make = mixer_of(letter, kind, config, rotary, norm)};
    kinds.emplace(letter, layer_of(kind, config, mixer, false));
    if (config.experts.count > 0)
      kinds.emplace(mixture_letter(letter), layer_of(kind, config, mixer, true));
  }
  return kinds;
}

DecoderSpec hybrid_spec(const HybridDecoder& kind, const ModelConfig& config) {
  const NormSpec norm{kind.norm, static_cast<float>(config.norm_epsilon)};
  const auto rotary = std::make_shared<RotaryTable>(config.rope_theta, config.rope_scaling,
                                                    config.context, rotated_channels(config));
  const bool rotates = has_attention_layers(config.mixers) && config.rotary_share > 0;
  return {
      .residual = {config.width, norm, static_cast<float>(config.dropout),
                   static_cast<float>(config.residual_scale)},
      .kinds = kinds_of(kind, config, rotary, norm),
      .pattern = layer_letters(config),
      .rotary = rotates ? std::vector{rotary} : std::vector<std::shared_ptr<RotaryTable>>{},
      .embedding_scale = config.embedding_scale,
      .logit_scale = config.logit_scale,
      .tied_head = config.tied_head,
      .deviations = default_deviations(config),
      .files = {
          .layers = "layers", .tokens = kind.files.tokens, .final_norm = kind.files.final_norm}};
}

std::vector<LetterWord> with_words(const std::string& letters) {
  std::vector<LetterWord> words;
  for (const char letter : letters)
    words.push_back(*std::ranges::find(mixer_letters(), letter, &LetterWord::letter));
  return words;
}

/// Adds a problem for letters that the family does not support.
void collect_letter_problems(const HybridDecoder& kind, const ModelConfig& config,
                             std::vector<std::string>& problems) {
  const std::string& letters = letters_of(kind, config);
  const std::string& others = config.bidirectional ? kind.letters : kind.encoder_letters;
  for (const char letter : config.mixers) {
    if (letters.find(letter) != std::string::npos || others.find(letter) == std::string::npos)
      continue;
    const std::string word = text_of(with_words({letter}));
    problems.push_back(
        concat("model.mixers: got ", config.mixers, ", but ", word,
               config.bidirectional
                   ? " sees only earlier tokens; an encoder (model.bidirectional) takes " +
                         text_of(with_words(letters))
                   : " sees later tokens, so a decoder cannot use it; set model.bidirectional for "
                     "an encoder"));
    return;
  }
  collect_pattern_problems("model.mixers", config.mixers, with_words(letters), config.layers,
                           problems);
}

void collect_rank_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.semiseparable.rank <= config.context ||
      config.mixers.find_first_of("tp") == std::string::npos)
    return;
  problems.push_back(concat("model.semiseparable.rank: got ", config.semiseparable.rank,
                            ", want at most the rank of a matrix of model.context tokens, ",
                            config.context));
}

/// Adds a problem if tables by position are too long, for example because the family's default
/// context is for states of constant size.
void collect_table_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  constexpr std::int64_t kMaxRows = 1 << 16;
  if (config.context <= kMaxRows || config.mixers.find('p') == std::string::npos) return;
  problems.push_back(concat(
      "model.context: got ", config.context,
      ", but the tables of T + U·Vᵀ by position (p) have one row per position; want at most ",
      kMaxRows, ", such as data.sequence_length"));
}

void collect_mixer_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const StateSpaceConfig& sizes = config.state_space;
  if (sizes.heads % sizes.groups != 0) {
    problems.push_back(concat("model.state_space.groups: got ", sizes.groups,
                              ", which does not divide model.state_space.heads ", sizes.heads));
  }
  if (sizes.most_step > 0 && sizes.most_step < sizes.least_step) {
    problems.push_back(concat("model.state_space.most_step: got ", sizes.most_step,
                              ", want at least least_step, ", sizes.least_step));
  }
}

void collect_attention_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  collect_kv_head_problem(config, problems);
  collect_rotary_share_problem(config, problems);
  collect_longrope_problem(config, problems);
}

/// Adds a problem for partial rotation in families whose folders only say whether heads rotate.
void collect_rotation_problems(const HybridDecoder& kind, const ModelConfig& config,
                               std::vector<std::string>& problems) {
  if (!kind.rotates_all_or_none || config.rotary_share == 0 || config.rotary_share == 1) return;
  problems.push_back(concat("model.rotary_share: got ", config.rotary_share, ", but in ",
                            kind.title,
                            " either all channels of a head rotate or none; want 0 or 1"));
}

void collect_hybrid_mixture_problems(const HybridDecoder& kind, const ModelConfig& config,
                                     std::vector<std::string>& problems) {
  collect_expert_problems(config, problems);
  using SharedExpert = HybridDecoder::SharedExpert;
  const auto refuse = [&](const char* key, const auto& got, const char* why) {
    problems.push_back(concat("model.experts.", key, ": got ", got, ", but in ", kind.title, why));
  };
  if (kind.selects_layers())
    collect_pattern_problems("model.experts.layers", config.experts.layers, expert_letters(),
                             config.layers, problems);
  if (!config.experts.layers.empty() && !kind.selects_layers())
    refuse("layers", config.experts.layers,
           " either all layers have experts or none; leave it out");
  if (config.experts.shared_width > 0 && kind.shared_expert != SharedExpert::kGated)
    refuse("shared_width", config.experts.shared_width,
           kind.shared_expert == SharedExpert::kNone
               ? " there is no shared expert; leave it out"
               : " the shared expert is as wide as model.intermediate_size; leave it out");
  if (config.experts.gate_limit > 0)
    refuse("gate_limit", config.experts.gate_limit, " experts do not clamp; leave it out");
  if (config.experts.selection_bias && config.experts.bias_rate > 0)
    refuse("bias_rate", config.experts.bias_rate,
           " the folder's expert_bias selects experts; leave it out");
}

void collect_hybrid_problems(const HybridDecoder& kind, const ModelConfig& config,
                             std::vector<std::string>& problems) {
  if (config.heads < 1 || config.state_space.groups < 1) return;  // reported by the ranges
  if (has_attention(kind) && collect_head_size_problem(config, problems)) return;
  const ModelConfig whole = resolved_hybrid(kind, config);
  collect_mixer_problems(whole, problems);
  if (has_attention(kind)) collect_attention_problems(whole, problems);
  collect_rotation_problems(kind, whole, problems);
  if (kind.has_experts) collect_hybrid_mixture_problems(kind, whole, problems);
  collect_rank_problems(whole, problems);
  collect_block_pattern_problems(whole, problems);
  collect_table_problems(whole, problems);
  if (whole.mixers != kind.pattern) collect_letter_problems(kind, config, problems);
}

}  // namespace

ProductFiles default_attention_files(const ModelConfig&) {
  return {.first = {"q_proj", "k_proj", "v_proj"}, .last = "o_proj"};
}

ProductFiles state_space_files(const ModelConfig&) {
  return {.first = {"in_proj"}, .last = "out_proj"};
}

void sizes_with_attention(ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("num_attention_heads", model.heads);
  keys.member("hidden_size", model.width);
  keys.member("vocab_size", model.vocabulary);
  keys.member("tie_word_embeddings", model.tied_head, 0);
  keys.member("attention_bias", model.attention_bias, 0);
}

HuggingFaceLayout with_attention(const char* model_type, const char* architecture,
                                 void (*keys)(ConfigKeys& keys, ModelConfig& model)) {
  return {.model_type = model_type,
          .architecture = architecture,
          .prefix = "model.",
          .keys = keys,
          .tied_head = "embed_tokens.weight",
          .ignored = {".rotary_emb.inv_freq"},
          .has_mixers = true};
}

ModelFamily hybrid_decoder_family(const HybridDecoder& kind) {
  return {.name = kind.name,
          .title = kind.title,
          .keys = keys_of(kind),
          .collect_problems =
              [kind](const ModelConfig& config, std::vector<std::string>& problems) {
                collect_hybrid_problems(kind, config, problems);
              },
          .resolved = [kind](const ModelConfig& config) { return resolved_hybrid(kind, config); },
          .make =
              [kind](const ModelConfig& config, std::uint64_t seed, const Stream& stream) {
                const DecoderSpec spec = hybrid_spec(kind, resolved_hybrid(kind, config));
                return std::make_unique<Decoder>(config, spec, seed, stream);
              },
          .presets = kind.presets,
          .hugging_face = kind.layout,
          .gguf = kind.gguf};
}

}  // namespace hybrid_trainer
