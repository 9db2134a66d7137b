#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/support/test_files.h"

// Reading of config.json for layers other than attention.
namespace hybrid_trainer::testing {
namespace {

class HybridKeys : public ::testing::Test {
 public:
  HybridKeys() { send_warnings_to(&said_); }
  ~HybridKeys() override { send_warnings_to(&std::cerr); }
  ModelConfig read_text_of(const std::string& text) {
    write_text(folder_ / "config.json", text);
    return read_hugging_face_model_config(folder_ / "", 0);
  }
  ModelConfig mamba(const std::string& more) {
    return read_text_of(concat(R"({"model_type": "mamba2", "vocab_size": 41, "hidden_size": 24,
        "num_hidden_layers": 2, "num_heads": 6, "head_dim": 8, "n_groups": 2)",
                               more.empty() ? "" : ", ", more, "}"));
  }
  ModelConfig granite(const std::string& more) {
    return read_text_of(
        concat(R"({"model_type": "granitemoehybrid", "vocab_size": 41,
        "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "mamba_n_heads": 6)",
               more.find("num_local_experts") == more.npos ? R"(, "num_local_experts": 0)" : "",
               more.empty() ? "" : ", ", more, "}"));
  }
  ModelConfig bamba(const std::string& more) {
    return read_text_of(concat(R"({"model_type": "bamba", "vocab_size": 41, "hidden_size": 24,
        "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
        "mamba_n_heads": 6)",
                               more.empty() ? "" : ", ", more, "}"));
  }
  ModelConfig qwen(const std::string& more, const std::string& type = "qwen3_5_text") {
    return read_text_of(concat(R"({"model_type": ")", type, R"(", "vocab_size": 41,
        "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2)",
                               more.empty() ? "" : ", ", more, "}"));
  }
  ModelConfig lfm2(const std::string& more) { return lfm2_of(more, "lfm2"); }
  ModelConfig lfm2_of(const std::string& more, const std::string& type) {
    return read_text_of(concat(R"({"model_type": ")", type, R"(", "vocab_size": 41,
        "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2)",
                               more.empty() ? "" : ", ", more, "}"));
  }
  template <class Read>
  void expect_refused(const Read& read, const std::string& more, const std::string& words) {
    try {
      (this->*read)(more);
      ADD_FAILURE() << "nothing was thrown for " << more;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
          << words << " in: " << error.what();
    }
  }
  std::string written(const ModelConfig& model) {
    return typed_pretty_json(
        hugging_face_config(model, find_family(model.family).hugging_face, {}, DType::kF32));
  }
  /// Expects the same config after it is written and read again.
  void expect_kept(const ModelConfig& model) {
    EXPECT_EQ(config_json(read_text_of(written(model))), config_json(model)) << written(model);
  }
  TemporaryFolder folder_;
  std::ostringstream said_;
};

TEST_F(HybridKeys, MissingKeysUseClassDefaults) {
  const ModelConfig mamba2 = mamba("");
  EXPECT_EQ(mamba2.context, 1 << 20) << "it has no positions";
  EXPECT_EQ(mamba2.state_space.state_size, 128);
  EXPECT_EQ(mamba2.state_space.taps, 4);
  EXPECT_TRUE(mamba2.state_space.convolution_bias);
  EXPECT_FALSE(mamba2.tied_head);
  EXPECT_EQ(mamba2.state_space.most_step, 0);
  const ModelConfig dense = granite("");
  EXPECT_EQ(dense.mixers, "m");
  EXPECT_EQ(dense.state_space.head_size, 8) << "twice the width divided by the number of heads";
  EXPECT_EQ(dense.state_space.groups, 1);
  EXPECT_EQ(dense.rotary_share, 0);
  EXPECT_EQ(dense.query_scalar, 1) << "not derived from the head size";
  EXPECT_EQ(dense.norm_epsilon, 1e-6);
  EXPECT_EQ(bamba("").mixers, "m");
  EXPECT_EQ(bamba("").rotary_share, 0.5);
  EXPECT_EQ(bamba("").norm_epsilon, 1e-5);
  const ModelConfig hybrid = qwen("");
  EXPECT_EQ(hybrid.mixers, "ddda");
  EXPECT_EQ(hybrid.head_size, 256);
  EXPECT_EQ(hybrid.rotary_share, 0.25);
  EXPECT_EQ(hybrid.state_space.heads, 32);
  EXPECT_EQ(hybrid.state_space.groups, 16);
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, AcceptsBothSpellingsOfInfiniteStepLimit) {
  for (const char* most : {"Infinity", R"({"__float__": "Infinity"})"}) {
    const ModelConfig model = mamba(concat(R"("time_step_limit": [0.01, )", most, "]"));
    EXPECT_EQ(model.state_space.least_step, 0.01) << most;
    EXPECT_EQ(model.state_space.most_step, 0) << most;
    expect_kept(model);
  }
  expect_kept(mamba(R"("time_step_limit": [0.0, 0.5])"));
  EXPECT_EQ(written(mamba(R"("time_step_limit": [0.0, Infinity])")).find("time_step_limit"),
            std::string::npos);
  for (const char* limits :
       {"[0.5, 0.1]", "[0.0]", "0.5", "[0.0, NaN]", "[-Infinity, 1]", R"(["a", "b"])"})
    expect_refused(&HybridKeys::mamba, concat(R"("time_step_limit": )", limits),
                   "time_step_limit: got ");
}

