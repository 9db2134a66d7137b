#pragma once

#include <climits>
#include <cstddef>

struct ncclComm;
struct CUstream_st;

/// Declarations from nccl.h, to build without NCCL. Tests compare them with an installed nccl.h.

namespace hybrid_trainer::nccl {

enum Result : int {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum DataType : int { kUint8 = 1 };

struct UniqueId {
  char bytes[128];
};

/// Fields of NCCL 2.14. Fields of later versions keep their defaults.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // undefined
};

struct Functions {
  Result (*ncclGetVersion)(int*) = nullptr;
  Result (*ncclGetUniqueId)(UniqueId*) = nullptr;
  Result (*ncclCommInitRankConfig)(ncclComm**, int ranks, UniqueId, int rank, Config*) = nullptr;
  Result (*ncclCommGetAsyncError)(ncclComm*, Result*) = nullptr;
  Result (*ncclCommFinalize)(ncclComm*) = nullptr;
  Result (*ncclCommDestroy)(ncclComm*) = nullptr;
  Result (*ncclCommAbort)(ncclComm*) = nullptr;
  const char* (*ncclGetErrorString)(Result) = nullptr;
  const char* (*ncclGetLastError)(ncclComm*) = nullptr;
  Result (*ncclGroupStart)() = nullptr;
  Result (*ncclGroupEnd)() = nullptr;
  /// The count is the number of elements per rank.
  Result (*ncclAllGather)(const void*, void*, std::size_t, DataType, ncclComm*,
                          CUstream_st*) = nullptr;
  Result (*ncclBroadcast)(const void*, void*, std::size_t, DataType, int root, ncclComm*,
                          CUstream_st*) = nullptr;
  Result (*ncclSend)(const void*, std::size_t, DataType, int peer, ncclComm*,
                     CUstream_st*) = nullptr;
  Result (*ncclRecv)(void*, std::size_t, DataType, int peer, ncclComm*, CUstream_st*) = nullptr;
};

template <class Visitor>
void visit_functions(Functions& functions, Visitor&& visit) {
  visit("ncclGetVersion", functions.ncclGetVersion);
  visit("ncclGetUniqueId", functions.ncclGetUniqueId);
  visit("ncclCommInitRankConfig", functions.ncclCommInitRankConfig);
  visit("ncclCommGetAsyncError", functions.ncclCommGetAsyncError);
  visit("ncclCommFinalize", functions.ncclCommFinalize);
  visit("ncclCommDestroy", functions.ncclCommDestroy);
  visit("ncclCommAbort", functions.ncclCommAbort);
  visit("ncclGetErrorString", functions.ncclGetErrorString);
  visit("ncclGetLastError", functions.ncclGetLastError);
  visit("ncclGroupStart", functions.ncclGroupStart);
  visit("ncclGroupEnd", functions.ncclGroupEnd);
  visit("ncclAllGather", functions.ncclAllGather);
  visit("ncclBroadcast", functions.ncclBroadcast);
  visit("ncclSend", functions.ncclSend);
  visit("ncclRecv", functions.ncclRecv);
}

}  // namespace hybrid_trainer::nccl
