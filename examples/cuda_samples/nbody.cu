// SPDX-License-Identifier: Apache-2.0
// Bodies that attract each other, for some steps of time. Each thread moves one body; a block reads
// the others tile by tile. The host does the same in double precision, and momentum is kept.
#include <cmath>

#include "sample.h"

constexpr int kThreads = 64, kBodies = 320, kSteps = 4;
constexpr float kStep = 0.01F, kSoftening = 0.05F;

// x, y, z and mass.
__global__ void move_bodies(const float4* bodies, float4* moved, float4* speeds) {
  __shared__ float4 tile[kThreads];
  const int me = blockIdx.x * kThreads + threadIdx.x;
  const float4 body = bodies[me];
  float x = 0.0F, y = 0.0F, z = 0.0F;
  for (int first = 0; first < kBodies; first += kThreads) {
    tile[threadIdx.x] = bodies[first + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < kThreads; ++i) {
      const float dx = tile[i].x - body.x, dy = tile[i].y - body.y, dz = tile[i].z - body.z;
      const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + kSoftening);
      const float pull = tile[i].w * inverse * inverse * inverse;
      x += dx * pull;
      y += dy * pull;
      z += dz * pull;
    }
    __syncthreads();
  }
  float4 speed = speeds[me];
  speed.x += x * kStep;
  speed.y += y * kStep;
  speed.z += z * kStep;
  speeds[me] = speed;
  moved[me] = make_float4(body.x + speed.x * kStep, body.y + speed.y * kStep,
                          body.z + speed.z * kStep, body.w);
}

struct Body {
  double place[3], mass, speed[3];
};
void move_on_host(std::vector<Body>& bodies) {
  std::vector<Body> moved = bodies;
  for (Body& body : moved) {
    for (const Body& other : bodies) {
      double d[3], square = kSoftening;
      for (int k = 0; k < 3; ++k) {
        d[k] = other.place[k] - body.place[k];
        square += d[k] * d[k];
      }
      const double pull = other.mass / (square * std::sqrt(square));
      for (int k = 0; k < 3; ++k)
        body.speed[k] += d[k] * pull * kStep;
    }
  }
  for (Body& body : moved)
    for (int k = 0; k < 3; ++k)
      body.place[k] += body.speed[k] * kStep;
  bodies = moved;
}

int main() {
  const std::vector<float> random = numbers(4 * kBodies);
  std::vector<float4> bodies(kBodies), still(kBodies, make_float4(0, 0, 0, 0));
  std::vector<Body> on_host(kBodies);
  for (int i = 0; i < kBodies; ++i) {
    const float* const r = &random[4 * i];
    bodies[i] = make_float4(r[0] * 2 - 1, r[1] * 2 - 1, r[2] * 2 - 1, 0.1F + r[3]);
    on_host[i] = {{bodies[i].x, bodies[i].y, bodies[i].z}, bodies[i].w, {0, 0, 0}};
  }
  float4* places[2] = {upload(bodies), upload(bodies)};
  float4* speeds = upload(still);
  for (int step = 0; step < kSteps; ++step) {
    move_bodies<<<kBodies / kThreads, kThreads>>>(places[step % 2], places[1 - step % 2], speeds);
    CHECK(cudaGetLastError());
    move_on_host(on_host);
  }
  const std::vector<float4> got = download(places[kSteps % 2], kBodies);
  const std::vector<float4> got_speeds = download(speeds, kBodies);
  double farthest = 0, momentum = 0, moved = 0;
  for (int i = 0; i < kBodies; ++i) {
    const double there[3] = {got[i].x, got[i].y, got[i].z};
    for (int k = 0; k < 3; ++k)
      farthest = std::fmax(farthest, std::fabs(there[k] - on_host[i].place[k]));
    momentum += static_cast<double>(got_speeds[i].x) * bodies[i].w;
    moved = std::fmax(moved, std::fabs(there[0] - bodies[i].x));
  }
  const bool is_right = farthest < 1e-5 && std::fabs(momentum) < 1e-2 && moved > 1e-2;
  if (!is_right) std::printf("  off by %g, momentum %g, moved by %g\n", farthest, momentum, moved);
  for (float4* array : {places[0], places[1], speeds})
    CHECK(cudaFree(array));
  return finish("nbody", is_right);
}