TEST_F(HybridKeys, AcceptsLayerNamesOfBothVersions) {
  const auto four = granite(R"("layer_types": ["mamba", "attention", "mamba", "mamba"])");
  EXPECT_EQ(four.mixers, "mamm") << "mam does not occur twice";
  const auto five = granite(R"("layer_types": ["linear_attention", "full_attention",
                                              "linear_attention", "linear_attention"])");
  EXPECT_EQ(config_json(five), config_json(four));
  expect_kept(four);
  EXPECT_EQ(bamba(R"("attn_layer_indices": [1, 3])").mixers, "ma");
  expect_kept(bamba(R"("attn_layer_indices": [0])"));
  EXPECT_EQ(qwen(R"("full_attention_interval": 2)").mixers, "da");
  EXPECT_EQ(qwen(R"("full_attention_interval": 2, "layer_types": ["full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention"])")
                .mixers,
            "addd");
  expect_kept(qwen(R"("full_attention_interval": 3)"));
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, RejectsInvalidLayerNamesAndCounts) {
  expect_refused(&HybridKeys::granite, R"("layer_types": ["mamba", "moe", "mamba", "mamba"])",
                 R"(layer_types[1]: got "moe", want "linear_attention" or "full_attention")");
  expect_refused(&HybridKeys::granite, R"("layer_types": ["mamba"])", "for each of the 4 layers");
  expect_refused(&HybridKeys::bamba, R"("attn_layer_indices": [4])",
                 "attn_layer_indices: got [4], want a list of layers from 0 to 3");
}

TEST_F(HybridKeys, RejectsInconsistentSizes) {
  expect_refused(
      &HybridKeys::mamba, R"("expand": 3)",
      "expand: got 3, which gives 72 channels for the width 24, but 6 heads of 8 have 48");
  expect_refused(&HybridKeys::granite, R"("mamba_d_head": 9)", "mamba_expand: got 2");
  EXPECT_EQ(granite(R"("mamba_d_head": "auto", "mamba_expand": 4)").state_space.head_size, 16);
  expect_refused(&HybridKeys::bamba, R"("mamba_n_groups": 4)",
                 "state_space.groups: got 4, which does not divide model.state_space.heads 6");
}

TEST_F(HybridKeys, RoundTripKeepsMultipliers) {
  const ModelConfig model = granite(R"("embedding_multiplier": 12, "residual_multiplier": 0.246,
      "attention_multiplier": 0.015625, "logits_scaling": 3, "position_embedding_type": "nope")");
  EXPECT_EQ(model.embedding_scale, 12);
  EXPECT_EQ(model.residual_scale, 0.246);
  EXPECT_EQ(model.query_scalar, 4096);
  EXPECT_DOUBLE_EQ(model.logit_scale, 1.0 / 3);
  EXPECT_EQ(model.rotary_share, 0);
  for (const char* line : {R"("logits_scaling": 3.0)", R"("attention_multiplier": 0.015625)",
                           R"("position_embedding_type": "nope")", R"("num_local_experts": 0)"})
    EXPECT_NE(written(model).find(line), std::string::npos) << line << written(model);
  expect_kept(model);
  expect_kept(granite(R"("attention_multiplier": 0.3, "logits_scaling": 7.1)"));
  ModelConfig own = model;
  for (const double scalar : {32.0, 24.0, 7.0}) {
    own.query_scalar = scalar;
    own.logit_scale = 1 / scalar;
    expect_kept(own);
  }
  EXPECT_EQ(granite(R"("position_embedding_type": "rope")").rotary_share, 1);
  expect_refused(&HybridKeys::granite, R"("logits_scaling": 0)", "want a number above 0");
  expect_refused(&HybridKeys::granite, R"("position_embedding_type": "alibi")",
                 "position_embedding_type: got \"alibi\"");
}

