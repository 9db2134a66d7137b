#include "hybrid_trainer/memory/memory_places.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {
namespace {

TEST(MemoryPlaces, CreateFilePoolOnFirstUse) {
  const Stream device(MemoryPool::create("device"));
  MemoryPlaces places({}, device, MemoryPool::create("host"));
  EXPECT_EQ(places.at("device").pool(), device.pool());
  EXPECT_EQ(places.at("host").pool(), places.host().pool());
  EXPECT_EQ(places.file_use().max_taken, 0u);
  const Stream& file = places.at("file");
  EXPECT_EQ(&places.at("file"), &file);
  const Tensor tensor = Tensor::zeros({5000}, DType::kF32, MemoryKind::kOptimizerState, file);
  EXPECT_EQ(places.file_use().max_taken, 20480u);
  EXPECT_EQ(device.pool()->use().live_total, 0u);
}

TEST(MemoryPlaces, ReportUnusableFolder) {
  const Stream device(MemoryPool::create("device"));
  MemoryConfig config;
  config.folder = "/nonexistent/folder";
  MemoryPlaces places(config, device, MemoryPool::create("host"));
  try {
    places.at("file");
    FAIL() << "no error";
  } catch (const CannotCreate& error) {
    EXPECT_NE(std::string(error.what()).find("memory.folder: cannot create a file in /nonexistent"),
              std::string::npos)
        << error.what();
  }
}

TEST(MemoryPlaces, SimulatedDeviceNeedsNoFolder) {
  const Stream device(MemoryPool::create("device", {}, simulated_memory({})));
  MemoryConfig config;
  config.folder = "/nonexistent/folder";
  MemoryPlaces places(config, device, MemoryPool::create("host", {}, simulated_memory({})));
  const Tensor tensor =
      Tensor::empty({5000}, DType::kF32, MemoryKind::kOptimizerState, places.at("file"));
  EXPECT_EQ(places.file_use().max_taken, 20480u);
}

}  // namespace
}  // namespace hybrid_trainer
