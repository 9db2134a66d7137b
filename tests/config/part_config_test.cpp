#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/config_fields.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig with(std::vector<PartConfig> parts) {
  HybridTrainerConfig config;
  config.model.vocabulary = 16;
  config.parts = std::move(parts);
  return config;
}

std::string only_problem(const HybridTrainerConfig& config) {
  const std::vector<std::string> problems = config.problems();
  return problems.size() == 1 ? problems[0] : concat(problems.size(), " problems");
}

TEST(PartConfig, RoundTripsThroughJson) {
  const HybridTrainerConfig config = with({{.pattern = "h.0.*",
                                            .recompute = 0.5,
                                            .precision = "bf16",
                                            .lora = 8,
                                            .base = "nf4",
                                            .place = "host",
                                            .optimizer = "lion",
                                            .learning_rate = 0.25,
                                            .weight_decay = 0.5,
                                            .state_bits = 8},
                                           {.pattern = "wte.*", .lora = {}, .base = "bf16"}});
  HybridTrainerConfig read;
  read_config_text(read, config_json(config), "text");
  EXPECT_EQ(config_json(read), config_json(config));
  EXPECT_EQ(read.parts.size(), 2u);
  EXPECT_EQ(read.parts[0].pattern, "h.0.*");
  EXPECT_EQ(read.parts[0].state_bits, 8);
  EXPECT_FALSE(read.parts[1].recompute);
}

TEST(PartConfig, MergesIntoDeviceMapAndGroups) {
  HybridTrainerConfig config = with({{.pattern = "h.0.*", .place = "host", .learning_rate = 0.5},
                                     {.pattern = "h.1.*", .place = "file"},
                                     {.pattern = "wte.*", .recompute = 1}});
  config.memory.device_map = "h.*=device";
  config.optimizer.groups = {{.match = "vector", .name = "sgd"}};
  const HybridTrainerConfig whole = config.with_parts();
  EXPECT_EQ(whole.memory.device_map, "h.0.*=host,h.1.*=file,h.*=device");
  ASSERT_EQ(whole.optimizer.groups.size(), 2u);
  EXPECT_EQ(whole.optimizer.groups[1].match, "h.0.*");
  EXPECT_EQ(whole.optimizer.groups[1].learning_rate, 0.5);
  EXPECT_EQ(config_json(whole.with_parts()), config_json(whole)) << "a second time changes nothing";
  config.memory.device_map = "";
  EXPECT_EQ(config.with_parts().memory.device_map, "h.0.*=host,h.1.*=file");
  EXPECT_EQ(config_json(config.with_parts().with_parts()), config_json(config.with_parts()));
}

TEST(PartConfig, ReportsFreezingAndAdapters) {
  EXPECT_FALSE(with({{.pattern = "*", .recompute = 1}}).freezes());
  EXPECT_TRUE(with({{.pattern = "*", .base = "bf16"}}).freezes());
  EXPECT_FALSE(with({{.pattern = "*", .base = "bf16"}}).has_adapters());
  EXPECT_TRUE(with({{.pattern = "*", .lora = 2}}).has_adapters());
  EXPECT_TRUE(with({{.pattern = "*", .lora = 2}}).freezes());
  HybridTrainerConfig lora = with({});
  EXPECT_FALSE(lora.freezes());
  lora.lora.rank = 4;
  EXPECT_TRUE(lora.freezes() && lora.has_adapters());
}

TEST(PartConfig, RejectsMeaninglessSettings) {
  EXPECT_EQ(only_problem(with({{.pattern = "h.*"}})),
            "parts.h.*: got {}, which has no effect; want a key, such as recompute, or no entry");
  EXPECT_EQ(only_problem(with({{.pattern = "h.*", .lora = 0}})),
            "parts.h.*.lora: got 0, but lora.rank is 0, so the part has no adapters in any case; "
            "leave the key "
            "out");
  EXPECT_EQ(only_problem(with({{.pattern = "h.*", .base = "file"}})).substr(0, 27),
            "parts.h.*.base: got \"file\";");
  EXPECT_EQ(only_problem(with({{.pattern = "a=b", .place = "host"}})),
            "parts.a=b.place: want a pattern without = and ,");
  EXPECT_EQ(only_problem(with({{.pattern = "h.*", .lora = 2}, {.pattern = "h.*", .recompute = 1}})),
            "parts.h.*: the pattern is given twice");
  HybridTrainerConfig twice = with({{.pattern = "h.*", .learning_rate = 0.5}});
  twice.optimizer.groups = {{.match = "h.*", .learning_rate = 0.5}};
  EXPECT_TRUE(twice.problems().empty()) << "as in a run's config.json";
  twice.optimizer.groups[0].momentum = 0.5;
  EXPECT_EQ(only_problem(twice),
            "parts.h.*: optimizer.groups has this pattern too, with other settings; want only one "
            "of the two");
  HybridTrainerConfig chosen = with({{.pattern = "h.*", .place = "host"}});
  chosen.memory.device_map = "auto";
  EXPECT_EQ(only_problem(chosen).substr(0, 53),
            "parts.h.*.place: got host, but memory.device_map is a");
}

}  // namespace
}  // namespace hybrid_trainer