TEST_F(HybridKeys, Qwen3NextSelectsLayersWithExperts) {
  const ModelConfig usual = qwen("", "qwen3_next");
  EXPECT_EQ(usual.experts.count, 512);
  EXPECT_EQ(usual.experts.chosen, 10);
  EXPECT_EQ(usual.experts.shared_width, 512);
  EXPECT_EQ(usual.experts.rule, kSoftmaxOfChosenRule);
  EXPECT_EQ(usual.experts.layers, "");
  EXPECT_EQ(qwen(R"("num_experts": 0)", "qwen3_next").experts.count, 0);
  EXPECT_EQ(qwen(R"("norm_topk_prob": false)", "qwen3_next").experts.rule, kSoftmaxRule);
  EXPECT_EQ(qwen(R"("mlp_only_layers": [0, 1, 2, 3, 4, 5, 6, 7])", "qwen3_next").experts.layers,
            "f");
  EXPECT_EQ(
      qwen(R"("decoder_sparse_step": 2, "mlp_only_layers": [1])", "qwen3_next").experts.layers,
      "fffefefe");
  for (const char* more : {R"("num_experts": 0)", R"("norm_topk_prob": false)",
                           R"("decoder_sparse_step": 2, "mlp_only_layers": [1])"})
    expect_kept(qwen(more, "qwen3_next"));
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, Qwen35MixtureHasExpertsInAllLayers) {
  const ModelConfig model = qwen(R"("mlp_only_layers": [])", "qwen3_5_moe_text");
  EXPECT_EQ(model.experts.count, 256);
  EXPECT_EQ(model.experts.chosen, 8);
  expect_kept(model);
  EXPECT_EQ(said_.str(), "");
  ModelConfig plain = model;
  plain.experts.rule = kSoftmaxRule;
  EXPECT_THROW(written(plain), DataError) << "the folder has no key for it";
  plain = model;
  plain.experts.layers = "ef";
  std::vector<std::string> problems;
  collect_model_problems(plain, problems);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("model.experts.layers: got ef"), std::string::npos) << problems[0];
}

