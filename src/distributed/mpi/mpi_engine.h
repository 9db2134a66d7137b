#pragma once

namespace hybrid_trainer {

/// Interface of the plug-in libhybrid_trainer_mpi: byte messages between ranks, startup and
/// shutdown. All calls come from one thread. int results are 0 or an error code for error_text.
struct MpiEngine {
  static constexpr int kVersion = 1;
  int version;
  int (*start)(int* rank, int* size);
  int (*host_name)(char* name, int bytes);
  /// Starts sending. Sets `request` to a handle for is_done.
  int (*begin_send)(const void* data, int bytes, int peer, void** request);
  int (*begin_receive)(void* data, int bytes, int peer, void** request);
  int (*is_done)(void** request, int* done);
  void (*error_text)(int error, char* text, int bytes);
  int (*finish)();  // waits for all ranks
  void (*abort)(int exit_code);
};

/// The plug-in's only function, with C linkage.
using MpiEngineFunction = const MpiEngine*();
inline constexpr const char* kMpiEngineFunction = "hybrid_trainer_mpi_engine";

}  // namespace hybrid_trainer
