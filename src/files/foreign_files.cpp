#include "src/files/foreign_files.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;
namespace {

// Names from transformers' configuration classes, 4.57 and 5.24, and from peft's, 0.21, with the
// additions of Unsloth, Axolotl, llama-factory and transformers.js.

/// GenerationConfig: keys that src/model_files/hugging_face/generation_config.h reads.
constexpr const char* kHonoredGenerationKeys =
    "begin_suppress_tokens decoder_start_token_id do_sample early_stopping eos_token_id "
    "forced_bos_token_id forced_decoder_ids forced_eos_token_id is_multilingual lang_to_id "
    "language "
    "length_penalty max_initial_timestamp_index max_length max_new_tokens min_length "
    "min_new_tokens min_p no_repeat_ngram_size num_beams repetition_penalty return_timestamps "
    "suppress_tokens task temperature top_k top_p";

/// Keys that do not change the generated text: ids of named tokens, speed, additional outputs.
constexpr const char* kInertGenerationKeys =
    "_from_model_config alignment_heads assistant_confidence_threshold assistant_early_exit "
    "assistant_ensemble_weight assistant_lookbehind cache_config cache_implementation "
    "compile_config compression_ratio_threshold continuous_batching_config disable_compile "
    "generation_kwargs is_assistant logprob_threshold low_memory max_cache_len "
    "max_matching_ngram_size max_time max_window_size num_assistant_tokens "
    "num_assistant_tokens_schedule num_return_sequences output_attentions output_hidden_states "
    "output_logits output_scores prefill_chunk_size prompt_condition_type "
    "prompt_lookup_num_tokens remove_invalid_values return_dict_in_generate return_legacy_cache "
    "return_token_timestamps speculation_type target_lookbehind task_to_id transformers_version "
    "trust_remote_code use_cache use_mtp";

/// PretrainedConfig and the families' classes: keys for names, other tasks, dropout, attention
/// implementations and the origin of the weights.
constexpr const char* kConfigKeys =
    "_attn_implementation _attn_implementation_autoset _attn_implementation_internal "
    "_commit_hash _experts_implementation _flash_attn_2_enabled _model_name_or_path "
    "_name_or_path _num_labels architectures attention_dropout attn_implementation attn_pdrop "
    "auto_map base_model_name_or_path chunk_size_feed_forward classifier_dropout "
    "cross_attention_hidden_size custom_pipelines dtype embd_pdrop embedding_dropout "
    "finetuning_task flash_attention gradient_checkpointing hidden_dropout id2label "
    "initializer_range is_decoder is_llama_config keys_to_ignore_at_inference label2id "
    "max_sequence_length model_name model_type n_ctx n_special name_or_path num_labels "
    "output_past predict_special_tokens prefix pretraining_tp problem_type resid_pdrop "
    "residual_dropout return_dict sbert_ce_default_activation_function sentence_transformers "
    "summary_activation summary_first_dropout "
    "summary_proj_to_labels summary_type summary_use_proj task_specific_params tf_legacy_loss "
    "tie_encoder_decoder tokenizer_class torch_dtype torchscript transformers.js_config "
    "transformers_weights unsloth_fixed unsloth_version use_bfloat16 use_flash_attention "
    "use_flash_attention_2 use_flash_attn";

/// PreTrainedTokenizerBase and its subclasses: keys for text pairs, padding, decoding and files.
constexpr const char* kTokenizerConfigKeys =
    "_commit_hash add_bos_token add_eos_token additional_special_tokens auto_map backend "
    "cache_dir chat_template clean_up_tokenization_spaces device_map do_basic_tokenize "
    "do_lower_case errors "
    "extra_special_tokens fix_mistral_regex from_slow init_inputs is_local legacy "
    "local_files_only max_length merges_file model_input_names model_max_length "
    "model_specific_special_tokens name_or_path never_split pad_to_max_length pad_to_multiple_of "
    "pad_token_type_id padding padding_side pretokenize_regex processor_class response_schema "
    "return_attention_mask return_token_type_ids revision sp_model_kwargs "
    "spaces_between_special_tokens "
    "special_tokens_map_file stride subfolder tokenizer_class tokenizer_file tokenizer_type "
    "trim_offsets truncation truncation_side truncation_strategy trust_remote_code "
    "unsloth_fixed unsloth_version use_auth_token use_default_system_prompt use_fast "
    "verbose vocab_file";

/// LoraConfig: an adapter's origin and its training in other programs. target_parameters has no
/// effect if it matches no tensor; otherwise the file has separate tensors, which are rejected.
constexpr const char* kAdapterKeys =
    "auto_mapping ensure_weight_tying eva_config inference_mode loftq_config megatron_core "
    "peft_version qalora_group_size revision runtime_config target_parameters unsloth_fixed "
    "unsloth_version";

/// LLM_KV of llama.cpp: sizes given by tensors, settings of absent experts, origin of the weights.
constexpr const char* kGgufKeys =
    "block_count context_length embedding_length embedding_length_out expert_count "
    "expert_feed_forward_length expert_gating_func expert_group_count expert_group_used_count "
    "expert_shared_count expert_shared_feed_forward_length expert_used_count expert_weights_norm "
    "expert_weights_scale feed_forward_length leading_dense_block_count pooling_type "
    "rope.scaling.finetuned tensor_data_layout vocab_size";

/// A key that changes the results of transformers or llama.cpp, and its values that have no effect.
struct ChangingKey {
  const char* name;
  const char* harmless;  // a JSON array
};
constexpr ChangingKey kChangingConfigKeys[] = {
    {"add_cross_attention", "[false]"}, {"is_causal", "[true]"},
    {"is_encoder_decoder", "[false]"},  {"partial_rotary_factor", "[1]"},
    {"per_layer_config", "[{}]"},       {"pruned_heads", "[{}]"},
    {"quantization", "[{}]"},  // MLX: its tensors contain codes
    {"rope_interleaved", "[false]"},    {"use_bidirectional_attention", "[false]"},
    {"use_mrope", "[false]"},
};
constexpr ChangingKey kChangingGenerationKeys[] = {
    {"bad_words_ids", "[[]]"},
    {"condition_on_prev_tokens", "[false]"},
    {"constraints", "[[]]"},
    {"diversity_penalty", "[0]"},
    {"dola_layers", "[null]"},
    {"encoder_no_repeat_ngram_size", "[0]"},
    {"encoder_repetition_penalty", "[1]"},
    {"epsilon_cutoff", "[0]"},
    {"eta_cutoff", "[0]"},
    {"exponential_decay_length_penalty", "[null]"},
    {"force_words_ids", "[[]]"},
    {"guidance_scale", "[1]"},
    {"no_speech_threshold", "[null]"},
    {"num_beam_groups", "[1]"},
    {"penalty_alpha", "[0]"},
    {"renormalize_logits", "[false]"},
    {"sequence_bias", "[[], {}]"},
    {"stop_strings", "[[]]"},
    {"token_healing", "[false]"},
    {"top_h", "[1]"},
    {"typical_p", "[1]"},
    {"watermarking_config", "[{}]"},
};
constexpr ChangingKey kChangingQuantizationKeys[] = {
    // Quantization codes of other libraries.
    {"bits", "[null]"},      {"desc_act", "[null]"}, {"group_size", "[null]"},
    {"sym", "[null]"},       {"version", "[null]"},  {"weight_block_size", "[null]"},
    {"zero_point", "[null]"}};
constexpr ChangingKey kChangingTokenizerConfigKeys[] = {
    {"split_special_tokens", "[false]"},
};
constexpr ChangingKey kChangingAdapterKeys[] = {
    {"alora_invocation_tokens", "[[]]"},
    {"arrow_config", "[{}]"},
    {"corda_config", "[{}]"},
    {"kasa_config", "[{}]"},
    {"layer_replication", "[[]]"},
    {"lora_bias", "[false]"},
    {"lora_ga_config", "[{}]"},
    {"megatron_config", "[{}]"},
    {"monteclora_config", "[{}]"},
    {"trainable_token_indices", "[[], {}]"},
    {"use_bdlora", "[false]"},
    {"use_qalora", "[false]"},
    {"velora_config", "[{}]"},
};

constexpr ChangingKey kChangingGgufKeys[] = {
    {"altup.num_inputs", "[0]"},
    {"attention.causal", "[true]"},
    {"attention.clamp_kqv", "[0]"},
    {"attention.kv_lora_rank", "[0]"},
    {"attention.max_alibi_bias", "[0]"},
    {"attention.output_scale", "[0, 1]"},
    {"attention.q_lora_rank", "[0]"},
    {"attention.scale", "[0]"},
    {"attention.shared_kv_layers", "[0]"},
    {"attention.temperature_length", "[0]"},
    {"attention.temperature_scale", "[0]"},
    {"attn_logit_softcapping", "[0]"},
    {"classifier.output_labels", "[[]]"},
    {"decoder_block_count", "[0]"},
    {"embedding_length_per_layer_input", "[0]"},
    {"embedding_scale", "[1, 0]"},
    {"final_logit_softcapping", "[0]"},
    {"logit_scale", "[1, 0]"},
    {"n_deepstack_layers", "[0]"},
    {"nextn_predict_layers", "[0]"},
    {"residual_scale", "[1, 0]"},
    {"rope.dimension_sections", "[[]]"},
    {"rope.scaling.alpha", "[1, 0]"},
    {"rope.scaling.attn_factor", "[1, 0]"},
    {"rope.scaling.yarn_attn_factor", "[1]"},
    {"rope.scaling.yarn_beta_fast", "[32]"},
    {"rope.scaling.yarn_beta_slow", "[1]"},
    {"rope.scaling.yarn_ext_factor", "[1, -1]"},
    {"rope.scaling.yarn_log_multiplier", "[0]"},
    {"swin_norm", "[false]"},
    {"use_parallel_residual", "[false]"},
};

struct KnownKeys {
  std::set<std::string> inert;
  std::map<std::string, json::array> changing;  // with their harmless values