TEST_F(HybridKeys, Lfm2WidthFollowsAdjustmentKeys) {
  const auto width = [&](const std::string& more) { return lfm2(more).intermediate_size; };
  EXPECT_EQ(width(R"("intermediate_size": 12288)"), 8192);
  EXPECT_EQ(width(R"("block_ff_dim": 6656, "intermediate_size": 1)"), 4608);
  EXPECT_EQ(width(R"("intermediate_size": 100, "block_multiple_of": 8)"), 72);
  EXPECT_EQ(width(R"("intermediate_size": 100, "block_ffn_dim_multiplier": 1.3,
                     "block_multiple_of": 8)"),
            88);
  EXPECT_EQ(width(R"("intermediate_size": 100, "block_ffn_dim_multiplier": null)"), 66);
  EXPECT_EQ(width(R"("intermediate_size": 100, "block_auto_adjust_ff_dim": false)"), 100);
  for (const char* more : {R"("intermediate_size": 12288)", R"("intermediate_size": 100,
                           "block_auto_adjust_ff_dim": false)"})
    expect_kept(lfm2(more));
  expect_refused(&HybridKeys::lfm2, R"("block_ff_dim": 100, "block_multiple_of": 8)",
                 "block_ff_dim: want it with");
}

TEST_F(HybridKeys, Lfm2LayersComeFromTypesOrIndices) {
  EXPECT_EQ(lfm2("").mixers, "a");
  EXPECT_EQ(lfm2(R"("full_attn_idxs": [1, 3])").mixers, "sa");
  EXPECT_EQ(lfm2(R"("full_attn_idxs": [1], "layer_types": ["conv", "conv", "conv",
                    "full_attention"])")
                .mixers,
            "sssa");
  expect_refused(&HybridKeys::lfm2, R"("full_attn_idxs": [4])",
                 "full_attn_idxs: got [4], want a list of layers from 0 to 3");
  expect_kept(lfm2(R"("full_attn_idxs": [2], "conv_L_cache": 5, "conv_bias": true)"));
  EXPECT_TRUE(lfm2("").tied_head);
  EXPECT_FALSE(lfm2(R"("tie_embedding": false)").tied_head);
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, Lfm2MoeKeepsRoutingKeys) {
  const std::string types = R"(, "layer_types": ["conv", "conv", "full_attention", "conv"])";
  const auto read = [&](const std::string& more) { return lfm2_of(more + types, "lfm2_moe"); };
  const ModelConfig usual = read(R"("num_experts": 8)");
  EXPECT_EQ(usual.experts.layers, "ffee");
  EXPECT_EQ(usual.experts.rule, kSigmoidRule);
  EXPECT_TRUE(usual.experts.selection_bias);
  for (const char* more :
       {R"("num_experts": 8)", R"("num_dense_layers": 0, "norm_topk_prob": false)",
        R"("num_dense_layers": 9, "use_expert_bias": false, "routed_scaling_factor": 2.5)"})
    expect_kept(read(more));
  EXPECT_EQ(read(R"("norm_topk_prob": false)").experts.rule, kPlainSigmoidRule);
  ModelConfig later = usual;
  later.experts.layers = "efee";
  EXPECT_THROW(written(later), DataError);
  EXPECT_THROW(lfm2_of("", "lfm2_moe"), DataError) << "layer_types is missing";
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, AcceptsHarmlessPublishedKeys) {
  mamba(R"("norm_before_gate": true, "rms_norm": true, "residual_in_fp32": true, "chunk_size": 256,
      "rescale_prenorm_residual": false, "time_step_floor": 0.0001, "time_step_max": 0.1,
      "time_step_min": 0.001, "time_step_rank": 48, "time_step_limit": [0.0, Infinity],
      "time_step_scale": 1.0, "time_step_init_scheme": "random", "A_initializer_range": [1, 16],
      "conv_initializer_range": null, "emb_initializer_range": null, "intermediate_size": 48,
      "use_mamba_kernels": true, "torch_dtype": "float32", "tie_embeddings": false)");
  granite(R"("init_method": "mup", "normalization_function": "rmsnorm", "num_experts_per_tok": 0,
      "output_router_logits": false, "router_aux_loss_coef": 0.01, "mamba_chunk_size": 256,
      "intermediate_size": 2048, "rope_scaling": null, "rope_theta": 10000)");
  bamba(R"("attn_rotary_emb": 4, "num_logits_to_keep": 1, "z_loss_coefficient": 0.0,
      "mamba_ssm_cache_dtype": "float32", "partial_rotary_factor": 0.5)");
  EXPECT_EQ(said_.str(), "");
}

/// transformers' Bamba class uses the share only if it is in rope_parameters.
TEST_F(HybridKeys, ReadsRotaryShareLikeTransformers) {
  EXPECT_EQ(bamba(R"("partial_rotary_factor": 1.0)").rotary_share, 0.5);
  for (const char* share : {"0.25", "0.5", "1.0"}) {
    const ModelConfig model =
        bamba(concat(R"("rope_parameters": {"rope_type": "default", "rope_theta": 2e4,
            "partial_rotary_factor": )",
                     share, "}"));
    EXPECT_EQ(model.rotary_share, std::stod(share));
    EXPECT_EQ(model.rope_theta, 2e4);
    expect_kept(model);
  }
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, RoundTripKeepsOriginalContext) {
  for (const char* type : {"yarn", "llama3", "dynamic"}) {
    ModelConfig model = qwen(R"("max_position_embeddings": 96)");
    model.rope_scaling.type = type;
    model.rope_scaling.factor = 2;
    model = resolved_model_config(model);
    EXPECT_EQ(model.rope_scaling.original_context, 96);
    EXPECT_EQ(read_text_of(written(model)).rope_scaling.original_context, 96) << type;
  }
}

TEST_F(HybridKeys, RejectsHeadsThatFolderCannotExpress) {
  ModelConfig model = mamba("");
  model.state_space.heads = 5;
  try {
    written(model);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a folder of a mamba2 model cannot store 5 heads of 8: their 40 channels must be "
                 "a whole multiple of the width, 24 (model.state_space.heads, head_size)");
  }
}

