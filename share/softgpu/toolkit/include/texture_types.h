/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_TEXTURE_TYPES_H
#define KANSOKU_SOFTGPU_TEXTURE_TYPES_H
#error "texture_types.h: the software GPU has no textures or surfaces"
#endif /* KANSOKU_SOFTGPU_TEXTURE_TYPES_H */