  void add_inert(const char* names) {
    std::istringstream in(names);
    for (std::string name; in >> name;) inert.insert(name);
  }
  template <std::size_t N>
  void add_changing(const ChangingKey (&keys)[N]) {
    for (const ChangingKey& key : keys)
      changing.emplace(key.name, json::parse(key.harmless).as_array());
  }
};

KnownKeys known_keys(ForeignFile file) {
  KnownKeys keys;
  switch (file) {
    case ForeignFile::kConfig:
      keys.add_inert(kHonoredGenerationKeys);  // old folders have them here
      keys.add_inert(kInertGenerationKeys);
      for (const ChangingKey& key : kChangingGenerationKeys) keys.inert.insert(key.name);
      keys.add_inert(kConfigKeys);
      keys.add_changing(kChangingConfigKeys);
      break;
    case ForeignFile::kQuantizationConfig: keys.add_changing(kChangingQuantizationKeys); break;
    case ForeignFile::kGenerationConfig:
      keys.add_inert(kHonoredGenerationKeys);
      keys.add_inert(kInertGenerationKeys);
      keys.add_changing(kChangingGenerationKeys);
      break;
    case ForeignFile::kTokenizerConfig:
      keys.add_inert(kTokenizerConfigKeys);
      keys.add_changing(kChangingTokenizerConfigKeys);
      break;
    case ForeignFile::kAdapterConfig:
      keys.add_inert(kAdapterKeys);
      keys.add_changing(kChangingAdapterKeys);
      break;
    case ForeignFile::kGguf:
      keys.add_inert(kGgufKeys);
      keys.add_changing(kChangingGgufKeys);
      break;
  }
  return keys;
}

bool names_a_token(const std::string& key) {
  return key.ends_with("_token") || key.ends_with("_token_id");
}

/// Returns whether two values are equal; 1 equals 1.0.
bool same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

constexpr std::size_t kLargestConfig = std::size_t{64} << 20;
constexpr std::string_view kJinja = ".jinja";

void add(const json::value& value, const std::string& place, std::vector<NamedTemplate>& found) {
  if (value.is_string()) {
    found.push_back({"default", std::string(value.get_string()), place});
    return;
  }
  const auto refuse = [&](const char* wanted) {
    throw DataError(concat(place, ": want ", wanted));
  };
  if (!value.is_array()) refuse("a string, or a list of {name, template}");
  for (const json::value& entry : value.get_array()) {
    const json::object* object = entry.if_object();
    const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
    const json::value* text = object == nullptr ? nullptr : object->if_contains("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string())
      refuse("a list of {name, template}");
    const bool is_default = *name == json::value("default");
    found.push_back({std::string(name->get_string()), std::string(text->get_string()),
                     concat(place, is_default ? "" : " ",
                            is_default ? std::string_view() : name->get_string())});
  }
}

}  // namespace

UnreadKeys sort_unread_keys(const json::object& object, ForeignFile file,
                            const std::set<std::string>& read) {
  const KnownKeys known = known_keys(file);
  UnreadKeys unread;
  for (const auto& [name, value] : object) {
    const std::string key(name);
    if (value.is_null() || read.contains(key) || known.inert.contains(key) || names_a_token(key))
      continue;
    const auto found = known.changing.find(key);
    if (found == known.changing.end()) {
      unread.unknown.push_back(key);
      continue;
    }
    const json::array& harmless = found->second;
    const bool is_harmless =
        std::any_of(harmless.begin(), harmless.end(),
                    [&, &value = value](const json::value& one) { return same(one, value); });
    if (!is_harmless)
      unread.problems.push_back(concat(
          key, ": got ", json_line(value).substr(0, 60), ", want ", json_line(harmless.front()),
          " or no such key: other values change the results and are not supported"));
  }
  return unread;
}

bool affects_generation(const std::string& key) {
  static const KnownKeys known = [] {
    KnownKeys keys;
    keys.add_inert(kHonoredGenerationKeys);
    keys.add_changing(kChangingGenerationKeys);
    return keys;
  }();
  return known.inert.contains(key) || known.changing.contains(key);
}

void warn_of_unknown_keys(const std::string& path, const std::vector<std::string>& keys) {
  constexpr std::size_t kMaxNamed = 20;
  if (keys.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(keys.size(), kMaxNamed); ++i)
    names += concat(i == 0 ? "" : ", ", json::serialize(json::value(keys[i].substr(0, 60))));
  if (keys.size() > kMaxNamed) names += concat(" and ", keys.size() - kMaxNamed, " more");
  warn(path, concat("ignored unknown keys: ", names));
}

std::vector<NamedTemplate> named_templates(const std::map<std::string, std::string>& files,
                                           const std::string& folder) {
  std::vector<NamedTemplate> found;
  const std::string within = folder.empty() ? "" : folder + "/";
  for (const auto& [name, text] : files) {
    const std::string path = concat(kTemplateFolder, "/");
    if (name == "chat_template.jinja") found.push_back({"default", text, within + name});
    if (name.starts_with(path) && name.ends_with(kJinja))
      found.push_back({name.substr(path.size(), name.size() - path.size() - kJinja.size()), text,
                       within + name});
  }
  const auto config = files.find("tokenizer_config.json");
  if (config != files.end() && find_template(found, "default") == nullptr) {
    const std::string place = within + config->first;
    const json::value value = parse_json_text(config->second, place, {.max_bytes = kLargestConfig});
    if (!value.is_object()) throw DataError(concat(place, ": want a JSON object"));
    const json::value* said = value.get_object().if_contains("chat_template");
    if (said != nullptr && !said->is_null()) add(*said, place + ": chat_template", found);
  }
  if (found.empty() || find_template(found, "default") != nullptr) return found;
  std::vector<std::string> known;
  for (const NamedTemplate& one : found) known.push_back(one.name);
  throw DataError(
      concat(found.front().place, ": no template is named \"default\"; it has ", join(known)));
}

const NamedTemplate* find_template(const std::vector<NamedTemplate>& templates,
                                   std::string_view name) {
  const auto found = std::ranges::find(templates, name, &NamedTemplate::name);
  return found == templates.end() ? nullptr : &*found;
}

std::vector<std::string> additional_template_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / kTemplateFolder, absent))
    if (entry.is_regular_file() && entry.path().extension() == kJinja)
      files.push_back(concat(kTemplateFolder, "/", entry.path().filename().string()));
  std::ranges::sort(files);
  return files;
}

}  // namespace hybrid_trainer