/// Configurations of published models on the Hub.
TEST_F(HybridKeys, PublishedConfigsMatchPresets) {
  const auto preset = [](const std::string& family, const std::string& name) {
    for (const ModelPreset& one : find_family(family).presets) {
      if (one.name != name) continue;
      ModelConfig model = one.model;
      model.vocabulary = one.vocabulary;
      return config_json(resolved_model_config(model));
    }
    return "no preset " + name;
  };
  EXPECT_EQ(config_json(read_text_of(R"({"model_type": "mamba2", "hidden_size": 768,
      "num_hidden_layers": 24, "num_heads": 24, "head_dim": 64, "n_groups": 1, "state_size": 128,
      "conv_kernel": 4, "expand": 2, "layer_norm_epsilon": 1e-05, "use_bias": false,
      "use_conv_bias": true, "time_step_limit": [0.0, Infinity], "tie_word_embeddings": true,
      "vocab_size": 50288, "chunk_size": 256})")),
            preset("mamba2", "mamba2-130m"));
  EXPECT_EQ(config_json(read_text_of(R"({"model_type": "granitemoehybrid", "hidden_size": 768,
      "num_hidden_layers": 32, "num_attention_heads": 12, "num_key_value_heads": 4,
      "shared_intermediate_size": 2048, "intermediate_size": 2048, "attention_multiplier": 0.015625,
      "embedding_multiplier": 12, "residual_multiplier": 0.246, "logits_scaling": 3,
      "mamba_n_heads": 48, "mamba_d_head": 32, "mamba_d_state": 128, "mamba_n_groups": 1,
      "mamba_d_conv": 4, "mamba_expand": 2, "num_local_experts": 0, "num_experts_per_tok": 0,
      "position_embedding_type": "nope", "rms_norm_eps": 1e-05, "rope_theta": 10000,
      "max_position_embeddings": 32768, "tie_word_embeddings": true, "vocab_size": 100352,
      "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "mamba", "mamba", "attention", "mamba", "mamba", "attention", "mamba", "mamba", "mamba",
        "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "mamba", "attention", "mamba", "mamba", "mamba", "mamba"]})")),
            preset("granitemoehybrid", "granite-4.0-h-350m"));
  EXPECT_EQ(config_json(read_text_of(R"({"model_type": "qwen3_5", "tie_word_embeddings": true,
      "image_token_id": 248056, "vision_config": {"depth": 12}, "text_config": {
        "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024,
        "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "attention_bias": false,
        "attn_output_gate": true, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "rms_norm_eps": 1e-06, "full_attention_interval": 4, "max_position_embeddings": 262144,
        "tie_word_embeddings": true, "mtp_num_hidden_layers": 1, "mlp_only_layers": [],
        "eos_token_id": 248044, "rope_parameters": {"mrope_interleaved": true,
          "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
          "partial_rotary_factor": 0.25}}})")),
            preset("qwen3_5", "qwen3.5-0.8b"));
  EXPECT_EQ(said_.str(), "");
}

TEST_F(HybridKeys, ReadsNestedTextConfig) {
  const std::string text = R"("vocab_size": 41, "hidden_size": 24, "intermediate_size": 20,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
      "mtp_num_hidden_layers": 1, "mamba_ssm_dtype": "float32", "attn_output_gate": true,
      "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
        "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.5})";
  const std::string whole = R"({"model_type": "qwen3_5", "image_token_id": 40,
      "tie_word_embeddings": true, "vision_config": {"depth": 1}, "text_config": {)";
  const ModelConfig model = read_text_of(concat(whole, text, "}}"));
  EXPECT_EQ(model.family, "qwen3_5");
  EXPECT_EQ(model.rotary_share, 0.5);
  EXPECT_EQ(model.rope_theta, 1e7);
  EXPECT_TRUE(model.tied_head);
  EXPECT_EQ(said_.str(), "");
  const auto refused = [&](const std::string& more, const std::string& words) {
    try {
      read_text_of(concat(whole, text, ", ", more, "}}"));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(R"("attn_output_gate_": 1, "hidden_act": "gelu")", "text_config.hidden_act: got");
  refused(R"("model_type": "qwen3_5_moe_text")", "text_config.model_type: got");
}

}  // namespace
}  // namespace hybrid_trainer::testing
