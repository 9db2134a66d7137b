#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/config_fields.h"

namespace hybrid_trainer {
namespace {

TEST(HybridTrainerConfig, ParsesBudgetsWithUnits) {
  HybridTrainerConfig config;
  set_field(config, "memory.device_budget", "16GiB");
  EXPECT_EQ(config.memory.device_budget.bytes, std::uint64_t{16} << 30);
  read_config_text(config, R"({"memory": {"device_budget": 5000, "host_budget": "2 MB"}})", "text");
  EXPECT_EQ(config.memory.device_budget.bytes, 5000u);
  EXPECT_EQ(config.memory.host_budget.bytes, 2000000u);
  for (const char* text : {"16XB", "-5", "", "none"}) {
    try {
      set_field(config, "memory.device_budget", text);
      FAIL() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()),
                concat("memory.device_budget: got ", text, ", want bytes: 1000000, 500MB, 16GiB"));
    }
  }
  EXPECT_THROW(read_config_text(config, R"({"memory": {"host_budget": 2.5}})", "text"),
               ConfigError);
}

TEST(HybridTrainerConfig, RejectsObjectiveUnfitForModel) {
  using Lines = std::vector<std::string>;
  HybridTrainerConfig config;
  config.objective = "masked";
  EXPECT_EQ(config.problems(), Lines{"objective: got masked, but the model attends only to earlier "
                                     "tokens (model.bidirectional is false); want next_token, or "
                                     "an encoder, such as --preset bk-tiny"});
  config.model.family = "semiseparable";
  config.model.bidirectional = true;
  EXPECT_EQ(config.problems(), Lines{});
  EXPECT_EQ(HybridTrainerConfig::builder()
                .objective("masked")
                .model_config(config.model)
                .build()
                .objective,
            "masked");
  config.objective = "next_token";
  EXPECT_EQ(config.problems(), Lines{"objective: got next_token, but the model is an encoder "
                                     "(model.bidirectional), which would attend to the tokens that "
                                     "it predicts; want masked, or model.bidirectional=false"});
  config.objective = "masked";
  config.data.layout = "packed";
  EXPECT_EQ(config.problems(),
            Lines{"objective: got masked, but data.layout is packed, and rows of examples are "
                  "trained only on their answers; want next_token, or a data folder "
                  "(data.layout=windows)"});
  config.data.layout = "windows";
  for (const double share : {0.0, 1.0}) {
    config.mask_share = share;
    EXPECT_EQ(config.problems().size(), 1u) << share;
  }
  config.objective = "mask";
  EXPECT_EQ(config.problems().front().rfind("objective: got \"mask\"", 0), 0u)
      << config.problems().front();
}

/// Every preset can be trained as it is, because its objective fits its model.
TEST(HybridTrainerConfig, PresetObjectiveFitsModel) {
  for (const std::string& name : preset_names()) {
    const HybridTrainerConfig config = preset_config(name);
    EXPECT_EQ(config.masks(), config.model.bidirectional) << name;
    EXPECT_EQ(config.problems(), std::vector<std::string>{}) << name;
  }
}

TEST(HybridTrainerConfig, RejectsDroppingHostState) {
  HybridTrainerConfig config;
  config.predict_aware_memory.offload_strategy = "drop_and_reinitialize";
  EXPECT_TRUE(config.problems().empty());
  config.memory.optimizer_state = "host";
  ASSERT_EQ(config.problems().size(), 1u);
  EXPECT_EQ(config.problems()[0].find("predict_aware_memory.offload_strategy: got drop"), 0u);
}

TEST(HybridTrainerConfig, RejectsCudaGraphsWithMovedActivations) {
  HybridTrainerConfig config;
  config.model.vocabulary = 100;
  config.training.cuda_graphs = true;
  EXPECT_TRUE(config.problems().empty());
  for (const char* where : {"host", "file"}) {
    config.memory.activations = where;
    ASSERT_EQ(config.problems().size(), 1u);
    EXPECT_NE(config.problems()[0].find("memory.activations: got"), std::string::npos);
  }
}

TEST(HybridTrainerConfig, BuilderSetsMethodFields) {
  const HybridTrainerConfig config =
      HybridTrainerConfig::builder()
          .warmup_steps(200)
          .full_steps(20)
          .max_predict_steps(50)
          .confidence_threshold(0.60)
          .correction_interval(15)
          .mixed_precision_config(MixedPrecisionConfig::aggressive())
          .gradient_accumulation_config(GradientAccumulationConfig::aggressive())
          .predict_aware_memory_config(PredictAwareMemoryConfig::aggressive())
          .build();
  EXPECT_EQ(config.phases.warmup_steps, 200);
  EXPECT_EQ(config.phases.full_steps, 20);
  EXPECT_EQ(config.phases.max_predict_steps, 50);
  EXPECT_EQ(config.phases.skip_backward.confidence_threshold, 0.60);
  EXPECT_EQ(config.phases.skip_backward.correction_interval, 15);
  EXPECT_EQ(config.mixed_precision.full, "auto");
  EXPECT_EQ(config.gradient_accumulation.micro_batches, 4);
}

TEST(HybridTrainerConfig, BuilderSetsPartSettings) {
  const HybridTrainerConfig config =
      HybridTrainerConfig::builder()
          .parts({{.pattern = "video.*", .recompute = 1.0}, {.pattern = "fusion.*", .lora = 16}})
          .build();
  ASSERT_EQ(config.parts.size(), 2u);
  EXPECT_EQ(config.parts[0].pattern, "video.*");
  EXPECT_EQ(config.parts[0].recompute, 1.0);
  EXPECT_EQ(config.parts[1].lora, 16);
  EXPECT_TRUE(config.freezes());
  EXPECT_THROW(HybridTrainerConfig::builder().parts({{.pattern = "a.*", .recompute = 2.0}}).build(),
               ConfigError);
}

