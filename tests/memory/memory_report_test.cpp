#include "hybrid_trainer/memory/memory_report.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(MemoryLine, NamesTheKindsInUse) {
  EXPECT_EQ(memory_line({}), "0 B");
  const auto pool = MemoryPool::create("device");
  const Buffer weights = pool->allocate(3072, MemoryKind::kParameters);
  const Buffer state = pool->allocate(6400, MemoryKind::kOptimizerState);
  const std::string line = memory_line(pool->use());
  EXPECT_NE(line.find("(parameters 3.07 kB, optimizer_state "), std::string::npos) << line;
  EXPECT_EQ(line.find("activations"), std::string::npos) << line;
}

TEST(MemoryTable, HasARowForEachKindEverUsedAndAColumnPairForEachPool) {
  const auto device = MemoryPool::create("device"), host = MemoryPool::create("host");
  const Buffer weights = device->allocate(3072, MemoryKind::kParameters);
  { const Buffer gone = host->allocate(1024, MemoryKind::kSnapshot); }
  EXPECT_EQ(memory_table({device, host}),
            "memory                device now     device peak        host now       host peak\n"
            "parameters               3.07 kB         3.07 kB             0 B             0 B\n"
            "snapshot                     0 B             0 B             0 B         1.02 kB\n"
            "total                    3.07 kB         3.07 kB             0 B         1.02 kB\n");
}

}  // namespace
}  // namespace hybrid_trainer
