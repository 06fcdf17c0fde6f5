/* SPDX-License-Identifier: Apache-2.0 */
/* Pretends to be CPython 3.11 and fills its "interpreter" with pointers that lead in circles, to the edges of mappings and
 * nowhere. An observer must survive it. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((aligned(16))) unsigned char _PyRuntime[166688];
unsigned long Py_Version = 0x030b02f0;

static void put(unsigned char* at, size_t offset, const void* pointer) {
  memcpy(at + offset, &pointer, sizeof(pointer));
}

void lie(void) {
  /* The last bytes of a mapping: reads that go on meet unmapped memory. */
  unsigned char* page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page + 4096, 4096);
  static unsigned char interpreter[1024], thread[512], cframe[64], frame[256], code[256];
  put(_PyRuntime, 40, interpreter);
  put(_PyRuntime, 48, interpreter);
  put(interpreter, 0, interpreter); /* next interpreter: itself */
  put(interpreter, 16, thread);
  put(thread, 8, thread); /* next thread: itself */
  put(thread, 16, interpreter);
  put(thread, 56, cframe);
  put(cframe, 8, frame);
  put(frame, 32, code);
  put(frame, 48, frame); /* previous frame: itself */
  put(frame, 56, (void*)0xffffffffffffff00);
  put(code, 112, page + 4090); /* names at the edge of a mapping, with absurd lengths around them */
  put(code, 120, (void*)0x1);
  put(code, 128, page + 4095);
  memset(page + 4000, 0xff, 96);
}
