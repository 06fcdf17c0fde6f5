// SPDX-License-Identifier: Apache-2.0
// How ranks that share a folder meet over NCCL.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace meeting {

/// Ends the program if a call failed.
inline void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}

/// Rank 0's id, by a file that appears whole.
inline ncclUniqueId exchange_id(int rank, const std::string& path) {
  ncclUniqueId id{};
  if (rank == 0) {
    check(ncclGetUniqueId(&id), "make an id");
    const std::string unfinished = path + ".part";
    std::FILE* const file = std::fopen(unfinished.c_str(), "wb");
    if (file == nullptr || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) != 0 ||
        std::rename(unfinished.c_str(), path.c_str()) != 0) {
      std::perror(path.c_str());
      std::exit(1);
    }
    return id;
  }
  constexpr int kTries = 6000;
  for (int i = 0; i < kTries; ++i) {
    if (std::FILE* const file = std::fopen(path.c_str(), "rb")) {
      const bool is_whole = std::fread(&id, sizeof id, 1, file) == 1;
      std::fclose(file);
      if (is_whole) return id;
    }
    usleep(10'000);
  }
  std::fprintf(stderr, "rank %d: rank 0 wrote no id to %s\n", rank, path.c_str());
  std::exit(1);
}

}  // namespace meeting
