/* Writes an RGB picture as a PNG file without any library: the pixels go into "stored" blocks, which deflate allows.
 * Returns 0, or -1 with errno set. */
#ifndef EXAMPLES_PNG_H
#define EXAMPLES_PNG_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct png_out {
    FILE *file;
    uint32_t crc;
};

static uint32_t png_crc_byte(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++)
        crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
    return crc;
}

static void png_put(struct png_out *out, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++)
        out->crc = png_crc_byte(out->crc, bytes[i]);
    fwrite(data, 1, len, out->file);
}

static void png_put_u32(struct png_out *out, uint32_t value)
{
    unsigned char be[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16), (unsigned char)(value >> 8),
                           (unsigned char)value};
    png_put(out, be, 4);
}

static void png_begin(struct png_out *out, const char kind[4], uint32_t len)
{
    png_put_u32(out, len);
    out->crc = 0xFFFFFFFFu;
    png_put(out, kind, 4);
}

static void png_end(struct png_out *out)
{
    png_put_u32(out, ~out->crc);
}

static int png_write(const char *path, int width, int height, const unsigned char *rgb)
{
    enum { BLOCK_MAX = 65535 }; /* the most bytes a stored block holds */
    size_t row = 1 + 3 * (size_t)width, total = row * (size_t)height;
    size_t blocks = (total + BLOCK_MAX - 1) / BLOCK_MAX;
    unsigned char *raw = malloc(total);
    struct png_out out = {fopen(path, "wb"), 0};
    if (!raw || !out.file) {
        free(raw);
        if (out.file)
            fclose(out.file);
        return -1;
    }
    uint32_t a = 1, b = 0; /* Adler-32 of the filtered rows */
    for (int y = 0; y < height; y++) {
        raw[row * (size_t)y] = 0; /* filter: none */
        memcpy(raw + row * (size_t)y + 1, rgb + 3 * (size_t)width * (size_t)y, row - 1);
    }
    for (size_t i = 0; i < total; i++) {
        a = (a + raw[i]) % 65521;
        b = (b + a) % 65521;
    }
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, out.file);
    png_begin(&out, "IHDR", 13);
    png_put_u32(&out, (uint32_t)width);
    png_put_u32(&out, (uint32_t)height);
    png_put(&out, "\x08\x02\0\0\0", 5); /* 8 bits, RGB, defaults */
    png_end(&out);
    png_begin(&out, "IDAT", (uint32_t)(2 + 5 * blocks + total + 4));
    png_put(&out, "\x78\x01", 2);
    for (size_t at = 0; at < total; at += BLOCK_MAX) {
        size_t len = total - at < BLOCK_MAX ? total - at : BLOCK_MAX;
        unsigned char head[5] = {at + len == total, (unsigned char)len, (unsigned char)(len >> 8),
                                 (unsigned char)~len, (unsigned char)(~len >> 8)};
        png_put(&out, head, 5);
        png_put(&out, raw + at, len);
    }
    png_put_u32(&out, b << 16 | a);
    png_end(&out);
    png_begin(&out, "IEND", 0);
    png_end(&out);
    free(raw);
    int bad = ferror(out.file);
    return fclose(out.file) || bad ? -1 : 0;
}

#endif
