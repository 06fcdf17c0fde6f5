/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_TEXTURE_FETCH_FUNCTIONS_H
#define KANSOKU_SOFTGPU_TEXTURE_FETCH_FUNCTIONS_H
#error "texture_fetch_functions.h: the software GPU has no textures or surfaces"
#endif /* KANSOKU_SOFTGPU_TEXTURE_FETCH_FUNCTIONS_H */
