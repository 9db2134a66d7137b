#include "src/distributed/nccl_api.h"

#include <gtest/gtest.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

namespace hybrid_trainer {
namespace {

template <class Ours, class Theirs>
constexpr bool kSameSize = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

static_assert(kSameSize<nccl::Result, ncclResult_t>);
static_assert(kSameSize<nccl::DataType, ncclDataType_t>);
static_assert(kSameSize<nccl::UniqueId, ncclUniqueId>);

template <class Ours, class... OurArguments, class Theirs, class... TheirArguments>
constexpr bool have_one_call(Ours (*)(OurArguments...), Theirs (*)(TheirArguments...)) {
  if constexpr (sizeof...(OurArguments) != sizeof...(TheirArguments)) {
    return false;
  } else {
    return sizeof(Ours) == sizeof(Theirs) &&
           ((sizeof(OurArguments) == sizeof(TheirArguments)) && ... && true);
  }
}

TEST(NcclApi, ConstantsMatchHeader) {
  EXPECT_EQ(nccl::kSuccess, static_cast<int>(ncclSuccess));
  EXPECT_EQ(nccl::kCudaError, static_cast<int>(ncclUnhandledCudaError));
  EXPECT_EQ(nccl::kSystemError, static_cast<int>(ncclSystemError));
  EXPECT_EQ(nccl::kInternalError, static_cast<int>(ncclInternalError));
  EXPECT_EQ(nccl::kInvalidArgument, static_cast<int>(ncclInvalidArgument));
  EXPECT_EQ(nccl::kInvalidUsage, static_cast<int>(ncclInvalidUsage));
  EXPECT_EQ(nccl::kRemoteError, static_cast<int>(ncclRemoteError));
  EXPECT_EQ(nccl::kInProgress, static_cast<int>(ncclInProgress));
  EXPECT_EQ(nccl::kUint8, static_cast<int>(ncclUint8));
}

TEST(NcclApi, ConfigMatchesHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const nccl::Config ours;
  EXPECT_LE(sizeof ours, sizeof theirs);
  EXPECT_EQ(offsetof(nccl::Config, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(nccl::Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(nccl::Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(nccl::Config, cga_cluster_size), offsetof(ncclConfig_t, cgaClusterSize));
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.cga_cluster_size, theirs.cgaClusterSize);
}

TEST(NcclApi, FunctionsMatchHeader) {
  const nccl::Functions ours;
  EXPECT_TRUE(have_one_call(ours.ncclGetVersion, decltype(&ncclGetVersion){}));
  EXPECT_TRUE(have_one_call(ours.ncclGetUniqueId, decltype(&ncclGetUniqueId){}));
  EXPECT_TRUE(have_one_call(ours.ncclCommInitRankConfig, decltype(&ncclCommInitRankConfig){}));
  EXPECT_TRUE(have_one_call(ours.ncclCommGetAsyncError, decltype(&ncclCommGetAsyncError){}));
  EXPECT_TRUE(have_one_call(ours.ncclCommFinalize, decltype(&ncclCommFinalize){}));
  EXPECT_TRUE(have_one_call(ours.ncclCommDestroy, decltype(&ncclCommDestroy){}));
  EXPECT_TRUE(have_one_call(ours.ncclCommAbort, decltype(&ncclCommAbort){}));
  EXPECT_TRUE(have_one_call(ours.ncclGetErrorString, decltype(&ncclGetErrorString){}));
  EXPECT_TRUE(have_one_call(ours.ncclGetLastError, decltype(&ncclGetLastError){}));
  EXPECT_TRUE(have_one_call(ours.ncclGroupStart, decltype(&ncclGroupStart){}));
  EXPECT_TRUE(have_one_call(ours.ncclGroupEnd, decltype(&ncclGroupEnd){}));
  EXPECT_TRUE(have_one_call(ours.ncclAllGather, decltype(&ncclAllGather){}));
  EXPECT_TRUE(have_one_call(ours.ncclBroadcast, decltype(&ncclBroadcast){}));
  EXPECT_TRUE(have_one_call(ours.ncclSend, decltype(&ncclSend){}));
  EXPECT_TRUE(have_one_call(ours.ncclRecv, decltype(&ncclRecv){}));
}

}  // namespace
}  // namespace hybrid_trainer
#endif
