#include "src/config/placement.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "src/files/config_fields.h"

namespace hybrid_trainer {
namespace {

/// Parses "weights" -> "device/32"; commas separate several.
std::map<std::string, std::string> places_of(const HybridTrainerConfig& config) {
  std::map<std::string, std::string> found;
  for (const Placement& one : placements(config)) {
    std::string& places = found[one.what];
    places += concat(places.empty() ? "" : ",", one.place, "/", one.bits);
  }
  return found;
}

TEST(Placement, DefaultsToDevice) {
  for (const auto& [what, place] : places_of({})) EXPECT_EQ(place, "device/32") << what;
  EXPECT_FALSE(uses_place({}, "host"));
  EXPECT_FALSE(uses_place({}, "file"));
}

TEST(Placement, FollowsConfigKeys) {
  HybridTrainerConfig config;
  config.memory.device_map = "h.0.*=device,h.1.*=host";
  config.memory.weights = "file";
  config.memory.activations = "host";
  config.memory.activation_bits = 8;
  config.optimizer.paged = true;
  config.optimizer.state_bits = 16;
  EXPECT_EQ(places_of(config),
            (std::map<std::string, std::string>{{"weights", "device/32,host/32,file/32"},
                                                {"gradients", "device/32"},
                                                {"optimizer state", "host/16"},
                                                {"activations", "host/8"}}));
  EXPECT_TRUE(uses_place(config, "file"));
  config.memory.gradients = "consume";
  EXPECT_EQ(places_of(config).at("gradients"), "file/32") << "with the weights";
  config.memory = {};
  config.memory.gradients = "consume";
  EXPECT_EQ(places_of(config).at("gradients"), "host/32");
  config.optimizer.paged = false;
  config.optimizer.clip_norm = 0;
  config.divergence.max_skipped_updates = 0;
  config.phases.max_predict_steps = 0;
  EXPECT_EQ(places_of(config).at("gradients"), "device/32") << "each is updated immediately";
}

TEST(Placement, DocumentationUsesExistingKeys) {
  std::ifstream file(std::string(HT_SOURCE_DIR) + "/docs/CONFIG.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string table = placement_markdown();
  EXPECT_NE(text.str().find(table), std::string::npos)
      << "docs/CONFIG.md is outdated: run `build/bin/hybrid config --markdown > docs/CONFIG.md`";
  const std::string all = config_json(HybridTrainerConfig{});
  const std::regex key(R"(`(?:[a-z_]+\.)*([a-z_]+)`)");
  int keys = 0;
  for (std::sregex_iterator found(table.begin(), table.end(), key), end; found != end; ++found) {
    EXPECT_NE(all.find(concat("\"", (*found)[1].str(), "\":")), std::string::npos) << found->str();
    ++keys;
  }
  EXPECT_EQ(keys, 11);
}

}  // namespace
}  // namespace hybrid_trainer
