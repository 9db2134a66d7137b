#include "hybrid_trainer/memory/memory_report.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(BytesText, PicksAUnitThatReadsWell) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1500), "1.5 kB");
  EXPECT_EQ(bytes_text(497759232), "497.8 MB");
  EXPECT_EQ(bytes_text(999960000), "1.00 GB");
  EXPECT_EQ(bytes_text(2040000000), "2.04 GB");
  EXPECT_EQ(bytes_text(std::size_t{5} * 1000 * 1000 * 1000 * 1000 * 1000), "5000.00 TB");
}

TEST(MemoryLine, NamesTheKindsInUse) {
  EXPECT_EQ(memory_line({}), "0 B");
  const auto pool = MemoryPool::create("device");
  const Buffer weights = pool->allocate(3072, MemoryKind::kParameters);
  const Buffer state = pool->allocate(6400, MemoryKind::kOptimizerState);
  const std::string line = memory_line(pool->use());
  EXPECT_NE(line.find("(parameters 3.1 kB, optimizer_state "), std::string::npos) << line;
  EXPECT_EQ(line.find("activations"), std::string::npos) << line;
}

TEST(MemoryTable, HasARowForEachKindEverUsedAndAColumnPairForEachPool) {
  const auto device = MemoryPool::create("device"), host = MemoryPool::create("host");
  const Buffer weights = device->allocate(3072, MemoryKind::kParameters);
  { const Buffer gone = host->allocate(1024, MemoryKind::kSnapshot); }
  EXPECT_EQ(memory_table({device, host}),
            "memory                device now     device peak        host now       host peak\n"
            "parameters                3.1 kB          3.1 kB             0 B             0 B\n"
            "snapshot                     0 B             0 B             0 B          1.0 kB\n"
            "total                     3.1 kB          3.1 kB             0 B          1.0 kB\n");
}

}  // namespace
}  // namespace hybrid_trainer
