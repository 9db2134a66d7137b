#include "src/core/profile.h"

#include <gtest/gtest.h>

#include <thread>

namespace hybrid_trainer {
namespace {

void work_for_a_millisecond() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TEST(Profile, CountsKernelsByWorkAndPart) {
  Profile profile;
  Stream stream(MemoryPool::create("device"));
  stream.set_profile(&profile);
  {
    const StepPartTimer part(stream, StepPart::kForward);
    const KernelTimer kernel(stream, Work::kProduct);
    work_for_a_millisecond();
  }
  {
    const StepPartTimer part(stream, StepPart::kBackward);
    for (int i = 0; i < 2; ++i) {
      const KernelTimer kernel(stream, Work::kProduct);
      work_for_a_millisecond();
    }
  }
  EXPECT_EQ(profile.of(StepPart::kForward, Work::kProduct).calls, 1);
  EXPECT_EQ(profile.of(StepPart::kBackward, Work::kProduct).calls, 2);
  EXPECT_EQ(profile.of(Work::kProduct).calls, 3);
  EXPECT_GE(profile.of(Work::kProduct).seconds, 3e-3);
  EXPECT_GE(profile.seconds_of(StepPart::kBackward), 2e-3);
  EXPECT_EQ(profile.of(Work::kLoss).calls, 0);
  profile.clear();
  EXPECT_EQ(profile.of(Work::kProduct).calls, 0);
}

TEST(Profile, OuterPartExcludesTimeOfInnerPart) {
  Profile profile;
  Stream stream(MemoryPool::create("device"));
  stream.set_profile(&profile);
  {
    const StepPartTimer outer(stream, StepPart::kBackward);
    const StepPartTimer inner(stream, StepPart::kUpdate);
    for (int i = 0; i < 20; ++i) work_for_a_millisecond();
  }
  EXPECT_GE(profile.seconds_of(StepPart::kUpdate), 20e-3);
  EXPECT_LT(profile.seconds_of(StepPart::kBackward), 10e-3);
}

TEST(Profile, CountsNothingAfterDetach) {
  Profile profile;
  Stream stream(MemoryPool::create("device"));
  stream.set_profile(&profile);
  const Stream same(stream, MemoryPool::create("other"));
  EXPECT_EQ(same.profile(), &profile);
  stream.set_profile(nullptr);
  { const KernelTimer kernel(stream, Work::kProduct); }
  EXPECT_EQ(profile.of(Work::kProduct).calls, 0);
}

}  // namespace
}  // namespace hybrid_trainer
