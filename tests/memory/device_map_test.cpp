#include "hybrid_trainer/memory/memory_places.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

DeviceMap map_of(const std::string& text, const std::string& otherwise = "device") {
  MemoryConfig config;
  config.device_map = text;
  config.weights = otherwise;
  return DeviceMap(config);
}

TEST(DeviceMap, FirstMatchingPatternDecidesPlace) {
  const DeviceMap map = map_of("h.0.*=device,h.*.mlp.*=file,h.*=host", "host");
  EXPECT_EQ(map.place_of("h.0.mlp.c_fc.weight"), "device");
  EXPECT_EQ(map.place_of("h.1.mlp.c_fc.weight"), "file");
  EXPECT_EQ(map.place_of("h.1.attn.c_attn.weight"), "host");
  EXPECT_EQ(map.place_of("wte.weight"), "host");
  EXPECT_EQ(map_of("").place_of("wte.weight"), "device");
}

TEST(DeviceMap, ReportsUsedPlaces) {
  const DeviceMap map = map_of("h.0.*=host");
  EXPECT_TRUE(map.uses("host"));
  EXPECT_TRUE(map.uses("device"));
  EXPECT_FALSE(map.uses("file"));
  EXPECT_EQ(map.farthest(), "host");
  EXPECT_EQ(map_of("*=device", "file").farthest(), "device");
  EXPECT_EQ(map_of("auto", "file").farthest(), "file");
}

TEST(DeviceMap, ReportsUnmatchedPatterns) {
  const DeviceMap map = map_of("h.0.*=host,h.*.mlp.exprts.*=file,wte*=host");
  EXPECT_EQ(map.unmatched({"h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.weight", "wte.weight"}),
            std::vector<std::string>{"h.*.mlp.exprts.*"});
  EXPECT_TRUE(map_of("").unmatched({"wte.weight"}).empty());
}

TEST(DeviceMap, RefusesMalformedMaps) {
  MemoryConfig config;
  for (const char* bad : {"h.0", "=host", "h.*=disk", "h.*=host,", "h.*=host,,*=file"}) {
    config.device_map = bad;
    std::vector<std::string> problems;
    collect_device_map_problems(config, problems);
    EXPECT_EQ(problems.size(), 1u) << bad;
    EXPECT_THROW(DeviceMap{config}, ConfigError) << bad;
  }
}

}  // namespace
}  // namespace hybrid_trainer