TEST(HybridTrainerConfig, RejectsLabelSmoothingOfPairs) {
  HybridTrainerConfig config;
  config.training.label_smoothing = 0.1;
  EXPECT_TRUE(config.problems().empty());
  config.training.label_smoothing = 1;
  ASSERT_EQ(config.problems().size(), 1u);
  EXPECT_NE(config.problems()[0].find("training.label_smoothing: got 1"), std::string::npos);
  config.training.label_smoothing = 0.1;
  config.data.layout = "apart";
  for (const char* objective : {"dpo", "orpo"}) {
    config.objective = objective;
    ASSERT_EQ(config.problems().size(), 1u);
    EXPECT_NE(config.problems()[0].find("training.label_smoothing: got 0.1, but objective"),
              std::string::npos)
        << config.problems()[0];
  }
}

TEST(HybridTrainerConfig, ObjectivesOfTextsNeedPoolingAndExamples) {
  HybridTrainerConfig config;
  config.data.layout = "packed";
  for (const char* objective : {"classify", "embed", "rank", "reward"}) {
    config.objective = objective;
    config.model.pooling = "last";
    EXPECT_EQ(config.problems(), std::vector<std::string>()) << objective;
    config.model.pooling = "";
    ASSERT_EQ(config.problems().size(), 1u) << objective;
    EXPECT_NE(config.problems()[0].find("use `hybrid finetune --task`"), std::string::npos)
        << config.problems()[0];
  }
  config.model.pooling = "mean";
  const auto expect_problem = [&](const std::string& wanted) {
    ASSERT_EQ(config.problems().size(), 1u) << wanted;
    EXPECT_NE(config.problems()[0].find(wanted), std::string::npos) << config.problems()[0];
  };
  config.objective = "next_token";
  expect_problem("want classify, embed, rank or reward for such a model");
  config.objective = "embed";
  config.data.layout = "windows";
  expect_problem("but data.layout is windows; want packed");
  config.data.layout = "packed";
  for (const char* dimensions : {"8,,4", "8,x", "0", "8,100000"}) {
    config.texts.dimensions = dimensions;
    ASSERT_FALSE(config.problems().empty()) << dimensions;
    EXPECT_EQ(config.problems()[0].rfind(concat("texts.dimensions: got ", dimensions), 0), 0u)
        << config.problems()[0];
  }
  config.texts.dimensions = "";
  config.texts.loss = "balanced";
  expect_problem("texts.loss: got balanced, which weights classes");
  config.objective = "classify";
  for (const char* labels : {"several", "regression"}) {
    config.texts.labels = labels;
    expect_problem(concat("texts.loss: got balanced, but texts.labels is ", labels));
  }
  config.texts.labels = "single";
  EXPECT_EQ(config.problems(), std::vector<std::string>());
  config.texts.loss = "cosent";
  expect_problem("texts.loss: got cosent, which compares embeddings");
  config.texts = {};
  config.model.dense = "8 bias tanh,4";
  expect_problem("model.dense: got 8 bias tanh,4, but only embeddings pass these layers");
  config.objective = "embed";
  EXPECT_EQ(config.problems(), std::vector<std::string>());
  config.texts.dimensions = "5";
  expect_problem("want numbers in 1 … 4, the width of the embeddings");
  config.texts.dimensions = "";
  for (const char* dense : {"x", "8 relu", "0"}) {
    config.model.dense = dense;
    expect_problem(concat("model.dense: got ", dense, ", want layers such as 3072"));
  }
  config.model.dense = "";
  config.training.label_smoothing = 0.1;
  expect_problem("training.label_smoothing: got 0.1, but objective embed");
}

TEST(HybridTrainerConfig, BuildReportsAllInvalidFields) {
  try {
    HybridTrainerConfig::builder()
        .confidence_threshold(1.5)
        .warmup_steps(-1)
        .predictor("momentun")
        .build();
    FAIL() << "an invalid config was accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 3u) << error.what();
    const std::string text = error.what();
    EXPECT_NE(text.find("phases.skip_backward.confidence_threshold: got 1.5"), std::string::npos)
        << text;
    EXPECT_NE(text.find("phases.warmup_steps: got -1"), std::string::npos) << text;
    EXPECT_NE(text.find("did you mean momentum?"), std::string::npos) << text;
  }
}

TEST(HybridTrainerConfig, ChecksRelationsBetweenFields) {
  HybridTrainerConfig config;
  config.model.heads = 7;
  config.data.sequence_length = 4096;
  const std::vector<std::string> problems = config.problems();
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_NE(problems[0].find("model.heads"), std::string::npos);
  EXPECT_NE(problems[1].find("data.sequence_length"), std::string::npos);
}

TEST(HybridTrainerConfig, MethodPresetsAreValidAndDiffer) {
  const HybridTrainerConfig conservative = HybridTrainerConfig::conservative();
  const HybridTrainerConfig aggressive = HybridTrainerConfig::aggressive();
  EXPECT_TRUE(conservative.problems().empty());
  EXPECT_TRUE(HybridTrainerConfig::balanced().problems().empty());
  EXPECT_TRUE(aggressive.problems().empty());
  EXPECT_NE(config_json(conservative), config_json(aggressive));
}

TEST(Presets, AllAreValidAndUnknownSuggestsNearest) {
  for (const std::string& name : preset_names())
    EXPECT_TRUE(preset_config(name).problems().empty()) << name;
  try {
    preset_config("gpt2-124");
    FAIL() << "an unknown preset was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("gpt2-124m"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
